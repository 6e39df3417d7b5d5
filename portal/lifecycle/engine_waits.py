"""Launches that the engine has not begun, or has suspended: shown to people, not billed, and placed anew if they
last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from psycopg2.extras import DateTimeTZRange

from portal.core.times import from_posix
from portal.jobs import events
from portal.jobs.engine_names import engine_name
from portal.jobs.loops import Loop, LoopName, of_run
from portal.jobs.models import Command, Hold, Run
from portal.lifecycle.allocations import end_assignments
from portal.lifecycle.transitions import kept_why, move
from portal.snapshot.engine_jobs import overfull_nodes
from scheduling.executors.base import POWERING_UP, Fact
from scheduling.lifecycle import TRAINING, Event, State

#: An engine that was only just asked may not have started it yet.
TAKEN_S = 10.0
#: The number of jobs ahead changes all the time.
BEHIND = ", behind "
#: In other states a launch is about to end anyway.
_STATES = (State.LAUNCHING, *TRAINING)


def note_waits(facts: Iterable[Fact], cluster_id: int) -> None:
    """`facts`: all facts of one observation. The end of a wait is recorded, too."""
    waits = {fact.run_id: fact for fact in facts if fact.waits}
    concerned = Run.objects.filter(Q(pk__in=waits) | ~Q(engine_waits=""), job__cluster_id=cluster_id, state__in=_STATES)
    loop = Loop(LoopName.FACTS, cluster_id)
    for run in concerned.select_related("job"):
        loop.run(of_run(run), _note, run, waits.get(str(run.pk)))


@transaction.atomic
def _note(seen: Run, fact: Fact | None) -> None:
    run = Run.objects.select_for_update(of=("self",)).select_related("job").get(pk=seen.pk)
    if State(run.state) not in _STATES:
        return
    if fact is None or fact.epoch != run.epoch:
        if run.engine_waits:
            Run.objects.filter(pk=run.pk).update(engine_waits="", engine_waits_since=None)
        return
    at = from_posix(fact.at)
    if run.engine_waits.partition(BEHIND)[0] != fact.waits.partition(BEHIND)[0]:
        text = f"#{run.job.number} {run.job.name}: {fact.waits}"
        events.append(kind="engine_waits", job=run.job, run=run, at=at, text=text)
    came_up = run.engine_waits.startswith(POWERING_UP) and not fact.waits.startswith(POWERING_UP)
    since = at if came_up else run.engine_waits_since or at  # waking nodes is not a wait that ends by a new placement
    changes = {"engine_waits": fact.waits[:200], "engine_waits_since": since}
    if State(run.state) is State.LAUNCHING:
        _begin_again(run, at)
    Run.objects.filter(pk=run.pk).update(**changes)


def end_long_waits(*, cluster_id: int, now: datetime) -> None:
    """Place launches anew that have waited in their engine for EVENKEEL_ENGINE_WAIT_S; no attempt is used up. A started
    program that cannot resume stays: the engine may continue it."""
    limit = timedelta(seconds=settings.EVENKEEL_ENGINE_WAIT_S)
    late = Run.objects.filter(job__cluster_id=cluster_id, engine_waits_since__lte=now - limit, state__in=_STATES)
    loop = Loop(LoopName.OVERDUE, cluster_id)
    late = late.exclude(engine_waits__startswith=POWERING_UP)  # Slurm ends this by itself, after its ResumeTimeout
    for run in late.exclude(engine_waits="").select_related("job"):
        if State(run.state) is State.LAUNCHING or run.job.can_restart(run):
            loop.run(of_run(run), _place_again, run, now)


@transaction.atomic
def note_not_accepted(command: Command, said: str, now: datetime, *, anew: bool) -> None:
    """The engine rejects a launch for the moment: it costs nothing meanwhile, and uses up no attempt. `anew`: it has
    waited long enough and is placed again."""
    run = Run.objects.select_for_update(of=("self",)).select_related("job").get(pk=command.run_id)
    if State(run.state) is not State.LAUNCHING or run.epoch != command.epoch:
        return
    _begin_again(run, now)
    if anew:
        _again(run, f"#{run.job.number} {run.job.name} is placed again: {said[:300]}", now)


def _begin_again(run: Run, at: datetime) -> None:
    """A waiting launch holds nothing: its occupancy and launch time begin when the wait ends."""
    Hold.objects.filter(run=run, epoch=run.epoch, during__upper_inf=True, during__startswith__lt=at).update(
        during=DateTimeTZRange(at, None)
    )
    Run.objects.filter(pk=run.pk).update(state_since=max(run.state_since, at))


def replace_blocked_launches(*, cluster_id: int, now: datetime) -> None:
    """Place a launch anew at once if it waits for GPUs that the engine's other jobs are known to use: the other GPUs of
    its plan do not stay idle for it."""
    nodes = overfull_nodes(cluster_id)
    if not nodes:
        return
    waits = Run.objects.filter(job__cluster_id=cluster_id, state=State.LAUNCHING).exclude(engine_waits="")
    late = waits.filter(engine_waits_since__lte=now - timedelta(seconds=TAKEN_S))
    holds = Hold.objects.filter(
        run__in=late, epoch=F("run__epoch"), during__upper_inf=True, accelerator__node__in=nodes
    )
    first: dict[Run, str] = {}
    for hold in holds.select_related("run__job__cluster", "accelerator").order_by("accelerator__node__name"):
        first.setdefault(hold.run, nodes[hold.accelerator.node_id])
    loop = Loop(LoopName.OVERDUE, cluster_id)
    for run, node in first.items():
        loop.run(of_run(run), _place_elsewhere, run, node, now)


def _place_elsewhere(run: Run, node: str, now: datetime) -> None:
    job = run.job
    others = f"other {engine_name(job.cluster)} jobs"
    _again(run, f"#{job.number} {job.name}: its GPUs of {node} are used by {others}, so it is placed again", now)


def _place_again(run: Run, now: datetime) -> None:
    seconds = settings.EVENKEEL_ENGINE_WAIT_S
    text = f"#{run.job.number} {run.job.name} has waited {seconds:.0f} s ({run.engine_waits}) and is placed again"
    _again(run, text, now)


@transaction.atomic
def _again(run: Run, text: str, now: datetime) -> None:
    move(run, Event.REALLOCATED, at=now, text=text, why=kept_why(run), engine_waits="", engine_waits_since=None)
    end_assignments(run, now)
    Command.objects.get_or_create(
        run=run, epoch=run.epoch, verb=Command.Verb.CHECKPOINT_AND_STOP, defaults={"next_attempt_at": now}
    )
