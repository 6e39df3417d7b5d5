"""Files that runs leave: collected after their end, kept by rule, removable by users who may change the job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.utils import timezone
from pydantic import ValidationError

from accounts.models import Project, User
from accounts.services import record_audit
from portal.jobs import events
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Hold, Run
from portal.material import quotas
from portal.material.models import Artifact, RunMaterial
from scheduling.executors.base import Preparation, Progress
from scheduling.executors.preparation_results import Listing
from scheduling.lifecycle import TERMINAL

#: Runs that ended longer ago are ignored.
LOOK_BACK = timedelta(days=2)
#: A run that cannot be listed is skipped for this long.
PUT_OFF = timedelta(minutes=5)
#: Given up after this many failures, about two and a half hours.
MAX_LOOKS = 6
MAX_WHY = 300
TIMEOUT_S = 1_800.0
_FINISHED = (RunMaterial.Collecting.DONE, RunMaterial.Collecting.FAILED)


def uncollected(cluster_id: int, now: datetime) -> list[Run]:
    """Ended runs whose files have not been listed; their processes are gone. A retry continues with the files of the
    failed attempt, so these are listed after its end."""
    over = [state.value for state in TERMINAL]
    later = Run.objects.filter(job=OuterRef("job"), attempt__gt=OuterRef("attempt"))
    ended = Run.objects.filter(
        ~Exists(later.filter(~Q(state__in=over) | Q(ready_at__isnull=False))),
        job__cluster_id=cluster_id,
        job__run__ended_at__gte=now - LOOK_BACK,
        epoch__gt=0,
        state__in=over,
    )
    held = Hold.objects.filter(during__upper_inf=True).values("run")
    waiting = ended.exclude(material__collecting__in=_FINISHED).exclude(pk__in=held)
    waiting = waiting.exclude(material__next_look_at__gt=now)
    waiting = waiting.exclude(pk__in=Loop(LoopName.ARTIFACTS, cluster_id).postponed_ids())
    # runs never tried go first: otherwise a project could block its own listing forever
    looked_at = F("material__next_look_at").asc(nulls_first=True)
    return list(waiting.select_related("job__project").order_by(looked_at, "ended_at")[:50])


def put_off(run: Run, why: str, now: datetime) -> None:
    """Listing failed for the reason `why`: retried later, after a growing delay, and not forever."""
    with transaction.atomic():
        material, _ = RunMaterial.objects.select_for_update().get_or_create(run=run)
        if material.collecting in _FINISHED:
            return
        material.failed_looks += 1
        material.next_look_at = now + PUT_OFF * 2 ** min(material.failed_looks - 1, MAX_LOOKS)
        if material.failed_looks >= MAX_LOOKS:
            material.collecting = RunMaterial.Collecting.FAILED
            _say_failed(run, why, now)
        material.save(update_fields=["failed_looks", "next_look_at", "collecting"])


def _say_failed(run: Run, why: str, now: datetime) -> None:
    said = "".join(c for c in why if c.isprintable())[:MAX_WHY]
    text = f"#{run.job.number}: its artifacts cannot be listed, so none are kept: {said or 'no reason was given'}"
    events.append(kind="notice", job=run.job, run=run, at=now, text=text)


def rule_of(run: Run) -> dict[str, Any]:
    return run.job.spec.get("artifacts") or {}


def used_bytes(project: Project) -> int:
    rows = Artifact.objects.filter(run__job__project=project, removed_at=None)
    return rows.aggregate(n=Sum("size_bytes"))["n"] or 0


def collection_of(run: Run) -> Preparation:
    """Lists matching files, as far as the job's own limit, the settings' and the project's quota allow."""
    limits, rule, project = settings.EVENKEEL_MATERIAL, rule_of(run), run.job.project
    most = min(limits.artifact_max_bytes, rule.get("max_bytes") or limits.artifact_max_bytes)
    if quota := quotas.artifact_quota_bytes(project):
        most = min(most, max(0, quota - used_bytes(project)))
    options = {"globs": rule.get("paths") or ["**"], "max_files": limits.artifact_max_files, "max_bytes": most}
    return Preparation(
        "artifacts", str(run.pk), 1, project.key, str(run.job_id), options, TIMEOUT_S, limits.artifact_max_bytes
    )


@transaction.atomic
def record(*, run: Run, progress: Progress, now: datetime) -> None:
    material, _ = RunMaterial.objects.select_for_update().get_or_create(run=run)
    if material.collecting in _FINISHED:
        return
    problem = progress.message if progress.state == "failed" else None
    if progress.state == "done":
        try:
            listing = Listing.model_validate(progress.detail)
        except ValidationError as error:
            problem = f"the list makes no sense: {error.errors(include_url=False, include_input=False)[0]['msg']}"
        else:
            _store(run, listing, now)
            material.left_out = listing.left_out
        if material.left_out:
            text = f"#{run.job.number}: artifacts not kept ({material.left_out:,}): too many, too large or unreadable"
            events.append(kind="notice", job=run.job, run=run, at=now, text=text)
    if problem is not None:
        _say_failed(run, problem, now)
    material.collecting = progress.state if problem is None else RunMaterial.Collecting.FAILED
    material.next_look_at = now
    material.save(update_fields=["collecting", "left_out", "next_look_at"])


def _store(run: Run, listing: Listing, now: datetime) -> None:
    days = rule_of(run).get("keep_days") or settings.EVENKEEL_KEEP.artifacts_days
    expires_at = now + timedelta(days=days)
    rows = [
        Artifact(
            run=run,
            path=file.path,
            size_bytes=file.bytes,
            sha256=file.sha256,
            created_at=now,
            expires_at=expires_at,
        )
        for file in listing.files[: settings.EVENKEEL_MATERIAL.artifact_max_files]
    ]
    Artifact.objects.bulk_create(rows, ignore_conflicts=True)


@transaction.atomic
def remove_artifact(*, actor: User, artifact: Artifact) -> None:
    """Hidden from now on; the file is removed by the next clean-up."""
    Artifact.objects.filter(pk=artifact.pk, removed_at=None).update(removed_at=timezone.now())
    detail = {"path": artifact.path, "bytes": artifact.size_bytes}
    record_audit(actor=actor, action="artifact.delete", target=f"#{artifact.run.job.number}", detail=detail)


def expire(now: datetime) -> int:
    return Artifact.objects.filter(removed_at=None, expires_at__lt=now).update(removed_at=now)


def to_remove() -> QuerySet[Artifact]:
    """Those that have waited longest first."""
    waiting = Artifact.objects.exclude(removed_at=None).select_related("run__job__project")
    return waiting.order_by("removed_at", "pk")


def move_to_end(artifact: Artifact) -> None:
    """The file cannot be removed now: it is placed behind all others, so that it does not block them."""
    Artifact.objects.filter(pk=artifact.pk).exclude(removed_at=None).update(removed_at=timezone.now())


def place_of(artifact: Artifact) -> str:
    return f"jobs/{artifact.run.job_id}/runs/{artifact.run_id}/artifacts/{artifact.path}"
