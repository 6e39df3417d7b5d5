"""Stores a draft as jobs, once for each idempotency key."""

from __future__ import annotations

import hashlib
import json

from django.db import IntegrityError, transaction
from django.utils import timezone
from psycopg2.errors import ForeignKeyViolation

from accounts.models import User
from accounts.quotas import QuotaExceeded
from portal.accounting.admission import admit
from portal.core import wake
from portal.drafts.dependencies import store_dependencies
from portal.drafts.draft import ResolvedDraft
from portal.forecasts.choose_cluster import choose
from portal.jobfile.schema import JobFile
from portal.jobs import events
from portal.jobs.models import IdempotencyKey, Job, JobArray, Run, next_job_numbers
from portal.material import claims


class IdempotencyConflict(Exception):
    """The key was used for a different body."""


def body_digest(job_file: JobFile) -> str:
    return hashlib.sha256(json.dumps(job_file.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def submit_job(
    *,
    user: User,
    job_file: JobFile,
    idempotency_key: str | None = None,
    source: str = "api",
    resubmit_of: Job | None = None,
) -> tuple[Job, bool]:
    """Store a job, or all of an array, and wake the scheduler: (job or the array's first, created).

    Raises Problems naming the fields, QuotaExceeded naming the limits, IdempotencyConflict where the key already
    stands for another body.
    """
    digest = body_digest(job_file)
    if idempotency_key and (known := _known_job(user, idempotency_key, digest)):
        return known, False
    for attempt in (1, 2):
        wish = choose(user, job_file, again=resubmit_of is not None)
        try:
            with transaction.atomic():
                job = _store(wish, source, resubmit_of)
                if idempotency_key:
                    IdempotencyKey.objects.create(user=user, key=idempotency_key, body_digest=digest, job=job)
            break
        except (IntegrityError, QuotaExceeded) as error:
            # A parallel request with the same key was first: its job is the answer, and what a limit may have counted.
            if idempotency_key and (known := _known_job(user, idempotency_key, digest)):
                return known, False
            # Its partition or level was removed meanwhile: what that makes of it is understood anew.
            if attempt == 2 or not isinstance(error.__cause__, ForeignKeyViolation):
                raise
    return job, True


def _store(wish: ResolvedDraft, source: str, resubmit_of: Job | None) -> Job:
    file = wish.job_file
    count = len(file.array.numbers) if file.array else 1
    admit(user=wish.user, project=wish.project, min_gpus=file.gpus.min, types=file.gpus.types, count=count)
    job, *others = _create(wish, source, resubmit_of)
    store_dependencies([job, *others], wish.dependencies)
    transaction.on_commit(wake.schedule_round)
    return job


def _known_job(user: User, key: str, digest: str) -> Job | None:
    known = IdempotencyKey.objects.select_related("job").filter(user=user, key=key).first()
    if known and known.body_digest != digest:
        raise IdempotencyConflict(f"Idempotency-Key {key!r} was used for another job file (#{known.job.number}).")
    return known.job if known else None


def _create(wish: ResolvedDraft, source: str, resubmit_of: Job | None) -> list[Job]:
    """The job, or those of the array, each with its first run."""
    now = timezone.now()
    array, places = _places(wish.job_file)
    jobs = wish.jobs(places, now, array=array, source=source, resubmit_of=resubmit_of)
    runs = [job.run for job in jobs if job.run]
    Job.objects.bulk_create(jobs)  # the database looks at the commit whether their runs are there
    Run.objects.bulk_create(runs)
    claims.note_runs(jobs[0], runs)
    said = ((job, f"#{job.number} {job.name} submitted by {wish.user}") for job in jobs)
    events.append_all(kind="submitted", said=said, at=now)
    return jobs


def _places(spec: JobFile) -> tuple[JobArray | None, list[tuple[int, int | None]]]:
    """The array if it is one, and (number, index) of each job."""
    if spec.array is None:
        return None, [(next_job_numbers(1)[0], None)]
    indices = spec.array.numbers
    own, *numbers = next_job_numbers(1 + len(indices))
    array = JobArray.objects.create(
        number=own,
        indices=spec.array.indices.replace(" ", ""),
        size=len(indices),
        first_index=indices[0],
        max_running=spec.array.max_running,
    )
    return array, list(zip(numbers, indices, strict=True))
