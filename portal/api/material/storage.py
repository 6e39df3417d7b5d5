"""A project's storage use and limits."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db import transaction
from django.db.models import Sum
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Project
from accounts.services import record_audit
from portal.api.http.access import Access
from portal.api.http.inputs import Body, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.permissions import ADMINISTRATORS, SIGNED_IN
from portal.api.shapes.material import Storage
from portal.jobs.models import Job
from portal.material import artifacts, bundles, checkpoints, quotas
from portal.material.models import StorageQuota
from portal.material.selectors import project_for_viewer

MAX_JOBS = 50
_MOST = 2**60


class StorageWish(Body):
    """Null: as in the settings; 0: no limit."""

    checkpoints_soft_bytes: int | None = Field(None, ge=0, le=_MOST, examples=[10_737_418_240])
    checkpoints_hard_bytes: int | None = Field(None, ge=0, le=_MOST, examples=[21_474_836_480])
    bundles_bytes: int | None = Field(None, ge=0, le=_MOST)
    artifacts_bytes: int | None = Field(None, ge=0, le=_MOST)


class StorageView(APIView):
    def get_permissions(self) -> list[BasePermission]:
        return [permission() for permission in (SIGNED_IN if self.request.method == "GET" else ADMINISTRATORS)]

    @operation("get_storage", Storage, access=Access.VIEWER, tag="storage", path=["project"])
    def get(self, request: Request, project: str, query: Query) -> Response:
        """What the project stores: checkpoints by job, bundles, artifacts and environments."""
        return Response(_describe(project_for_viewer(signed_in(request), project)))

    @operation(
        "set_storage", Storage, access=Access.ADMIN, tag="storage", path=["project"], body=StorageWish, problems=(403,)
    )
    def put(self, request: Request, project: str, query: Query, body: StorageWish) -> Response:
        """Set the project's own limits."""
        owner = project_for_viewer(signed_in(request), project)
        with transaction.atomic():
            StorageQuota.objects.update_or_create(project=owner, defaults=body.model_dump())
            record_audit(actor=signed_in(request), action="storage.set", target=owner.key, detail=body.model_dump())
        return Response(_describe(owner))


def _describe(project: Project) -> dict[str, Any]:
    environments = project.environments.aggregate(n=Sum("size_bytes"))["n"] or 0
    return {
        "checkpoints": _checkpoints(project),
        "bundles": {
            "bytes": bundles.used_bytes(project),
            "quota_bytes": quotas.bundle_quota_bytes(project) or None,
        },
        "artifacts": {
            "bytes": artifacts.used_bytes(project),
            "quota_bytes": quotas.artifact_quota_bytes(project) or None,
        },
        "environments": {"bytes": environments, "quota_bytes": None},
    }


def _checkpoints(project: Project) -> dict[str, Any]:
    sizes: dict[Any, list[int]] = defaultdict(list)
    for one in checkpoints.kept(project):
        sizes[one.job_id].append(one.size_bytes)
    largest = sorted(sizes, key=lambda job_id: -sum(sizes[job_id]))[:MAX_JOBS]
    numbers = dict(Job.objects.filter(pk__in=largest).values_list("pk", "number"))
    return {
        "bytes": sum(sum(found) for found in sizes.values()),
        "soft_bytes": quotas.checkpoint_soft_bytes(project) or None,
        "hard_bytes": quotas.checkpoint_hard_bytes(project) or None,
        "jobs": [
            {"number": numbers[job_id], "bytes": sum(sizes[job_id]), "kept": len(sizes[job_id])} for job_id in largest
        ],
    }
