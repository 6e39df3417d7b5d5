"""Uploaded code: one file per content under DATA/bundles, and one row for each project that uploaded it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Q, Sum
from django.utils import timezone
from evenkeel.preparation.bundles import Contents, examine
from evenkeel.preparation.errors import PreparationError

from accounts.models import Project, User
from accounts.services import record_audit
from portal.core.locks import bundle_lock
from portal.core.problems import FieldProblem, Problems
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import LIVE_VALUES, Job
from portal.material.environments import InUse
from portal.material.models import Bundle
from portal.material.quotas import bundle_quota_bytes

_BLOCK = 1 << 20
#: Of items' keys.
_KEY = "bundle:"


class TooLarge(Exception):
    """Larger than a bundle may be."""


def directory() -> Path:
    return Path(settings.EVENKEEL_DATA) / "bundles"


def path_of(sha256: str) -> Path:
    return directory() / sha256[:2] / f"{sha256}.tar.gz"


def store_bundle(*, actor: User, project: Project, read: Callable[[int], bytes]) -> tuple[Bundle, bool]:
    """Store an upload: (bundle, created). Raises TooLarge, Problems."""
    with _received(read) as (draft, sha256, size):
        known = Bundle.objects.filter(project=project, sha256=sha256).first()
        if known:
            return known, False
        contents = _examined(draft)
        # No other process removes a file of this content between our row and our file.
        with bundle_lock(sha256), transaction.atomic():
            Project.objects.select_for_update().get(pk=project.pk)
            _check_quota(project, size)
            bundle, created = Bundle.objects.get_or_create(
                project=project,
                sha256=sha256,
                defaults={
                    "size_bytes": size,
                    "unpacked_bytes": contents.bytes,
                    "files": contents.files,
                    "uploaded_by": actor,
                },
            )
            place = path_of(sha256)
            if not place.exists():
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                draft.rename(place)
            if created:
                detail = {"bytes": size, "files": contents.files}
                record_audit(actor=actor, action="bundle.upload", target=f"{project.key}/{sha256[:12]}", detail=detail)
    return bundle, created


@contextlib.contextmanager
def _received(read: Callable[[int], bytes]) -> Iterator[tuple[Path, str, int]]:
    """The upload as a file of ours, with its digest and size; removed afterwards unless it was moved."""
    limit, digest, size = settings.EVENKEEL_MATERIAL.bundle_max_bytes, hashlib.sha256(), 0
    directory().mkdir(mode=0o700, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".incoming-", dir=directory())
    try:
        with os.fdopen(fd, "wb") as file:
            while block := read(_BLOCK):
                size += len(block)
                if size > limit:
                    raise TooLarge(f"A bundle may have {limit:,} bytes at most.")
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name), digest.hexdigest(), size
    finally:
        Path(name).unlink(missing_ok=True)


def _examined(draft: Path) -> Contents:
    limits = settings.EVENKEEL_MATERIAL
    try:
        with draft.open("rb") as file:
            return examine(file, max_files=limits.bundle_max_files, max_bytes=limits.bundle_unpacked_max_bytes)
    except PreparationError as error:
        raise Problems([FieldProblem("body", str(error), "archive")]) from None


def _check_quota(project: Project, size: int) -> None:
    quota = bundle_quota_bytes(project)
    used = used_bytes(project)
    if quota and used + size > quota:
        said = f"The project's bundles have {used:,} bytes; with {size:,} more they exceed its quota of {quota:,}."
        raise Problems([FieldProblem("body", said, "storage_quota")])


def used_bytes(project: Project) -> int:
    return Bundle.objects.filter(project=project).aggregate(n=Sum("size_bytes"))["n"] or 0


def live_users(project: Project, digests: Iterable[str]) -> dict[str, list[int]]:
    """Digest -> numbers of the unfinished jobs that start from that bundle."""
    users: dict[str, list[int]] = {}
    jobs = Job.objects.filter(project=project, spec__code__bundle__in=list(digests), run__state__in=LIVE_VALUES)
    for number, digest in jobs.order_by("number").values_list("number", "spec__code__bundle"):
        users.setdefault(digest, []).append(number)
    return users


def delete_bundle(*, actor: User | None, bundle: Bundle) -> None:
    """Raises InUse. The file is removed with the last project that has it."""
    with bundle_lock(bundle.sha256), transaction.atomic():
        Bundle.objects.select_for_update().get(pk=bundle.pk)
        if numbers := live_users(bundle.project, [bundle.sha256]).get(bundle.sha256):
            raise InUse(f"Bundle {bundle.sha256[:12]} is used by #{numbers[0]}, which has not ended.")
        if actor is not None:
            record_audit(actor=actor, action="bundle.delete", target=f"{bundle.project.key}/{bundle.sha256[:12]}")
        sha256 = bundle.sha256
        bundle.delete()
        if not Bundle.objects.filter(sha256=sha256).exists():
            path_of(sha256).unlink(missing_ok=True)


def remove_unused(now: datetime) -> int:
    """Bundles that no job has used for the configured number of days."""
    before = now - timedelta(days=settings.EVENKEEL_KEEP.bundles_days)
    removed, loop = 0, Loop(LoopName.REMOVAL)
    unused = Bundle.objects.filter(Q(last_used_at__lt=before)).exclude(pk__in=loop.postponed_ids(_KEY))
    for bundle in unused.select_related("project")[:1_000]:
        item = Item(f"{_KEY}{bundle.pk}", f"bundle {bundle.sha256[:12]} of {bundle.project.key}")
        removed += loop.run(item, _delete_unused, bundle) or 0
    for draft in directory().glob(".incoming-*"):  # left by a web process that was killed
        loop.run(Item(f"draft:{draft.name}", f"upload {draft.name}"), _remove_old_draft, draft)
    return removed


def _delete_unused(bundle: Bundle) -> int:
    with contextlib.suppress(InUse, Bundle.DoesNotExist):
        delete_bundle(actor=None, bundle=bundle)
        return 1
    return 0


def _remove_old_draft(draft: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if draft.stat().st_mtime < (timezone.now() - timedelta(days=1)).timestamp():
            draft.unlink()
