"""Three jobs per policy, solved by hand."""

from __future__ import annotations

import pytest

from scheduling.domain import Gang, Job, Limit, Snapshot
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.base import parse_parameters
from scheduling.policies.elastic.f_scheduling import FScheduling
from scheduling.policies.queue.fallback import start_minimums
from tests.builders import make_curve, make_job, make_nodes, make_snapshot


def counts(name: str, snapshot: Snapshot, **parameters: object) -> list[int]:
    given = load_policy(name, parameters).allocate(snapshot).counts
    assert given is not None
    return [given[job.id].count if job.id in given else 0 for job in snapshot.jobs]


def three() -> list[Job]:
    # Steps/s that each further GPU adds:  A 4 3 1,  B 6 1 1,  C 1 1 1 (a small job that scales perfectly)
    return [
        make_job(curve=make_curve(4, 7, 8)),
        make_job(curve=make_curve(6, 7, 8)),
        make_job(curve=make_curve(1, 2, 3)),
    ]


def test_f_scheduling_gives_each_gpu_to_whom_it_adds_most() -> None:
    # Minimums 1 1 1 leave 2 of 5 GPUs: A adds 3 steps/s; then all would add 1, and A is first in the queue.
    assert counts("f_scheduling", make_snapshot(*three(), nodes=5), v_bound=0.5, objective="paper") == [3, 1, 1]


def test_f_scheduling_by_relative_throughput_favours_no_large_model() -> None:
    # S adds: A 3/8 then 1/8; B 1/8; C 1/3. So A, then C.
    assert counts("f_scheduling", make_snapshot(*three(), nodes=5), v_bound=0.5) == [2, 1, 2]


def test_f_scheduling_keeps_the_variance_under_its_bound() -> None:
    # S = 1/2, 3/4, 1/3: variance 0.029. A second GPU for A gives 7/8, 3/4, 1/3 (0.054), for B 1/2, 7/8, 1/3
    # (0.051), for C 1/2, 3/4, 2/3 (0.011): only C is fair.
    assert counts("f_scheduling", make_snapshot(*three(), nodes=4), v_bound=0.05, objective="paper") == [1, 1, 2]


def test_f_scheduling_takes_the_least_unfair_plan_where_none_is_fair() -> None:
    assert counts("f_scheduling", make_snapshot(*three(), nodes=4), v_bound=0.0, objective="paper") == [1, 1, 2]


def test_exact_finds_what_the_greedy_step_cannot_see() -> None:
    # A: nothing until the third GPU, then 9. Greedy spends both on B (0.6 and 0.5).
    jobs = [make_job(curve=make_curve(1, 1, 10)), make_job(curve=make_curve(1, 1.6, 2.1)), make_job(gpus=1)]
    snapshot = make_snapshot(*jobs, nodes=5)
    assert counts("f_scheduling", snapshot, v_bound=0.5, objective="paper") == [1, 3, 1]
    assert counts("f_scheduling_exact", snapshot, v_bound=0.5, objective="paper") == [3, 1, 1]
    figures = load_policy("f_scheduling_exact", {"v_bound": 0.5, "objective": "paper"}).allocate(snapshot).figures
    assert figures["gap"] == pytest.approx(12 / 4.1 - 1)


def test_static_partition_gives_one_slot_each() -> None:
    # 7 GPUs in slots of 3: two slots, the seventh GPU is in none. The second job may use 2 at most.
    jobs = [make_job(), make_job(max_gpus=2), make_job()]
    assert counts("static_partition", make_snapshot(*jobs, nodes=7), n=3) == [3, 2, 0]


def test_fifo_waits_behind_the_first_that_does_not_fit() -> None:
    jobs = [make_job(gpus=2), make_job(gpus=5), make_job(gpus=1)]
    assert counts("fifo_gang", make_snapshot(*jobs, nodes=6)) == [2, 0, 0]


def test_priority_goes_before_submission() -> None:
    late = make_job(gpus=4, priority=1)
    assert counts("fifo_gang", make_snapshot(make_job(gpus=4, number=1), late, nodes=4)) == [0, 4]


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, cls in ((n, policy_class(n)) for n in POLICIES)
        if not (cls.capabilities.shares_time or cls.capabilities.preempts or cls.capabilities.places_gpu_parts)
    ),
)
def test_running_jobs_keep_their_minimum_before_newer_ones_with_priority(name: str) -> None:
    running = make_job(holds=[0, 1], gpus=2)
    assert counts(name, make_snapshot(running, make_job(gpus=2, priority=9), nodes=3)) == [2, 0]


