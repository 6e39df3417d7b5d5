"""Expected starts: exact where all is known, bounded and repeatable where not, unsaid where nothing can be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduling.domain import Job, Limit, Node, Partition, Snapshot, Window
from scheduling.forecast.arrivals import recorded
from scheduling.forecast.calibration import Calibration
from scheduling.forecast.forecast import Budget, Forecast, Known, foresee
from scheduling.forecast.future import Times
from scheduling.forecast.run_times import History, Past
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn

EXACT = {"catalogue": 0.0}
AT_ONCE = Times(launch_s=0.0, stop_s=0.0, protect_s=0.0)


def known(
    pasts: Sequence[Past] = (),
    arrivals: Sequence[Job] = (),
    times: Times = AT_ONCE,
    trained_s: Mapping[str, float] | None = None,
) -> Known:
    return Known(History(pasts, speed_error=EXACT), trained_s or {}, recorded(arrivals), times)


def foresee_under(name: str, snapshot: Snapshot, what: Known | None = None) -> Forecast:
    return foresee(snapshot, load_policy(name, {}), what or known())


def foresee_once(name: str, snapshot: Snapshot, what: Known | None = None, milliseconds: float = 1e5) -> Forecast:
    """Where all is known one future says it all."""
    budget = Budget(milliseconds, most_futures=1, least_futures=1)
    return foresee(snapshot, load_policy(name, {}), what or known(), budget=budget)


def line(*seconds: float) -> tuple[Job, ...]:
    """Jobs of one GPU at one step a second; the first one runs."""
    one = make_curve(1.0)
    first = make_job(gpus=1, holds=[0], curve=one, remaining_steps=seconds[0])
    return (first, *(make_job(gpus=1, curve=one, remaining_steps=left) for left in seconds[1:]))


def test_a_line_before_one_gpu_moves_up_as_those_ahead_end() -> None:
    jobs = line(100.0, 50.0, 30.0, 10.0)
    starts = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1)).starts
    assert [starts[job.id].p50_s for job in jobs[1:]] == pytest.approx([100.0, 150.0, 180.0])
    assert all(start.p10_s == start.p90_s and start.simulated for start in starts.values())


def test_no_job_starts_before_now_however_long_it_has_waited() -> None:
    one = make_curve(1.0)
    waiting = [make_job(gpus=1, curve=one, remaining_steps=100.0, submitted_at=0.0) for _ in range(3)]
    for name in ("fifo_gang", "f_scheduling"):
        starts = foresee_once(name, make_snapshot(*waiting, nodes=1, now=10_000.0)).starts
        assert [starts[job.id].p50_s for job in waiting] == pytest.approx([0.0, 100.0, 200.0])


def test_launches_count() -> None:
    jobs = line(100.0, 50.0, 30.0)
    starts = foresee_under(
        "fifo_gang", make_snapshot(*jobs, nodes=1), known(times=Times(launch_s=20.0, stop_s=5.0, protect_s=60.0))
    ).starts
    assert [starts[job.id].p50_s for job in jobs[1:]] == pytest.approx([100.0, 170.0])


def asleep(nodes: tuple[Node, ...], *places: int, boot_s: float = 300.0) -> tuple[Node, ...]:
    return tuple(replace(node, boot_s=boot_s * (at in places)) for at, node in enumerate(nodes))


def test_nodes_that_are_powered_down_are_up_once_the_first_launch_there_has_woken_them() -> None:
    one = make_curve(1.0)
    jobs = [make_job(gpus=1, curve=one, remaining_steps=100.0) for _ in range(3)]
    snapshot = replace(make_snapshot(*jobs, nodes=1), nodes=asleep(make_nodes(1), 0))
    starts = foresee_under("fifo_gang", snapshot, known(times=Times(20.0, 0.0, 0.0))).starts
    assert [starts[job.id].p50_s for job in jobs] == pytest.approx([300.0, 420.0, 540.0])


def test_what_is_launched_on_a_node_that_comes_up_trains_from_then_on() -> None:
    first, second = line(100.0, 50.0)
    first = replace(first, state=State.LAUNCHING)
    snapshot = replace(make_snapshot(first, second, nodes=1), nodes=asleep(make_nodes(1), 0))
    assert foresee_under("fifo_gang", snapshot).starts[second.id].p50_s == pytest.approx(400.0)


def test_a_gang_waits_for_the_last_of_its_nodes() -> None:
    job = make_job(gpus=2, curve=make_curve(1.0, 2.0), remaining_steps=100.0)
    snapshot = replace(make_snapshot(job), nodes=asleep(make_nodes(1, 1), 1))
    assert foresee_under("fifo_gang", snapshot).starts[job.id].p50_s == pytest.approx(300.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.floats(10.0, 5_000.0)), min_size=2, max_size=15), st.integers(2, 6))
@example([(3, 10.0), (2, 3110.21), (2, 60.0), (2, 60.0), (1, 2389.61), (4, 60.0), (2, 2947.12)], 5)
@pytest.mark.parametrize("name", ["fifo_gang", "multifactor"])
def test_it_foresees_what_the_simulator_does_where_all_is_known(
    name: str, wanted: list[tuple[int, float]], gpus: int
) -> None:
    sizes = [(min(size, gpus), seconds) for size, seconds in wanted]
    jobs = [
        TraceJob(
            str(n), n, 0.0, seconds, {"titan_xp": make_curve(*[0.0] * (size - 1), 1.0)}, min_gpus=size, max_gpus=size
        )
        for n, (size, seconds) in enumerate(sizes, 1)
    ]
    cluster = Cluster(make_nodes(gpus), {}, launch_s=20.0)
    engine = Engine(jobs, cluster, load_policy(name, {}))
    engine.run()
    waiting = [
        make_job(number=job.number, gpus=job.min_gpus, curve=job.curves["titan_xp"], remaining_steps=job.total_steps,
                 submitted_at=0.0, project="default")
        for job in jobs
    ]  # fmt: skip
    snapshot = make_snapshot(*waiting, nodes=gpus, now=0.0, members={"default": {"": 1.0}})
    starts = foresee_once(name, snapshot, known(times=Times(20.0, 7.0, 60.0))).starts
    expected = [(run.started_at or 0.0) - 20.0 for run in engine.runs]
    assert [starts[job.id].p50_s for job in waiting] == pytest.approx(expected, abs=1e-3)


def test_same_seed_same_answer_and_another_seed_another() -> None:
    pasts = [Past("speech", "", 1, 10.0 * n) for n in range(1, 60)]
    jobs = [replace(job, curves={}) for job in line(0.0, 0.0, 0.0, 0.0)]
    snapshot, policy = make_snapshot(*jobs, nodes=1), load_policy("fifo_gang", {})
    first, again, other = (foresee(snapshot, policy, known(pasts), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_run_times_of_which_nothing_is_stated_come_from_earlier_jobs_given_how_long_it_has_run() -> None:
    pasts = [Past("speech", "", 1, seconds) for seconds in [10.0] * 50 + [1_000.0] * 50]
    jobs = [replace(job, curves={}) for job in line(0.0, 0.0)]
    fresh = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1), known(pasts))
    later = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1), known(pasts, trained_s={jobs[0].id: 400.0}))
    assert fresh.run_times == {"history": 2}
    assert fresh.starts[jobs[1].id].p10_s == pytest.approx(10.0)
    assert later.starts[jobs[1].id].p10_s == later.starts[jobs[1].id].p90_s == pytest.approx(600.0)


def test_without_earlier_jobs_the_time_limit_bounds_them() -> None:
    jobs = [replace(job, curves={}, time_limit_s=600.0) for job in line(0.0, 0.0)]
    forecast = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1))
    assert forecast.run_times == {"time_limit": 2}
    assert 0.0 < forecast.starts[jobs[1].id].p10_s < forecast.starts[jobs[1].id].p90_s <= 600.0


def test_who_always_ends_early_is_expected_to() -> None:
    pasts = [Past("speech", "", 1, 1.0, part=0.25) for _ in range(20)]
    jobs = line(1_000.0, 10.0)
    start = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1), known(pasts)).starts[jobs[1].id]
    assert start.p50_s == pytest.approx(250.0)


def test_later_arrivals_of_higher_priority_push_a_start_back() -> None:
    jobs = line(100.0, 50.0)
    urgent = [make_job(gpus=1, curve=make_curve(1.0), remaining_steps=40.0, priority=5, submitted_at=20.0 * n,
                       project="p", number=900 + n) for n in range(40)]  # fmt: skip
    quiet = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1)).starts[jobs[1].id]
    busy = foresee_under("fifo_gang", make_snapshot(*jobs, nodes=1), known(arrivals=urgent)).starts[jobs[1].id]
    assert quiet.p50_s == pytest.approx(100.0)
    assert busy.p10_s > 5 * quiet.p90_s


def test_it_says_of_whom_nothing_can_be_said_and_why() -> None:
    running, waiting = line(100.0, 50.0)
    odd = {
        "held": make_job(gpus=1, held=True),
        "dependency": make_job(gpus=1, waits_for="It waits for #1 to succeed."),
        "never": make_job(gpus=64),
        "limit": make_job(gpus=1, limits=("q",)),
    }
    limits = {"q": Limit("spent", 0, level="project Speech", text="Its budget is used up.")}
    snapshot = make_snapshot(running, waiting, *odd.values(), nodes=1, limits=limits)
    forecast = foresee_under("fifo_gang", snapshot)
    assert forecast.unsaid == {job.id: why for why, job in odd.items()}
    assert set(forecast.starts) == {waiting.id}


def test_a_short_budget_shares_rounds_and_stays_close() -> None:
    jobs = list(line(*[100.0] * 200))
    snapshot = make_snapshot(*jobs, nodes=1)
    rough = foresee_once("fifo_gang", snapshot, milliseconds=50.0)
    exact = foresee_once("fifo_gang", snapshot)
    assert rough.rounds <= exact.rounds / 2
    assert exact.starts[jobs[-1].id].p50_s == pytest.approx(100.0 * 199)
    for job in jobs[1:]:
        assert rough.starts[job.id].p50_s == pytest.approx(exact.starts[job.id].p50_s, rel=0.5, abs=400.0)


def passed_by(load: float, waiting: int, gpus: int) -> tuple[Snapshot, Known]:
    """Jobs wait while others of a higher priority come that keep so much of the GPUs busy."""
    rng, one, at = Random(5), make_curve(1.0), 0.0
    came = []
    for _ in range(99):
        at += rng.expovariate(load * gpus / 600.0) if load else 1e9
        came.append(make_job(gpus=1, curve=one, remaining_steps=rng.expovariate(1 / 600.0), priority=10**5,
                             submitted_at=at, project="p"))  # fmt: skip
    holding = [make_job(gpus=1, holds=[n], curve=one, remaining_steps=rng.uniform(0, 300.0 * gpus), project="p")
               for n in range(gpus)]  # fmt: skip
    behind = [make_job(gpus=2, curve=one, remaining_steps=rng.uniform(300.0, 1_500.0), project="p", submitted_at=0.0)
              for _ in range(waiting)]  # fmt: skip
    snapshot = make_snapshot(*holding, *behind, nodes=gpus, now=2_000.0, members={"p": {"": 1.0}})
    return snapshot, known(arrivals=came, times=Times())


@pytest.mark.parametrize("name", ["fifo_gang", "multifactor", "f_scheduling", "max_min_fairness"])
@pytest.mark.parametrize(
    ("load", "waiting", "gpus"),
    [
        (0.9, 6, 4),
        (0.7, 100, 32),
        *(
            pytest.param(*more, marks=pytest.mark.whole)
            for more in [(2.0, 6, 4), (0.3, 20, 8), (0.3, 100, 4), (0.3, 450, 64)]
        ),
    ],
)
def test_all_of_the_first_500_are_simulated(name: str, load: float, waiting: int, gpus: int) -> None:
    forecast = foresee_under(name, *passed_by(load, waiting, gpus))
    assert len(forecast.starts) == waiting
    assert all(start.simulated for start in forecast.starts.values())


@in_turn("name", ["multifactor", "max_min_fairness"])
def test_a_long_queue_on_few_gpus_is_told_about_rightly_from_its_head_on(name: str) -> None:
    """More rounds than there is time for: those that are simulated start when they would, and so do those behind."""
    snapshot, what = passed_by(0.0, 490, 4)
    rough = foresee_once(name, snapshot, what, milliseconds=300.0)
    exact = foresee_once(name, snapshot, what, milliseconds=1e6)
    assert rough.rounds < exact.rounds / 3
    said, true = ([one.starts[job.id] for job in snapshot.jobs if not job.gpu_ids] for one in (rough, exact))
    assert said[0].simulated
    for one, other in zip(said, true, strict=True):
        assert one.p50_s == pytest.approx(other.p50_s, rel=0.25, abs=1_500.0)


def test_a_few_that_came_at_once_do_not_come_again_and_again() -> None:
    """A new cluster's ten jobs of half a minute, all of a higher priority than the one that waits."""
    one = make_curve(1.0)
    holding = make_job(gpus=4, holds=range(4), curve=one, remaining_steps=600.0, project="p")
    behind = make_job(gpus=4, curve=one, remaining_steps=600.0, project="p", submitted_at=0.0)
    came = [make_job(gpus=4, curve=one, remaining_steps=600.0, priority=10**5, submitted_at=3.0 * n, project="p")
            for n in range(11)]  # fmt: skip
    snapshot = make_snapshot(holding, behind, nodes=4, now=2_000.0, members={"p": {"": 1.0}})
    start = foresee_under("multifactor", snapshot, known(arrivals=came)).starts[behind.id]
    assert start.simulated
    assert start.p50_s == pytest.approx(600.0 + 10 * 600.0)


