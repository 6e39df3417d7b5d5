"""A whole portal as users have it, with what tests need to use and to hurt it."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import psutil
import psycopg2

from portal.config.layout import Layout
from portal.supervisor.postgres import Postgres
from tests.ordinary_account import hand_over, ordinary_account, starts_as
from tests.supervisor.running import ROOT, RunningPortal

_SECRETS = re.compile(r"Sign in as (\S+) with the password (\S+) ")
_NEW_TOKEN = (
    "from accounts.models import User; from accounts.tokens import ALL_SCOPES, create_token; "
    "print(create_token(user=User.objects.get(is_superuser=True), name='tests', scopes=ALL_SCOPES)[1])"
)
#: Six emulated accelerators, and everything fast.
DEFAULTS = {
    "EVENKEEL_VIRTUAL_ACCELERATORS": "titan_xp:6",
    "EVENKEEL_SPEEDUP": "20",
    "EVENKEEL_REPORT_INTERVAL_S": "1",
    "EVENKEEL_SAMPLE_INTERVAL_S": "1",
    "EVENKEEL_ROUND_INTERVAL_S": "1",
    "EVENKEEL_RUN_NETWORK": "machine",  # programs of tests reach servers of tests, on loopback
}

#: Keys of a job that trains at a pace of its own, and so leaves the machine to others.
GENTLE = {
    "model_type": "digits_mlp",
    "batch_size": 60,
    "throughput": {"titan_xp": [0.4, 0.7, 0.85, 0.9, 0.95, 1.0]},
    "checkpoint": {"every_steps": 50},
}


class LivePortal(RunningPortal):
    def __init__(self, data: Path, **environment: str) -> None:
        super().__init__(data, **(DEFAULTS | environment))
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.admin_email = self.admin_password = ""
        self.files = data  # below it lie `jobs/`
        self._token = ""

    def belong_to(self, account: str) -> None:
        """Before the start: its processes and files are the account's, and the account has a home of its own there."""
        self.account = account
        self.env |= {"HOME": str(self.data), "USER": account, "LOGNAME": account}
        subprocess.run(["chown", "-R", f"{account}:{account}", str(self.data)], check=True, timeout=60)

    def begin_as(self, prepared: Prepared) -> None:
        subprocess.run(["cp", "-a", f"{prepared.data}/.", str(self.data)], timeout=60, check=True)
        self.admin_email, self.admin_password, self._token = prepared.email, prepared.password, prepared.token

    def start(self, timeout_s: float = 120) -> LivePortal:
        super().start(timeout_s)
        if not self.admin_email and (found := _SECRETS.search(self.said())):
            self.admin_email, self.admin_password = found.groups()
        return self

    def interrupt(self) -> None:
        """As Ctrl-C does; training goes on."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def end(self) -> None:
        """At once, with whatever still runs in the data directory; PostgreSQL is let give back its shared memory."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
        with contextlib.suppress(OSError, psutil.Error):
            server = psutil.Process(self.pid("postgres"))
            server.send_signal(signal.SIGQUIT)
            server.wait(10)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._owns(process):
                    process.kill()

    def kill_all(self, *words: str) -> None:
        """All that is the portal's with SIGKILL, and whatever has these words in its command; not what an engine
        started. PostgreSQL keeps shared memory: it is found again and goes on."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        ours = [top, *top.children(recursive=True)]
        ours += [
            one for one in psutil.process_iter(["cmdline"]) if words and {*words} <= {*(one.info["cmdline"] or ())}
        ]
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "postgres" not in process.name():
                    process.kill()
        self.process.wait(60)

    def _owns(self, process: psutil.Process) -> bool:
        started = process.environ().get("EVENKEEL_DATA") == str(self.data) or str(self.data) in process.cmdline()
        return started or Path(process.cwd()).is_relative_to(self.data)

    def manage(self, *words: str) -> str:
        """What a management command prints."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=400,
            check=False, **starts_as(self.account),
        )  # fmt: skip

    def examined(self) -> str:
        """What doctor says, with which all is well; a worker that is at work may not answer it in time."""
        done = self.run("doctor")
        wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
        assert done.returncode == bool(wrong), done.stdout + done.stderr
        assert not [line for line in wrong if not line.startswith("WRONG queues")], done.stdout
        return done.stdout

    def manage_anyhow(self, *words: str) -> str:
        """What a command says, however it ends."""
        done = self.run(*words)
        return done.stdout + done.stderr

    @property
    def token(self) -> str:
        if not self._token:
            self._token = self.manage("shell", "-v", "0", "-c", _NEW_TOKEN).split()[-1]
        return self._token

    def api(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=f"{self.base_url}/api/v1/", headers=headers, timeout=15, trust_env=False)

    def submit(self, **keys: Any) -> dict[str, Any]:
        body = {"project": "default", "model_type": "digits_mlp", "total_steps": 100} | keys
        with self.api() as api:
            answer = api.post("jobs", json=body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def job(self, number: int) -> dict[str, Any]:
        with self.api() as api:
            return dict(api.get(f"jobs/{number}").raise_for_status().json())

    def wait_for(self, what: str, condition: Callable[[], Any], timeout_s: float = 90) -> Any:
        """Poll until `condition` answers; a portal that is being hurt may fail to, for a while."""
        give_up_at = time.monotonic() + timeout_s
        while time.monotonic() < give_up_at:
            with contextlib.suppress(httpx.HTTPError, psycopg2.Error, psutil.NoSuchProcess):
                if answer := condition():
                    return answer
            time.sleep(0.2)
        raise AssertionError(f"waited {timeout_s} s for {what}\n{self.logs()}")

    def wait_state(self, number: int, *states: str, timeout_s: float = 90) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            job = self.job(number)
            return job if job["state"] in states else None

        return dict(self.wait_for(f"#{number} to be {' or '.join(states)}", there, timeout_s))

    def logs(self) -> str:
        parts = [self.output, *sorted((self.data / "logs").glob("*.log"))]
        said = [f"--- {p.name}\n{p.read_text(errors='replace')[-2500:]}" for p in parts if p.exists()]
        return "\n".join([*said, *self.says_of_jobs()])

    def says_of_jobs(self) -> Iterator[str]:
        """What explains most of what a test waited for in vain."""
        with contextlib.suppress(httpx.HTTPError), self.api() as api:
            for job in api.get("jobs?limit=20").raise_for_status().json()["results"]:
                holds = ",".join(sorted({gpu["node"] for gpu in (job["allocation"] or {}).get("gpus", ())}))
                yield f"--- #{job['number']} {job['state']} on {holds or 'no node'}: {job['reason']['text']}"
            for node in api.get("nodes").raise_for_status().json():
                states = [gpu["state"] for gpu in node["accelerators"]]
                yield f"--- {node['name']}: {states} {node.get('state')} {node.get('taken')}"

    def database_url(self) -> str:
        return Layout(self.data).database_url

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database has, read by a connection of the test's own."""
        url = self.database_url()
        with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())


