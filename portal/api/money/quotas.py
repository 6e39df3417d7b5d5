"""Limits: those that apply to me, with their present use, and changes of limits."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field, model_validator
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import quota_changes, quotas
from accounts.models import BudgetNotice, Project, User
from accounts.models import Quota as QuotaRow
from accounts.selectors import visible_projects
from portal.accounting.quota_usage import Uses, ends_at
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Address, Body, PageQuery, Query, Word
from portal.api.http.named import check_accelerator_type, named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.money import BindingQuotas, Period, Quota, QuotaKind, QuotaPage
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import Amount

MOST = 500
_LARGEST = 10**12
EXAMPLE = OpenApiExample(
    "Money of a month",
    {"project": "vision", "kind": "money", "period": "month", "limit": "2500", "hard": False},
    request_only=True,
)


class Change(Body):
    limit: Amount = Field(
        ge=0, le=_LARGEST, decimal_places=6, description="GPUs, jobs, GPU-hours, or an amount.", examples=["8"]
    )
    hard: bool | None = Field(
        None,
        description="True: refuse at submission. False: let jobs wait. Left out: as it is, or false for a new one.",
    )


class Wish(Change):
    project: Word | None = Field(None, description="Key of the project that it sits on.", examples=["vision"])
    user: Word | None = Field(None, description="Email; with a project, only the user's jobs there.")
    kind: QuotaKind
    accelerator_type: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$", description="Of `gpus` only."
    )
    period: Period | None = Field(None, description="Of `gpu_hours` and `money` only, and needed there.")

    @model_validator(mode="after")
    def _whole(self) -> Wish:
        if (self.kind in ("gpu_hours", "money")) != (self.period is not None):
            raise ValueError("period: GPU-hours and money are limited per day, week or month; other kinds are not")
        if self.accelerator_type and self.kind != "gpus":
            raise ValueError("accelerator_type: only GPUs at once are limited by type")
        if not (self.project or self.user):
            raise ValueError("project: name a project, a user, or both")
        return self


class QuotasQuery(PageQuery):
    project: Word | None = Field(None, description="Key of a project.")
    user: Address | None = Field(None, description="Email of a user.")


class QuotasView(APIView):
    parser_classes = [JsonParser]

    @operation("list_limits", QuotaPage, access=Access.SIGNED_IN, tag="limits", query=QuotasQuery, problems=(404,))
    def get(self, request: Request, query: QuotasQuery) -> Response:
        """Limits that I may change, newest first: all for administrators, those below their projects for managers."""
        rows = quota_changes.manageable_quotas(signed_in(request))
        if query.project:
            rows = rows.filter(project=named_project(signed_in(request), query.project))
        if query.user:
            rows = rows.filter(user__email=query.user)
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": describe(found)})

    @operation(
        "create_limit",
        Quota,
        access=Access.SIGNED_IN,
        scope="admin",
        tag="limits",
        status=201,
        body=Wish,
        problems=(403, 404, 409),
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: Wish) -> Response:
        """Set a limit. Managers set them on projects below theirs and on users within theirs; the tightest of all
        applies."""
        actor = signed_in(request)
        check_accelerator_type(body.accelerator_type)
        project = visible_projects(actor).get(key=body.project) if body.project else None
        user = _user(actor, body.user, project)
        quota_changes.check_may_set(actor, project, user)
        row = QuotaRow(
            project=project,
            user=user,
            kind=body.kind,
            accelerator_type=body.accelerator_type or "",
            period=body.period or "",
            limit=_units(body.kind, body.limit),
            hard=bool(body.hard),
        )
        return Response(describe([quota_changes.add_quota(actor=actor, quota=row)])[0], status=201)


def _user(actor: User, email: str | None, project: Project | None) -> User | None:
    if email is None:
        return None
    user = quota_changes.known_user(actor, email, project)
    if user is None:
        unknown = FieldProblem("user", "is not a member of this project", "unknown")
        raise Refused(400, f"user {unknown.message}", [unknown])
    return user


class BudgetsQuery(PageQuery):
    project: Word | None = Field(None, description="Key of a project: those that bind there.")


class BudgetsView(APIView):
    @operation("list_budgets", QuotaPage, access=Access.SIGNED_IN, tag="limits", query=BudgetsQuery, problems=(404,))
    def get(self, request: Request, query: BudgetsQuery) -> Response:
        """Limits of money and GPU-hours that apply to my jobs in any project that I see, each once, newest first."""
        user = signed_in(request)
        projects = visible_projects(user)
        if query.project:
            projects = projects.filter(pk=named_project(user, query.project).pk)
        found, links = take_page(request, quotas.budgets(projects, user), query, key="id")
        return Response({**links, "results": describe(found)})


class QuotaView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "get_limit",
        Quota,
        access=Access.SIGNED_IN,
        tag="limits",
        path=["limit"],
        version=lambda answer: (answer["limit"], answer["hard"]),
    )
    def get(self, request: Request, limit: int, query: Query) -> Response:
        """A limit that I may change."""
        return Response(describe([quota_changes.manageable_quotas(signed_in(request)).get(pk=limit)])[0])

    @operation(
        "change_limit",
        Quota,
        access=Access.SIGNED_IN,
        scope="admin",
        tag="limits",
        path=["limit"],
        body=Change,
        problems=(403,),
    )
    def put(self, request: Request, limit: int, query: Query, body: Change) -> Response:
        """Change a limit's value, or whether it is hard or soft."""
        actor = signed_in(request)
        row = quota_changes.manageable_quotas(actor).get(pk=limit)
        # displayed values are rounded: unchanged ones keep the limit
        unchanged = body.limit == Decimal(_number(row, Fraction(row.limit)))
        value = row.limit if unchanged else _units(row.kind, body.limit)
        hard = row.hard if body.hard is None else body.hard
        return Response(describe([quota_changes.change_quota(actor=actor, quota=row, limit=value, hard=hard)])[0])

    @operation(
        "remove_limit",
        None,
        access=Access.SIGNED_IN,
        scope="admin",
        tag="limits",
        status=204,
        path=["limit"],
        problems=(403,),
    )
    def delete(self, request: Request, limit: int, query: Query) -> Response:
        """Remove the limit."""
        actor = signed_in(request)
        quota_changes.remove_quota(actor=actor, quota=quota_changes.manageable_quotas(actor).get(pk=limit))
        return Response(status=204)