def test_rounds_that_events_share_lose_no_time_of_gpus() -> None:
    snapshot, _ = passed_by(0.0, 400, 64)
    rough = foresee_once("fifo_gang", snapshot, milliseconds=100.0)
    exact = foresee_once("fifo_gang", snapshot)
    assert rough.rounds < exact.rounds / 4
    late_s = [rough.starts[key].p50_s - start.p50_s for key, start in exact.starts.items()]
    assert fmean(map(abs, late_s)) < 0.03 * max(start.p50_s for start in exact.starts.values())


def test_who_starts_in_a_round_that_events_share_does_not_start_before_its_back_off_ends() -> None:
    snapshot, _ = passed_by(0.0, 400, 64)
    jobs = [replace(job, not_before=2_000.0 + 7 * place) for place, job in enumerate(snapshot.jobs) if not job.gpu_ids]
    running = [job for job in snapshot.jobs if job.gpu_ids]
    starts = foresee_once("fifo_gang", replace(snapshot, jobs=(*running, *jobs)), milliseconds=100.0).starts
    assert all(starts[job.id].p50_s + snapshot.now >= (job.not_before or 0.0) for job in jobs)


def test_the_emergency_brake_leaves_no_job_without_a_start() -> None:
    jobs, asked = line(*[100.0] * 21), iter(range(10**6))
    budget = Budget(1e5, most_futures=1, least_futures=1, stopped=lambda: next(asked) >= 5)
    found = foresee(make_snapshot(*jobs, nodes=1), load_policy("fifo_gang", {}), known(), budget=budget)
    assert found.unsaid == {}
    assert len(found.starts) == 20


