"""The audit log, for administrators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from channels.db import database_sync_to_async
from django.db.models import Q
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import audit
from accounts.models import AuditEntry, User
from portal.api.http.access import Access
from portal.api.http.inputs import At, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes.people import AuditPage
from portal.core.times import iso

_BATCH = 1_000


class AuditFilters(Query):
    actor: Word | None = Field(None, description="Email of a user.")
    action: Word | None = Field(None, description="Such as `token.create`; `token.` takes all that begin so.")
    target: Word | None = Field(None, description="Part of it.")
    address: Word | None = None
    request_id: Word | None = Field(None, description="The X-Request-ID of an answer.")
    from_at: At | None = None
    to_at: At | None = None


class AuditQuery(AuditFilters, PageQuery):
    pass


class ExportQuery(AuditFilters):
    format: Literal["csv", "jsonl"] = "csv"


class AuditView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("list_audit", AuditPage, access=Access.ADMIN, tag="audit", query=AuditQuery)
    def get(self, request: Request, query: AuditQuery) -> Response:
        """Who did what to what, and from where, newest first; denied accesses too, as `access.denied`."""
        rows = AuditEntry.objects.filter(*_conditions(query))
        entries, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(entry) for entry in entries]})


class AuditExportView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "export_audit",
        OpenApiTypes.STR,
        media_type="text/csv",
        also={(200, "application/jsonl"): OpenApiTypes.STR},
        access=Access.ADMIN,
        tag="audit",
        query=ExportQuery,
    )
    def get(self, request: Request, query: ExportQuery) -> HttpResponseBase:
        """All matching entries, oldest first, as CSV or JSON lines. A line of JSON contains the text behind its
        hash."""
        audit.record_audit(actor=signed_in(request), action="audit.export", target=query.format)
        kind = "text/csv; charset=utf-8" if query.format == "csv" else "application/jsonl"
        stream = _stream(query.format, _conditions(query))
        name = f'attachment; filename="audit.{query.format}"'
        return StreamingHttpResponse(stream, content_type=kind, headers={"Content-Disposition": name})


def _conditions(query: AuditFilters) -> list[Q]:
    given = {
        "target__icontains": query.target,
        "address": query.address,
        "request_id": query.request_id,
        "at__gte": query.from_at,
        "at__lt": query.to_at,
    }
    if query.action:
        given["action__startswith" if query.action.endswith(".") else "action"] = query.action
    conditions = [Q(**{name: value}) for name, value in given.items() if value is not None]
    if query.actor is not None:  # an entry contains the address at that time
        address = User.objects.normalize_email(query.actor.strip())
        conditions.append(Q(actor_email__iexact=query.actor) | Q(actor_email=address))
    return conditions


async def _stream(kind: str, conditions: list[Q]) -> AsyncIterator[str]:
    """In batches: memory and database connection are not held, however long the log is."""
    last, header = 0, True
    while True:
        lines, last, full = await database_sync_to_async(_batch)(kind, conditions, last, header)
        yield lines
        header = False
        if not full:
            return


def _batch(kind: str, conditions: list[Q], after: int, header: bool) -> tuple[str, int, bool]:
    found = list(audit.rows(audit.sealed_entries(conditions).filter(position__gt=after))[:_BATCH])
    lines = audit.as_csv(found, header=header) if kind == "csv" else audit.as_json_lines(found)
    return "".join(lines), found[-1]["position"] if found else after, len(found) == _BATCH


def _describe(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "position": entry.position,
        "at": iso(entry.at),
        "actor": entry.actor_email or None,
        "action": entry.action,
        "target": entry.target,
        "detail": entry.detail,
        "address": entry.address or None,
        "credential": entry.credential or None,
        "request_id": entry.request_id or None,
        "hash": entry.hash or None,
    }
