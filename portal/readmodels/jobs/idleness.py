"""Which jobs hold GPUs without using them, by a cluster's rule, and the texts about them.

Only reports count: a run without reports is not idle but lost, which is handled elsewhere. A job that keeps its GPUs
busy without a step is stuck; a job that reports no steps is judged by its GPU utilisation alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import F

from portal.core.times import iso
from portal.jobs.models import IdleRule, Job, RunActivity
from portal.lifecycle.idle_rule import Idle, rule_of, sentence, warned_of
from scheduling.lifecycle import TRAINING, State


def describe_warnings(jobs: Iterable[Job]) -> dict[UUID, dict[str, Any]]:
    """By job, for jobs with a warning: one query if any of them trains."""
    by_run = {job.run.pk: job for job in jobs if job.run and State(job.run.state) in TRAINING}
    if not by_run:
        return {}
    rows = RunActivity.objects.filter(run__in=list(by_run), warned_at__isnull=False, epoch=F("run__epoch"))
    found = {}
    for row in rows.select_related("run__job__cluster__idle_rule"):
        job, rule = by_run[row.pk], rule_of(row.run.job.cluster)
        if idle := warned_of(job, row.run, row, rule):
            found[job.pk] = _describe(row, idle, rule)
    return found


def _describe(row: RunActivity, found: Idle, rule: IdleRule) -> dict[str, Any]:
    return {
        "kind": "no_step" if found.no_step else "low_utilisation",
        "since_at": iso(found.since),
        "warned_at": iso(row.warned_at),
        "release_at": iso(found.release_at),
        "extended_until_at": iso(row.postponed_until),
        "extensions_left": max(0, rule.extensions_max - row.postponements) if found.release_at else 0,
        "text": sentence(row, found),
    }