def test_there_are_futures_enough_for_an_interval_however_dear_one_is() -> None:
    snapshot, what = passed_by(0.3, 100, 32)
    assert foresee(snapshot, load_policy("multifactor", {}), what, budget=Budget(1.0)).futures == 3


def test_behind_the_first_500_starts_follow_from_the_work_ahead() -> None:
    one = make_curve(1.0)
    holding = [make_job(gpus=1, holds=[n], curve=one, remaining_steps=1_000.0) for n in range(8)]
    waiting = [make_job(gpus=1, curve=one, remaining_steps=1_000.0, submitted_at=0.0) for _ in range(800)]
    starts = foresee_once("fifo_gang", make_snapshot(*holding, *waiting, nodes=8)).starts
    assert len(starts) == 800
    assert starts[waiting[0].id].simulated
    assert not starts[waiting[500].id].simulated
    in_order = [starts[job.id].p50_s for job in waiting[500:]]
    assert in_order == sorted(in_order)
    assert starts[waiting[-1].id].p50_s == pytest.approx(1_000.0 * 807 / 8, rel=0.05)


@in_turn("name", sorted(POLICIES))
def test_every_policy_can_be_foreseen(name: str) -> None:
    one = make_curve(1.0, 1.8)
    running = [make_job(holds=[n], curve=one, remaining_steps=500.0, state=State.RUNNING) for n in range(4)]
    waiting = [make_job(min_gpus=1, max_gpus=2, curve=one, remaining_steps=300.0) for _ in range(6)]
    snapshot = make_snapshot(*running, *waiting, nodes=4)
    forecast = foresee_under(name, snapshot)
    assert set(forecast.starts) | set(forecast.unsaid) == {job.id for job in waiting}
    for start in forecast.starts.values():
        assert 0.0 <= start.p10_s <= start.p50_s <= start.p90_s


