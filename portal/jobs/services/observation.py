"""What executors and runners saw, turned into moves by the one table."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from psycopg2.extras import DateTimeTZRange

from accounts import ledger
from accounts.text import shown
from portal.core import job_log
from portal.jobs import checkpoint_store, events, holding, spooling, wakeups
from portal.jobs.describe import cluster_types
from portal.jobs.loops import Item, Loop, LoopName, of_run, of_run_id
from portal.jobs.models import Assignment, Cluster, Command, Hold, Run
from portal.jobs.relative import final_slowdown
from portal.jobs.services.endings import and_then, explain_exit
from portal.jobs.services.moves import StaleRun, Transition, Why, kept_why, move, move_who_can
from portal.jobs.services.retries import in_short, judge_retry
from portal.jobs.services.submission import end_assignments, end_processes, start_run
from portal.jobs.services.times import engines_time, from_posix
from portal.jobs.snapshots import job_profiles
from scheduling.errors import InvalidTransition
from scheduling.executors.base import ExitInfo, Fact, Renewals
from scheduling.lifecycle import LIVE, ON_OVERDUE, TIME_LIMIT_S, Event, State

logger = logging.getLogger(__name__)

#: Exits in these states are the stop we asked for, whatever their code: the run goes on from its last checkpoint.
_LEAVING = (State.CHECKPOINTING, State.STOPPING)
#: Why of a run whose code or environment is on its way; that has time limits of its own.
PREPARING = "PREPARING"
#: A run that fetches data may launch for as long as its runner says so, which it does every two minutes at least; it
#: has a limit of its own.
FETCHING_SILENCE = timedelta(seconds=300)


def record_fact(fact: Fact) -> None:
    """Take one executor fact in. `alive` closes the launch command; `exited` and `absent` end the holds."""
    if fact.kind == "alive":
        record_alive([fact])
        return
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("job").filter(pk=fact.run_id).first()
        if run is None:
            return
        launching = Command.objects.filter(run=run, epoch=fact.epoch, verb=Command.Verb.LAUNCH, closed_at=None)
        awaited = State(run.state) is State.LAUNCHING and run.epoch == fact.epoch
        if fact.kind == "absent" and ((awaited and launching.exists()) or _heard_since(run, fact)):
            return  # not started yet, or only by now: a round with many runs takes in what was some time ago
        if fact.kind == "absent" and awaited and _reopen_failed_launch(run):
            return
        ended = _end_holds(run, fact)
        if ended and fact.strays:
            text = f"#{run.job.number}: {fact.strays}"
            events.append(kind="notice", job=run.job, run=run, at=from_posix(fact.at), text=text)
        Command.objects.filter(run=run, epoch=fact.epoch, closed_at=None).update(closed_at=from_posix(fact.at))
        if run.epoch == fact.epoch and State(run.state) in LIVE:
            lost = ExitInfo("runner_lost", message="Its processes are gone and left no word.", alleged=True)
            settle(run, fact.exit or lost, from_posix(fact.at))
        if ended:
            transaction.on_commit(wakeups.wake)


def _reopen_failed_launch(run: Run) -> bool:
    """While a launch is under way it is seen as alive, which closes its command; where it then fails, the command is
    to be sent again, or to say why not."""
    commands = Command.objects.filter(run=run, epoch=run.epoch, verb=Command.Verb.LAUNCH, closed_at__isnull=False)
    return bool(commands.exclude(error="").update(closed_at=None))


def record_alive(facts: Sequence[Fact], cluster_id: int | None = None) -> None:
    """Close the launch commands of these: a query, and another one where there are any."""
    if facts:
        Loop(LoopName.FACTS, cluster_id).together(facts, _of_fact, _close_launches)


def _of_fact(fact: Fact) -> Item:
    return of_run_id(fact.run_id)


def _close_launches(facts: Sequence[Fact]) -> list[Fact]:
    at = {(fact.run_id, fact.epoch): fact.at for fact in facts}
    waiting = Command.objects.filter(verb=Command.Verb.LAUNCH, closed_at=None, run__in=[fact.run_id for fact in facts])
    closed: dict[float, list[int]] = defaultdict(list)
    for pk, run_id, epoch in waiting.values_list("pk", "run_id", "epoch"):
        if (key := (str(run_id), epoch)) in at:
            closed[at[key]].append(pk)
    for moment, keys in closed.items():
        Command.objects.filter(pk__in=keys, closed_at=None).update(closed_at=from_posix(moment))
    return list(facts)


def renewals(cluster_id: int) -> Renewals:
    """When the last report of each launch that has trained and may still have processes was taken in. Before it trains,
    nothing need be asked of us; a run that has ended for us is answered with the order to leave."""
    held = Exists(Hold.objects.filter(run=OuterRef("pk"), epoch=OuterRef("epoch"), during__upper_inf=True))
    trained = Run.objects.filter(held, job__cluster_id=cluster_id, ready_at__isnull=False, last_report_seq__gte=0)
    found = trained.values_list("pk", "epoch", "last_report_at")
    return {(str(run_id), epoch): at.timestamp() for run_id, epoch, at in found if at is not None}


def _heard_since(run: Run, fact: Fact) -> bool:
    heard_at = run.last_report_at if run.epoch == fact.epoch and run.last_report_seq >= 0 else None
    return heard_at is not None and heard_at > from_posix(fact.at)


def note_dropped(fact: Fact, text: str) -> None:
    """What is not known of a run, as its job's files were not as they should be."""
    run = Run.objects.select_related("job").filter(pk=fact.run_id).first()
    if run is not None:
        events.append(kind="notice", job=run.job, run=run, at=from_posix(fact.at), text=f"#{run.job.number}: {text}")


