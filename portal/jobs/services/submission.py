"""Submit and cancel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import DateTimeRangeField
from django.db import IntegrityError, transaction
from django.db.models import DateTimeField, F, Func, Value
from django.utils import timezone
from psycopg2.errors import ForeignKeyViolation

from accounts.models import Project, User
from accounts.quotas import QuotaExceeded
from accounts.selectors import writable_projects
from portal.jobs import checkpoint_store, engine_limits, events, wakeups
from portal.jobs.dependencies import find_dependencies, store_dependencies
from portal.jobs.due import check_deadline
from portal.jobs.identity import check_account
from portal.jobs.models import (
    Assignment,
    Cluster,
    Command,
    Hold,
    IdempotencyKey,
    Job,
    JobArray,
    ModelType,
    Qos,
    Run,
    next_job_numbers,
)
from portal.jobs.resuming import Start, find_start
from portal.jobs.schema import FieldProblem, JobFile, Problems
from portal.jobs.services.admission import admit
from portal.jobs.services.current import audit_for_others
from portal.jobs.services.engine_options import check_slurm
from portal.jobs.services.levels import choose_qos
from portal.jobs.services.moves import StaleRun, move
from portal.jobs.services.offered_software import check_software
from portal.jobs.services.partitions import choose_partition, limits_of
from portal.jobs.services.parts import parts_of
from portal.material import claims
from scheduling.lifecycle import LIVE, Event, State


class IdempotencyConflict(Exception):
    """The key was used for a different body."""


class JobHasEnded(Exception):
    def __init__(self, job: Job) -> None:
        super().__init__(f"#{job.number} has already ended.")


def body_digest(job_file: JobFile) -> str:
    return hashlib.sha256(json.dumps(job_file.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Wish:
    """A job file with all that it names, found."""

    user: User
    job_file: JobFile
    project: Project
    model_type: ModelType | None
    start: Start | None
    dependencies: Sequence[tuple[str, Job | None]]
    placed: Mapping[str, Any]  # columns: cluster and why that one, qos, partition, and what a job of that may have

    def jobs(self, places: Iterable[tuple[int, int | None]], now: datetime, **columns: Any) -> list[Job]:
        """The jobs of such (number, index), each with its first run; nothing is stored."""
        spec, start = self.job_file, self.start
        resolved = {"resume_from": {"job": start.job.number, "step": start.step}} if start else {}
        document = spec.model_dump(mode="json", exclude_none=True) | {"project": self.project.key} | resolved
        model_type, step = self.model_type, start.step if start else 0
        jobs = [
            Job(
                number=number,
                project=self.project,
                owner=self.user,
                name=spec.name or (model_type.name if model_type else "command"),
                # One more of its kind is what resubmitting it makes.
                spec=document if index is None else document | {"array": {"indices": str(index)}},
                model_type=model_type,
                total_steps=spec.total_steps,
                batch_size=spec.batch_size or (model_type.default_batch_size if model_type else 1),
                min_gpus=spec.gpus.min,
                accelerator_types=spec.gpus.types,
                priority=spec.priority - spec.nice,
                **self.placed,
                array_index=index,
                restartable=spec.restartable,
                labels=spec.labels,
                retry_limit=spec.retry.limit,
                submitted_at=now,
                resume_job=start.job if start else None,
                resume_step=start.step if start else None,
                **columns,
            )
            for number, index in places
        ]
        for job in jobs:
            job.run = _new_run(job, attempt=1, now=now, step=step, checkpoint_step=step)
        return jobs


@dataclass(frozen=True)
class Understood:
    """A job file with what it names of the portal, before the cluster is chosen."""

    user: User
    job_file: JobFile
    project: Project
    model_type: ModelType | None
    start: Start | None
    dependencies: Sequence[tuple[str, Job | None]]
    qos: Qos | None

    def on(self, cluster: Cluster, choice: str = "") -> Wish:
        """Raises Problems naming the fields that it cannot have there."""
        file = self.job_file
        _check_start(self.start, cluster)
        check_software(file, cluster)
        check_slurm(file, cluster)
        check_account(self.user, cluster)
        partition = choose_partition(self.project, cluster, file.partition)
        placed: dict[str, Any] = {"cluster": cluster, "cluster_choice": choice, "qos": self.qos, "partition": partition}
        placed |= limits_of(file, partition)
        placed |= parts_of(file.gpus, cluster.pk, partition)
        if (most := engine_limits.check_limits(file, cluster, self.project, self.user)) is not None:
            placed["max_gpus"] = min(placed["max_gpus"] or most, most)
        return Wish(self.user, file, self.project, self.model_type, self.start, self.dependencies, placed)


def _check_start(start: Start | None, cluster: Cluster) -> None:
    """Its checkpoint has to be within reach: on the same cluster, or in a store that both have."""
    if start is None or start.job.cluster_id == cluster.pk:
        return
    store, own = (checkpoint_store.configured(pk) for pk in (start.job.cluster_id, cluster.pk))
    if store is None or own is None or store.url != own.url:
        text = f"the checkpoint of #{start.job.number} lies on cluster {start.job.cluster}, not on {cluster}"
        raise Problems([FieldProblem("resume_from.job", text, "other_cluster")])


def understand(user: User, job_file: JobFile, *, again: bool = False) -> Understood:
    """Raises Problems naming the fields. `again`: it was submitted before, and its deadline may have passed since."""
    check_deadline(job_file.deadline, timezone.now(), again=again)
    project, model_type = resolve(user, job_file)
    start = find_start(user, project, job_file)
    dependencies = find_dependencies(user, job_file)
    qos = choose_qos(project, job_file.qos)
    return Understood(user, job_file, project, model_type, start, dependencies, qos)


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
    from portal.jobs.choosing import choose  # it looks at rounds, which end and start jobs by this module

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


def _store(wish: Wish, source: str, resubmit_of: Job | None) -> Job:
    file = wish.job_file
    count = len(file.array.numbers) if file.array else 1
    admit(user=wish.user, project=wish.project, min_gpus=file.gpus.min, types=file.gpus.types, count=count)
    job, *others = _create(wish, source, resubmit_of)
    store_dependencies([job, *others], wish.dependencies)
    transaction.on_commit(wakeups.wake)
    return job


def _known_job(user: User, key: str, digest: str) -> Job | None:
    known = IdempotencyKey.objects.select_related("job").filter(user=user, key=key).first()
    if known and known.body_digest != digest:
        raise IdempotencyConflict(f"Idempotency-Key {key!r} was used for another job file (#{known.job.number}).")
    return known.job if known else None


def which_projects(user: User) -> str:
    """What to say to somebody who names no project, or one that they may not submit to."""
    allowed = ", ".join(writable_projects(user).values_list("key", flat=True)[:20])
    return f"Name a project that you may submit to: {allowed}." if allowed else "You may not submit to any project."


def resolve(user: User, job_file: JobFile) -> tuple[Project, ModelType | None]:
    problems = []
    projects = writable_projects(user)
    project = projects.filter(key=job_file.project).first() if job_file.project else None
    if not job_file.project:
        mine = list(projects[:2])
        project = mine[0] if len(mine) == 1 else None
    if project is None:
        problems.append(FieldProblem("project", which_projects(user), "invalid"))
    model_type = None
    if job_file.model_type:
        model_type = ModelType.objects.filter(name=job_file.model_type, enabled=True).first()
        if model_type is None:
            known = ", ".join(ModelType.objects.filter(enabled=True).values_list("name", flat=True)[:30])
            problems.append(FieldProblem("model_type", f"Unknown model type; there are {known}.", "invalid"))
    if project is not None:
        problems += claims.find_problems(project, job_file)
    if problems or project is None:
        raise Problems(problems)
    return project, model_type


def _create(wish: Wish, source: str, resubmit_of: Job | None) -> list[Job]:
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


def _new_run(job: Job, *, attempt: int, now: datetime, **columns: Any) -> Run:
    return Run(
        job=job,
        attempt=attempt,
        created_at=now,
        state_since=now,
        state=State.WAITING_FOR_INITIAL_CONTACT,
        reason_token="NEW",
        reason_text="Not looked at yet; the next round decides.",
        **columns,
    )


def start_run(job: Job, *, attempt: int, now: datetime, **columns: Any) -> Run:
    """A fresh attempt, as the job's live run."""
    run = _new_run(job, attempt=attempt, now=now, **columns)
    run.save(force_insert=True)
    job.run = run
    job.save(update_fields=["run"])
    claims.note_runs(job, [run])
    return run


