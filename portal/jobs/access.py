"""Read access. Only `access_job` and `visible_jobs` fetch objects that belong to a project."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import BooleanField, F, Func, Q, QuerySet

from accounts.models import Project, User
from accounts.selectors import Array, visible_projects, writable_projects
from portal.core import job_log
from portal.jobs.models import Job, JobArray, JobEvent, Run
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import QUEUED, State, coarse_state

_MEMBER = re.compile(r"([0-9]{1,18})_([0-9]{1,6})\Z")


def described_jobs() -> QuerySet[Job]:
    """Jobs with the related rows needed to describe them.

    One join and a short query for each of the rest: PostgreSQL needs longer to plan nine joins than for everything
    else, and objects that many jobs share are created once.
    """
    alike = ("project", "owner", "model_type", "cluster", "qos", "partition", "array")
    apart = (*alike, "held_by", "resubmit_of", "resume_job")
    return Job.objects.select_related("run").prefetch_related(*apart)


def in_states(states: Iterable[State]) -> Q:
    """Jobs whose run is in one of the states. The query starts from those runs, so its cost does not grow with the
    number of jobs.

    As an array: the planner then expects few rows and uses the index; with a join it would read all jobs.
    """
    runs = Run.objects.filter(state__in=sorted(state.value for state in states)).order_by().values("pk")
    return Q(
        Func(F("run"), Array(runs), template="%(expressions)s)", arg_joiner=" = ANY(", output_field=BooleanField())
    )


def waiting_for_gpus() -> Q:
    """Jobs that could start: not on hold, and with all dependencies satisfied."""
    return in_states(QUEUED) & Q(hold_kind="") & ~Q(("run__reason_token", ReasonCode.DEPENDENCY))


def visible_jobs(user: User | AnonymousUser) -> QuerySet[Job]:
    """Jobs of the user's projects, with the data of a row in a list."""
    jobs = described_jobs()
    if isinstance(user, User) and user.is_active and user.is_superuser:
        return jobs
    return jobs.filter(project__in=visible_projects(user))


def access_job(user: User | AnonymousUser, reference: str, *, write: bool = False) -> Job:
    """The job with this UUID or number; Job.DoesNotExist also where the user may not see it.

    PermissionError if the user may read but not change it.
    """
    job = visible_jobs(user).get(jobs_named([reference]))
    if write and not writable_projects(user).filter(pk=job.project_id).exists():
        raise PermissionError(why_not_writable(job.project))
    job_log.note(job_log.of_job(job))
    return job


def why_not_writable(project: Project) -> str:
    """For users who may read its jobs."""
    if project.archived_at is not None:
        return f"{project.name} is archived: its jobs can be read but not changed until it is restored."
    return f"You may read jobs of {project.name} but not change them."


def jobs_named(references: Iterable[str]) -> Q:
    """Jobs with these numbers or UUIDs, or of an array (57_3); other names match nothing."""
    numbers, uuids, members = [], [], Q()
    for text in references:
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            numbers.append(int(text))
        elif member := _MEMBER.match(text):
            members |= Q(array__number=int(member[1]), array_index=int(member[2]))
        elif uuid := uuid_of(text):
            uuids.append(uuid)
    return Q(number__in=numbers) | Q(pk__in=uuids) | members


def access_array(user: User | AnonymousUser, number: int, *, write: bool = False) -> tuple[JobArray, QuerySet[Job]]:
    """The array with this number and its jobs that the user may see; JobArray.DoesNotExist if there is none.

    `write`: those that the user may change; PermissionError if there is none.
    """
    array = JobArray.objects.get(number=number)
    jobs = visible_jobs(user).filter(array=array)
    if not jobs.exists():
        raise JobArray.DoesNotExist
    if write:
        jobs = jobs.filter(project__in=writable_projects(user))
        if not jobs.exists():
            raise PermissionError("You may read jobs of this array but not change them.")
    return array, jobs


def visible_arrays(user: User | AnonymousUser) -> QuerySet[JobArray]:
    """Arrays with a job that the user may see."""
    return JobArray.objects.filter(pk__in=visible_jobs(user).filter(array__isnull=False).order_by().values("array"))


def named_with_arrays(user: User, reference: str) -> list[Job]:
    """The job, or all jobs of the array, with that name, as far as the user may see them."""
    found = list(visible_jobs(user).filter(jobs_named([reference])))
    if found or not (reference.isascii() and reference.isdecimal()) or len(reference) > 18:
        return found
    return list(visible_jobs(user).filter(array__number=int(reference)).order_by("array_index"))


def uuid_of(text: str) -> UUID | None:
    try:
        return UUID(text) if not (text.isascii() and text.isdecimal()) else None
    except ValueError:
        return None


def in_people_states(words: Iterable[str]) -> Q:
    """Jobs whose displayed state is one of `words` (see `describe.people_state`)."""
    condition = Q(pk__in=[])
    for trained in (False, True):
        states = [state for state in State if coarse_state(state, rescaling=trained) in words]
        condition |= Q(run__has_trained=trained, run__state__in=states)
    return condition


def events_of(job: Job) -> QuerySet[JobEvent]:
    """All events of a job that the caller may access, in whichever project the job was then."""
    return JobEvent.objects.select_related("job", "project").filter(job=job)


def visible_events(user: User | AnonymousUser) -> QuerySet[JobEvent]:
    """Events of the user's projects and of the cluster."""
    events = JobEvent.objects.select_related("job", "project")
    return events.filter(Q(project=None) | Q(project__in=visible_projects(user)))
