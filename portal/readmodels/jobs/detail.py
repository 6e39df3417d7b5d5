"""One job in full: its attempts, checkpoints and throughput curves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ObjectDoesNotExist

from portal.core.own_address import leads_here
from portal.core.times import iso
from portal.jobs.clusters import shares_its_host
from portal.jobs.models import Checkpoint, Job, Run
from portal.readmodels.cluster.catalogue import describe_curve
from portal.readmodels.jobs import summary
from portal.readmodels.jobs.neighbours import sharing
from portal.readmodels.jobs.summary import people_state
from portal.throughput import available
from portal.throughput.job_profiles import job_profiles
from scheduling.lifecycle import LIVE, TRAINING, WAITING, State
from scheduling.throughput.curves import Profile

MAX_CHECKPOINTS = 50
MAX_LINKS = 50


def describe_detail(job: Job, now: datetime) -> dict[str, Any]:
    """The job as in lists, with the data that only its own page shows."""
    runs = list(job.runs.select_related("material__environment").order_by("-attempt"))
    return {
        **summary.describe_jobs([job], now)[0],
        "spec": job.spec,
        "runs": [_run(run, now) for run in runs],
        "links": _links(runs, job.cluster.executor),
        "checkpoints": [_checkpoint(c) for c in _kept(job)],
        "curve": {kind: describe_curve(profile, now) for kind, profile in job_curves(job).items()},
        "sharing": sharing(job),
    }


def job_curves(job: Job) -> dict[str, Profile]:
    """Known throughputs of the job on the cluster's types; empty if it is only on trial."""
    known = job_profiles([job], available.cluster_types(job.cluster_id))[job.pk]
    return {kind: profile for kind, profile in known.items() if profile.curve.source != "trial"}


def _run(run: Run, now: datetime) -> dict[str, Any]:
    return {
        "id": str(run.pk),
        "attempt": run.attempt,
        "epoch": run.epoch,
        "state": people_state(run),
        "run_state": run.state,
        "reason": {"code": run.reason_token, "text": run.reason_text},
        "step": run.step,
        "checkpoint_step": run.checkpoint_step,
        "resizes": run.rescales,
        "created_at": iso(run.created_at),
        "started_at": iso(run.first_started_at),
        "finished_at": iso(run.ended_at),
        "times": _times(run, now),
        "exit": _exit(run),
        "material": _material(run),
    }


def _links(runs: list[Run], executor: str) -> list[dict[str, str | bool]]:
    """Of all attempts; the newest one wins if two use a name. A link to this host may lead to a job's port, and a page
    anywhere may redirect the browser to one."""
    found: dict[str, str] = {}
    for run in reversed(runs):
        found |= run.links
    named = sorted(found.items())[:MAX_LINKS]
    may = shares_its_host(executor)
    return [{"name": name, "url": url, "leads_here": leads_here(url), "may_lead_here": may} for name, url in named]


def _material(run: Run) -> dict[str, Any] | None:
    """The run's code and environment, if the job brought its own."""
    try:
        found = run.material
    except ObjectDoesNotExist:
        return None
    environment = found.environment
    return {
        "commit": found.commit or None,
        "code_bytes": found.code_bytes or None,
        "environment": {"digest": environment.digest, "state": environment.state} if environment else None,
    }


def _kept(job: Job) -> list[Checkpoint]:
    """The newest checkpoints of different steps, as many as the program keeps: older ones are no longer on disk."""
    keep = min(int(job.spec.get("checkpoint", {}).get("keep", 3)), MAX_CHECKPOINTS)
    rows = Checkpoint.objects.filter(run__job=job).select_related("run").order_by("-step", "-at")
    by_step: dict[int, Checkpoint] = {}
    for row in rows[: keep * job.run.attempt if job.run else keep]:
        by_step.setdefault(row.step, row)
    return list(by_step.values())[:keep]


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "attempt": checkpoint.run.attempt,
        "step": checkpoint.step,
        "at": iso(checkpoint.at),
        "path": checkpoint.path,
        "bytes": checkpoint.size_bytes,
        "seconds": checkpoint.duration_s,
    }


def _times(run: Run, now: datetime) -> dict[str, float]:
    times = {name: getattr(run, name) for name in ("queueing_s", "launching_s", "running_s")}
    state = State(run.state)
    if state in LIVE:
        heading = "queueing_s" if state in WAITING else "running_s" if state in TRAINING else "launching_s"
        times[heading] += max(0.0, (now - run.state_since).total_seconds())
    return {name: round(value, 3) for name, value in times.items()}


def _exit(run: Run) -> dict[str, Any] | None:
    if run.exit is None or State(run.state) in LIVE:
        return None
    return {key: run.exit.get(key) for key in ("reason", "message", "exit_code", "signal")}
