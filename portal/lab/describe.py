"""Simulations as the API shows them."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from portal.core.times import iso
from portal.lab.models import UNFINISHED, Simulation, State, Trace, Trial


def describe_simulation(row: Simulation) -> dict[str, Any]:
    """With its trials, which the caller has fetched."""
    trials = list(row.trials.all())
    return {
        "id": str(row.id),
        "number": row.number,
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "created_by": str(row.created_by),
        "created_at": iso(row.created_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "cluster": row.cluster.name,
        "spec": row.spec,
        "progress": _progress(row, trials),
        "workload_summary": row.summary,
        "trials": [_trial(trial) for trial in trials],
    }


def _progress(row: Simulation, trials: list[Trial]) -> dict[str, Any]:
    jobs = (row.summary["jobs"] if row.summary else 0) * len(trials)
    done = jobs if row.state == State.SUCCEEDED else min(jobs, row.jobs_done)
    eta_s = None
    if row.state == State.RUNNING and done and row.started_at:
        eta_s = (timezone.now() - row.started_at).total_seconds() * (jobs - done) / done
    ended = sum(trial.state not in UNFINISHED for trial in trials)
    return {"trials": len(trials), "trials_done": ended, "jobs": jobs, "jobs_done": done, "eta_s": eta_s}


def _trial(trial: Trial) -> dict[str, Any]:
    keys = ("index", "policy", "parameters", "given", "label", "seed", "role", "state", "error", "metrics")
    return {"id": str(trial.pk), **{key: getattr(trial, key) for key in keys}}


def describe_trace(trace: Trace) -> dict[str, Any]:
    return {"id": str(trace.pk), "name": trace.name, "format": trace.format, **trace.summary}