def _end_holds(run: Run, fact: Fact) -> bool:
    """End the open holds of one launch and enter them in the ledger."""
    holds = Hold.objects.select_for_update(of=("self",)).filter(run=run, epoch=fact.epoch, during__upper_inf=True)
    ended, seen_at = [], from_posix(fact.at)
    for hold in holds:
        start, end = engines_time(hold.started_at, fact)
        end = max(end, start + timedelta(microseconds=1))
        Hold.objects.filter(pk=hold.pk).update(during=DateTimeTZRange(start, end))
        ended.append(hold.pk)
    ledger.record_holds(holding.held(Hold.objects.filter(pk__in=ended), seen_at))
    return bool(ended)


def settle(run: Run, info: ExitInfo, at: datetime) -> None:
    """All processes of the run's present launch are gone: what that means for the run."""
    state, name = State(run.state), f"#{run.job.number} {run.job.name}"
    exit_columns: dict[str, Any] = {"exit": asdict(info)}
    if info.reason == "done" and _has_grown(run, info):
        _stopped(run, at, name)
    elif info.reason == "done":
        step = max(run.step, info.step or 0) if run.uses_sdk else run.job.total_steps
        text = f"{name} finished all of its steps ({run.job.total_steps:,})"
        move(run, Event.STEPS_DONE, at=at, text=text, step=step, slowdown=_slowdown(run, at), **exit_columns)
        end_assignments(run, at)
    elif info.engine_limit and state not in _LEAVING and not run.job.can_restart(run):
        fail(run, replace(info, reason="time_limit"), at)
    elif state in _LEAVING or info.engine_limit:
        _stopped(run, at, name, info.message)
    elif info.reason == "stopped" and not run.job.can_restart(run):
        said = info.message or "It was stopped from outside: by its lease, its engine, or a signal"
        text = f"{said}. Its program cannot go on from a checkpoint"
        fail(run, replace(info, reason="runner_lost", message=text, nodes_fault=False, alleged=False), at)
    elif info.reason == "stopped":
        _stopped(run, at, name, info.message)
    else:
        fail(run, info, at)


def _slowdown(run: Run, at: datetime) -> float | None:
    types = cluster_types(run.job.cluster_id)
    return final_slowdown(run.job, job_profiles([run.job], types)[run.job_id], types, at)


def _has_grown(run: Run, info: ExitInfo) -> bool:
    """The program did all the steps it knew of, and the job has more by now: it goes on with the next launch."""
    done = max(run.step, info.step or 0)
    known = run.launched_steps or run.job.total_steps
    return run.uses_sdk is not False and known <= done < run.job.total_steps


def _stopped(run: Run, at: datetime, name: str, said: str = "") -> None:
    """The processes left as they were told, or by themselves with a checkpoint (a lease, a signal). `said`: of what
    brought that about."""
    if State(run.state) not in _LEAVING:
        end_assignments(run, at)
        because = f" ({shown(said, MAX_MESSAGE)})" if said else ""
        move(run, Event.REALLOCATED, at=at, text=f"{name} stopped with a checkpoint{because}")
    if State(run.state) is State.CHECKPOINTING:
        text = f"{name} stopped at step {run.checkpoint_step:,}"
        move(run, Event.CHECKPOINTED, at=at, text=text, why=kept_why(run))
    why = kept_why(run)
    if Assignment.objects.filter(run=run, during__upper_inf=True).exists():
        text = f"{name} is moving to its new GPUs"
        move(run, Event.STOPPED_REASSIGNED, at=at, text=text, why=why, step=F("checkpoint_step"))
    else:
        text = f"{name} is queued again from step {run.checkpoint_step:,}"
        move(run, Event.STOPPED_EMPTY, at=at, text=text, why=why, step=F("checkpoint_step"))
    run.refresh_from_db(fields=["step"])


