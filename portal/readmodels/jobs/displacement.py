"""The explanation for a job that lost GPUs: which jobs have them, at which level of the tree, and when it can expect
them back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone

from accounts.levels import Levels
from accounts.models import Project
from portal.core.times import iso, moment
from portal.jobs.access import described_jobs
from portal.jobs.models import Assignment, Displacement, Job, Run
from portal.readmodels.cluster.catalogue import redact_foreign_job
from portal.readmodels.jobs.expected_start import expected_starts
from portal.throughput.expected_end import end_facts, expected_end_of, time_left_s
from scheduling.domain.reason_codes import PERIODS
from scheduling.lifecycle import TERMINAL, WAITING, State

#: Reasons that already say when the job starts.
_FORESEEN = "expected_start_at"
POLICY = "as the policy expects it to start"
SIMULATED = "the middle of its expected starts"
ENDS = "when the jobs that got them are expected to end"
PERIOD = "when the budget's period ends"


def describe_displacement(job: Job, run: Run, mine: set[int]) -> dict[str, Any] | None:
    """None if it has its former GPUs."""
    row = None if State(run.state) in TERMINAL else Displacement.objects.filter(run=run).first()
    if row is None:
        return None
    now = Assignment.objects.filter(run=run, during__upper_inf=True).count()
    if now >= row.gpus_before:
        return None
    takers = list(described_jobs().filter(number__in=row.taken_by).order_by("number"))
    at, basis = _back(job, run) if State(run.state) in WAITING else _when_they_end(takers)
    return {
        "at": iso(row.at),
        "kind": Displacement.Kind.PREEMPTED if not now else Displacement.Kind.SHRUNK,
        "code": row.token,
        "text": row.text,
        "level": row.level,
        "gpus_before": row.gpus_before,
        "gpus_now": now,
        "by": [redact_foreign_job(taker, mine) | {"within": within} for taker, within in _places(job, takers)],
        "back_at": iso(at),
        "back_basis": basis if at else None,
    }


def _places(job: Job, takers: list[Job]) -> list[tuple[Job, str]]:
    """Each with the lowest level of the tree that it shares with the job, in words."""
    if not takers:
        return []
    levels = Levels.load()
    shared = {
        taker.pk: [pk for pk in levels.chain(taker.project_id) if pk in levels.chain(job.project_id)]
        for taker in takers
    }
    lowest = [chain[-1] for chain in shared.values() if chain]
    names = dict(Project.objects.filter(pk__in=lowest).values_list("pk", "name"))
    places = []
    for taker in takers:
        common = shared[taker.pk]
        if taker.project_id == job.project_id:
            places.append((taker, "your own project"))
        else:
            places.append((taker, f"project {names[common[-1]]}, above both" if common else "the cluster"))
    return places


def _when_they_end(takers: list[Job]) -> tuple[datetime | None, str]:
    """For a job on fewer GPUs: the jobs that got the others keep them until they end, as far as the ends are known."""
    facts = end_facts(takers, timezone.now())
    live = [(taker, taker.run) for taker in takers if taker.run and State(taker.run.state) not in TERMINAL]
    ends = [expected_end_of(taker, facts, time_left_s(taker, taker_run, facts)) for taker, taker_run in live]
    known = [end for end in ends if end is not None]
    return (max(known), ENDS) if known and len(known) == len(ends) else (None, "")


def _back(job: Job, run: Run) -> tuple[datetime | None, str]:
    """For a waiting job: the period's end, the simulated queue, or the policy's own statement."""
    waits = State(run.state) in WAITING
    foreseen = run.reason_detail.get(_FORESEEN) if waits else None
    said = expected_starts([job])[job.pk]["p50_at"] if waits and run.reason_token not in PERIODS else None
    now = timezone.now()
    if said is not None and (at := datetime.fromisoformat(said)) > now:
        return at, SIMULATED
    ends_at = moment(foreseen, now)
    if ends_at is not None and ends_at > now:
        return ends_at, PERIOD if run.reason_token in PERIODS else POLICY
    return None, ""
