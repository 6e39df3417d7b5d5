"""What a report says of a run's doing: steps, and how busy its GPUs are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Max, Sum

from accounts.utilisation import add_use
from portal.jobs.idleness import rule_of
from portal.jobs.models import Hold, Run, RunActivity

#: A gap between two reports that is longer was no reporting: what the GPUs did in it nobody said.
_LONGEST_S = 300.0
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Heard:
    sent_at: datetime
    stepped: bool
    #: Of each GPU, 0 to 1; None: not known.
    utilisation: list[float] | None


def note_activity(run: Run, heard: Heard, now: datetime) -> None:
    """The caller has locked the run, which trains. One row is written, and one of use where use was said."""
    before = _activity(run)
    if before is None or before.epoch != run.epoch:
        _begin(run, before, min(heard.sent_at, now))
        return
    at = min(max(heard.sent_at, before.heard_at), now)  # a clock that jumps moves nothing back
    values: dict[str, Any] = {"heard_at": at}
    if heard.stepped:
        values["stepped_at"] = at
    if not heard.utilisation:
        if not before.utilisation:
            values["busy_at"] = at
    else:
        mean = sum(heard.utilisation) / len(heard.utilisation)
        values |= {"measured_at": at, "utilisation": [round(value, 3) for value in heard.utilisation]}
        if mean >= rule_of(run.job.cluster).utilisation_below:
            values["busy_at"] = at
        _add_use(run, before, at, mean)
    RunActivity.objects.filter(pk=run.pk).update(**values)


def _activity(run: Run) -> RunActivity | None:
    try:
        return run.activity
    except ObjectDoesNotExist:
        return None


def _begin(run: Run, before: RunActivity | None, at: datetime) -> None:
    """A new launch: nothing is idle yet. How often and until when somebody asked for more time outlasts a move."""
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


def _add_use(run: Run, before: RunActivity, at: datetime, utilisation: float) -> None:
    since = before.measured_at or before.heard_at
    if not before.gpu_hundredths or not 0 < (at - since).total_seconds() <= _LONGEST_S:
        return
    add_use(
        at=at,
        project_id=run.job.project_id,
        user_id=run.job.owner_id,
        job_id=run.job_id,
        accelerator_type=before.accelerator_type,
        measured_us_hundredths=((at - since) // _US) * before.gpu_hundredths,
        utilisation=utilisation,
    )
