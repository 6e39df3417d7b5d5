"""Arrays by number, and their jobs by name, as people from Slurm write them; the reason column of `ls`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from evenkeel.cli import jobs as jobs_command
from evenkeel.cli.main import cli

from tests.client.cli_portal import make_job
from tests.client.test_cli_explain import EXPLANATION
from tests.client.test_cli_resources import PAGE, Run, Scripted
from tests.client.test_cli_resources import portal as portal
from tests.client.test_cli_resources import run as run

ARRAY = {
    "number": 18, "name": "sweep", "project": {"key": "vision", "name": "Vision"}, "owner": None, "indices": "0-3",
    "size": 4, "max_running": 1, "states": {"queued": 3, "running": 1}, "first_job": 19,
    "submitted_at": "2026-11-21T14:32:10.123Z", "ended": False, "cost": {"so_far": "1.250000", "currency": "USD"},
}  # fmt: skip
PRIORITY = {
    "number": 22, "name": "sweep", "array": {"number": 18, "index": 3, "size": 4},
    "project": {"key": "vision", "name": "Vision"}, "owner": None, "rank": 1, "priority": 7, "site": 0, "nice": 0,
    "factors": [],
}  # fmt: skip


def member(index: int, **more: Any) -> dict[str, Any]:
    return make_job(19 + index, array={"number": 18, "index": index, "size": 4}, **more)


def reason(token: str, slurm: str | None) -> dict[str, Any]:
    return {"code": token, "text": f"because of {token}", "slurm": slurm}


def test_ls_names_jobs_of_arrays_and_says_why_each_waits(run: Run, portal: Scripted) -> None:
    waiting = member(3, reason=reason("quota_jobs", "JobArrayTaskLimit"))
    unknown = make_job(9, reason=reason("min_gain", None))
    training = make_job(8, state="running", reason=reason("keeps", None))
    portal["GET jobs"] = PAGE | {"results": [waiting, unknown, training]}
    head, *lines = run("ls").stdout.splitlines()
    assert head.split()[3:5] == ["STATE", "REASON"]
    assert [line.split()[0] for line in lines] == ["18_3", "9", "8"]
    at = head.index("REASON")
    assert [line[at:].split("  ")[0] for line in lines] == ["JobArrayTaskLimit", "MinGain", ""]


def test_ls_is_as_wide_as_the_terminal(run: Run, portal: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    portal["GET jobs"] = PAGE | {"results": [member(3)]}
    monkeypatch.setattr(jobs_command, "is_terminal", lambda: True)
    lines = CliRunner().invoke(cli, ["ls"], env={"COLUMNS": "60"}).stdout.splitlines()
    assert [len(line) for line in lines] == [60, 60]
    assert all(line.endswith("…") for line in lines)


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_all_of_an_array_is_held_and_released(run: Run, portal: Scripted, verb: str) -> None:
    portal["GET arrays/18"] = ARRAY
    refusal = {"id": "b", "number": 20, "status": 409, "detail": "It cannot write a checkpoint.", "made": None}
    done = {"id": "a", "number": 19, "status": 200, "detail": None, "made": None}
    portal["POST jobs/bulk"] = {"succeeded": 3, "refused": 0, "results": [done] * 3}
    result = run(verb, "18")
    live = ["queued", "starting", "running", "rescaling"]
    asked = {"action": verb, "filter": {"array": 18, "state": live}}
    assert portal.last == ("POST jobs/bulk", asked)
    assert result.exit_code == 0
    assert "Array 18: 3 jobs" in result.output
    portal["POST jobs/bulk"] = {"succeeded": 2, "refused": 1, "results": [done, done, refusal]}
    result = run(verb, "18")
    assert result.exit_code == 1
    assert "1 refused: It cannot write a checkpoint." in result.output


def test_why_of_an_array_counts_reasons(run: Run, portal: Scripted) -> None:
    portal["GET arrays/18"] = ARRAY
    limited = reason("quota_jobs", "JobArrayTaskLimit")
    rows = [member(1, reason=reason("no_room", "Resources")), member(2, reason=limited), member(3, reason=limited)]
    portal["GET jobs"] = PAGE | {"results": rows}
    _, first, second = run("explain", "18").output.splitlines()
    assert first.split()[:3] == ["JobArrayTaskLimit", "2", "18_2"]
    assert second.split()[:3] == ["Resources", "1", "18_1"]
    assert "because of no_room" in second
    assert json.loads(run("explain", "18", "--output", "json").output)[0]["jobs"] == 2


def test_why_and_prio_name_the_job_of_an_array(run: Run, portal: Scripted) -> None:
    place = {"number": 18, "index": 3, "size": 4}
    before = {"number": 18, "index": 2, "size": 4}
    ahead = [{"number": 21, "name": None, "project": "Speech", "array": before, "gpus": 2, "state": "queued"}]
    portal["GET jobs/18_3"] = make_job(22, array=place)
    portal["GET jobs/18_3/explanation"] = EXPLANATION | {"number": 22, "array": place, "ahead": ahead}
    said = run("why", "18_3").output
    assert "18_3" in said
    assert "#18_2" in said
    portal["GET priorities"] = PAGE | {"in_force": True, "at": "2026-11-21T14:32:10.123Z", "results": [PRIORITY]}
    result = run("prio")
    assert result.output.splitlines()[1].split()[0] == "18_3"
    assert "Not in force" not in result.output


@pytest.mark.parametrize(("command", "path"), [("prio", "priorities"), ("shares", "shares")])
def test_what_is_not_in_force_is_said_to_be_so(run: Run, portal: Scripted, command: str, path: str) -> None:
    rows = [PRIORITY] if command == "prio" else []
    page = {"in_force": False, "at": "2026-11-21T14:32:10.123Z", "form": "classic", "results": rows}
    portal[f"GET {path}"] = PAGE | page
    assert "Not in force: another policy decides" in run(command).stderr
    result = run(command, "--output", "json")
    assert json.loads(result.stdout) == rows
    assert "Not in force" in result.stderr


def test_an_array_is_not_set(run: Run, portal: Scripted) -> None:
    portal["GET arrays/18"] = ARRAY
    result = run("set", "18", "nice=10")
    assert result.exit_code != 0
    assert "18 is an array: name one of its jobs, as 18_0" in result.output
    assert run("set", "19", "nice=10").exit_code == 102
