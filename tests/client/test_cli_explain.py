"""Why a job waits and who took its GPUs, and what projects are guaranteed, on the command line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.client.cli_portal import make_job
from tests.client.test_cli_resources import PAGE, Run, Scripted
from tests.client.test_cli_resources import portal as portal
from tests.client.test_cli_resources import run as run

EXPLANATION: dict[str, Any] = {
    "number": 12,
    "array": None,
    "code": "resources",
    "text": "It is next: 4 more a100 have to become free.",
    "at": None,
    "round": 7,
    "checked_at": "2026-11-21T14:32:10.123Z",
    "preemption": None,
    "ahead": [{"number": 9, "name": None, "project": "Speech", "array": None, "gpus": 2, "state": "queued"}],
    "apart": 0,
    "slurm": "Resources",
    "weighed": [],
    "would_change": "It starts when 8 × a100 are free.",
    "deadline": None,
    "emulated": False,
    "detail": {},
}
DISPLACED = {
    "at": "2026-11-21T14:30:00.000Z",
    "kind": "preempted",
    "code": "reclaimed",
    "text": "Preempted: project Speech reclaimed 4 of its 8 guaranteed GPUs.",
    "level": "guarantee of project Speech",
    "gpus_before": 8,
    "gpus_now": 0,
    "by": [{"number": 12, "name": None, "project": "Speech", "within": "project Lab, above both"}],
    "back_at": "2026-11-21T15:00:00.000Z",
    "back_basis": "as the policy expects it to start",
}


@pytest.fixture(autouse=True)
def _the_job(portal: Scripted) -> None:
    portal["GET jobs/12"] = make_job(12)


def test_why_says_the_reason_and_what_would_change_it(run: Run, portal: Scripted) -> None:
    portal["GET jobs/12/explanation"] = EXPLANATION
    said = run("explain", "12").output
    for part in ("4 more a100", "resources (Slurm: Resources)", "#9", "It starts when 8 × a100 are free."):
        assert part in said
    assert "Taken by" not in said
    assert json.loads(run("explain", "12", "--output", "json").output)["code"] == "resources"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "99"), "There is no job 99 that you may see."),
        (("nodes", "gpu1.lab"), "There is no node gpu1.lab that you may see."),
        (("ls", "--project", "far", "--csv"), "Not found: project is none that you may see"),
    ],
)
def test_what_is_not_there_is_said(run: Run, portal: Scripted, arguments: tuple[str, ...], said: str) -> None:
    problem = {"title": "Not found", "status": 404, "detail": "project is none that you may see"}
    portal["GET jobs/99"] = portal["GET jobs/99/explanation"] = portal["GET nodes/gpu1.lab"] = 404, problem
    portal["GET jobs/export"] = 404, problem
    result = run(*arguments)
    assert result.exit_code == 102
    assert said in result.output


def test_why_says_what_the_job_may_take_and_until_when(run: Run, portal: Scripted) -> None:
    portal["GET jobs/12/explanation"] = EXPLANATION | {"deadline": "It is expected to end after its deadline."}
    bounds = {"deadline_at": "2030-01-02T12:00:00Z", "nice": 7, "max_cost": "5", "max_duration_s": 5_400.0}
    portal["GET jobs/12"] = make_job(12, labels={"team": "x", "run": "2"}, **bounds)
    said = run("explain", "12").output
    for part in ("2030-01-02", "after its deadline", "5 USD", "1h 30m", "run=2, team=x"):
        assert part in said
    assert re.search(r"^Nice +7$", said, re.MULTILINE)


def test_why_counts_those_before_it_that_compete_for_nothing(run: Run, portal: Scripted) -> None:
    portal["GET jobs/12/explanation"] = EXPLANATION | {"apart": 2}
    assert "#9 (2 before it wait for something else, or elsewhere)" in run("explain", "12").output
    portal["GET jobs/12/explanation"] = EXPLANATION | {"ahead": [], "apart": 1}
    assert "none (1 before it waits for something else, or elsewhere)" in run("explain", "12").output


def test_why_says_who_took_its_gpus_and_when_they_are_back(run: Run, portal: Scripted) -> None:
    portal["GET jobs/12/explanation"] = EXPLANATION | {"preemption": DISPLACED}
    said = run("explain", "12").output
    for part in ("0 of 8 GPUs left", "guarantee of project Speech", "#12 of Speech (project Lab, above both)"):
        assert part in said
    portal["GET jobs/12/explanation"] = EXPLANATION | {"preemption": DISPLACED | {"back_at": None, "back_basis": None}}
    assert "not foreseen" in run("explain", "12").output


def test_guarantees_are_set_shown_and_removed(run: Run, portal: Scripted) -> None:
    row = {
        "project": "speech",
        "gpus": 8,
        "by_type": [],
        "reclaim_within_s": 120,
        "used": 4,
        "borrowed": 0,
        "unused": 4,
    }
    portal["PUT projects/speech/guarantee"] = (201, row)
    assert run("guarantee", "set", "speech", "8", "--type", "a100=4", "--reclaim-within", "120").exit_code == 0
    assert portal.last[1] == {"gpus": 8, "by_type": {"a100": 4}, "reclaim_within_s": 120}
    assert "is not TYPE=GPUS" in run("guarantee", "set", "speech", "8", "--type", "a100").output
    portal["GET guarantees"] = PAGE | {"results": [row]}
    assert run("guarantee", "ls").output.splitlines()[1].split() == ["speech", "8", "4", "0", "4", "120"]
    portal["DELETE projects/speech/guarantee"] = (204, b"")
    assert "The guarantee of project speech is removed." in run("guarantee", "rm", "speech").output
