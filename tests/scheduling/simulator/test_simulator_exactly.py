"""When things happen in simulated time, to the second, and what is counted: GPU seconds, costs, steps, rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.domain import Allocation, Curve, Gang, Snapshot
from scheduling.errors import SolverError
from scheduling.lifecycle import Event, State
from scheduling.policies import load_policy
from scheduling.policies.base import Parameters
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options
from scheduling.simulator.run import Run
from tests.builders import make_nodes

GPU = "titan_xp"
HOUR = 3_600.0


def cluster(*sizes: int, **changes: Any) -> Cluster:
    times = {"launch_s": 10.0, "checkpoint_s": 4.0, "stop_s": 1.0}
    return Cluster(make_nodes(*sizes), {GPU: 3.6}, **{**times, **changes})


def job(number: int, arrival_s: float, steps: float, *curve: float, **changes: Any) -> TraceJob:
    values: dict[str, Any] = {"curves": {GPU: Curve(curve or (1.0,))}, "max_gpus": 1}
    return TraceJob(str(number), number, arrival_s, steps, **values | changes)


class Noting(Engine):
    """Every change of state and every round, with its time."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.moved: list[tuple[float, int, str]] = []
        self.rounds_at: list[float] = []

    def move(self, run: Run, event: Event) -> None:
        super().move(run, event)
        self.moved.append((self.clock.now, run.job.number, run.state.value))

    def _round(self) -> None:
        before = self.outcome.rounds
        super()._round()
        self.rounds_at += [self.clock.now] if self.outcome.rounds > before else []

    def of(self, number: int) -> list[tuple[float, str]]:
        return [(at, state) for at, who, state in self.moved if who == number]

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        def due() -> None:
            call()

        self.clock.after(seconds, due)


class Scripted:
    """First in, first out, one GPU each; what else a round is to answer is told by `rule`."""

    name: ClassVar[str] = "scripted"
    title: ClassVar[str] = "Scripted"
    Parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(self, rule: Callable[[Snapshot, Allocation], Allocation] | None = None, elastic: bool = False) -> None:
        self.parameters, self.rule = Parameters(), rule or (lambda _, found: found)
        self.capabilities = Capabilities(Answer.COUNTS, elastic=elastic)
        self.asked: list[float] = []
        self.seen: list[Snapshot] = []

    def allocate(self, snapshot: Snapshot) -> Allocation:
        self.asked.append(snapshot.now)
        self.seen.append(snapshot)
        field = view(snapshot)
        free_capacity = FreeCapacity(snapshot, field)
        for one in field.queued:
            if free_capacity.free.get(GPU, 0) > 0:
                free_capacity.give(one, Gang(GPU, 1))
        return self.rule(snapshot, Allocation(counts=free_capacity.counts))


def play(jobs: list[TraceJob], on: Cluster, policy: Any, **options: Any) -> Noting:
    engine = Noting(jobs, on, policy, options=Options(keep_holds=True, **options))
    engine.run()
    return engine


# A job's way -----------------------------------------------------------------------------------------------


