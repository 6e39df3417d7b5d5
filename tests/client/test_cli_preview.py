"""`evenkeel preview` against a portal that answers as scripted; with a real one it is in test_cli_portal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from evenkeel import schemas
from evenkeel.cli import preview

from tests.client.test_cli_resources import Run, Scripted, portal, run

__all__ = ["portal", "run"]  # fixtures

FORECAST_ID = "0199a6f2-3c41-7b52-9d0e-5a1f6c2b7e90"
MINE: schemas.OthersJob = {"number": 7, "name": "mine", "project": "Vision"}
NOT_MINE: schemas.OthersJob = {"number": 8, "name": None, "project": "Speech"}
ESTIMATE: schemas.Estimate = {
    "currency": "USD",
    "project": "vision",
    "options": [],
    "low": None,
    "high": None,
    "basis": "Nothing is known.",
    "discount": None,
    "jobs": 1,
    "refused_by": [],
    "waits_for": [],
}
SAID: schemas.Preview = {
    "cluster": {"name": "local", "choice": None},
    "verdict": "now",
    "reason": {"code": "best_plan", "text": "2 GPUs make the best plan."},
    "would_change": None,
    "as_of": "2026-11-21T14:32:10.123Z",
    "allocation": {
        "type": "v100",
        "count": 2,
        "share_percent": 100,
        "gpus": [{"node": "n1", "index": 0}, {"node": "n2", "index": 0}],
        "from_others": True,
    },
    "warnings": [],
    "prepares": False,
    "jobs": 1,
    "starting": 1,
    "position": None,
    "effects": [
        {
            "job": MINE,
            "running": True,
            "before": {"type": "v100", "count": 4, "share_percent": 100},
            "after": {"type": "v100", "count": 2, "share_percent": 100},
            "slowdown_before": 1.0,
            "slowdown_after": 1.5556,
            "later_s": 90.0,
        },
        {
            "job": NOT_MINE,
            "running": False,
            "before": None,
            "after": {"type": "v100", "count": 1, "share_percent": 100},
            "slowdown_before": None,
            "slowdown_after": 2.0,
            "later_s": -5.0,
        },
    ],
    "affected": 3,
    "variance": {"before": 0.01, "after": 0.02, "bound": 0.04},
    "estimate": ESTIMATE,
    "throughput": {},
    "forecast": FORECAST_ID,
}
FORECAST: schemas.Forecast = {
    "as_of": "2026-11-21T14:32:10.123Z",
    "start": {
        "p10_at": "2026-11-21T14:42:10Z",
        "p50_at": "2026-11-21T14:52:10Z",
        "p90_at": "2026-11-21T15:12:10Z",
        "as_of": "2026-11-21T14:32:10Z",
        "basis": "simulated",
        "run_time": "steps",
        "outcomes": 0,
        "reason": None,
    },
    "end": {
        "low_at": "2026-11-21T15:42:10Z",
        "at": "2026-11-21T15:52:10Z",
        "high_at": "2026-11-21T16:12:10Z",
        "duration_s": 3600.0,
    },
    "cost": {"low": "1.10", "amount": "1.23", "high": "1.40", "currency": "USD"},
    "gang": {"type": "v100", "count": 2, "share_percent": 100},
    "delayed": [{"job": NOT_MINE, "later_s": 600.0, "start_before_at": "2026-11-21T14:42:10Z"}],
    "others_delayed": 1,
    "futures": 12,
}
WISH = ("preview", "--model", "resnet50", "--steps", "100")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "_POLL_S", 0.01)


def answers(portal: Scripted, said: Any = SAID) -> None:
    portal["POST jobs/preview"] = said
    pending = {"status": "pending", "forecast": None}
    portal.after(f"GET previews/{FORECAST_ID}", [pending, pending, {"status": "done", "forecast": FORECAST}])


def test_it_says_the_verdict_the_forecast_and_what_it_does_to_others(run: Run, portal: Scripted) -> None:
    answers(portal)
    said = run(*WISH).output
    assert portal.asked[0] == ("POST jobs/preview", {"model_type": "resnet50", "total_steps": 100})
    assert "It would start now, on 2 × v100 (n1, n2), once other jobs have left them" in said
    assert "2 GPUs make the best plan." in said
    assert "1h 00m on 2 × v100" in said
    assert "1.10 to 1.40 USD, likely 1.23" in said
    lines = [line.split("  ") for line in said.splitlines() if line.startswith("#")]
    table = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert table == [
        ["#7 mine", "4 × v100", "2 × v100", "1.00", "1.56", "1m 30s"],
        ["#8 of Speech", "none", "1 × v100", "-", "2.00", "5s sooner"],
        ["#8 of Speech", table[2][1], "10m 00s"],
    ]
    assert "and 1 more" in said


def test_as_json_the_forecast_stands_where_its_address_was(run: Run, portal: Scripted) -> None:
    answers(portal)
    found = json.loads(run(*WISH, "--output", "json").stdout)
    assert found == {**SAID, "forecast": FORECAST}


def test_quickly_it_asks_for_no_forecast(run: Run, portal: Scripted) -> None:
    option = {"duration_s": 60.0, "type": "v100", "gpus": 1}
    answers(portal, SAID | {"estimate": {**ESTIMATE, "options": [option], "low": "0.10", "high": "0.20"}})
    said = run(*WISH, "--quick").output
    assert [what for what, _ in portal.asked] == ["POST jobs/preview"]
    assert "1m 00s to 1m 00s" in said
    assert "0.10 to 0.20 USD" in said


def test_a_job_that_never_starts_has_no_forecast_and_says_what_to_change(run: Run, portal: Scripted) -> None:
    never: Any = {"verdict": "never", "allocation": None, "effects": [], "affected": 0, "forecast": None, "starting": 0}
    answers(portal, SAID | never | {"would_change": "Ask for fewer GPUs."})
    answer = run(*WISH)
    assert "Never" in answer.output
    assert "Ask for fewer GPUs." in answer.output
    assert answer.exit_code == 1
    assert run(*WISH, "--output", "json").exit_code == 1


def test_a_refusal_names_the_option_that_was_given(run: Run, portal: Scripted) -> None:
    wrong = [{"field": name, "message": "is wrong", "code": "x"} for name in ("model_type", "total_steps", "nmae")]
    portal["POST jobs/preview"] = (400, {"title": "Bad request", "status": 400, "detail": "x", "errors": wrong})
    refusal = run("preview", "--model", "resnet50", "--set", "total_steps=9")
    assert refusal.exit_code == 1
    assert [line.strip() for line in refusal.output.splitlines()] == [
        "Error: Bad request",
        "--model: is wrong",
        "total_steps: is wrong",
        "nmae: is wrong",
    ]


def test_a_forecast_that_does_not_come_is_said(run: Run, portal: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "_LONGEST_S", 0.05)
    portal["POST jobs/preview"] = SAID
    portal[f"GET previews/{FORECAST_ID}"] = {"status": "pending", "forecast": None}
    result = run(*WISH)
    assert result.exit_code == 0
    assert "still being estimated" in result.output
