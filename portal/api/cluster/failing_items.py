"""Failing items of loops of the control plane, for administrators."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import PageQuery
from portal.api.http.operations import operation
from portal.api.http.pagination import take_page
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes.clusters import FailingItemPage
from portal.core.times import iso
from portal.jobs.loops import failing_now, task_of
from portal.jobs.models import FailingItem


class FailingItemsView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "list_failing_items", FailingItemPage, access=Access.ADMIN, tag="cluster", problems=(403,), query=PageQuery
    )
    def get(self, request: Request, query: PageQuery) -> Response:
        """Jobs, runs, nodes and files that the portal currently fails to process, of all clusters; newest first.

        Each is retried at `next_attempt_at`, and disappears from the list once it succeeds.
        """
        rows = failing_now(timezone.now()).select_related("cluster", "job")
        found, links = take_page(request, rows, query, key="pk")
        return Response({**links, "results": [_describe(row) for row in found]})


def _describe(row: FailingItem) -> dict[str, Any]:
    return {
        "loop": row.loop,
        "task": task_of(row.loop),
        "name": row.name,
        "cluster": row.cluster.name if row.cluster else None,
        "job": {"number": row.job.number, "name": row.job.name} if row.job else None,
        "since_at": iso(row.since),
        "last_at": iso(row.last_at),
        "next_attempt_at": iso(row.next_attempt_at),
        "failures": row.failures,
        "error": row.error,
    }