def test_two_jobs_to_the_second() -> None:
    jobs = [job(1, 0.0, 1_000.0, 1.0, 2.0, max_gpus=None), job(2, 100.0, 50.0, 1.0, 2.0, max_gpus=None)]
    engine = play(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}))
    assert engine.of(1) == [
        (0.0, "WAITING_FOR_INITIAL_RESOURCE"),
        (0.0, "STANDBY"),
        (0.0, "LAUNCHING"),
        (10.0, "RUNNING_PROTECTED"),
        (40.0, "RUNNING"),  # three times its launch later
        (100.0, "CHECKPOINTING"),
        (104.0, "STOPPING"),
        (105.0, "STANDBY"),
        (105.0, "LAUNCHING"),
        (115.0, "RUNNING_PROTECTED"),
        (145.0, "RUNNING"),
        (165.0, "CHECKPOINTING"),
        (169.0, "STOPPING"),
        (170.0, "STANDBY"),
        (170.0, "LAUNCHING"),
        (180.0, "RUNNING_PROTECTED"),
        (210.0, "RUNNING"),
        (565.0, "FINISHED"),
    ]
    assert engine.of(2)[1:] == [
        (100.0, "STANDBY"),
        (105.0, "LAUNCHING"),
        (115.0, "RUNNING_PROTECTED"),
        (145.0, "RUNNING"),
        (165.0, "FINISHED"),
    ]
    assert engine.rounds_at == [0.0, 40.0, 100.0, 145.0, 165.0, 210.0]  # nobody is left at 565
    assert (engine.outcome.rounds, engine.outcome.end, engine.outcome.failures) == (6, 565.0, 0)
    assert engine.outcome.holds == [
        (1, (0, 1), 0.0, 105.0),
        (2, (1,), 105.0, 165.0),
        (1, (0,), 105.0, 170.0),
        (1, (0, 1), 170.0, 565.0),
    ]
    first, second = engine.runs
    assert (first.gpu_seconds, second.gpu_seconds) == (2 * 105.0 + 65.0 + 2 * 395.0, 60.0)
    assert (first.cost, second.cost) == pytest.approx((1_065.0 * 3.6 / HOUR, 60.0 * 3.6 / HOUR))
    assert (first.restarts, second.restarts) == (2, 0)
    assert (first.started_at, second.started_at) == (10.0, 115.0)
    assert engine.outcome.meter.gpu_seconds == 2 * 90.0 + 50.0 + 50.0 + 2 * 385.0
    assert engine.outcome.meter.mean_live(0.0, 565.0) == pytest.approx((565.0 + 65.0) / 565.0)
    assert [run.protected_until for run in engine.runs] == [None, None]
    assert (engine.live, engine.standby, engine.meter.live, engine.ended) == ({}, {}, 0, 2)
    assert (engine.meter.training, engine.meter.milli) == (0, 0)
    assert not engine.occupied.gpus | engine.assigned.gpus


def test_a_job_that_ends_under_protection_is_not_unprotected_first() -> None:
    engine = play([job(1, 3.0, 31.0), job(2, 3.0, 30.0)], cluster(2), load_policy("fifo_gang"))
    assert engine.of(1)[3:] == [(13.0, "RUNNING_PROTECTED"), (43.0, "RUNNING"), (44.0, "FINISHED")]
    assert engine.of(2)[3:] == [(13.0, "RUNNING_PROTECTED"), (43.0, "FINISHED")]
    assert engine.outcome.first_arrival == 3.0


def test_jobs_that_arrive_together_share_a_round_and_the_others_have_their_own() -> None:
    jobs = [job(2, 7.0, 5.0), job(1, 0.0, 5.0), job(3, 7.0, 5.0), job(4, 8.0, 5.0)]
    policy = Scripted()
    engine = play(jobs, cluster(9), policy)
    assert policy.asked[:3] == [0.0, 7.0, 8.0]
    assert [(number, start) for number, _, start, _ in sorted(engine.outcome.holds)] == [
        (1, 0.0),
        (2, 7.0),
        (3, 7.0),
        (4, 8.0),
    ]


def test_gpus_in_use_are_waited_for_and_then_taken_at_once() -> None:
    engine = play([job(1, 0.0, 20.0), job(2, 5.0, 20.0)], cluster(1), load_policy("fifo_gang"))
    assert engine.outcome.holds == [(1, (0,), 0.0, 30.0), (2, (0,), 30.0, 60.0)]
    assert engine.of(2) == [
        (5.0, "WAITING_FOR_INITIAL_RESOURCE"),
        (30.0, "STANDBY"),
        (30.0, "LAUNCHING"),
        (40.0, "RUNNING_PROTECTED"),
        (60.0, "FINISHED"),
    ]
    assert engine.runs[1].seconds[State.WAITING_FOR_INITIAL_RESOURCE] == 25.0


