"""`manage.py up` as a process of its own, over a data directory of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.ordinary_account import starts_as

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def portal_env(data: Path, **extra: str) -> dict[str, str]:
    """The environment of a portal over `data`, without what the test session set for itself."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("EVENKEEL_") and name not in {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"}
    }
    return {**inherited, "EVENKEEL_DATA": str(data), "EVENKEEL_VIRTUAL_ACCELERATORS": "titan_xp:2", **extra}


def overriding(**constants: Any) -> dict[str, str]:
    """For the environment of a portal whose settings have other constants; see tests/overridden_settings.py."""
    return {"DJANGO_SETTINGS_MODULE": "tests.overridden_settings", "OVERRIDES": json.dumps(constants)}


def unlimited() -> dict[str, str]:
    """For the environment of a portal that counts no requests."""
    return overriding(RATES_PER_MINUTE={"user": 0, "anonymous": 0, "run": 0})


class RunningPortal:
    def __init__(self, data: Path, **env: str) -> None:
        self.data = data
        self.port = int(env.setdefault("EVENKEEL_PORT", str(free_port())))
        self.env = portal_env(data, **env)
        self.output = data.parent / f"{data.name}.out"
        self.process: subprocess.Popen[bytes] | None = None
        self.account: int | str | None = None  # whose processes the portal's are, if not ours

    def start(self, timeout_s: float = 60) -> "RunningPortal":
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **starts_as(self.account),
            )
        self.wait_until_ready(timeout_s, text="Ready after")
        return self

    def said(self) -> str:
        return self.output.read_text()

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_until_ready(self, timeout_s: float, text: str = "") -> float:
        """Seconds until the portal answers (and has said `text`)."""
        began = time.monotonic()
        while not (self.ready() and text in self.said()):
            assert self.process is not None
            assert self.process.poll() is None, f"up ended:\n{self.said()}"
            assert time.monotonic() - began < timeout_s, f"not ready in {timeout_s} s:\n{self.said()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def pid(self, name: str) -> int:
        """Of web, worker, beat, postgres or valkey."""
        notes = {"postgres": "postgres/postmaster.pid", "valkey": "valkey/valkey.pid"}
        return int((self.data / notes.get(name, f"run/{name}.pid")).read_text().split()[0])

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    def stop(self, timeout_s: float = 40) -> int:
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self.output.unlink(missing_ok=True)
