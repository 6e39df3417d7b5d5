"""When one more job would start, from what the last round left."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.domain import Job, Move, Partition, Reason, Snapshot, Window
from scheduling.domain.reason_codes import ReasonCode
from scheduling.forecast.next_start import Demand, Start, figures_of, starts_of, why_never
from scheduling.policies import load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

FLAT = make_curve(1.0)
ONE: Demand = (("titan_xp",), "", 1)


def start(
    snapshot: Snapshot,
    job: Job,
    policy: str = "fifo_gang",
    *,
    moves: tuple[Move, ...] = (),
    reasons: dict[str, Reason] | None = None,
    expected: dict[Demand, float] | None = None,
    more: dict[Demand, int] | None = None,
    parameters: dict[str, Any] | None = None,
) -> Start | None:
    """On the only type that it may use."""
    figures = figures_of(snapshot, moves, reasons or {})
    found = starts_of(figures, load_policy(policy, parameters or {}), job, expected or {}, more or {})
    return found[0] if found else None


def after_s(*given: Any, **named: Any) -> float | None:
    found = start(*given, **named)
    assert found is not None
    return found.after_s


def running(*gpus: int, steps: float, **changes: Any) -> Job:
    return make_job(holds=gpus, gpus=len(gpus), curve=FLAT, remaining_steps=steps, **changes)


def test_it_starts_now_where_enough_is_free() -> None:
    assert after_s(make_snapshot(running(0, 1, steps=500.0), nodes=4), make_job(gpus=2)) == 0.0


def test_it_starts_when_running_jobs_have_left_enough() -> None:
    busy = make_snapshot(running(0, 1, steps=500.0), running(2, 3, steps=900.0), nodes=4)
    assert after_s(busy, make_job(gpus=2)) == 500.0
    assert after_s(busy, make_job(gpus=3)) == 900.0


def test_what_the_round_gave_away_is_not_free() -> None:
    waits = make_job(gpus=4, curve=FLAT, remaining_steps=300.0)
    told = Reason(ReasonCode.STARTED, "")
    moves = (Move(waits.id, "start", (0, 1, 2, 3), None, None, told),)
    assert after_s(make_snapshot(waits, nodes=4), make_job(gpus=1), moves=moves) == 300.0


def test_of_a_running_job_whose_speed_is_not_known_nothing_is_known() -> None:
    tried = make_job(holds=[0, 1], gpus=2, curve=make_curve(1.0, source="trial"))
    assert after_s(make_snapshot(tried, nodes=2), make_job(gpus=1)) is None
    limited = make_job(holds=[0, 1], gpus=2, curve=make_curve(1.0, source="trial"), time_limit_s=60.0)
    assert after_s(make_snapshot(limited, nodes=2), make_job(gpus=1)) == 60.0


def test_those_that_wait_come_first() -> None:
    """Two GPUs are free after 100 s and two more after 200; the one ahead takes the first two."""
    waits = make_job(gpus=2, curve=FLAT)
    busy = make_snapshot(running(0, 1, steps=100.0), running(2, 3, steps=200.0), waits, nodes=4)
    assert after_s(busy, make_job(gpus=2)) == 200.0
    assert after_s(make_snapshot(*busy.jobs[:2], nodes=4), make_job(gpus=2), more={(("titan_xp",), "", 2): 1}) == 200.0


def test_a_queue_longer_than_the_cluster_takes_its_work_over_all_gpus() -> None:
    queue = [make_job(gpus=1, curve=FLAT, remaining_steps=1_000.0) for _ in range(4)]
    busy = make_snapshot(running(0, steps=100.0), running(1, steps=100.0), *queue, nodes=2)
    assert after_s(busy, make_job(gpus=1)) == (2 * 100.0 + 4 * 1_000.0) / 2
    mine = make_job(gpus=1, curve=FLAT, remaining_steps=50.0)
    assert after_s(make_snapshot(nodes=2), mine, more={ONE: 6}) == 6 * 50.0 / 2


@pytest.mark.parametrize(
    ("changes", "token"),
    [({"held": True}, ""), ({"waits_for": "#1"}, ""), ({}, ReasonCode.QUOTA), ({}, ReasonCode.NEVER)],
)
def test_those_that_do_not_compete_hold_up_nobody(changes: dict[str, Any], token: str) -> None:
    waits = make_job(gpus=2, curve=FLAT, **changes)
    reasons = {waits.id: Reason(token, "")} if token else {}
    assert after_s(make_snapshot(waits, nodes=2), make_job(gpus=2), reasons=reasons) == 0.0


def test_a_smaller_job_may_pass_a_larger_one_unless_the_order_is_strict() -> None:
    large = make_job(gpus=4, curve=FLAT, remaining_steps=600.0)
    busy = make_snapshot(running(0, 1, steps=100.0), large, nodes=4)
    assert after_s(busy, make_job(gpus=1), "multifactor") == 0.0
    assert load_policy("fifo_gang", {}).capabilities.strict_order
    assert after_s(busy, make_job(gpus=1), "fifo_gang") == (2 * 100.0 + 4 * 600.0) / 4


def test_the_stored_forecast_of_those_ahead_counts() -> None:
    queue = [make_job(gpus=1, curve=FLAT) for _ in range(3)]
    busy = make_snapshot(running(0, steps=100.0), *queue, nodes=1)
    forecast = {ONE: 9_000.0, (("titan_xp",), "other", 1): 99_000.0}
    assert after_s(busy, make_job(gpus=1), expected=forecast) == 9_000.0


def test_an_elastic_policy_takes_what_others_have_beyond_their_least() -> None:
    grown = make_job(holds=[0, 1, 2, 3], min_gpus=1, curve=FLAT, remaining_steps=100.0)
    busy = make_snapshot(grown, nodes=4)
    assert after_s(busy, make_job(gpus=3), "f_scheduling") == 0.0
    assert after_s(busy, make_job(gpus=3), "fifo_gang") == 100.0
    assert after_s(busy, make_job(gpus=4), "f_scheduling") == 100.0
    found = start(make_snapshot(nodes=4), make_job(min_gpus=1, max_gpus=3), "f_scheduling")
    assert found is not None
    assert found.gpus == 3


def test_which_gpus_a_job_has_beyond_its_least_is_for_those_that_may_be_resized() -> None:
    fixed = make_job(holds=[0, 1, 2, 3], min_gpus=1, curve=FLAT, remaining_steps=100.0, restartable=False)
    assert after_s(make_snapshot(fixed, nodes=4), make_job(gpus=3), "f_scheduling") == 100.0


def test_a_part_of_a_gpu_fits_beside_another() -> None:
    half = make_job(holds=[0], gpus=1, gpu_milli=500, curve=make_curve(1.0, source="trial"))
    assert after_s(make_snapshot(half, nodes=1), make_job(gpus=1, gpu_milli=500)) == 0.0
    assert after_s(make_snapshot(half, nodes=1), make_job(gpus=1, gpu_milli=600)) is None


def test_nodes_of_other_partitions_and_those_out_of_service_do_not_count() -> None:
    a, b = make_nodes(2, 2)
    parts = {"day": Partition(frozenset({a.name})), "night": Partition(frozenset({b.name}))}
    busy = make_snapshot(running(0, 1, steps=70.0, partition="day"), nodes=[a, b], partitions=parts)
    assert after_s(busy, make_job(gpus=1, partition="day")) == 70.0
    assert after_s(busy, make_job(gpus=1, partition="night")) == 0.0
    (drained,) = make_nodes(2, schedulable=False)
    assert start(make_snapshot(nodes=[drained]), make_job(gpus=1)) is None


def test_it_starts_after_a_window_that_it_would_run_into() -> None:
    (node,) = make_nodes(2)
    window = Window("w", frozenset({node.name}), 900.0, 1_600.0)
    assert after_s(make_snapshot(nodes=[node], windows=(window,)), make_job(gpus=1)) == 600.0


def test_each_type_has_a_start() -> None:
    nodes = [*make_nodes(1), *make_nodes(1, type="v100", first_id=1)]
    job = make_job(gpus=1, curves={"titan_xp": FLAT, "v100": FLAT})
    figures = figures_of(make_snapshot(running(0, steps=40.0), nodes=nodes), (), {})
    found = starts_of(figures, load_policy("fifo_gang", {}), job, {}, {})
    assert [(one.type, one.after_s) for one in found] == [("titan_xp", 40.0), ("v100", 0.0)]


@pytest.mark.parametrize(
    ("job", "changes", "said"),
    [
        (make_job(gpus=9), {}, "needs at least 9"),
        (make_job(gpus=1, types=("v100",)), {}, "This cluster has no v100 (it has 6 titan_xp"),
        (make_job(gpus=1, type="v100"), {}, "Its throughput is known only on v100, not on titan_xp"),
        (
            make_job(gpus=4, partition="day"),
            {"partitions": {"day": Partition(frozenset({"titan_xp-0"}))}, "nodes": make_nodes(2, 4)},
            "Partition day has at most 2 GPUs",
        ),
        (make_job(gpus=2), {}, ""),
        (make_job(gpus=2, waits_for="#1", held=True), {"blocked_gpu_ids": frozenset(range(6))}, ""),
    ],
)
def test_why_it_never_starts_is_said_as_rounds_say_it(job: Job, changes: dict[str, Any], said: str) -> None:
    reason = why_never(make_snapshot(**changes), load_policy("f_scheduling", {}), job)
    assert said in reason.text if said and reason else reason is None


def test_a_job_larger_than_a_policys_slots_never_starts() -> None:
    slots = load_policy("static_partition", {"n": 2})
    reason = why_never(make_snapshot(), slots, make_job(gpus=3))
    assert reason is not None
    assert reason.token == ReasonCode.SLOT_TOO_SMALL
    assert why_never(make_snapshot(), slots, make_job(gpus=2)) is None


def test_no_policy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy("f_scheduling", {})
    monkeypatch.setattr(type(policy), "allocate", lambda *given: pytest.fail("asked"))
    figures = figures_of(make_snapshot(running(0, steps=5.0)), (), {})
    assert why_never(figures.snapshot, policy, make_job(gpus=9)) is not None
    assert starts_of(figures, policy, make_job(gpus=2), {}, {})
