"""What a finished simulation answers: tables, charts, Gantt, comparisons, fidelity."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from portal.lab.results import _interval, cdf
from tests.portal.api_calls import Api
from tests.portal.lab.test_simulations import MIX, history, run
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World({"a": 4})


@pytest.fixture
def mix(root: Api) -> dict[str, Any]:
    policies = [{"name": "fifo_gang"}, {"name": "f_scheduling", "sweep": {"v_bound": [0.01, 0.5]}}]
    return run(root, MIX | {"policies": policies, "repetitions": 2})


def test_the_table_has_a_row_for_each_policy_with_intervals(root: Api, mix: dict[str, Any]) -> None:
    table = root.get(f"simulations/{mix['id']}/table").json
    assert [row["label"] for row in table["rows"]] == [
        "fifo_gang",
        "f_scheduling (v_bound=0.01)",
        "f_scheduling (v_bound=0.5)",
    ]
    for row in table["rows"]:
        value = row["values"]["jct_s.mean"]
        assert value["low"] <= value["mean"] <= value["high"]
        assert len(row["trials"]) == 2
    keys = [key for row in table["rows"] for key in row["best"]]
    means = [row["values"]["jct_s.mean"]["mean"] for row in table["rows"]]
    assert ("jct_s.mean" in keys) == (len(set(means)) > 1)


def test_intervals_are_students() -> None:
    """t of two degrees of freedom is 4.303; the standard deviation of 1, 2, 3 is 1."""
    found = _interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["high"] == pytest.approx(2.0 + 4.303 / 3**0.5)
    assert _interval([1.0]) == {"mean": 1.0, "low": None, "high": None}


def test_curves_are_bounded_and_end_at_one(root: Api, mix: dict[str, Any]) -> None:
    assert len(cdf([float(i) for i in range(1_000)])) == 200
    charts = root.get(f"simulations/{mix['id']}/charts").json
    assert {len(curves) for curves in charts.values()} == {3}
    for curve in charts["jct_cdf"]:
        assert curve["points"][-1][1] == 1.0
    for curve, trial in zip(charts["utilisation_over_time"], mix["trials"][::2], strict=True):
        mean = sum(share for _, share in curve["points"]) / len(curve["points"])
        assert mean == pytest.approx(trial["metrics"]["utilisation"], abs=1e-3)


def test_no_gpu_of_a_gantt_is_held_twice(root: Api, mix: dict[str, Any]) -> None:
    key = mix["trials"][0]["id"]
    gantt = root.get(f"simulations/{mix['id']}/gantt?trial={key}").json
    assert (gantt["gpus"], len(gantt["rows"])) == (8, 8)
    assert gantt["spans"]
    for gpu in range(8):
        mine = sorted((s["start_s"], s["end_s"]) for s in gantt["spans"] if s["gpu_from"] <= gpu <= s["gpu_to"])
        assert all(one[1] <= two[0] + 1e-3 for one, two in pairwise(mine))
    assert root.get(f"simulations/{mix['id']}/gantt?trial={mix['id']}").fields == ["trial"]


def test_winners_and_losers_are_those_of_the_jobs(root: Api, mix: dict[str, Any]) -> None:
    base, other = mix["trials"][0]["id"], mix["trials"][2]["id"]
    found = root.get(f"simulations/{mix['id']}/compare?base={base}&other={other}").json
    jobs, (project,) = found["jobs"], found["projects"]
    assert project["difference_s"] == pytest.approx(sum(job["difference_s"] for job in jobs) / len(jobs))
    sizes = [abs(job["difference_s"]) for job in jobs]
    assert sizes == sorted(sizes, reverse=True)
    back = root.get(f"simulations/{mix['id']}/compare?base={other}&other={base}").json
    assert back["projects"][0]["difference_s"] == pytest.approx(-project["difference_s"])


def test_fidelity_holds_the_simulated_against_the_recorded(world: World, root: Api) -> None:
    found = run(root, history(world))
    said = root.get(f"simulations/{found['id']}/fidelity").json
    rows = {row["key"]: row for row in said["rows"]}
    assert (said["available"], said["jobs"]) == (True, 6)
    assert rows["jct_mean_s"]["recorded"] == pytest.approx(100.0, abs=1e-3)
    assert rows["wait_mean_s"]["recorded"] == pytest.approx(10.0)
    simulated = found["trials"][-1]["metrics"]["jct_s"]["mean"]
    assert rows["jct_mean_s"]["simulated"] == pytest.approx(simulated, abs=1e-3)
    assert rows["jct_mean_s"]["error"] == pytest.approx(simulated / 100.0 - 1.0, abs=1e-3)
    assert any("1 jobs" in note for note in said["notes"])


def test_there_is_no_fidelity_of_what_never_happened(root: Api, mix: dict[str, Any]) -> None:
    assert root.get(f"simulations/{mix['id']}/fidelity").json["available"] is False
