"""The command line against the portal itself: from a password to a finished job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


class Shell:
    """Somebody at a terminal, with a configuration of their own."""

    def __init__(self, home: Path, portal: LivePortal) -> None:
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENKEEL_")}
        self._environment["XDG_CONFIG_HOME"] = str(home)
        self._portal = portal

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        command = [sys.executable, "-m", "evenkeel.cli.main", *arguments]
        done = subprocess.run(command, env=self._environment, input=stdin, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--output", "json"))

    def log_in(self, *options: str) -> None:
        person = ("--email", self._portal.admin_email, "--password-stdin")
        self("login", self._portal.base_url, *person, *options, stdin=f"{self._portal.admin_password}\n")


PROGRAM = """
import os, pathlib
print("the secret is", os.environ["HUB_TOKEN"])
pathlib.Path(os.environ["EVENKEEL_ARTIFACT_DIR"], "table.csv").write_text("a,b")
"""


def test_everything_but_jobs_from_the_command_line(live_portal: LivePortal, tmp_path: Path) -> None:
    evenkeel = Shell(tmp_path, live_portal)
    evenkeel.log_in()
    assert "lacks the scope admin" in evenkeel("projects", "create", "vision", code=1)
    assert "lacks the scope admin" in evenkeel("quota", "set", "gpus", "4", "--project", "default", code=1)
    evenkeel.log_in("--admin")
    _projects_and_limits(evenkeel)
    number = _code_secrets_and_artifacts(evenkeel, live_portal, tmp_path)
    _money(evenkeel, number, tmp_path)
    _operations(evenkeel, live_portal)
    [old] = [token for token in evenkeel.json("tokens", "ls") if "admin" not in token["scopes"]]
    assert "sign in for that" in evenkeel("tokens", "rotate", str(old["id"]), code=1)
    evenkeel("tokens", "revoke", str(old["id"]))
    assert old["id"] not in [token["id"] for token in evenkeel.json("tokens", "ls")]


def _projects_and_limits(evenkeel: Shell) -> None:
    evenkeel("projects", "create", "vision", "--name", "Vision")
    evenkeel("projects", "create", "detection", "--parent", "vision")
    evenkeel("projects", "rename", "vision", "Seeing")
    assert "Seeing" in evenkeel("projects", "ls")
    assert evenkeel.json("projects", "invite", "vision", "ada@example.org", "--role", "viewer")["link"]
    assert evenkeel.json("projects", "members", "vision") == []
    evenkeel("projects", "archive", "detection")
    refused = evenkeel("submit", "--project", "detection", "--model", "digits_mlp", "--steps", "9", code=1)
    assert "project" in refused
    evenkeel("projects", "restore", "detection")
    limit = str(evenkeel.json("quota", "set", "gpus", "2", "--project", "vision", "--hard")["id"])
    assert evenkeel.json("quota", "change", limit, "1")["hard"] is True
    too_much = ("submit", "--project", "detection", "--model", "digits_mlp", "--steps", "9", "--gpus", "2")
    assert "can never hold this job" in evenkeel(*too_much, code=1)
    assert "project Seeing" in evenkeel("quota", "show", "detection")
    evenkeel("quota", "rm", limit)
    assert "Nothing limits it" in evenkeel("quota", "show", "detection")
    assert "Checkpoints" in evenkeel("projects", "storage", "vision")


def _code_secrets_and_artifacts(evenkeel: Shell, portal: LivePortal, home: Path) -> str:
    code = home / "code"
    code.mkdir()
    (code / "program.py").write_text(PROGRAM)
    evenkeel("secrets", "set", "default", "HUB_TOKEN", stdin="do-not-say-this")
    assert "HUB_TOKEN" in evenkeel("secrets", "ls", "default")
    secret = ("--set", "secrets=[{name: HUB_TOKEN, env: HUB_TOKEN}]")
    submit = ("submit", "--project", "default", "--code", str(code), "--steps", "5", "--gpus", "1", *secret)
    evenkeel(*submit, "--name", "own", "--wait", "--timeout", "240", "--", "python", "program.py")
    number = str(evenkeel.json("ls", "--search", "own")[0]["number"])
    said = evenkeel("logs", number)
    assert "the secret is [redacted]" in said
    portal.wait_for("the list of what it left", lambda: evenkeel.json("artifacts", "ls", number))
    evenkeel("artifacts", "get", number, "table.csv", "--to", str(home / "table.csv"))
    assert (home / "table.csv").read_text() == "a,b"
    evenkeel("artifacts", "rm", number, "table.csv")
    evenkeel("secrets", "rm", "default", "HUB_TOKEN")
    return number


def _money(evenkeel: Shell, number: str, home: Path) -> None:
    assert float(evenkeel.json("cost", "job", number)["so_far"]) > 0
    assert evenkeel("cost", "usage", "--by", "job", "--csv").startswith("key,label,jobs,gpu_hours,cost")
    file = home / "job.yaml"
    file.write_text("{project: default, model_type: digits_mlp, total_steps: 100}")
    assert {option["type"] for option in evenkeel.json("cost", "estimate", str(file))["options"]} == {"titan_xp"}
    assert any(rate["accelerator_type"] == "titan_xp" for rate in evenkeel.json("cost", "rates"))


def _operations(evenkeel: Shell, portal: LivePortal) -> None:
    long = ("submit", "--project", "default", "--model", "digits_mlp", "--gpus", "1", "--steps", "1000000")
    job = str(evenkeel.json(*long, "--set", "labels.sweep=7")["number"])
    portal.wait_for("a checkpoint", lambda: portal.job(int(job))["checkpoints"], 240)
    evenkeel("hold", job)
    portal.wait_for("its GPUs back", lambda: portal.job(int(job))["state"] == "queued", 240)
    assert portal.job(int(job))["hold"]["kind"] == "user"
    changed = evenkeel.json("set", job, "name=renamed", "nice=2", "labels.sweep=8", "total_steps=2000000")
    assert (changed["name"], changed["labels"], changed["total_steps"]) == ("renamed", {"sweep": "8"}, 2_000_000)
    again = evenkeel.json("resubmit", job, "--from", "latest", "--set", "name=again")
    assert again["resumed_from"]["step"] > 0
    evenkeel("release", job)
    assert "2 done" in evenkeel("bulk", "cancel", "--label", "sweep=8", "--yes")


def test_from_login_to_a_finished_job(live_portal: LivePortal, tmp_path: Path) -> None:
    evenkeel = Shell(tmp_path, live_portal)
    evenkeel.log_in()
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
