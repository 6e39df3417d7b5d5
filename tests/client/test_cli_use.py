"""`evenkeel resources`: figures and lines as a portal's answer has them."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from evenkeel.cli import use

LAUNCHED: dict[str, Any] = {
    "series": {
        "gpu": [[10.0, 0.5], [15.0, None], [20.0, 0.25]],
        "gpu_memory": [[10.0, 0.1], [15.0, None], [20.0, 0.2]],
        "gpu_cores": [[10.0, None], [15.0, None], [20.0, None]],
        "pcie": [[10.0, None], [15.0, None], [20.0, None]],
    },
    "launches": [],
    "profiles": [
        {
            "type": "titan_xp", "gpus": 1, "share_percent": 50, "emulated": True, "launches": 2, "seconds": 90.0,
            "mean": {"gpu": 0.42, "gpu_memory": 0.12, "gpu_cores": None, "pcie": None},
        }
    ],
    "emulated": True,
}  # fmt: skip
NOTHING: dict[str, Any] = {
    "series": {name: [] for name in LAUNCHED["series"]}, "launches": [], "profiles": [], "emulated": True
}  # fmt: skip


def said(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *words: str) -> str:
    class Portal:
        def resources(self, job: str, points: int) -> dict[str, Any]:
            assert (job, points) == ("12", 500)
            return answer

    monkeypatch.setattr(use, "connect", Portal)
    result = CliRunner().invoke(use.resources, ["12", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_says_what_the_job_uses_now_and_what_its_program_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(monkeypatch, LAUNCHED).splitlines()
    assert lines[1].split() == ["this", "job,", "last", "25", "%", "20", "%", "-", "-"]
    assert lines[2].split() == [
        "50",
        "%",
        "of",
        "1",
        "x",
        "titan_xp",
        "42",
        "%",
        "12",
        "%",
        "-",
        "-",
        *lines[2].split()[12:],
    ]
    assert "2 launches, 1m 30s" in lines[2]
    assert "Emulated" in lines[3]


def test_all_points_are_had_as_csv_without_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, LAUNCHED, "--csv").splitlines() == [
        "seconds,gpu,gpu_memory,gpu_cores,pcie",
        "10.0,0.5,0.1,,",
        "20.0,0.25,0.2,,",
    ]


def test_of_a_job_that_did_not_train_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, NOTHING) == "Nothing was sampled.\n"