def test_an_empty_queue_has_an_empty_forecast() -> None:
    forecast = foresee_under("fifo_gang", make_snapshot(*line(100.0), nodes=1))
    assert (forecast.starts, forecast.unsaid, forecast.futures) == ({}, {}, 0)


def test_a_job_that_would_run_into_maintenance_starts_after_it() -> None:
    waiting = make_job(gpus=1, curve=make_curve(1.0), remaining_steps=5_000.0)
    nodes = make_nodes(1)
    window = Window("w", frozenset({nodes[0].name}), start=2_000.0, end=9_000.0)
    forecast = foresee_once("fifo_gang", make_snapshot(waiting, nodes=nodes, windows=(window,)))
    assert forecast.starts[waiting.id].p50_s == pytest.approx(8_000.0)  # the snapshot is of 1,000


def test_arrivals_during_a_window_of_all_nodes_do_not_end_with_it() -> None:
    """Nothing runs in it, and yet those of higher priority go on coming and go first afterwards."""
    one, nodes = make_curve(1.0), make_nodes(4, 4)
    window = Window("w", frozenset(node.name for node in nodes), start=0.0, end=20_000.0)
    waiting = [make_job(gpus=1, curve=one, remaining_steps=600.0, project="p", submitted_at=0.0) for _ in range(60)]
    came = [make_job(gpus=1, curve=one, remaining_steps=600.0, priority=10**5, project="p", submitted_at=75.0 * n)
            for n in range(200)]  # fmt: skip
    snapshot = make_snapshot(*waiting, nodes=nodes, windows=(window,), members={"p": {"": 1.0}})
    starts = foresee_under("multifactor", snapshot, known(arrivals=came)).starts
    # 19,000 s of arrivals, one each 75 s, are 200 jobs at most; eight GPUs take 600 s for each eight of them.
    assert min(start.p50_s for start in starts.values()) > 19_000.0 + 200 / 8 * 600.0 * 0.8