def test_a_job_moves_to_another_type_only_when_that_pays_for_the_restart() -> None:
    nodes = (*make_nodes(2, type="slow"), *make_nodes(2, type="fast", first_id=10))
    curves = {"slow": make_curve(1, 2), "fast": make_curve(1.5, 3)}

    def plan(restart_cost_s: float) -> Gang:
        job = make_job(holds=[0, 1], type="slow", curves=curves, remaining_steps=200.0, restart_cost_s=restart_cost_s)
        given = FScheduling().allocate(make_snapshot(job, nodes=nodes)).counts
        assert given is not None
        return given[job.id]

    assert plan(10.0) == Gang("fast", 2)  # 90 s at 3 steps/s against 100 s at 2
    assert plan(40.0) == Gang("slow", 2)  # 60 s at 3 are no more


def test_waiting_jobs_spread_over_types() -> None:
    nodes = (*make_nodes(1, type="slow"), *make_nodes(1, type="fast", first_id=10))
    curves = {"slow": make_curve(1.0), "fast": make_curve(3.0)}
    jobs = [make_job(curves=curves), make_job(curves=curves)]
    given = FScheduling().allocate(make_snapshot(*jobs, nodes=nodes)).counts
    assert given == {jobs[0].id: Gang("fast", 1), jobs[1].id: Gang("slow", 1)}


def test_gpus_that_help_no_job_stay_free() -> None:
    job = make_job(curve=make_curve(1, 1.8, 1.8))
    assert counts("f_scheduling", make_snapshot(job, nodes=6)) == [2]
    assert counts("f_scheduling", make_snapshot(job, nodes=6), objective="paper") == [6]


def test_a_job_without_a_profile_runs_on_its_minimum() -> None:
    job = make_job(curves={}, min_gpus=2)
    assert counts("f_scheduling", make_snapshot(job, nodes=6)) == [2]


def test_a_count_without_gain_does_not_stall_the_greedy() -> None:
    # 4 GPUs do not divide the batch of 90; 5 do.
    assert counts("f_scheduling", make_snapshot(make_job(curve=make_curve(1, 2, 3, 3, 5)), nodes=5)) == [5]


def test_a_quota_is_said_with_its_numbers() -> None:
    jobs = [make_job(gpus=2, limits=("top", "own")), make_job(gpus=2, limits=("top", "own"))]
    limits = {"top": Limit("gpus", 5, level="project Audio"), "own": Limit("gpus", 3, level="project Speech")}
    plan = FScheduling().allocate(make_snapshot(*jobs, nodes=6, limits=limits))
    reason = plan.reasons[jobs[1].id]
    assert reason.token == "quota"
    assert reason.text == "Project Speech may hold 3 GPUs, and other jobs have 2; this job needs at least 2."


def test_held_jobs_and_back_off_wait_with_their_reason() -> None:
    jobs = [make_job(held=True), make_job(not_before=1060.0), make_job(state=State.WAITING_FOR_INITIAL_CONTACT)]
    reasons = FScheduling().allocate(make_snapshot(*jobs)).reasons
    assert [reasons[job.id].token for job in jobs] == ["HELD", "back_off", "waits_for_contact"]
    assert "60 s" in reasons[jobs[1].id].text


def test_the_fallback_starts_minimums_and_moves_no_job() -> None:
    jobs = [make_job(holds=[0, 1, 2]), make_job(gpus=2), make_job(gpus=2)]
    given = start_minimums(make_snapshot(*jobs, nodes=6), "the solver stopped").counts
    assert given == {jobs[0].id: Gang("titan_xp", 3), jobs[1].id: Gang("titan_xp", 2)}


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(Exception, match="v_bound"):
        parse_parameters(FScheduling.Parameters, {"v_bound": -1})


@pytest.mark.parametrize(
    ("others", "cause"),
    [
        ([], "Too few GPUs are free"),
        ([3], "The job before it, even at its minimum, leaves too few GPUs"),
        ([2, 1], "The 2 jobs before it, even at their minimums, leave too few GPUs"),
    ],
)
def test_who_does_not_fit_reads_how_many_are_ahead(others: list[int], cause: str) -> None:
    last = make_job(gpus=4, number=9_000_000)
    locked = make_job(gpus=1, holds=[0], state=State.RUNNING_PROTECTED)
    snapshot = make_snapshot(locked, *(make_job(gpus=n) for n in others), last, nodes=4)
    reason = FScheduling().allocate(snapshot).reasons[last.id]
    assert (
        reason.text
        == f"{cause}; this one needs at least 4 \N{MULTIPLICATION SIGN} titan_xp and starts when they are free."
    )