@pytest.mark.parametrize(("multi_node", "nodes", "speed"), [(True, (1, 1), 1.0), (True, (2,), 2.0), (False, (2,), 2.0)])
def test_a_gang_that_spans_nodes_is_slower(multi_node: bool, nodes: tuple[int, ...], speed: float) -> None:
    curves = {GPU: Curve((0.0, 2.0), spread_factor=0.5)}
    one = job(1, 0.0, 100.0, curves=curves, min_gpus=2, max_gpus=2)
    engine = play([one], cluster(*nodes, multi_node=multi_node), load_policy("fifo_gang"))
    assert engine.outcome.end == 10.0 + 100.0 / speed


def test_costs_are_those_of_the_nodes_types() -> None:
    nodes = (*make_nodes(1, type="a"), *make_nodes(1, type="b", first_id=1), *make_nodes(1, type="c", first_id=2))
    on = Cluster(nodes, {"a": 2.0, "b": 5.0}, launch_s=0.0, checkpoint_s=0.0, stop_s=0.0)
    jobs = [job(n, 0.0, HOUR / 2, curves={kind: Curve((1.0,))}) for n, kind in enumerate("abc", 1)]
    engine = play(jobs, on, load_policy("fifo_gang"))
    assert [run.cost for run in engine.runs] == [1.0, 2.5, 0.0]


@pytest.mark.parametrize(("policy", "parts"), [("first_fit", 0.25), ("sjf_exclusive", 1.0), ("fifo_gang", 1.0)])
def test_a_part_of_a_gpu_is_charged_as_a_part_where_it_is_shared(policy: str, parts: float) -> None:
    one = job(1, 0.0, 90.0, gpu_milli=250)
    engine = play([one], cluster(1), load_policy(policy))
    (run,) = engine.runs
    assert run.gpu_seconds == 100.0 * parts
    assert run.cost == pytest.approx(parts * 0.1)
    assert engine.outcome.meter.gpu_seconds == 90.0 * parts
    assert engine.outcome.holds == [(1, (0,), 0.0, 100.0)]


def test_protection_is_so_many_times_the_launch_as_the_policy_says() -> None:
    engine = play([job(1, 0.0, 90.0)], cluster(1), load_policy("f_scheduling", {"protection_factor": 1.5}))
    assert engine.of(1)[3:] == [(10.0, "RUNNING_PROTECTED"), (25.0, "RUNNING"), (100.0, "FINISHED")]


def test_use_is_told_only_to_policies_of_fair_share_and_halves_in_as_many_days_as_they_say() -> None:
    jobs = [job(1, 5.0, 90.0, user="ana"), job(2, 5.0, 9.0, user="ben")]
    engine = play(jobs, cluster(1), load_policy("multifactor", {"half_life_days": 2.0}))
    assert (engine.shares.half_life_s, engine.shares.at) == (172_800.0, 5.0)
    assert engine.shares.members == {"default": {"ana": 1.0, "ben": 1.0}}
    used = engine.shares.usage["default"]
    assert used.keys() == {"ana", "ben"}
    assert used["ana"][GPU] == pytest.approx(100.0, rel=1e-2)
    assert play(jobs, cluster(1), load_policy("fifo_gang")).shares.inputs() == {}


def test_holds_are_kept_only_where_asked_for() -> None:
    engine = Engine([job(1, 0.0, 9.0)], cluster(1), load_policy("fifo_gang"))
    assert engine.run().holds == []


# Rounds ----------------------------------------------------------------------------------------------------


def wakes(*offsets: float, elastic: bool = False) -> Scripted:
    """Asks at its first round for another so much later, and so on."""
    left = list(offsets)

    def rule(snapshot: Snapshot, found: Allocation) -> Allocation:
        return replace(found, next_wake_at=snapshot.now + left.pop(0) if left else None)

    return Scripted(rule, elastic)


