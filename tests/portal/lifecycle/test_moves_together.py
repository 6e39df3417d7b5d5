"""The moves of a round, and its launches, are written together; each comes out as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg2.extras import DateTimeTZRange

from portal.jobs.models import Accelerator, Assignment, Command, Displacement, Hold, Job, JobEvent, Run
from portal.lifecycle import commit_plan, launch_queue
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.transitions import StaleRun, Transition, move_all
from portal.reporting import acceptance, timeouts
from portal.snapshot import run_version
from scheduling.domain import Gang, Move, Plan, Reason
from scheduling.errors import InvalidTransition
from scheduling.lifecycle import Event, State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def queue(world: World, count: int) -> list[Job]:
    """So many jobs more, in the queue."""
    before = Job.objects.count()
    world.submit(array={"indices": f"1-{count}"})
    accept = acceptance.accept_waiting
    accept(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
    return list(Job.objects.order_by("number")[before:])


def gpu_ids() -> list[int]:
    return list(Accelerator.objects.order_by("pk").values_list("pk", flat=True))


def _gang(gpus: Sequence[int]) -> Gang | None:
    return Gang("k1", len(gpus)) if gpus else None


def change(job: Job, kind: str, gpus: Sequence[int] = (), mode: str = "requeue") -> Move:
    planned = Assignment.objects.filter(run__job=job, during__upper_inf=True).values_list("accelerator_id", flat=True)
    reason = Reason("placed", f"for {kind}", {"mode": mode})
    return Move(str(job.pk), kind, tuple(gpus), _gang(gpus), _gang(list(planned)), reason)


def start(job: Job, *gpus: int) -> Move:
    return change(job, "start", gpus)


def commit(world: World, moves: Sequence[Move], now: datetime | None = None) -> list[Move]:
    world.cluster.refresh_from_db()
    runs = Run.objects.filter(job__run__isnull=False).select_related("job")
    return commit_plan.commit_plan(
        cluster_id=world.cluster.pk,
        round_epoch=world.cluster.round_epoch,
        plan=Plan(tuple(moves)),
        seen={str(r.job_id): run_version.RunVersion(r.pk, State(r.state), r.epoch, r.job.project_id) for r in runs},
        now=now or timezone.now(),
    )


def launch(world: World, now: datetime | None = None) -> list[Run]:
    return launch_queue.launch_ready(cluster_id=world.cluster.pk, now=now or timezone.now())


def statements(call: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


def test_a_move_or_launch_more_costs_no_statement_more() -> None:
    world, counts = World({"a": 165}), []
    gpus = iter(gpu_ids())
    for count in (5, 50):
        there = queue(world, count)
        begin = [start(job, next(gpus)) for job in there]
        commits = statements(lambda moves=begin: commit(world, moves))  # type: ignore[misc]
        launches = statements(lambda: launch(world))
        mixed = [start(job, next(gpus)) for job in queue(world, count)]
        mixed += [change(job, "rescale", [next(gpus)]) for job in there]
        counts.append((commits, launches, statements(lambda moves=mixed: commit(world, moves))))  # type: ignore[misc]
        assert Command.objects.filter(verb=Command.Verb.CHECKPOINT_AND_STOP, run__job__in=there).count() == count
        launch(world)
    assert counts[0] == counts[1]
    check_invariants(world)


def test_a_run_more_that_is_taken_in_or_loses_its_protection_costs_no_statement_more() -> None:
    world, counts = World({"a": 60}), []
    gpus = iter(gpu_ids())
    for count in (5, 50):
        world.submit(array={"indices": f"1-{count}"})
        new = list(Job.objects.order_by("number"))[-count:]
        accept = partial(acceptance.accept_waiting, cluster_id=world.cluster.pk, now=timezone.now())
        taken_in = statements(lambda accept=accept: accept(problem_of=lambda run: None))  # type: ignore[misc]
        commit(world, [start(job, next(gpus)) for job in new])
        launch(world)
        ended = {"state": State.RUNNING_PROTECTED, "protected_until": timezone.now()}
        Run.objects.filter(job__in=new).update(**ended)
        clock = partial(timeouts.advance_clock, cluster_id=world.cluster.pk, now=timezone.now())
        counts.append((taken_in, statements(clock)))
        assert {world.state(job) for job in new} == {State.RUNNING}
    assert counts[0] == counts[1]


def test_who_was_cancelled_meanwhile_keeps_nobody_else_out() -> None:
    world = World({"a": 4})
    world.submit(array={"indices": "1-5"})
    jobs = list(Job.objects.order_by("number"))

    def problem_of(run: Run) -> None:
        if run.job == jobs[2]:
            cancel_job(user=None, job=jobs[2])

    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=problem_of, now=timezone.now())
    assert [world.state(job) for job in jobs] == [
        State.CANCELLED if job == jobs[2] else State.WAITING_FOR_INITIAL_RESOURCE for job in jobs
    ]


def test_a_conflict_costs_only_the_move_that_has_it() -> None:
    world = World({"a": 40})
    first, stays, *others = queue(world, 18)
    gpus = gpu_ids()
    commit(world, [start(first, gpus[0]), start(stays, gpus[1], gpus[2])])
    launch(world)
    free = iter(gpus[3:])
    # One wants a GPU that another has, and one that goes on wants another's, too.
    moves = [start(job, next(free)) for job in others]
    moves[7] = start(others[7], gpus[0], next(free))
    moves.append(change(stays, "rescale", [gpus[0]]))
    applied = commit(world, moves)
    assert {m.job_id for m in applied} == {str(job.pk) for job in others if job != others[7]}
    assert world.state(others[7]) is State.WAITING_FOR_INITIAL_RESOURCE
    assert world.gpus(others[7]) == 0
    assert world.state(stays) is State.LAUNCHING
    assert set(stays.runs.get().assignments.filter(during__upper_inf=True).values_list("accelerator", flat=True)) == {
        gpus[1],
        gpus[2],
    }
    assert all(world.state(job) is State.STANDBY for job in others if job != others[7])
    check_invariants(world)


def test_a_conflict_costs_only_the_launch_that_has_it() -> None:
    world, now = World({"a": 20}), timezone.now()
    first, *jobs = queue(world, 18)
    gpus = gpu_ids()
    commit(world, [start(job, gpu) for job, gpu in zip(jobs, gpus, strict=False)])
    # Its end was seen by a clock that is ahead.
    during = DateTimeTZRange(now - timedelta(hours=1), now + timedelta(hours=1))
    Hold.objects.create(run=first.runs.get(), accelerator_id=gpus[5], epoch=1, during=during)
    launched = launch(world)
    assert [run.job for run in launched] == [job for job in reversed(jobs) if job != jobs[5]]
    assert {run.state for run in launched} == {State.LAUNCHING}
    assert world.state(jobs[5]) is State.STANDBY
    assert world.run(jobs[5]).epoch == 0
    assert Command.objects.count() == JobEvent.objects.filter(kind=Event.GPUS_FREE).count() == 16


def test_a_run_that_is_cancelled_meanwhile_is_not_launched() -> None:
    world = World({"a": 4})
    jobs = queue(world, 3)
    commit(world, [start(job, gpu) for job, gpu in zip(jobs, gpu_ids(), strict=False)])
    left = jobs[1:2]

    def cancel_first(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "FOR NO KEY UPDATE" in sql and left:
            cancel_job(user=None, job=left.pop())
        return execute(sql, *rest)

    with connection.execute_wrapper(cancel_first):
        launched = launch(world)
    assert [run.job for run in launched] == [jobs[2], jobs[0]]
    assert world.state(jobs[1]) is State.CANCELLED
    check_invariants(world)


@pytest.mark.parametrize("refused", [StaleRun, InvalidTransition])
def test_where_one_run_cannot_none_is_changed(refused: type[Exception]) -> None:
    world = World({"a": 4})
    runs = [world.run(job) for job in queue(world, 3)]
    if refused is StaleRun:
        Run.objects.filter(pk=runs[2].pk).update(epoch=1)
    events = [Event.ASSIGNED, Event.ASSIGNED, Event.ASSIGNED if refused is StaleRun else Event.GPUS_FREE]
    said = JobEvent.objects.count()
    with pytest.raises(refused), transaction.atomic():
        move_all([Transition(run, event, "") for run, event in zip(runs, events, strict=True)], timezone.now())
    assert JobEvent.objects.count() == said
    assert {run.state for run in runs} == {State.WAITING_FOR_INITIAL_RESOURCE}
    assert set(Run.objects.values_list("state", flat=True)) == {State.WAITING_FOR_INITIAL_RESOURCE}


def in_all_states() -> tuple[World, list[Job]]:
    """Two jobs each that wait, train, launch, and wait for GPUs that those who trained are about to leave."""
    world = World({"a": 12})
    jobs, gpus = queue(world, 8), gpu_ids()
    training, launching, planned = jobs[2:4], jobs[4:6], jobs[6:]  # the first two wait
    commit(world, [start(job, gpus[2 * i], gpus[2 * i + 1]) for i, job in enumerate([*training, *launching])])
    launch(world)
    for job in training:
        world.ready(job)
        world.unprotect(job)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    commit(world, [change(training[0], "rescale", [gpus[8]])])
    commit(world, [start(job, gpu) for job, gpu in zip(planned, gpus, strict=False)])
    assert [world.state(job) for job in jobs] == [
        *[State.WAITING_FOR_INITIAL_RESOURCE] * 2,
        *[State.CHECKPOINTING, State.RUNNING],
        *[State.LAUNCHING] * 2,
        *[State.STANDBY] * 2,
    ]
    return world, jobs


def rows() -> list[Any]:
    """All that a round writes, but for the keys of rows and when they were made."""
    of_gpus = ("run", "accelerator", "epoch", "share_percent", "memory_mib", "during")
    said = ("kind", "text", "at", "job", "run", "project", "from_state", "to_state", "detail")
    noted = [f.attname for f in Displacement._meta.concrete_fields if f.attname != "id"]
    return [
        list(Run.objects.order_by("pk").values()),
        list(Accelerator.objects.order_by("pk").values()),
        [list(model.objects.order_by(*of_gpus).values_list(*of_gpus)) for model in (Assignment, Hold)],
        list(Command.objects.order_by("run", "epoch", "verb").values_list("run", "epoch", "verb", "next_attempt_at")),
        list(JobEvent.objects.order_by("pk").values_list(*said)),
        list(Displacement.objects.order_by("run", "at").values_list(*noted)),
    ]


def outcome(world: World, moves: Sequence[Move], now: datetime) -> list[Any]:
    """What is there after these moves and the launches that follow; all of it is taken back."""
    try:
        with transaction.atomic():
            applied = commit(world, moves, now)
            after_moves = rows()
            # Those who are about to leave have left.
            Hold.objects.filter(during__upper_inf=True).exclude(run__state=State.LAUNCHING).delete()
            launched = [(run.pk, run.state, run.epoch) for run in launch(world, now)]
            found = [applied, after_moves, launched, rows()]
            transaction.set_rollback(True)
    except IntegrityError:
        return ["refused as a whole"]
    return found


def test_what_is_written_together_is_what_is_written_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, jobs = in_all_states()
    gpus, now = gpu_ids(), timezone.now() + timedelta(seconds=1)
    kinds = st.sampled_from(["", "start", "rescale", "requeue", "cancel"])
    wishes = st.lists(st.integers(0, len(gpus) - 1), min_size=1, max_size=2, unique=True)
    no_conflict = [("start", [9]), ("start", [10]), ("", [0]), ("rescale", [11]), ("requeue", [0]), ("cancel", [0])]

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @example([*no_conflict, ("requeue", [0]), ("", [0])])
    @given(st.lists(st.tuples(kinds, wishes), min_size=len(jobs), max_size=len(jobs)))
    def compare(drawn: list[tuple[str, list[int]]]) -> None:
        moves = []
        for job, (kind, wish) in zip(jobs, drawn, strict=True):
            if kind in ("start", "rescale"):
                moves.append(change(job, kind, [gpus[i] for i in wish]))
            elif kind:
                moves.append(change(job, "preempt", mode=kind))
        found = []
        for together in (1, 500):
            monkeypatch.setattr(commit_plan, "BATCH", together)
            found.append(outcome(world, moves, now))
        assert found[0] == found[1]

    compare()
