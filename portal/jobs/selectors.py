"""Reads. `access_job` and `visible_jobs` are the only ways to fetch what belongs to a project."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import BooleanField, F, Func, Q, QuerySet

from accounts.models import User
from accounts.selectors import Array, visible_projects, writable_projects
from portal.jobs.models import Job, JobEvent, Run
from scheduling.lifecycle import State, coarse_state


def described_jobs() -> QuerySet[Job]:
    """Jobs with what describing them reads beside their own rows.

    One join and a short query for each of the rest: PostgreSQL needs longer to plan nine joins than for all else,
    and what many jobs share is made once.
    """
    apart = ("project", "owner", "model_type", "cluster", "qos", "held_by", "resubmit_of", "resume_job")
    return Job.objects.select_related("run").prefetch_related(*apart)


def in_states(states: Iterable[State]) -> Q:
    """Jobs whose run is in one of the states: starts from those runs, so that it costs no more among many jobs.

    As an array, because the planner expects few of those and takes the index; for a join it would read all jobs.
    """
    runs = Run.objects.filter(state__in=sorted(state.value for state in states)).order_by().values("pk")
    return Q(
        Func(F("run"), Array(runs), template="%(expressions)s)", arg_joiner=" = ANY(", output_field=BooleanField())
    )


def visible_jobs(user: User | AnonymousUser) -> QuerySet[Job]:
    """Jobs of the user's projects, with what a row of a list shows."""
    jobs = described_jobs()
    if isinstance(user, User) and user.is_active and user.is_superuser:
        return jobs
    return jobs.filter(project__in=visible_projects(user))


def access_job(user: User | AnonymousUser, reference: str, *, write: bool = False) -> Job:
    """The job with this UUID or number; Job.DoesNotExist also where the user may not see it.

    PermissionError where the user may read but not change it.
    """
    job = visible_jobs(user).get(jobs_named([reference]))
    if write and not writable_projects(user).filter(pk=job.project_id).exists():
        raise PermissionError(f"You may read jobs of {job.project.name} but not change them.")
    return job


def jobs_named(references: Iterable[str]) -> Q:
    """Jobs with these numbers or UUIDs; what is neither names none."""
    numbers, uuids = [], []
    for text in references:
        if text.isdecimal() and len(text) <= 18:
            numbers.append(int(text))
        elif uuid := uuid_of(text):
            uuids.append(uuid)
    return Q(number__in=numbers) | Q(pk__in=uuids)


def uuid_of(text: str) -> UUID | None:
    try:
        return UUID(text) if not text.isdecimal() else None
    except ValueError:
        return None


def in_people_states(words: Iterable[str]) -> Q:
    """Jobs whose state people read as any of `words` (see `describe.people_state`)."""
    condition = Q(pk__in=[])
    for trained in (False, True):
        states = [state for state in State if coarse_state(state, rescaling=trained) in words]
        condition |= Q(run__has_trained=trained, run__state__in=states)
    return condition


def events_of(job: Job) -> QuerySet[JobEvent]:
    """All that happened to a job that the caller has access to, in whichever project it was then."""
    return JobEvent.objects.select_related("job", "project").filter(job=job)


def visible_events(user: User | AnonymousUser) -> QuerySet[JobEvent]:
    """Events of the user's projects and of the cluster."""
    events = JobEvent.objects.select_related("job", "project")
    return events.filter(Q(project=None) | Q(project__in=visible_projects(user)))