@dataclass(frozen=True)
class Prepared:
    """A data directory with a migrated database and an administrator, to begin from."""

    data: Path
    email: str
    password: str
    token: str


@functools.cache
def prepared() -> Prepared:
    """Made once for all processes that test: most of what a first start takes; tests/supervisor has the whole of it."""
    if "EVENKEEL_TEST_ROOT" in os.environ:
        root = Path(os.environ["EVENKEEL_TEST_ROOT"])
    else:
        root = _new_directory()
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    note, data = root / "prepared.json", root / "prepared"
    with (root / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            shutil.rmtree(data, ignore_errors=True)  # of one who did not come to the end
            note.write_text(json.dumps(_prepare(data)))
    return Prepared(data, **json.loads(note.read_text()))


def _prepare(data: Path) -> dict[str, str]:
    data.mkdir()
    layout = Layout(data)
    layout.prepare()
    server = Postgres(layout, durable=False)
    server.start()
    try:
        portal = LivePortal(data)
        portal.manage("migrate", "-v", "0")
        account = json.loads(portal.manage("bootstrap", "--print-json", "--admin-email", "admin@evenkeel.local"))
        return {"email": account["email"], "password": account["password"], "token": portal.token}
    finally:
        server.stop()


def _new_directory(place: Path | None = None, account: int | None = None) -> Path:
    data = Path(tempfile.mkdtemp(prefix="evenkeel-live-", dir=place))
    data.chmod(0o755)
    hand_over(data, account)
    return data


@contextlib.contextmanager
def running_portal(account: str | None = None, **environment: str) -> Iterator[LivePortal]:
    """`account`: as which it runs, if not as ours."""
    data = _new_directory()
    portal = LivePortal(data, **environment)
    try:
        portal.begin_as(prepared())
        if account:
            portal.belong_to(account)
        yield portal.start()
    finally:
        portal.end()
        portal.output.unlink(missing_ok=True)
        shutil.rmtree(data, ignore_errors=True)


class Nodes(Protocol):
    """A Slurm or a Ray whose nodes are this machine."""

    @property
    def head_only(self) -> Path: ...

    @property
    def hides(self) -> bool: ...


@contextlib.contextmanager
def engine_portal(nodes: Nodes, clusters: str = "", **environment: str) -> Iterator[LivePortal]:
    """On Slurm, Ray or both: as an ordinary account, its data where the nodes do not look, and for jobs a directory of
    their own. `clusters`: what EVENKEEL_CLUSTERS shall hold, with `{files}` for that directory."""
    account = ordinary_account()
    data, files = _new_directory(nodes.head_only, account), _new_directory(account=account)
    shared = {"EVENKEEL_SHARED_DIR": str(files)}
    if clusters:
        (files / "clusters.yaml").write_text(clusters.format(files=files))
        environment["EVENKEEL_CLUSTERS"] = str(files / "clusters.yaml")
    portal = LivePortal(data, **{"EVENKEEL_VIRTUAL_ACCELERATORS": ""} | shared | environment)
    portal.account, portal.files = account, files
    portal.env |= {"HOME": str(data)}
    try:
        portal.begin_as(prepared())
        hand_over(data, account)
        yield portal.start()
    finally:
        portal.end()
        portal.output.unlink(missing_ok=True)
        for place in (data, files):
            shutil.rmtree(place, ignore_errors=True)
