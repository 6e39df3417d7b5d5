"""Launches runs whose GPUs are free."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q
from psycopg2.extras import DateTimeTZRange

from portal.core import job_log
from portal.jobs.loops import Item, Loop, LoopName, of_job
from portal.jobs.models import Accelerator, Assignment, Command, Hold, Run
from portal.lifecycle.commit_plan import describe, gpus_taken
from portal.lifecycle.transitions import BATCH, CONFLICTS, Transition, in_batches, kept_why, move_all
from scheduling.domain import Gang
from scheduling.lifecycle import Event, State

logger = logging.getLogger(__name__)


def launch_ready(*, cluster_id: int, now: datetime) -> list[Run]:
    """Start every STANDBY run whose GPUs are all free: occupancy, epoch and launch command in one transaction."""
    planned = Assignment.objects.filter(run=OuterRef("pk"), during__upper_inf=True)
    gpu = "accelerator__{}".format
    full = Q(**{gpu("free_share_percent__lt"): F("share_percent")})
    full |= Q(**{gpu("memory_mib__gt"): 0, gpu("memory_mib__lt"): F(gpu("held_memory_mib")) + F("memory_mib")})
    blocked = planned.filter(full)
    ready = (
        Run.objects.filter(job__cluster_id=cluster_id, state=State.STANDBY)
        .filter(Exists(planned))
        .exclude(Exists(blocked))
    )
    loop = Loop(LoopName.LAUNCH, cluster_id)
    runs = loop.due(ready.select_related("job").only("epoch", "job__number", "job__name"), _of_its_job)

    def refuse(run: Run, error: Exception) -> None:
        if isinstance(error, CONFLICTS):
            logger.info("run %s not launched: %s", run.pk, error, extra=job_log.of_run(run))
        else:
            loop.failed(_of_its_job(run), error)

    launched = in_batches(runs, lambda some: _write_launches(some, now), refuse, BATCH)
    loop.succeeded_all(map(_of_its_job, launched))
    return launched


def _of_its_job(run: Run) -> Item:
    """Snapshots omit jobs that cannot be launched."""
    return of_job(run.job)


def _write_launches(ready: Sequence[Run], now: datetime) -> list[Run]:
    gpus = _lock_with_gpus(ready)
    during = DateTimeTZRange(now, None)
    Hold.objects.bulk_create(
        Hold(run=run, accelerator=gpu, epoch=run.epoch + 1, during=during, **gpus_taken(run.job))
        for run, its_gpus in gpus.items()
        for gpu in its_gpus
    )
    launch = partial(Command, verb=Command.Verb.LAUNCH, next_attempt_at=now)
    Command.objects.bulk_create(launch(run=run, epoch=run.epoch + 1) for run in gpus)
    move_all([_launched(run, its_gpus, now) for run, its_gpus in gpus.items()], now)
    return list(gpus)


def _lock_with_gpus(ready: Sequence[Run]) -> dict[Run, list[Accelerator]]:
    """Without runs that were cancelled since."""
    rows = Run.objects.select_for_update(of=("self",), no_key=True).select_related("job").order_by("pk")
    still = {run.pk: run for run in rows.filter(pk__in=[run.pk for run in ready], state=State.STANDBY)}
    gpus: dict[UUID, list[Accelerator]] = defaultdict(list)
    # Read after the locks were granted.
    planned = Assignment.objects.filter(run__in=still, during__upper_inf=True).select_related("accelerator__node")
    for assignment in planned.order_by("accelerator"):
        gpus[assignment.run_id].append(assignment.accelerator)
    return {still[run.pk]: gpus[run.pk] for run in ready if run.pk in gpus}


def _launched(run: Run, gpus: Sequence[Accelerator], now: datetime) -> Transition:
    gang = Gang(gpus[0].node.accelerator_type, len(gpus))
    started = {} if run.first_started_at else {"first_started_at": now}
    return Transition(
        run,
        Event.GPUS_FREE,
        f"#{run.job.number} {run.job.name} starts on {describe(run.job, gang)}",
        kept_why(run),
        {"gpus": [{"node": g.node.name, "index": g.index} for g in gpus]},
        {
            "epoch": run.epoch + 1,
            "emulated": any(g.node.emulated for g in gpus),
            "last_report_seq": -1,
            "fetching": "",
            "engine_waits": "",
            "engine_waits_since": None,
            "ready_at": None,
            "pace_missed": False,
            "launched_steps": run.job.total_steps,
        }
        | started,
    )
