"""`evenkeel drain` and `resume` against a portal that answers as scripted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.test_cli_cluster import NODE
from tests.client.test_cli_resources import Run, Scripted, portal, run

__all__ = ["portal", "run"]  # fixtures

JOBS: list[dict[str, Any]] = [
    {
        "job": {"number": 12, "name": "night", "project": "Vision"},
        "gpus": 2,
        "outcome": "lost",
        "expected_end_at": "2026-11-22T18:40:00Z",
        "text": "#12 cannot be restarted and is expected to end 40 min after the deadline: it will be lost.",
    },
    {
        "job": {"number": 13, "name": None, "project": "Speech"},
        "gpus": 1,
        "outcome": None,
        "expected_end_at": None,
        "text": None,
    },
]
DRAIN = {"state": "draining", "since_at": None, "deadline_at": "2026-11-22T18:00:00Z", "reason": "fans", "by": None}


def test_a_preview_says_what_becomes_of_each_and_drains_nothing(run: Run, portal: Scripted) -> None:
    portal["GET nodes/n1/drain-preview"] = {"deadline_at": DRAIN["deadline_at"], "jobs": JOBS}
    said = run("drain", "n1", "--within", "2h", "--preview").output
    assert portal.last[0] == "GET nodes/n1/drain-preview?within_s=7200.0"
    assert "40 min after the deadline: it will be lost" in said
    assert "Speech" in said
    portal["GET nodes/n1/drain-preview"] = {"deadline_at": None, "jobs": []}
    assert run("drain", "n1", "--preview").output == "No jobs on the node.\n"


def test_a_drain_by_a_deadline_with_its_reason(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/drain"] = NODE | {"drained": True, "drain": {**DRAIN, "jobs": JOBS}}
    answer = run("drain", "n1", "--within", "90m", "--reason", "fans")
    assert portal.last == ("POST nodes/n1/drain", {"within_s": 5400.0, "reason": "fans"})
    assert "n1 is draining until 2026-11-2" in answer.output
    assert "will be lost" in answer.output
    found = json.loads(run("drain", "n1", "--until", "2026-11-22T18:00Z", "--output", "json").output)
    assert portal.last[1] == {"deadline_at": "2026-11-22T18:00Z", "reason": ""}
    assert found["drain"]["jobs"] == JOBS


@pytest.mark.parametrize("span", ["soon", "2w", "-1h", "h"])
def test_a_span_that_is_none_is_refused_before_anything_is_sent(run: Run, portal: Scripted, span: str) -> None:
    refused = run("drain", "n1", f"--within={span}")
    assert refused.exit_code == 1
    assert "write 90m, 2h or 1d" in refused.output
    assert not portal.asked


def test_an_empty_node_is_drained_at_once_and_used_again(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/drain"] = NODE | {"drain": {**DRAIN, "state": "drained", "deadline_at": None, "jobs": []}}
    assert "n1 is drained." in run("drain", "n1").output
    portal["POST nodes/n1/resume"] = NODE
    assert "n1 is in use." in run("resume", "n1").output
    assert json.loads(run("resume", "n1", "--output", "json").output)["drain"] is None


def test_a_resumed_node_that_cannot_be_used_is_not_said_to_be(run: Run, portal: Scripted) -> None:
    portal["POST nodes/n1/resume"] = NODE | {"lost": True}
    assert "n1 is resumed, but lost: no job starts there until it answers again." in run("resume", "n1").output
    portal["POST nodes/n1/resume"] = NODE | {"check": {**NODE["check"], "state": "failed"}}
    assert "n1 is resumed, but failed its check: see `evenkeel check n1`." in run("resume", "n1").output
