"""What runs leave: collected when they have ended, kept by rule, removed by whoever may change the job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.utils import timezone

from accounts.models import Project, User
from accounts.services import record_audit
from portal.jobs import events
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Hold, Run
from portal.material import quotas
from portal.material.models import Artifact, RunMaterial
from scheduling.executors.base import Preparation, Progress
from scheduling.lifecycle import TERMINAL

#: Runs that ended longer ago are not looked at any more.
LOOK_BACK = timedelta(days=2)
#: One that cannot be looked at is passed over for so long.
PUT_OFF = timedelta(minutes=5)
TIMEOUT_S = 1_800.0
_FINISHED = (RunMaterial.Collecting.DONE, RunMaterial.Collecting.FAILED)


def uncollected(cluster_id: int, now: datetime) -> list[Run]:
    """Ended runs of which nobody has listed what they left; their processes are gone. What a failed attempt left is the
    next one's, to go on from, so it is listed when that has ended."""
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
    waiting = waiting.exclude(pk__in=Loop(LoopName.ARTIFACTS, cluster_id).resting_ids())
    return list(waiting.select_related("job__project").order_by("ended_at")[:50])


def put_off(run: Run, now: datetime) -> None:
    """It could not be looked at: others go before it until some time has passed."""
    RunMaterial.objects.update_or_create(run=run, defaults={"next_look_at": now + PUT_OFF})


def rule_of(run: Run) -> dict[str, Any]:
    return run.job.spec.get("artifacts") or {}


def used_bytes(project: Project) -> int:
    rows = Artifact.objects.filter(run__job__project=project, removed_at=None)
    return rows.aggregate(n=Sum("size_bytes"))["n"] or 0


def collection_of(run: Run) -> Preparation:
    """Listing what matches, as far as the job's own limit, the settings' and the project's quota allow."""
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
    if progress.state == "done":
        _store(run, progress.detail, now)
        left_out = progress.detail.get("left_out")
        material.left_out = min(left_out, 10**6) if isinstance(left_out, int) else 0
        if material.left_out:
            text = f"#{run.job.number}: artefacts not kept ({material.left_out:,}): too many, too large or unreadable"
            events.append(kind="notice", job=run.job, run=run, at=now, text=text)
    material.collecting = progress.state
    material.save(update_fields=["collecting", "left_out"])


def _store(run: Run, detail: Any, now: datetime) -> None:
    """The listing was written by the project's account: only what makes sense of it is taken."""
    days = rule_of(run).get("keep_days") or settings.EVENKEEL_MATERIAL.artifact_keep_days
    rows = []
    for entry in list(detail.get("files") or [])[: settings.EVENKEEL_MATERIAL.artifact_max_files]:
        path, size, sha256 = entry.get("path"), entry.get("bytes"), entry.get("sha256")
        sound = isinstance(path, str) and path.isprintable() and 0 < len(path) <= 500 and ".." not in path.split("/")
        if sound and isinstance(size, int) and 0 <= size < 2**60 and isinstance(sha256, str) and len(sha256) == 64:
            expires_at = now + timedelta(days=days)
            row = Artifact(run=run, path=path, size_bytes=size, sha256=sha256, created_at=now, expires_at=expires_at)
            rows.append(row)
    Artifact.objects.bulk_create(rows, ignore_conflicts=True)


@transaction.atomic
def remove_artifact(*, actor: User, artifact: Artifact) -> None:
    """It cannot be seen from now on; the file goes with the next cleaning."""
    Artifact.objects.filter(pk=artifact.pk, removed_at=None).update(removed_at=timezone.now())
    detail = {"path": artifact.path, "bytes": artifact.size_bytes}
    record_audit(actor=actor, action="artifact.delete", target=f"#{artifact.run.job.number}", detail=detail)


def expire(now: datetime) -> int:
    return Artifact.objects.filter(removed_at=None, expires_at__lt=now).update(removed_at=now)


def to_remove() -> QuerySet[Artifact]:
    """Those that wait longest first."""
    waiting = Artifact.objects.exclude(removed_at=None).select_related("run__job__project")
    return waiting.order_by("removed_at", "pk")


def put_back(artifact: Artifact) -> None:
    """Its file cannot be removed now: behind all others, which it would hold up."""
    Artifact.objects.filter(pk=artifact.pk).exclude(removed_at=None).update(removed_at=timezone.now())


def place_of(artifact: Artifact) -> str:
    return f"jobs/{artifact.run.job_id}/runs/{artifact.run_id}/artifacts/{artifact.path}"