def test_a_round_runs_when_the_last_plan_asked_for_one() -> None:
    policy = wakes(3.0, 4.0)
    play([job(1, 0.0, 200.0)], cluster(1), policy)
    assert policy.asked == [0.0, 3.0, 7.0]  # then nobody asks, and protection is of no concern


def test_moments_asked_for_twice_wake_it_once() -> None:
    left = [30.0, 30.0, 30.0]

    def rule(_: Snapshot, found: Allocation) -> Allocation:
        return replace(found, next_wake_at=left.pop() if left else None)

    policy = Scripted(rule)
    play([job(1, 0.0, 200.0), job(2, 5.0, 200.0), job(3, 6.0, 200.0)], cluster(3), policy)
    assert policy.asked[:5] == [0.0, 5.0, 6.0, 30.0, 40.0]  # at 40 the first is no longer protected


def test_no_plan_is_asked_for_once_all_have_ended() -> None:
    policy = wakes(50.0)
    engine = play([job(1, 0.0, 5.0)], cluster(1), policy)
    assert (policy.asked, engine.outcome.rounds, engine.clock.now) == ([0.0], 1, 50.0)
    assert engine.outcome.end == 15.0


def test_a_job_that_is_preempted_is_planned_again_at_once() -> None:
    def rule(snapshot: Snapshot, found: Allocation) -> Allocation:
        counts = {} if snapshot.now == 60.0 and len(policy.asked) == 2 else found.counts
        return replace(found, counts=counts, next_wake_at=60.0 if snapshot.now < 60.0 else None)

    policy = Scripted(rule, elastic=False)
    engine = play([job(1, 0.0, 200.0)], cluster(1), policy)
    assert policy.asked == [0.0, 60.0, 60.0, 65.0]
    assert engine.of(1)[4:] == [
        (40.0, "RUNNING"),
        (60.0, "CHECKPOINTING"),
        (64.0, "STOPPING"),
        (65.0, "WAITING_FOR_RESOURCE"),
        (65.0, "STANDBY"),
        (65.0, "LAUNCHING"),
        (75.0, "RUNNING_PROTECTED"),
        (105.0, "RUNNING"),
        (225.0, "FINISHED"),  # 50 of 200 steps were done by 60
    ]
    assert (engine.runs[0].restarts, engine.runs[0].lost_steps) == (1, 0.0)


@pytest.mark.parametrize(("gap_s", "asked"), [(0.0, [0.0, 5.0, 6.0]), (20.0, [0.0, 20.0]), (5.0, [0.0, 5.0, 10.0])])
def test_rounds_of_elastic_policies_are_kept_apart(gap_s: float, asked: list[float]) -> None:
    policy = Scripted(elastic=True)
    jobs = [job(1, 0.0, 200.0), job(2, 5.0, 200.0), job(3, 6.0, 200.0)]
    play(jobs, cluster(3), policy, coalesce_s=gap_s)
    assert policy.asked[: len(asked)] == asked
    rigid = Scripted()
    play(jobs, cluster(3), rigid, coalesce_s=gap_s)
    assert rigid.asked[:3] == [0.0, 5.0, 6.0]


def test_the_end_of_protection_is_a_reason_for_a_round_under_elastic_policies_only() -> None:
    elastic = Scripted(elastic=True)
    play([job(1, 0.0, 100.0)], cluster(1), elastic)
    assert elastic.asked == [0.0, 40.0]
    rigid = Scripted()
    play([job(1, 0.0, 100.0)], cluster(1), rigid)
    assert rigid.asked == [0.0]