def ending_at(at: datetime) -> Func:
    """The row's interval, closed at `at`."""
    start = Func(F("during"), function="lower", output_field=DateTimeField())
    return Func(start, Value(at), function="tstzrange", output_field=DateTimeRangeField())


def end_assignments(run: Run, at: datetime) -> None:
    end_assignments_of([run], at)


def end_assignments_of(runs: Collection[Run], at: datetime) -> None:
    """Give back what was planned for the runs. An assignment that never began to count is removed."""
    open_ones = Assignment.objects.filter(run__in=runs, during__upper_inf=True)
    open_ones.filter(during__startswith__gte=at).delete()
    open_ones.update(during=ending_at(at))


def end_processes(run: Run, at: datetime) -> None:
    end_processes_of([run], at)


def end_processes_of(runs: Collection[Run], at: datetime) -> None:
    """Whatever still runs for the runs must be killed; its holds end when the processes are seen to be gone."""
    launches = Hold.objects.filter(run__in=runs, during__upper_inf=True).values_list("run_id", "epoch").distinct()
    commands = [Command(run_id=run, epoch=epoch, verb=Command.Verb.KILL, next_attempt_at=at) for run, epoch in launches]
    Command.objects.bulk_create(commands, ignore_conflicts=True)  # of some it may have been said before


def cancel_job(*, user: User | None, job: Job, reason: str = "") -> Job:
    """End the job now. Idempotent; raises JobHasEnded where it succeeded or failed."""
    now = timezone.now()
    for _ in range(5):
        run = Run.objects.select_related("job").get(job=job, job__run=F("pk"))
        if State(run.state) is State.CANCELLED:
            return job
        if State(run.state) not in LIVE:
            raise JobHasEnded(job)
        who = f" by {user}" if user else ""
        try:
            with transaction.atomic():
                move(run, Event.CANCEL, at=now, text=f"#{job.number} cancelled{who}{reason and ': ' + reason}")
                end_assignments(run, now)
                end_processes(run, now)
                audit_for_others(user, job, "job.cancel", {"reason": reason} if reason else None)
                transaction.on_commit(wakeups.wake)
        except StaleRun:
            continue
        job.run = run
        return job
    raise StaleRun(f"#{job.number} keeps changing; try again")
