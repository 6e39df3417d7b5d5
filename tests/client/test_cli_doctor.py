"""`evenkeel doctor`, against a portal that answers as scripted."""

from __future__ import annotations

import json
from typing import Any

from tests.client.test_cli_resources import Run, Scripted, portal, run

__all__ = ["portal", "run"]  # fixtures

FINE = {"subject": "clocks", "result": "passed", "seen": "3 ms apart", "fix": ""}
WRONG = {"subject": "GRES", "result": "failed", "seen": "n1 has none", "fix": "add Gres= to its line"}
SESSION = {"user": None, "clusters": [{"name": "lab", "stream": "cluster"}, {"name": "big", "stream": "cluster:2"}]}


def examined(cluster: str, *findings: dict[str, str], ended: bool = True) -> dict[str, Any]:
    at = "2026-01-01T00:00:01Z"
    return {
        "cluster": cluster,
        "executor": "slurm",
        "began_at": at,
        "ended_at": at if ended else None,
        "findings": list(findings),
    }


def test_all_clusters_are_examined_and_what_is_wrong_decides(run: Run, portal: Scripted) -> None:
    portal["GET session"] = SESSION
    portal.after("POST examination", [examined("lab", ended=False), examined("big", FINE, WRONG)])
    portal["GET examination"] = examined("lab", FINE)
    found = run("doctor")
    asked = [what for what, _ in portal.asked]
    assert asked[1:] == [f"POST examination?cluster={name}" for name in ("lab", "big")] + [
        "GET examination?cluster=lab"
    ]
    assert found.exit_code == 100
    assert found.output.splitlines() == [
        "lab: executor slurm",
        "ok    clocks: 3 ms apart",
        "big: executor slurm",
        "ok    clocks: 3 ms apart",
        "WRONG GRES: n1 has none",
        "      add Gres= to its line",
    ]


def test_one_that_is_well_ends_with_0(run: Run, portal: Scripted) -> None:
    portal["POST examination"] = examined("lab", FINE)
    found = run("doctor", "--cluster", "lab", "--output", "json")
    assert (found.exit_code, json.loads(found.output)[0]["findings"]) == (0, [FINE])


def test_without_a_result_in_time_it_says_so(run: Run, portal: Scripted) -> None:
    portal["POST examination"] = examined("lab", ended=False)
    found = run("doctor", "--cluster", "lab", "--timeout", "0")
    assert found.exit_code == 101
    assert "no result within 0 s" in found.output + found.stderr