def test_who_was_barred_by_a_reservation_does_not_start_in_it() -> None:
    """However early a GPU is free that others have reserved, and however many events share the round at its end."""
    one, nodes = make_curve(1.0), make_nodes(2)
    holding = [
        make_job(gpus=1, holds=[n], curve=one, remaining_steps=350.0 + 5_000.0 * n, project="q") for n in range(2)
    ]
    waiting = [make_job(gpus=1, curve=one, remaining_steps=100.0, submitted_at=0.0, project="p") for _ in range(4)]
    window = Window("w", frozenset({nodes[0].name}), start=0.0, end=1_400.0, projects=frozenset("q"))
    snapshot = make_snapshot(*holding, *waiting, nodes=nodes, windows=(window,))
    for milliseconds in (1e5, 1.0):
        starts = foresee_once("fifo_gang", snapshot, milliseconds=milliseconds).starts
        assert [starts[job.id].p50_s for job in waiting[:2]] == pytest.approx([400.0, 500.0])


def test_a_partition_that_is_too_small_is_never_large_enough() -> None:
    nodes = make_nodes(1, 4)
    parts = {"small": Partition(frozenset({nodes[0].name})), "large": Partition(frozenset({nodes[1].name}))}
    here, there = make_job(gpus=2, partition="large"), make_job(gpus=2, partition="small")
    forecast = foresee_once("fifo_gang", make_snapshot(here, there, nodes=nodes, partitions=parts))
    assert set(forecast.starts) == {here.id}
    assert forecast.unsaid == {there.id: "never"}


