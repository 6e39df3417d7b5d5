"""Shortest remaining time: who runs, where, on how many GPUs, and when it leaves things as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given as given_by
from hypothesis import settings
from hypothesis import strategies as st

from scheduling.domain import Curve, Gang, Job, Node
from scheduling.policies import load_policy
from scheduling.policies.elastic.shortest_remaining_time import ShortestRemainingTime
from scheduling.simulator import run_policy, simulate
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

NAME = "shortest_remaining_time"


def given(*jobs: Job, nodes: Sequence[Node] | int = 1, **parameters: object) -> list[Gang | None]:
    counts = load_policy(NAME, parameters).allocate(make_snapshot(*jobs, nodes=nodes, now=0.0)).counts
    assert counts is not None
    return [counts.get(job.id) for job in jobs]


def trace(*jobs: tuple[float, float]) -> list[TraceJob]:
    """(arrival, seconds alone) of jobs for one GPU."""
    return [
        TraceJob(str(n), n, arrival_s, seconds, {"k1": make_curve(1.0)}, min_gpus=1, max_gpus=1)
        for n, (arrival_s, seconds) in enumerate(jobs, 1)
    ]


def one_gpu(launch_s: float = 0.0) -> Cluster:
    return Cluster((Node("a", "k1", (0,)),), {}, launch_s, 0.0, 0.0)


def test_on_one_gpu_with_free_moves_it_is_shortest_remaining_time_first() -> None:
    # By hand: A 0-10, C 10-15, A 15-105 (never behind B, whose 200 s are longer), B 105-305.
    result = simulate(trace((0, 100), (5, 200), (10, 5)), one_gpu(), NAME, {"bound": 1_000.0})
    assert result["jct_s"]["mean"] == pytest.approx((105 + 300 + 5) / 3)
    assert result["restarts"] == 1


def test_no_job_is_moved_for_less_than_a_restart() -> None:
    runs = make_job(holds=[0], curve=make_curve(1.0), max_gpus=1, remaining_steps=100.0, restart_cost_s=30.0)
    for seconds, moved in ((75.0, False), (55.0, True)):  # 100 less a restart is 70
        new = make_job(curve=make_curve(1.0), max_gpus=1, remaining_steps=seconds)
        assert [gang is not None for gang in given(runs, new)] == [not moved, moved]


def test_jobs_alike_do_not_take_turns() -> None:
    """Both weigh more the longer they wait, and one of them is always ahead; still nobody is moved."""
    result = simulate(trace((0, 40_000), (0, 40_000)), one_gpu(launch_s=20.0), NAME, {"bound": 1.0})
    assert result["restarts"] == 0


def test_a_gang_and_single_gpus_do_not_change_places_forever() -> None:
    """All pass the bound here, so whoever is on the slow type weighs more with every look, by the fourth power."""
    fast_and_slow = {"slow": make_curve(1.0), "fast": make_curve(2.9)}
    singles = [
        TraceJob(str(n), n, 0.0, steps, fast_and_slow, min_gpus=1, max_gpus=1)
        for n, steps in enumerate((892_900, 374_701, 513_766, 391_539), 1)
    ]
    picky = TraceJob("5", 5, 0.0, 221_627, {"fast": make_curve(1.0)}, min_gpus=1, max_gpus=1)
    wide = {"slow": Curve((0.0, 0.0, 0.0, 2.5)), "fast": Curve((0.0, 0.0, 0.0, 8.0))}
    gang = TraceJob("6", 6, 600.0, 301_444, wide, min_gpus=4, max_gpus=4)
    nodes = (Node("a", "slow", (0, 1, 2, 3)), Node("b", "fast", (4, 5, 6, 7)))
    result = simulate([*singles, picky, gang], Cluster(nodes, {}, 20.0, 5.0, 2.0), NAME)
    assert (result["finished"], result["restarts"] < 20) == (6, True)


def test_a_long_job_does_not_starve() -> None:
    """Short jobs leave a tenth of the GPU; the long one gets through, the sooner the lower the bound."""
    jobs = trace((0, 1_000), *((20.0 * n, 18.0) for n in range(1, 1_000)))
    ends = []
    for bound in (1.5, 1_000.0):
        values = {"bound": bound, "review_seconds": 60.0}
        end = run_policy(jobs, one_gpu(), NAME, values, Options()).outcome.runs[0].finished_at
        assert end is not None
        ends.append(end)
    assert ends[0] < 0.9 * ends[1]


def test_the_fast_gpu_goes_to_whom_it_helps_most() -> None:
    nodes = (*make_nodes(1, type="fast"), *make_nodes(1, type="slow", first_id=10))
    modest = make_job(curves={"fast": make_curve(1.1), "slow": make_curve(1.0)}, max_gpus=1, remaining_steps=900.0)
    eager = make_job(curves={"fast": make_curve(5.0), "slow": make_curve(1.0)}, max_gpus=1, remaining_steps=1_000.0)
    assert given(modest, eager, nodes=nodes) == [Gang("slow", 1), Gang("fast", 1)]


def test_all_that_fit_run_before_anybody_has_more() -> None:
    jobs = [make_job(curve=make_curve(1.0, 1.9, 2.7, 3.4), remaining_steps=100.0 * n) for n in (1, 2, 3)]
    # The fourth GPU saves the shortest job the largest part of its time.
    assert given(*jobs, nodes=4) == [Gang("titan_xp", 2), Gang("titan_xp", 1), Gang("titan_xp", 1)]


@settings(max_examples=150, deadline=None)
@given_by(data=st.data())
def test_no_job_that_fits_is_left_out_for_larger_gangs(data: st.DataObject) -> None:
    def drawn(number: int) -> Job:
        speeds = data.draw(st.lists(st.floats(0.1, 5.0), min_size=3, max_size=7))
        return make_job(
            curves={kind: make_curve(*accumulate(speeds, initial=1.0)) for kind in ("fast", "slow")},
            min_gpus=data.draw(st.integers(1, 3)),
            max_gpus=8,
            remaining_steps=data.draw(st.floats(1.0, 10_000.0)),
            number=number,
        )

    jobs = [drawn(number) for number in range(1, data.draw(st.integers(2, 5)) + 1)]
    nodes = (*make_nodes(5, type="fast"), *make_nodes(6, type="slow", first_id=10))
    least = [replace(job, max_gpus=job.min_gpus) for job in jobs]
    if None not in given(*least, nodes=nodes):
        assert None not in given(*jobs, nodes=nodes)


@pytest.mark.parametrize(("remaining", "count"), [(1_000.0, 4), (50.0, 2)])
def test_a_job_grows_where_the_time_saved_exceeds_its_restart(remaining: float, count: int) -> None:
    job = make_job(holds=[0, 1], curve=make_curve(1.0, 2.0, 3.0, 4.0), remaining_steps=remaining, restart_cost_s=30.0)
    assert given(job, nodes=4) == [Gang("titan_xp", count)]


def test_it_says_why() -> None:
    short, long = (make_job(curve=make_curve(1.0), max_gpus=1, remaining_steps=s) for s in (10.0, 500.0))
    reasons = ShortestRemainingTime().allocate(make_snapshot(short, long, nodes=1, now=0.0)).reasons
    assert (reasons[short.id].token, reasons[long.id].token) == ("ends_soon", "others_end_sooner")
