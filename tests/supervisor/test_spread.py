"""The portal as separate processes, each with one part of the work: two web servers, rounds, launches and the rest."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.config.layout import Layout
from tests.live_portal import _NEW_TOKEN, DEFAULTS, GENTLE
from tests.supervisor.running import ROOT, free_port, portal_env

pytestmark = [pytest.mark.whole]
CELERY = ("celery", "-A", "portal.celery")


class Spread:
    """Processes by name; they share the databases, and the machine whose GPUs there are."""

    def __init__(self, data: Path, services: Layout) -> None:
        self.ports = {"web one": free_port(), "web two": free_port()}
        self.logs = data.parent / f"{data.name}-logs"
        self.logs.mkdir()
        self.env = portal_env(
            data,
            **DEFAULTS,
            DATABASE_URL=services.owner_database_url,
            REDIS_URL=f"{services.redis_url}?db=5",
            EVENKEEL_API_URL=f"http://127.0.0.1:{self.ports['web one']}",
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.manage("migrate", "--no-input")
        self.manage("bootstrap")
        self.token = self.manage("shell", "-v", "0", "-c", _NEW_TOKEN).split()[-1]

    def manage(self, *words: str) -> str:
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=180, check=True)
        return done.stdout

    def start(self, name: str) -> None:
        if name in self.ports:
            words = ["portal.web"]
        elif name == "beat":
            words = [*CELERY, "beat", "--schedule", str(self.logs / "schedule"), "--pidfile", ""]
        else:
            words = [*CELERY, "worker", "-Q", name, "--concurrency", "1", "--hostname", f"{name.split(',')[0]}@%h"]
            words += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        env = self.env | ({"EVENKEEL_PORT": str(self.ports[name])} if name in self.ports else {})
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait(30)

    def api(self, web: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        base = f"http://127.0.0.1:{self.ports[web]}/api/v1/"
        return httpx.Client(base_url=base, headers=headers, timeout=15, trust_env=False)

    def wait(self, what: str, condition: Callable[[], Any], timeout_s: float = 120) -> Any:
        give_up_at = time.monotonic() + timeout_s
        while time.monotonic() < give_up_at:
            with contextlib.suppress(httpx.HTTPError):
                if found := condition():
                    return found
            time.sleep(0.2)
        tails = "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in self.logs.glob("*.log"))
        raise AssertionError(f"waited {timeout_s} s for {what}\n{tails}")

    def state(self, web: str, number: int) -> str:
        with self.api(web) as api:
            return str(api.get(f"jobs/{number}").raise_for_status().json()["state"])


@pytest.fixture
def spread(data: Path, embedded_services: Layout) -> Iterator[Spread]:
    spread = Spread(data, embedded_services)
    try:
        for name in ("web one", "web two", "rounds", "commands", "live,celery", "beat"):
            spread.start(name)
        yield spread
    finally:
        spread.end()


def test_each_part_of_the_portal_is_a_process_that_may_die(spread: Spread) -> None:
    def train(steps: int) -> int:
        with spread.api("web one") as api:
            body = {"project": "default", **GENTLE, "total_steps": steps}
            return int(api.post("jobs", json=body).raise_for_status().json()["number"])

    first = spread.wait("the first server", lambda: train(400))
    spread.wait("training, seen by the other server", lambda: spread.state("web two", first) == "running")
    spread.kill("rounds")
    spread.kill("web two")
    second = train(20)
    time.sleep(3.0)
    assert spread.state("web one", second) == "queued"  # nobody decides, and nothing is lost
    spread.start("rounds")
    spread.start("web two")
    spread.wait("the first to end", lambda: spread.state("web two", first) == "succeeded")
    spread.wait("the second to end", lambda: spread.state("web two", second) == "succeeded")
    with spread.api("web two") as api:
        assert api.get(f"jobs/{first}").raise_for_status().json()["step"] == 400