def test_a_round_asked_for_at_the_end_of_protection_runs_though_the_job_ends_before() -> None:
    """The round asks for itself at 40, when the first is no longer protected. It ends at 25."""
    policy = Scripted(lambda snapshot, found: replace(found, next_wake_at=40.0 if snapshot.now == 12.0 else None))
    engine = play([job(1, 0.0, 15.0), job(2, 12.0, 200.0)], cluster(2), policy)
    assert engine.of(1)[-1] == (25.0, "FINISHED")
    assert policy.asked == [0.0, 12.0, 25.0, 52.0]
    later = Scripted(lambda snapshot, found: replace(found, next_wake_at=40.0 if snapshot.now <= 25.0 else None))
    play([job(1, 0.0, 15.0), job(2, 12.0, 200.0)], cluster(2), later)
    assert later.asked == [0.0, 12.0, 25.0, 40.0, 52.0]


def test_a_round_may_be_asked_for_at_the_moment_at_which_protection_would_have_ended() -> None:
    """The first would be protected until 40 and ends at 25, when the plan asks for 26; then plans ask for 40."""

    def rule(snapshot: Snapshot, found: Allocation) -> Allocation:
        later = 26.0 if snapshot.now < 25.0 else 40.0 if snapshot.now < 40.0 else None
        return replace(found, next_wake_at=later)

    policy = Scripted(rule)
    play([job(1, 0.0, 15.0), job(2, 12.0, 200.0)], cluster(2), policy)
    assert policy.asked == [0.0, 12.0, 25.0, 26.0, 40.0, 52.0]


def test_who_gives_up_gpus_is_told_before_who_gets_them() -> None:
    jobs = [job(1, 0.0, 500.0, 1.0, 2.0, max_gpus=2), job(2, 100.0, 50.0, priority=9)]
    engine = play(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}))
    assert [(number, state) for at, number, state in engine.moved if at == 100.0] == [
        (2, "WAITING_FOR_INITIAL_RESOURCE"),
        (1, "CHECKPOINTING"),
        (2, "STANDBY"),
    ]


def test_a_gang_that_makes_no_step_where_it_is_keeps_its_gpus_and_never_ends() -> None:
    """The last is spread over two nodes, where its GPUs stand still; a plan knows only that two are free."""
    curves = {GPU: Curve((0.0, 2.0), spread_factor=0.0)}
    short, long = job(1, 0.0, 20.0), [job(number, 0.0, 400.0) for number in (2, 3)]
    still = job(4, 1.0, 100.0, curves=curves, min_gpus=2, max_gpus=2)
    engine = play([short, *long, still], cluster(2, 2), load_policy("fifo_gang"))
    (first,) = [gpus for number, gpus, _, _ in engine.outcome.holds if number == 1]
    assert first == (0,)
    assert engine.runs[3].occupied == (0, 3)
    assert engine.of(4)[2:] == [(30.0, "LAUNCHING"), (40.0, "RUNNING_PROTECTED"), (70.0, "RUNNING")]
    assert engine.runs[3].finished_at is None
    assert [run.finished_at for run in engine.runs[1:3]] == [410.0, 410.0]


def test_the_next_end_is_the_earliest_of_those_that_train() -> None:
    policy = Scripted(elastic=True)
    play([job(1, 0.0, 100.0), job(2, 0.0, 70.0), job(3, 30.0, 500.0)], cluster(3), policy)
    told = {snapshot.now: snapshot.next_event_s for snapshot in policy.seen}
    assert (told[0.0], told[30.0], told[80.0], told[110.0]) == (None, 50.0, 30.0, 430.0)
    rigid = Scripted()
    play([job(1, 0.0, 100.0), job(2, 30.0, 70.0)], cluster(3), rigid)
    assert {snapshot.next_event_s for snapshot in rigid.seen} == {None}


def test_memory_goes_from_round_to_round() -> None:
    policy = Scripted(lambda snapshot, found: replace(found, memory={"rounds": snapshot.memory.get("rounds", 0) + 1}))
    play([job(1, 0.0, 20.0), job(2, 5.0, 20.0)], cluster(2), policy)
    assert [snapshot.memory.get("rounds", 0) for snapshot in policy.seen] == [0, 1, 2]