class ProjectQuotasView(APIView):
    @operation("list_project_limits", BindingQuotas, access=Access.VIEWER, tag="limits", path=["project"])
    def get(self, request: Request, project: str, query: Query) -> Response:
        """All limits on my jobs in the project, of every level above it and on me, with their use."""
        user = signed_in(request)
        there = visible_projects(user).get(key=project)
        found = list(quotas.binding(there, user)[: MOST + 1])
        return Response({"results": describe(found[:MOST]), "more": len(found) > MOST})


def _units(kind: str, limit: Decimal) -> int:
    """In the unit of the stored limit; raises Refused if that is not an integer."""
    value = limit * quotas.SCALE.get(kind, 1)
    if kind == "gpu_hours" and value >= 1:
        return int(value)  # hours such as 1.097 are rarely whole seconds: the fraction is dropped
    if value != int(value):
        least = {
            "gpu_hours": f"must be at least a second of a GPU, 1/3600 h; {limit.normalize():f} h is less",
            "money": "must have at most six digits after the point",
        }.get(kind, "must be a whole number")
        wrong = FieldProblem("limit", least, "precision")
        raise Refused(400, f"limit {wrong.message}", [wrong])
    return int(value)


def describe(rows: list[QuotaRow]) -> list[dict[str, Any]]:
    uses = Uses.of(rows, timezone.now())
    noticed = quotas.notices_of(uses.now) if any(row.period for row in rows) else {}
    return [_describe(row, uses, noticed) for row in rows]


def _describe(row: QuotaRow, uses: Uses, noticed: Mapping[tuple[int, int], BudgetNotice]) -> dict[str, Any]:
    used = uses.used(row)
    warned, full = (noticed.get((row.pk, percent)) for percent in quotas.NOTICES)
    return {
        "id": row.pk,
        "name": quotas.name_of(row),
        "level": quotas.level_of(row),
        "project": row.project.key if row.project else None,
        "user": row.user.email if row.user else None,
        "kind": row.kind,
        "accelerator_type": row.accelerator_type or None,
        "period": row.period or None,
        "limit": _number(row, Fraction(row.limit)),
        "used": _number(row, used),
        "hard": row.hard,
        "used_percent": int(used * 100 / row.limit) if row.limit else 100,
        "reached": used >= row.limit or (row.hard and full is not None),
        "warned_at": iso(warned.at) if warned else None,
        "reached_at": iso(full.at) if full else None,
        "period_starts_at": iso(quotas.period_of(row.period, uses.now)[0]) if row.period else None,
        "period_ends_at": iso(ends_at(row, uses.now)),
    }


def _number(row: QuotaRow, value: Fraction) -> str:
    """Six decimals, rounded down: use displayed as equal to the limit has reached it."""
    micro = int(value * 10**6 / quotas.SCALE.get(row.kind, 1))
    return format(Decimal(micro).scaleb(-6).normalize(), "f")
