"""Throughput profiles of many jobs at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from portal.core import job_log
from portal.jobs.models import Job
from portal.throughput import profiles
from scheduling.throughput.curves import Number, Profile

logger = logging.getLogger(__name__)


def job_profiles(jobs: list[Job], types: Mapping[str, int]) -> dict[Any, dict[str, Profile]]:
    """Curves per job, with the measured numbers of all of them in one query."""
    measurable = [job for job in jobs if job.model_type_id or job.run is None or job.run.had_gpus]
    measured = _measured(measurable)
    known = {}
    for job in jobs:
        try:
            known[job.pk] = profiles.profiles_of(job, types, measured)
        except Exception:
            # One job's unreadable curves must not stop the rounds and streams of all others.
            logger.exception("the throughput of job %s cannot be read", job.pk, extra=job_log.of_job(job))
            known[job.pk] = {}
    return known


def _measured(jobs: list[Job]) -> dict[tuple[str, int, str], dict[int, Number]]:
    """All jobs belong to one cluster."""
    names = {name for job in jobs for name in profiles.workloads_of(job)}
    return profiles.measured_numbers(names, jobs[0].cluster_id) if jobs else {}