def fail(run: Run, info: ExitInfo, at: datetime) -> None:
    """End this run, and queue another attempt where the job's limit allows it."""
    job = run.job
    info = replace(info, message=shown(info.message, MAX_MESSAGE))
    why = explain_exit(info, run)
    end_assignments(run, at)
    end_processes(run, at)
    move(
        run,
        Event.FAIL,
        at=at,
        text=f"#{job.number} {job.name} failed: {why}",
        why=Why(info.reason.upper(), why),
        exit=asdict(info) | {"nodes_fault": info.is_nodes_fault},
    )
    verdict = judge_retry(job, run, info)
    if not verdict.again:
        if verdict.text:
            Run.objects.filter(pk=run.pk).update(reason_text=and_then(why, verdict.text))
        return
    backoff_s = verdict.backoff_s
    retry = start_run(
        job,
        attempt=run.attempt + 1,
        now=at,
        not_before=at + timedelta(seconds=backoff_s),
        retry_why=in_short(info),
        retry_of=verdict.of,
        step=run.checkpoint_step,
        checkpoint_step=run.checkpoint_step,
        has_trained=run.has_trained,
        uses_sdk=run.uses_sdk,
        first_started_at=run.first_started_at,
        launch_s=run.launch_s,
        checkpoint_s=run.checkpoint_s,
    )
    text = f"#{job.number} is tried again in {backoff_s:.0f} s from step {run.checkpoint_step:,} ({why})"
    Run.objects.filter(pk=retry.pk).update(reason_token="RETRY", reason_text=text)
    events.append(kind="retry", job=job, run=retry, at=at, text=text)
    transaction.on_commit(wakeups.wake)


def note_failed_launch(command: Command, text: str) -> None:
    """It is tried again; until then the run says what is wrong."""
    run = Run.objects.filter(pk=command.run_id, epoch=command.epoch)
    run.update(reason_token="LAUNCH_FAILED", reason_text=text[:500])


#: Of what a program, a runner or a package manager said.
MAX_MESSAGE = 1_500


def advance_clock(*, cluster_id: int, now: datetime) -> None:
    """Moves that only time makes: protections that ended and states that lasted too long."""
    runs = Run.objects.select_related("job").filter(job__cluster_id=cluster_id)
    loop = Loop(LoopName.OVERDUE, cluster_id)
    protected = runs.filter(state=State.RUNNING_PROTECTED, protected_until__lte=now)
    over = Event.PROTECTION_ENDED
    move_who_can(
        [
            Transition(run, over, f"#{run.job.number} {run.job.name} is no longer protected", kept_why(run))
            for run in protected
        ],
        now,
        loop,
    )
    back_at = Cluster.objects.values_list("engine_back_at", flat=True).get(pk=cluster_id)
    for state, event in ON_OVERDUE.items():
        limit_s = TIME_LIMIT_S[state]
        assert limit_s is not None
        if state is State.CHECKPOINTING:
            limit_s += upload_s(cluster_id)
        if back_at is not None and back_at > now - timedelta(seconds=limit_s):
            continue  # while the engine was away nothing could move
        overdue = runs.filter(state=state, state_since__lt=now - timedelta(seconds=limit_s))
        fetches = ~Q(fetching="") & Q(last_report_at__gte=now - FETCHING_SILENCE)
        for run in overdue.exclude(reason_token=PREPARING).exclude(fetches):
            loop.run(of_run(run), _overdue, run, event, limit_s, now)


def upload_s(cluster_id: int) -> float:
    """How much longer a stop may take where its checkpoint goes into a store."""
    store = checkpoint_store.configured(cluster_id)
    return float(store.end_s) if store else 0.0


def _overdue(run: Run, event: Event, limit_s: float, now: datetime) -> None:
    state, name = State(run.state), f"#{run.job.number} {run.job.name}"
    if spooling.is_pending(run.pk, run.epoch):
        return
    try:
        with transaction.atomic():
            if event is Event.FAIL:
                in_words = state.value.lower().replace("_", " ")
                fail(run, ExitInfo("launch_failed", message=f"More than {limit_s:.0f} s in {in_words}."), now)
            elif event is Event.UNASSIGNED:
                end_assignments(run, now)
                text = f"{name} is queued again: its GPUs did not become free in {limit_s:.0f} s"
                move(run, event, at=now, text=text)
            else:
                end_processes(run, now)
                text = f"{name} wrote no checkpoint in {limit_s:.0f} s and goes on from step {run.checkpoint_step:,}"
                move(run, event, at=now, text=text)
    except (StaleRun, InvalidTransition) as error:
        logger.info("%s is no longer overdue: %s", name, error, extra=job_log.of_run(run))


def accept_waiting(*, cluster_id: int, problem_of: Callable[[Run], Why | None], now: datetime) -> list[Run]:
    """The executor takes new runs in; `problem_of(run)` is why it does not yet, or None."""
    new = Run.objects.select_related("job__project").filter(
        job__cluster_id=cluster_id, state=State.WAITING_FOR_INITIAL_CONTACT
    )
    loop = Loop(LoopName.ACCEPT, cluster_id)

    def accepted(run: Run) -> Transition | None:
        if problem := problem_of(run):
            if run.reason_text != problem.text:
                # Unless it has moved on since: it may have been cancelled, or its preparation may have failed.
                still = Run.objects.filter(pk=run.pk, state=run.state)
                still.update(reason_token=problem.token, reason_text=problem.text)
            return None
        text = f"#{run.job.number} {run.job.name} is in the queue"
        why = kept_why(run) if run.reason_token == "RETRY" else None
        return Transition(run, Event.ACCEPTED, text, why)

    ready = loop.together(new, of_run, lambda runs: [accepted(run) for run in runs])
    return move_who_can([one for one in ready if one is not None], now, loop)