def test_rounds_in_which_the_solver_failed_are_counted() -> None:
    def rule(snapshot: Snapshot, found: Allocation) -> Allocation:
        if snapshot.now == 5.0:
            raise SolverError("kTimeLimit")
        return found

    engine = play([job(1, 0.0, 20.0), job(2, 5.0, 20.0), job(3, 6.0, 20.0)], cluster(3), Scripted(rule))
    assert (engine.outcome.fallbacks, engine.outcome.rounds) == (1, 5)


def test_where_no_job_will_ever_start_it_ends() -> None:
    policy = Scripted(lambda snapshot, _: Allocation(counts={}, next_wake_at=snapshot.now + 10.0))
    engine = play([job(1, 0.0, 20.0)], cluster(1), policy)
    assert len(policy.asked) == 51
    assert engine.runs[0].finished_at is None
    assert (engine.is_over, engine.outcome.end) == (True, 0.0)


def test_a_job_that_waits_long_enough_is_not_given_up_while_others_train_or_come() -> None:
    def rule(snapshot: Snapshot, found: Allocation) -> Allocation:
        counts = {key: gang for key, gang in (found.counts or {}).items() if key != "1" or snapshot.now >= 1_600.0}
        return Allocation(counts=counts, next_wake_at=snapshot.now + 10.0)

    jobs = [job(1, 0.0, 20.0), job(2, 300.0, 800.0), job(3, 1_400.0, 50.0)]
    engine = play(jobs, cluster(2), Scripted(rule))
    assert [run.finished_at for run in engine.runs] == [1_630.0, 1_110.0, 1_460.0]


def test_a_job_that_asks_may_stop_it() -> None:
    told: list[int] = []

    def progress(ended: int) -> bool:
        told.append(ended)
        return ended == 1

    engine = play([job(1, 0.0, 20.0), job(2, 25.0, 500.0)], cluster(2), load_policy("fifo_gang"), progress=progress)
    assert engine.outcome.interrupted
    assert (set(told), engine.runs[1].finished_at, engine.outcome.end) == ({0, 1}, None, 30.0)
    assert engine.meter.at == 30.0
    whole = play([job(1, 0.0, 20.0)], cluster(1), load_policy("fifo_gang"), progress=lambda _: False)
    assert (whole.outcome.interrupted, whole.outcome.end) == (False, 30.0)


def test_without_jobs_nothing_happens() -> None:
    engine = play([], cluster(1), load_policy("fifo_gang"))
    assert (engine.outcome.rounds, engine.outcome.end, engine.is_over) == (0, 0.0, True)


# Speeds that are not what the trace says -------------------------------------------------------------------


def test_the_true_speed_is_known_after_so_long_a_training() -> None:
    policy = Scripted()
    engine = play([job(1, 0.0, 1_000.0)], cluster(1, measure_s=25.0), policy, noise=0.3)
    (run,) = engine.runs
    factor = run.factors[GPU]
    assert factor != 1.0
    assert policy.asked == [0.0, 35.0, 40.0]
    assert policy.seen[1].jobs[0].curves[GPU].at(1) == pytest.approx(factor)
    assert policy.seen[0].jobs[0].curves[GPU].at(1) == 1.0
    assert run.measured == {GPU}
    assert engine.outcome.end == pytest.approx(10.0 + 1_000.0 / factor)


def test_without_noise_nothing_is_measured() -> None:
    policy = Scripted()
    engine = play([job(1, 0.0, 1_000.0)], cluster(1, measure_s=25.0), policy)
    assert (policy.asked, engine.runs[0].factors, engine.runs[0].measured) == ([0.0], {}, set())


def test_a_training_that_ends_before_is_not_measured() -> None:
    policy = Scripted()
    engine = play([job(1, 0.0, 10.0), job(2, 0.0, 900.0)], cluster(2, measure_s=60.0), policy, noise=0.1)
    assert [run.measured for run in engine.runs] == [set(), {GPU}]