def test_what_keeps_it_from_its_partition_is_told_as_rounds_tell_it() -> None:
    old, new = make_nodes(2, 2, type="old"), make_nodes(2, type="new", first_id=4)
    drained = replace(old[1], schedulable=False)
    parts = {"in": Partition(frozenset({old[0].name})), "out": Partition(frozenset({drained.name}))}
    unknown = make_job(gpus=1, curves={"new": make_curve(1.0)}, partition="in")
    away = make_job(gpus=1, curves={"old": make_curve(1.0)}, partition="out")
    forecast = foresee_once("fifo_gang", make_snapshot(unknown, away, nodes=(old[0], drained, *new), partitions=parts))
    assert forecast.starts == {}
    assert forecast.unsaid == {unknown.id: "no_profile", away.id: "node_unavailable"}


def test_no_start_is_before_the_end_of_a_window_that_bars_it_whatever_came_true_before() -> None:
    waiting = make_job(gpus=1, curve=make_curve(1.0), remaining_steps=50.0)
    nodes = make_nodes(1)
    window = Window("w", frozenset({nodes[0].name}), start=0.0, end=9_000.0)
    start = foresee_once("fifo_gang", make_snapshot(waiting, nodes=nodes, windows=(window,))).starts[waiting.id]
    sooner = Calibration(low=-3.0, middle=-2.0, high=-1.0, outcomes=99).apply(start)
    assert (start.least_s, sooner.p10_s, sooner.p90_s) == (8_000.0, 8_000.0, 8_000.0)


@in_turn("name", ["fifo_gang", "max_min_fairness"])
def test_a_short_queue_is_simulated_to_its_end_however_much_comes_before(name: str) -> None:
    """Many arrivals, rounds at short intervals and a long window use up no future before the last has started."""
    four = make_curve(1.0, 1.8, 2.4, 2.8)
    nodes = make_nodes(4, 4, 4)
    long = make_job(gpus=4, holds=range(4), curve=four, remaining_steps=200_000.0)
    behind = make_job(gpus=4, curve=four, remaining_steps=500.0, partition="mine", submitted_at=0.0)
    waiting = [make_job(gpus=4, curve=four, remaining_steps=500.0, submitted_at=0.0) for _ in range(2)]
    window = Window("w", frozenset({nodes[2].name}), start=0.0, end=40_000.0)
    came = [make_job(gpus=1, curve=make_curve(1.0), remaining_steps=40.0, submitted_at=20.0 * n) for n in range(99)]
    snapshot = make_snapshot(
        long, behind, *waiting, nodes=nodes, windows=(window,),
        partitions={"mine": Partition(frozenset({nodes[2].name}))},
    )  # fmt: skip
    what, few = known(arrivals=came, times=Times()), Budget(100.0, most_futures=3)
    starts = foresee(snapshot, load_policy(name, {}), what, budget=few).starts
    assert [starts[job.id].simulated for job in (behind, *waiting)] == [True] * 3
    assert starts[behind.id].p50_s == pytest.approx(39_000.0)
