"""A run's activity in its reports: steps, and GPU utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Max, Sum

from accounts.utilisation import Use, add_uses
from portal.database.rows import update_rows
from portal.jobs.models import Hold, Run, RunActivity
from portal.lifecycle.idle_rule import rule_of

#: A longer gap between two reports counts as no reporting: the utilisation in it is unknown.
_LONGEST_S = 300.0
_US = timedelta(microseconds=1)
#: Columns that only reports write, under their run's lock.
_MAY_CHANGE = ("heard_at", "stepped_at", "busy_at", "measured_at", "utilisation")


@dataclass(frozen=True, slots=True)
class Heard:
    sent_at: datetime
    stepped: bool
    #: Of each GPU, 0 to 1; None: unknown.
    utilisation: list[float] | None


def note_activities(heard: Sequence[tuple[Run, Heard]], now: datetime) -> None:
    """For different runs, which the caller has locked and which train. Writes one row for each, and one of utilisation
    if it was reported."""
    rows: dict[UUID, dict[str, Any]] = {}
    uses: list[Use] = []
    for run, one in heard:
        before = _activity(run)
        if before is None or before.epoch != run.epoch:
            _begin(run, before, min(one.sent_at, now))
            continue
        at = min(max(one.sent_at, before.heard_at), now)  # a clock that jumps back changes nothing
        rows[run.pk] = _values(run, before, one, at)
        if one.utilisation and (use := _use(run, before, at, _mean(one.utilisation))):
            uses.append(use)
    update_rows(RunActivity, rows)
    add_uses(uses)


def _values(run: Run, before: RunActivity, heard: Heard, at: datetime) -> dict[str, Any]:
    values = {name: getattr(before, name) for name in _MAY_CHANGE} | {"heard_at": at}
    if heard.stepped:
        values["stepped_at"] = at
    if heard.utilisation:
        values |= {"measured_at": at, "utilisation": [round(value, 3) for value in heard.utilisation]}
        if _mean(heard.utilisation) >= rule_of(run.job.cluster).utilisation_below:
            values["busy_at"] = at
    elif not before.utilisation:
        values["busy_at"] = at
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _activity(run: Run) -> RunActivity | None:
    try:
        return run.activity
    except ObjectDoesNotExist:
        return None


def _begin(run: Run, before: RunActivity | None, at: datetime) -> None:
    """A new launch: nothing is idle yet. The number and the end of extensions survive a move."""
    held = Hold.objects.filter(run=run, epoch=run.epoch).aggregate(
        hundredths=Sum("share_percent"), type=Max("accelerator__node__accelerator_type")
    )
    values: dict[str, Any] = {
        "epoch": run.epoch,
        "accelerator_type": held["type"] or "",
        "gpu_hundredths": held["hundredths"] or 0,
        "heard_at": at,
        "stepped_at": at,
        "busy_at": at,
        "measured_at": None,
        "utilisation": [],
        "warned_at": None,
    }
    RunActivity.objects.update_or_create(run=run, defaults=values)


def _use(run: Run, before: RunActivity, at: datetime, utilisation: float) -> Use | None:
    since = before.measured_at or before.heard_at
    if not before.gpu_hundredths or not 0 < (at - since).total_seconds() <= _LONGEST_S:
        return None
    return Use(
        at=at,
        project_id=run.job.project_id,
        user_id=run.job.owner_id,
        job_id=run.job_id,
        accelerator_type=before.accelerator_type,
        measured_us_hundredths=((at - since) // _US) * before.gpu_hundredths,
        utilisation=utilisation,
    )
