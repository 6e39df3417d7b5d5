"""Turns observations of executors and runners into transitions of the one table."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from django.db import transaction

from portal.core import wake
from portal.core.times import from_posix
from portal.jobs import events
from portal.jobs.loops import Item, Loop, LoopName, of_run_id
from portal.jobs.models import Command, Run
from portal.lifecycle.end_run import end_holds, settle
from scheduling.domain.reason_codes import ReasonCode
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import LIVE, State

logger = logging.getLogger(__name__)


def record_fact(fact: Fact) -> None:
    """Record one executor fact. `alive` closes the launch command; `exited` and `absent` end the occupancy."""
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
            # not started yet, or started only since: a round with many runs handles facts that are some time old
            return
        if fact.kind == "absent" and awaited and _reopen_failed_launch(run):
            return
        ended = end_holds(run, fact)
        if ended and fact.strays:
            text = f"#{run.job.number}: {fact.strays}"
            events.append(kind="notice", job=run.job, run=run, at=from_posix(fact.at), text=text)
        Command.objects.filter(run=run, epoch=fact.epoch, closed_at=None).update(closed_at=from_posix(fact.at))
        if run.epoch == fact.epoch and State(run.state) in LIVE:
            lost = ExitInfo("runner_lost", message="Its processes are gone and left no word.", alleged=True)
            settle(run, fact.exit or lost, from_posix(fact.at))
        if ended:
            transaction.on_commit(wake.schedule_round)


def _reopen_failed_launch(run: Run) -> bool:
    """A launch under way is seen as alive, which closes its command; if it then fails, the command must be sent again,
    or show the error."""
    commands = Command.objects.filter(run=run, epoch=run.epoch, verb=Command.Verb.LAUNCH, closed_at__isnull=False)
    return bool(commands.exclude(error="").update(closed_at=None))


def record_alive(facts: Sequence[Fact], cluster_id: int | None = None) -> None:
    """Close the launch commands of these: one query, and a second one if there are any."""
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


def _heard_since(run: Run, fact: Fact) -> bool:
    heard_at = run.last_report_at if run.epoch == fact.epoch and run.last_report_seq >= 0 else None
    return heard_at is not None and heard_at > from_posix(fact.at)


def note_dropped(fact: Fact, text: str) -> None:
    """Data of a run that is unknown, because its job's files are damaged."""
    run = Run.objects.select_related("job").filter(pk=fact.run_id).first()
    if run is not None:
        events.append(kind="notice", job=run.job, run=run, at=from_posix(fact.at), text=f"#{run.job.number}: {text}")


def note_failed_launch(command: Command, text: str) -> None:
    """It is retried; until then the run shows the error."""
    run = Run.objects.filter(pk=command.run_id, epoch=command.epoch)
    run.update(reason_token=ReasonCode.LAUNCH_FAILED, reason_text=text[:500])
