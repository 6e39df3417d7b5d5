"""A whole portal as users have it, with what tests need to use and to hurt it."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg2

from portal.supervisor.layout import Layout
from tests.supervisor.running import ROOT, RunningPortal

_SECRETS = re.compile(r"Sign in as (\S+) with the password (\S+) ")
#: Six emulated accelerators, and everything fast.
DEFAULTS = {
    "EVENKEEL_VIRTUAL_ACCELERATORS": "titan_xp:6",
    "EVENKEEL_SPEEDUP": "20",
    "EVENKEEL_REPORT_INTERVAL_S": "1",
    "EVENKEEL_ROUND_INTERVAL_S": "1",
}


class LivePortal(RunningPortal):
    def __init__(self, data: Path, **environment: str) -> None:
        super().__init__(data, **(DEFAULTS | environment))
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.admin_email = self.admin_password = ""
        self._token = ""

    def start(self, timeout_s: float = 120) -> LivePortal:
        super().start(timeout_s)
        if found := _SECRETS.search(self.said()):
            self.admin_email, self.admin_password = found.groups()
        return self

    def interrupt(self) -> None:
        """As Ctrl-C does; training goes on."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def end(self) -> None:
        """Stop, and end whatever still runs in the data directory."""
        self.interrupt()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.data) or str(self.data) in " ".join(process.cmdline()):
                    process.kill()

    def manage(self, *words: str) -> str:
        """What a management command prints."""
        command = [sys.executable, "manage.py", *words]
        return subprocess.run(
            command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=180, check=True
        ).stdout

    @property
    def token(self) -> str:
        if not self._token:
            code = (
                "from accounts.models import User; from accounts.tokens import ALL_SCOPES, create_token; "
                "print(create_token(user=User.objects.get(is_superuser=True), name='tests', scopes=ALL_SCOPES)[1])"
            )
            self._token = self.manage("shell", "-v", "0", "-c", code).split()[-1]
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
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-2500:]}" for p in parts if p.exists())

    def database_url(self) -> str:
        return Layout(self.data).database_url

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database has, read by a connection of the test's own."""
        url = self.database_url()
        with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())


@contextlib.contextmanager
def running_portal(**environment: str) -> Iterator[LivePortal]:
    data = Path(tempfile.mkdtemp(prefix="evenkeel-live-"))
    data.chmod(0o755)
    portal = LivePortal(data, **environment)
    try:
        yield portal.start()
    finally:
        portal.end()
        shutil.rmtree(data, ignore_errors=True)
