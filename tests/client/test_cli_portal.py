"""The command line against the portal itself: from a password to a finished job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_portal import LivePortal, running_portal


@pytest.fixture
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


def test_from_login_to_a_finished_job(live_portal: LivePortal, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENKEEL_")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)

    def evenkeel(*arguments: str, stdin: str = "", code: int = 0) -> str:
        command = [sys.executable, "-m", "evenkeel.cli.main", *arguments]
        done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=150)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    person = ("--email", live_portal.admin_email, "--password-stdin")
    evenkeel("login", live_portal.base_url, *person, stdin=f"{live_portal.admin_password}\n")
    submit = ("submit", "--model", "digits_mlp", "--gpus", "1", "--idempotency-key", "one", "--name", "by hand")
    said = evenkeel(*submit, "--steps", "60", "--wait", "--timeout", "120")
    assert "succeeded at step 60/60" in said
    again = json.loads(evenkeel(*submit, "--steps", "60", "--output", "json"))
    number = str(again["number"])
    evenkeel(*submit, "--steps", "61", code=1)
    assert "by hand" in evenkeel("ls", "--search", "by hand")
    assert "succeeded" in evenkeel("show", number)
    assert "step 60 of 60" in evenkeel("logs", number, "-f")
    assert "total_steps" in evenkeel("submit", "--model", "digits_mlp", code=1)
    evenkeel("show", "999999", code=102)
    evenkeel("cancel", number, code=1)
    long = json.loads(evenkeel("submit", "--model", "digits_mlp", "--steps", "1000000", "--output", "json"))
    evenkeel("wait", str(long["number"]), "--timeout", "0", code=101)
    assert "cancelled" in evenkeel("cancel", long["id"])
    evenkeel("wait", str(long["number"]), "--timeout", "60", code=103)
