"""`evenkeel fairness` against a portal that answers as scripted."""

from __future__ import annotations

import json
from typing import Any

from tests.client.test_cli_resources import PAGE, Run, Scripted
from tests.client.test_cli_resources import portal as portal
from tests.client.test_cli_resources import run as run

SPREAD = {"lowest": 0.25, "median": 0.5, "mean": 0.45, "highest": 0.6}
STANDING: dict[str, Any] = {
    "running": 3,
    "known": 3,
    "waiting": 2,
    "relative_throughput": SPREAD,
    "slowdown": {"mean": 2.5, "highest": 4.0},
    "variance": 0.0212,
}
VISION = {"key": "vision", "name": "Vision"}
ANA = {"name": "Ana", "email": "ana@example.org"}
FIGURES = {"samples": 9, "running": 2.5, "waiting": 0.5, "variance": None, "v_bound": None, "slowdown": None}
JOB: dict[str, Any] = {
    "number": 12,
    "name": "night",
    "array": None,
    "project": VISION,
    "owner": ANA,
    "state": "running",
    "gpus": 1,
    "relative_throughput": 0.25,
    "slowdown": 4.0,
    "waited_s": 200.0,
    "reason": {"code": "held", "text": "Others are slower.", "slurm": None},
    "emulated": False,
}
NOW: dict[str, Any] = {
    "at": "2026-11-21T14:32:10Z",
    "policy": {"name": "f_scheduling", "v_bound": 0.05},
    "within_bound": True,
    "cluster": STANDING | {"running": 7},
    "projects": [STANDING | {"project": VISION, "user": None}],
    "more_projects": False,
    "users": [STANDING | {"project": VISION, "user": ANA}],
    "more_users": False,
    "worst_off": [JOB],
    "longest_waiting": [],
}
SPEECH = {"key": "speech", "name": "Speech"}
BEFORE: list[dict[str, Any]] = [
    {"project": VISION, "user": None, "figures": FIGURES | {"relative_throughput": SPREAD}, "points": []},
    {"project": SPEECH, "user": None, "figures": FIGURES | {"relative_throughput": None}, "points": []},
]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_projects_stand_with_what_they_had_before_and_the_worst_off_jobs(portal: Scripted, run: Run) -> None:
    portal["GET fairness"] = NOW
    portal["GET fairness/history"] = PAGE | {"results": BEFORE}
    verdict, head, vision, speech, _, title, _, job = run("fairness", "--days", "7").output.splitlines()
    assert portal.last[0].startswith("GET fairness/history?by=project&from_at=20")
    assert verdict == "7 with GPUs, 2 waiting; variance 0.0212, within its bound of 0.05."
    assert cells(head) == ["PROJECT", "RUNNING", "WAITING", "RELATIVE", "LOWEST", "SLOWDOWN", "BEFORE", "LOWEST"]
    assert cells(vision) == ["vision", "3", "2", "0.50", "0.25", "2.50", "0.45", "0.25"]
    assert cells(speech) == ["speech", "0", "0", "-", "-", "-", "-", "-"]
    assert title == "Worst off:"
    assert cells(job) == ["12", "night", "vision", "0.25", "4.00", "1", "3m 20s", "Others are slower."]


def test_users_are_named_in_each_project(portal: Scripted, run: Run) -> None:
    portal["GET fairness"] = NOW
    portal["GET fairness/history"] = PAGE | {"results": []}
    lines = run("fairness", "--users", "--project", "vision").output.splitlines()
    assert "by=user&project=vision" in portal.last[0]
    assert cells(lines[2])[:4] == ["vision", "ana@example.org", "3", "2"]


def test_it_says_when_the_bound_is_crossed_or_there_is_none(portal: Scripted, run: Run) -> None:
    portal["GET fairness/history"] = PAGE | {"results": []}
    portal["GET fairness"] = NOW | {"within_bound": False}
    assert run("fairness").output.startswith("7 with GPUs, 2 waiting; variance 0.0212, NOT within its bound of 0.05.")
    portal["GET fairness"] = NOW | {"policy": {"name": "fifo_gang", "v_bound": None}, "within_bound": None}
    assert "fifo_gang sets no bound." in run("fairness").output
    nothing = STANDING | {"relative_throughput": None, "slowdown": None, "variance": None, "running": 0}
    portal["GET fairness"] = NOW | {"cluster": nothing, "projects": [], "worst_off": [], "within_bound": None}
    output = run("fairness").output
    assert "no relative throughput is known" in output
    assert "None of your projects has or had jobs." in output


def test_programs_get_both_as_they_are(portal: Scripted, run: Run) -> None:
    portal["GET fairness"] = NOW
    portal["GET fairness/history"] = PAGE | {"results": BEFORE}
    found = json.loads(run("fairness", "--output", "json").output)
    assert found == {"now": NOW, "history": BEFORE}
