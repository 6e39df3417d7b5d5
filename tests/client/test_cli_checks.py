"""`evenkeel check`, and checks in what `nodes` shows, against a portal that answers as scripted."""

from __future__ import annotations

import json
from typing import Any

from tests.client.test_cli_cluster import NODE, cells
from tests.client.test_cli_resources import Run, Scripted, portal, run

__all__ = ["portal", "run"]  # fixtures

ITEMS = [
    {"subject": "free space", "result": "failed", "seen": "3 MiB", "fix": "make room"},
    {"subject": "devices", "result": "unknown", "seen": "6 emulated", "fix": ""},
]
ENDED = {
    "cause": "asked",
    "asked_at": "2026-01-01T00:00:00Z",
    "asked_by": None,
    "begun_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:00:01Z",
    "passed": False,
    "items": ITEMS,
}
OPEN = ENDED | {"ended_at": None, "passed": None, "items": []}


def node(**changes: Any) -> dict[str, Any]:
    return NODE | {"check": NODE["check"] | changes}


def detail(**changes: Any) -> dict[str, Any]:
    use = {"from_at": "", "to_at": "", "bucket_s": 1800, "allocated": [], "allocated_part": 0.4}
    return node(**changes) | {"jobs": [], "use": use, "faults": [], "faults_by_reason": {}, "events": []}


def test_a_check_shows_what_was_found_and_ends_with_its_result(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/check"] = node(open=OPEN)
    portal["GET nodes/n1"] = detail(last=ENDED, state="failed")
    found = run("check", "n1")
    assert found.exit_code == 100
    lines = found.output.splitlines()
    assert lines[0].startswith("failed ")
    assert lines[0].endswith("ago (asked for)")
    assert [cells(line) for line in lines[1:]] == [
        ["CHECK", "RESULT", "FOUND", "TO DO"],
        ["free space", "failed", "3 MiB", "make room"],
        ["devices", "unknown", "6 emulated"],
    ]
    portal["GET nodes/n1"] = detail(last=ENDED | {"passed": True})
    passed = run("check", "n1", "--output", "json")
    assert (passed.exit_code, json.loads(passed.output)["last"]["passed"]) == (0, True)


def test_without_a_result_in_time_it_says_so(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/check"] = node(open=OPEN)
    found = run("check", "n1", "--timeout", "0")
    assert found.exit_code == 101
    assert "no result within 0 s" in found.output + found.stderr


def test_a_node_can_be_used_anyway(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/use-anyway"] = node(waived_at="2026-01-01T00:00:00Z")
    assert "n1 is in use." in run("check", "n1", "--use-anyway").output
    assert run("check", "nothing").exit_code == 102


def test_nodes_say_what_their_checks_say(run: Run, portal: Scripted) -> None:
    portal["GET nodes"] = [node(state="checking", open=OPEN), node(state="failed", last=ENDED)]
    assert [cells(line)[2] for line in run("nodes").output.splitlines()[1:]] == ["being checked", "failed its check"]
    portal["GET nodes/n1"] = detail(state="failed", last=ENDED, open=OPEN | {"begun_at": None})
    said = run("nodes", "n1").output
    assert "State            failed its check" in said
    assert "(asked for); awaited" in said
    assert "make room" in said
    portal["GET nodes/n1"] = detail(waived_at="2026-01-01T00:00:00Z", waived_by="root@example.org")
    assert "by root@example.org" in run("nodes", "n1").output
