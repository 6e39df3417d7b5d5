"""GPUs, processors and memory that the engine's other jobs have: nobody is placed there, and all know until when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from portal.snapshot.decisions import snapshot_from_text, snapshot_text
from scheduling.domain import Beside, Job, Node, Others, Partition, Plan, Snapshot, Window
from scheduling.engine.rounds import plan_round
from scheduling.forecast.forecast import foresee
from scheduling.forecast.next_round import Planned, preview
from scheduling.policies import POLICIES, load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn
from tests.scheduling.forecast.test_futures import AT_ONCE, known
from tests.scheduling.strategies import ONE_OF_EACH_KIND

AT = 1_795_860_000.0  # 2026-11-28 10:00 UTC
UNTIL = AT + 15_600.0  # 14:20
every_policy = in_turn("name", sorted(POLICIES))
each_kind = pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
FIFO = load_policy("fifo_gang")


def taken(snapshot: Snapshot, *gpus: int, until: float | None = UNTIL) -> Snapshot:
    others = Others({**snapshot.others.gpus, **dict.fromkeys(gpus, until)}, "Slurm")
    return replace(snapshot, others=others, blocked_gpu_ids=snapshot.blocked_gpu_ids | others.gpus.keys())


def lasting(gpus: int, seconds: float = 100.0, **changes: Any) -> Job:
    curve = make_curve(*[0.0] * (gpus - 1), 1.0)
    return make_job(gpus=gpus, curve=curve, remaining_steps=seconds, submitted_at=AT - 10, **changes)


def placed(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {move.job_id: move.gpu_ids for move in plan.moves}


@every_policy
def test_no_policy_gives_away_what_others_have(name: str) -> None:
    jobs = [make_job(min_gpus=1, max_gpus=4, submitted_at=AT - n) for n in range(6)]
    runs = make_job(min_gpus=1, max_gpus=6, holds=[0], submitted_at=AT - 9)
    snapshot = taken(make_snapshot(runs, *jobs, nodes=make_nodes(4, 4), now=AT), 2, 3, 4, 5, 6)
    policy = load_policy(name)
    for _ in range(3):
        plan = plan_round(snapshot, policy)
        given = placed(plan)
        assert not {gpu for gpus in given.values() for gpu in gpus} & snapshot.others.gpus.keys()
        moved = {move.job_id: move for move in plan.moves}
        held = tuple(
            replace(job, gpu_ids=moved[job.id].gpu_ids, gang=moved[job.id].gang) if job.id in moved else job
            for job in snapshot.jobs
        )
        snapshot = replace(snapshot, memory=plan.memory, jobs=held, now=snapshot.now + 400.0)


@each_kind
def test_where_no_other_job_is_plans_are_what_they_were(name: str) -> None:
    jobs = [make_job(min_gpus=1, max_gpus=4, submitted_at=AT - n) for n in range(6)]
    snapshot = make_snapshot(*jobs, nodes=make_nodes(4, 4, cpu_milli=8_000, memory_mib=1_000), now=AT)
    empty = replace(snapshot, others=Others({}, "Slurm"))
    policy = load_policy(name)
    assert plan_round(snapshot, policy) == plan_round(empty, policy)


@each_kind
def test_a_job_that_others_leave_too_little_waits_and_is_not_told_never(name: str) -> None:
    if name == "static_partition":
        pytest.skip("its slots, of one GPU, never hold the job")
    job = lasting(4)
    snapshot = taken(make_snapshot(job, nodes=make_nodes(4), now=AT), 2, 3)
    plan = plan_round(snapshot, load_policy(name))
    assert plan.moves == ()
    assert plan.reasons[job.id].text.endswith("2 GPUs of titan_xp-0 are used by other Slurm jobs until 14:20 UTC.")
    without = Planned.of(replace(snapshot, jobs=()), Plan())
    said = preview(without, replace(snapshot, jobs=()), load_policy(name), [job])
    assert (said.verdict, said.gang) == ("later", None)


@in_turn(
    ("ends", "words"),
    [
        ({2: UNTIL}, "1 GPU of titan_xp-0 is used by other Slurm jobs until 14:20 UTC."),
        ({2: UNTIL, 3: UNTIL + 60}, "2 GPUs of titan_xp-0 are used by other Slurm jobs, the first until 14:20 UTC."),
        ({2: UNTIL, 3: None}, "2 GPUs of titan_xp-0 are used by other Slurm jobs, the first until 14:20 UTC."),
        ({2: None}, "1 GPU of titan_xp-0 is used by other Slurm jobs."),
        ({2: AT - 1}, "1 GPU of titan_xp-0 is used by other Slurm jobs."),
        ({2: UNTIL + 86_400}, "1 GPU of titan_xp-0 is used by other Slurm jobs until 2026-11-29 14:20 UTC."),
        ({2: UNTIL, 4: UNTIL}, "2 GPUs of titan_xp-0 and titan_xp-1 are used by other Slurm jobs until 14:20 UTC."),
        ({0: UNTIL, 4: UNTIL, 8: UNTIL, 12: UNTIL}, "4 GPUs of 4 nodes are used by other Slurm jobs until 14:20 UTC."),
    ],
)
def test_who_has_them_and_until_when_is_said(ends: dict[int, float | None], words: str) -> None:
    job = lasting(17)
    plan = plan_round(snapshot_with(job, ends), FIFO)
    assert plan.reasons[job.id].text.endswith(" it starts when enough are. " + words)


def snapshot_with(job: Job, ends: dict[int, float | None]) -> Snapshot:
    snapshot = make_snapshot(job, nodes=make_nodes(4, 4, 4, 4, 4), now=AT)
    return replace(snapshot, others=Others(ends, "Slurm"), blocked_gpu_ids=frozenset({*ends, 16, 17, 18, 19}))


def test_of_nodes_that_it_may_not_use_nothing_is_said() -> None:
    job = lasting(4, types=("titan_xp",))
    nodes = (*make_nodes(2), *make_nodes(2, first_id=10), *make_nodes(4, type="b", first_id=20))
    drained = replace(nodes[1], name="old", schedulable=False)
    plan = plan_round(taken(make_snapshot(job, nodes=(nodes[0], drained, nodes[2]), now=AT), 10, 20), FIFO)
    assert "Slurm" not in plan.reasons[job.id].text


def test_a_job_that_waits_for_something_else_is_not_told_of_others() -> None:
    held, later = lasting(4, held=True), lasting(4, not_before=AT + 5)
    plan = plan_round(taken(make_snapshot(held, later, nodes=4, now=AT), 3), FIFO)
    assert not any("Slurm" in plan.reasons[job.id].text for job in (held, later))


def test_with_partitions_and_windows_it_is_said_in_plain_types() -> None:
    job = lasting(4, partition="main")
    snapshot = make_snapshot(
        job, nodes=make_nodes(4), now=AT, partitions={"main": Partition(frozenset({"titan_xp-0"}))}
    )
    window = Window("w", frozenset({"titan_xp-0"}), AT + 1e6, AT + 2e6)
    text = plan_round(taken(replace(snapshot, windows=(window,)), 3), FIFO).reasons[job.id].text
    assert text.endswith("1 GPU of titan_xp-0 is used by other Slurm jobs until 14:20 UTC.")
    assert text.isprintable()


def test_a_reservation_counts_on_what_others_leave_when_they_end() -> None:
    """Who is behind may fill until then, and no longer."""
    first, long, short = lasting(4), lasting(2, 20_000.0), lasting(2, 15_000.0)
    snapshot = taken(make_snapshot(first, long, short, nodes=4, now=AT), 2, 3)
    plan = plan_round(snapshot, load_policy("multifactor"))
    assert placed(plan).keys() == {short.id}
    endless = taken(snapshot, 2, 3, until=None)
    assert placed(plan_round(endless, load_policy("multifactor"))).keys() == {long.id}


def test_forecasts_know_when_others_end() -> None:
    small, waits = lasting(1, 10.0), lasting(4, 50.0)
    snapshot = taken(make_snapshot(waits, small, nodes=4, now=AT), 2, 3)
    starts = foresee(snapshot, FIFO, known(times=AT_ONCE)).starts
    assert starts[waits.id].p50_s == pytest.approx(UNTIL - AT)
    assert starts[small.id].p50_s == pytest.approx(0.0)
    assert waits.id not in foresee(taken(snapshot, 3, until=None), FIFO, known(times=AT_ONCE)).starts


def beside(*rows: tuple[int, int, float | None]) -> tuple[Node, ...]:
    (node,) = make_nodes(4, cpu_milli=16_000, memory_mib=1_000)
    return (replace(node, others=tuple(Beside(*row) for row in rows)),)


@every_policy
def test_processors_and_memory_of_others_are_not_given_away(name: str) -> None:
    cpu, memory, fits = (
        lasting(1, cpu_milli=9_000),
        lasting(1, memory_mib=501),
        lasting(1, cpu_milli=8_000, memory_mib=500),
    )
    snapshot = make_snapshot(cpu, memory, nodes=beside((8_000, 500, UNTIL)), now=AT, others=Others({}, "Slurm"))
    plan = plan_round(snapshot, load_policy(name))
    assert placed(plan) == {}
    assert not any(reason.token in ("never", "too_large") for reason in plan.reasons.values())
    alone = plan_round(replace(snapshot, jobs=(fits,)), load_policy(name))
    assert placed(alone).keys() == {fits.id}


def test_that_they_are_others_is_said_and_foreseen() -> None:
    job = lasting(1, cpu_milli=9_000)
    nodes = beside((4_000, 0, UNTIL - 600), (4_000, 0, UNTIL))
    snapshot = make_snapshot(job, nodes=nodes, now=AT, others=Others({}, "Slurm"))
    text = plan_round(snapshot, FIFO).reasons[job.id].text
    assert text.endswith("Processors and memory of titan_xp-0 are used by other Slurm jobs, the first until 14:10 UTC.")
    starts = foresee(snapshot, FIFO, known(times=AT_ONCE)).starts
    assert starts[job.id].p50_s == pytest.approx(UNTIL - 600 - AT)


def test_a_kept_decision_has_them() -> None:
    snapshot = taken(make_snapshot(lasting(4), nodes=beside((8_000, 500, None)), now=AT), 2)
    assert snapshot_from_text(snapshot_text(snapshot)) == snapshot
