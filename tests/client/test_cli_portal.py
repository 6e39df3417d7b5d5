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
from evenkeel.client import Client
from evenkeel.schemas import AcceptedInvitation

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]


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
        done = self._run(arguments, stdin, code)
        return done.stdout + done.stderr

    def json(self, *arguments: str) -> Any:
        """What programs read, without what is said to people beside it."""
        return json.loads(self._run((*arguments, "--output", "json")).stdout)

    def _run(self, arguments: tuple[str, ...], stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evenkeel.cli.main", *arguments]
        done = subprocess.run(command, env=self._environment, input=stdin, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def using(self, token: str) -> Shell:
        """The same terminal with another token, as CI has it."""
        other = Shell(Path(self._environment["XDG_CONFIG_HOME"]), self._portal)
        other._environment |= {"EVENKEEL_URL": self._portal.base_url, "EVENKEEL_TOKEN": token}
        return other

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
    assert "lacks the scope admin. An administrator makes one with `evenkeel login --admin`." in evenkeel(
        "projects", "create", "vision", code=1
    )
    assert "lacks the scope admin" in evenkeel("limit", "set", "gpus", "4", "--project", "default", code=1)
    assert "lacks the scope admin" in evenkeel("secrets", "set", "default", "HUB_TOKEN", stdin="mine-now", code=1)
    evenkeel.log_in("--admin")
    _projects_and_limits(evenkeel)
    number = _code_secrets_and_artifacts(evenkeel, live_portal, tmp_path)
    _money(evenkeel, number, tmp_path)
    _operations(evenkeel, live_portal)
    _shares(evenkeel)
    [old] = [token for token in evenkeel.json("tokens", "ls") if "admin" not in token["scopes"]]
    assert "sign in for that" in evenkeel("tokens", "rotate", str(old["id"]), code=1)
    evenkeel("tokens", "revoke", str(old["id"]))
    assert old["id"] not in [token["id"] for token in evenkeel.json("tokens", "ls")]


def _projects_and_limits(evenkeel: Shell) -> None:
    evenkeel("projects", "create", "vision", "--name", "Vision")
    evenkeel("projects", "create", "detection", "--parent", "vision")
    evenkeel("projects", "rename", "vision", "Seeing")
    shared = evenkeel.json("projects", "set-share", "vision", "--weight", "2", "--priority", "7")
    assert (shared["share_weight"], shared["priority"]) == (2, 7)
    assert evenkeel.json("projects", "set-share", "vision", "--inherit-priority")["priority"] is None
    named = evenkeel.json("projects", "set-slurm", "vision", "--account", "seeing", "--qos", "high")["slurm"]
    assert (named["account"], named["qos"]) == ("seeing", "high")
    named = evenkeel.json("projects", "set-slurm", "vision", "--inherit", "qos")["slurm"]
    assert (named["account"], named["qos"]) == ("seeing", None)
    assert "Seeing" in evenkeel("projects", "ls")
    assert evenkeel.json("projects", "invite", "vision", "ada@example.org", "--role", "viewer")["link"]
    assert evenkeel.json("projects", "members", "vision") == []
    evenkeel("projects", "archive", "detection")
    refused = evenkeel("submit", "--project", "detection", "--model", "digits_mlp", "--steps", "9", code=1)
    assert "project" in refused
    evenkeel("projects", "restore", "detection")
    limit = str(evenkeel.json("limit", "set", "gpus", "2", "--project", "vision", "--hard")["id"])
    assert evenkeel.json("limit", "change", limit, "1")["hard"] is True
    too_much = ("submit", "--project", "detection", "--model", "digits_mlp", "--steps", "9", "--gpus", "2")
    assert "can never hold this job" in evenkeel(*too_much, code=1)
    assert "project Seeing" in evenkeel("limit", "show", "detection")
    evenkeel("limit", "rm", limit)
    assert "Nothing limits it" in evenkeel("limit", "show", "detection")
    assert "Checkpoints" in evenkeel("projects", "storage", "vision")


def _shares(evenkeel: Shell) -> None:
    assert evenkeel.json("qos", "set", "normal", "--default")["is_default"] is True
    evenkeel("qos", "set", "high", "--priority", "100", "--preempts", "normal", "--max-gpus-per-user", "4")
    assert "normal" in evenkeel("qos", "ls")
    job = (
        "submit",
        "--project",
        "default",
        "--model",
        "digits_mlp",
        "--steps",
        "100000",
        "--gpus",
        "2",
        "--output",
        "json",
    )
    holding, waiting = (json.loads(evenkeel(*job, "--set", f"qos={level}"))["number"] for level in ("high", "normal"))
    evenkeel("hold", str(waiting))
    assert "does not wait for GPUs" in evenkeel("prio", str(waiting))
    listed = evenkeel.json("prio", "--project", "default")
    assert waiting not in [row["number"] for row in listed]
    assert "FACTOR" in evenkeel("shares")
    assert "EFF_USAGE BEFORE" in evenkeel("shares", "--trend", "--days", "30")
    mine = next(row for row in evenkeel.json("shares", "--project", "default") if row["is_user"])
    assert mine["usage_gpu_hours"] > 0
    assert "have not ended" in evenkeel("qos", "rm", "normal", code=1)
    evenkeel("cancel", str(holding))
    evenkeel("cancel", str(waiting))
    evenkeel("qos", "rm", "high")


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
    wished = evenkeel.json("preview", str(file))
    assert wished["verdict"] in ("now", "later")
    assert wished["forecast"]["end"]["duration_s"] > 0
    assert "Verdict" in evenkeel("preview", str(file), "--quick")
    assert "titan_xp (emulated)" in evenkeel("nodes")
    assert isinstance(evenkeel.json("queue"), list)
    assert evenkeel("open", number).strip().endswith(f"/jobs/{number}")
    assert any(rate["accelerator_type"] == "titan_xp" for rate in evenkeel.json("cost", "prices"))


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


def test_people_prices_and_programs_from_the_command_line(live_portal: LivePortal, tmp_path: Path) -> None:
    evenkeel = Shell(tmp_path, live_portal)
    evenkeel.log_in("--scope", "jobs:read")
    assert "lacks the scope admin" in evenkeel("projects", "create", "speech", code=1)
    [token] = [row for row in evenkeel.json("tokens", "ls") if row["scopes"] == ["jobs:read"]]
    evenkeel.log_in("--admin")
    evenkeel("tokens", "revoke", str(token["id"]))
    evenkeel("projects", "create", "speech")
    _tree_and_storage(evenkeel)
    _people(evenkeel, live_portal)
    _program(evenkeel)
    _prices(evenkeel)
    _audit(evenkeel, live_portal, tmp_path)


def _tree_and_storage(evenkeel: Shell) -> None:
    evenkeel("projects", "create", "dictation")
    assert evenkeel.json("projects", "move", "dictation", "speech")["parent"] == "speech"
    assert evenkeel.json("projects", "move", "dictation", "--top")["parent"] is None
    evenkeel("projects", "move", "dictation", code=1)
    assert "ok    job files: on this machine" in evenkeel("doctor")
    kept = evenkeel.json("projects", "set-storage", "speech", "--bundles", "3GiB", "--checkpoints-hard", "5000")
    assert kept["bundles"]["quota_bytes"] == 3 << 30
    assert kept["checkpoints"]["hard_bytes"] == 5_000
    assert "of 3,221,225,472" in evenkeel("projects", "storage", "speech")
    assert "neither a number of bytes" in evenkeel("projects", "set-storage", "speech", "--bundles", "3GB", code=1)


def _people(evenkeel: Shell, portal: LivePortal) -> None:
    made = [evenkeel.json("projects", "invite", "speech", f"{name}@example.org") for name in ("ada", "eve")]
    evenkeel("projects", "revoke-invitation", "speech", str(made[1]["id"]))
    revoked = {row["email"]: bool(row["revoked_at"]) for row in evenkeel.json("projects", "invitations", "speech")}
    assert revoked == {"ada@example.org": False, "eve@example.org": True}
    with Client(portal.base_url) as browser:
        browser.session()
        body = {"secret": made[0]["link"].partition("#")[2], "name": "Ada", "password": "correct-horse-battery"}
        browser.one(AcceptedInvitation, "POST", "invitations/accept", json=body)
    _, found = evenkeel("people", "ls", "--search", "Ada").splitlines()
    assert "ada@example.org" in found
    assert found.split()[-2:] == ["no", "-"]  # never proved; no UNIX account
    refused = evenkeel("people", "admin", "ada@example.org", "on", code=1)
    assert f"by invitation into speech by {portal.admin_email}" in refused
    assert "--confirm-unproved" in refused
    assert "--confirm-unproved" in evenkeel("projects", "add-member", "default", "ada@example.org", code=1)
    sure = ("--confirm-unproved",)
    assert evenkeel.json("projects", "add-member", "default", "ada@example.org", "--role", "viewer", *sure)["user"]
    assert "--confirm-unproved" in evenkeel("projects", "set-role", "default", "ada@example.org", "manager", code=1)
    evenkeel("projects", "set-role", "default", "ada@example.org", "manager", *sure)
    assert evenkeel.json("people", "admin", "ada@example.org", "on", *sure)["is_admin"] is True
    assert len(evenkeel.json("people", "ls", "--admins")) == 2
    assert evenkeel.json("people", "admin", "ADA@example.org", "off")["is_admin"] is False
    assert evenkeel.json("people", "deactivate", "ada@example.org")["is_active"] is False
    assert [row["email"] for row in evenkeel.json("people", "ls", "--inactive")] == ["ada@example.org"]
    assert evenkeel.json("people", "activate", "ada@example.org")["is_active"] is True
    assert "only active administrator" in evenkeel("people", "deactivate", portal.admin_email, code=1)
    assert "nobody has an account" in evenkeel("people", "deactivate", "ada@example", code=1)


def _program(evenkeel: Shell) -> None:
    accounts = ("projects", "service-accounts")
    evenkeel(*accounts, "create", "speech", "ci", "--role", "viewer")
    assert evenkeel.json(*accounts, "set-role", "speech", "ci", "member")["role"] == "member"
    make = (*accounts, "create-token", "speech", "ci", "pipeline")
    first = evenkeel.json(*make, "--scope", "jobs:read")
    assert (first["scopes"], first["project"]) == (["jobs:read"], "speech")
    program = evenkeel.using(first["secret"])
    assert [row["key"] for row in program.json("projects", "ls")] == ["speech"]
    assert "lacks the scope" in program("cancel", "1", code=1)
    rotated = evenkeel.json("tokens", "rotate", str(first["id"]), "--overlap-hours", "0")
    program("projects", "ls", code=1)
    assert "speech" in evenkeel.using(rotated["secret"])("projects", "ls")
    assert str(rotated["id"]) in evenkeel(*accounts, "tokens", "speech", "ci")
    evenkeel("tokens", "revoke", str(rotated["id"]))
    evenkeel.using(rotated["secret"])("projects", "ls", code=1)
    second = evenkeel.json(*make)
    assert evenkeel.json(*accounts, "deactivate", "speech", "ci")["is_active"] is False
    evenkeel.using(second["secret"])("projects", "ls", code=1)
    assert "deactivated" in evenkeel(*make, code=1)
    assert evenkeel.json(*accounts, "activate", "speech", "ci")["tokens"] == 0
    assert [row["name"] for row in evenkeel.json(*accounts, "ls", "speech")] == ["ci"]
    assert "no service account" in evenkeel(*accounts, "tokens", "speech", "robot", code=1)


def _prices(evenkeel: Shell) -> None:
    assert evenkeel.json("cost", "set-price", "0.02", "--resource", "cpu")["price_per_hour"] == "0.020000"
    later = evenkeel.json("cost", "set-price", "7.5", "--type", "titan_xp", "--from", "2190-01-01T00:00:00Z")
    assert later["valid_from_at"].startswith("2190-01-01")
    late = ("cost", "set-price", "1", "--resource", "cpu", "--from", "2001-01-01T00:00:00Z")
    assert "which is past" in evenkeel(*late, code=1)
    assert "accelerator_type" in evenkeel("cost", "set-price", "1", code=1)
    assert evenkeel.json("cost", "set-discount", "speech", "25")["percent"] == "25.00"
    assert [row["project"] for row in evenkeel.json("cost", "discounts", "--project", "speech")] == ["speech"]


def _audit(evenkeel: Shell, portal: LivePortal, home: Path) -> None:
    assert "user.deactivate" in evenkeel("audit", "ls", "--action", "user.", "--actor", portal.admin_email)
    assert len(evenkeel.json("audit", "ls", "--limit", "3")) == 3
    file = home / "audit.jsonl"
    evenkeel("audit", "export", "--format", "jsonl", "--action", "discount.set", "--to-file", str(file))
    [line] = file.read_text().splitlines()
    assert "speech" in json.loads(line)["sealed"]
    assert "user.deactivate" in evenkeel("audit", "export")


def test_the_log_of_a_build_that_failed(live_portal: LivePortal, tmp_path: Path) -> None:
    evenkeel = Shell(tmp_path, live_portal)
    evenkeel.log_in()
    wish = ("submit", "-", "--project", "default", "--steps", "1", "--set", "environment={requirements: six==99.99}")
    job = json.loads(evenkeel(*wish, "--output", "json", stdin='command: "true"'))
    evenkeel("wait", job["id"], "--timeout", "240", code=100)
    [environment] = evenkeel.json("environments", "ls", "default")
    assert environment["state"] == "failed"
    short = environment["digest"][:8]
    assert "six==99.99" in evenkeel("environments", "log", "default", short, "-f")
    evenkeel("environments", "log", "default", "0" * 8, code=102)
    evenkeel("environments", "rm", "default", short)
    assert evenkeel.json("environments", "ls", "default") == []


def test_an_array_from_the_command_line(live_portal: LivePortal, tmp_path: Path) -> None:
    evenkeel = Shell(tmp_path, live_portal)
    evenkeel.log_in()

    def submit(array: str, command: str) -> Any:
        wish = {"command": command, "project": "default", "total_steps": 1, "gpus": {"max": 1}, "retry": {"limit": 0}}
        return json.loads(evenkeel("submit", "-", "--array", array, "--output", "json", stdin=json.dumps(wish)))[
            "array"
        ]

    program = 'echo "index $EVENKEEL_ARRAY_INDEX of $EVENKEEL_ARRAY_SIZE"; test "$EVENKEEL_ARRAY_INDEX" != 9'
    array = submit("3,9%1", program)
    assert (array["index"], array["size"]) == (3, 2)
    number = str(array["number"])
    evenkeel("wait", number, "--timeout", "240", code=100)
    assert evenkeel.json("show", number)["states"] == {"succeeded": 1, "failed": 1}
    assert evenkeel.json("show", f"{number}_9")["state"] == "failed"
    assert "index 3 of 2" in evenkeel("logs", f"{number}_3")
    waiting = str(submit("0-4", "sleep 600")["number"])
    assert evenkeel.json("cancel", waiting)["cancelled"] == 5
    evenkeel("wait", waiting, "--timeout", "60", code=103)
