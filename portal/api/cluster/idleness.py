"""Idle GPUs: the rule, and extensions for jobs with a warning."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Body, ClusterQuery, Query
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.permissions import readers_and_administrators
from portal.api.shapes.clusters import IdleRule
from portal.api.shapes.jobs import Job
from portal.core.problems import FieldProblem, Problems
from portal.jobs.access import access_job
from portal.jobs.models import IdleRule as IdleRuleRow
from portal.lifecycle.idle_jobs import RULE, extend_job, set_idle_rule
from portal.lifecycle.idle_rule import rule_of
from portal.readmodels.jobs.summary import describe_jobs

_MONTH_S = 30 * 86_400.0
_EXAMPLE = OpenApiExample(
    "Warn after half an hour, suspend after two",
    {"utilisation_below": 0.05, "warn_after_s": 1800, "release_after_s": 7200, "extension_s": 14400},
    request_only=True,
)


class IdleRuleWish(Body):
    enabled: bool = Field(True, description="False: idle jobs are neither warned nor suspended.")
    utilisation_below: float = Field(0.05, ge=0, le=1, description="Of its GPUs on average; 0: only steps count.")
    warn_after_s: float = Field(1_800.0, ge=1, le=_MONTH_S)
    release_after_s: float | None = Field(
        None, ge=1, le=_MONTH_S, description="Suspend with a checkpoint after so long without use; null: never."
    )
    extension_s: float = Field(14_400.0, ge=1, le=_MONTH_S, description="What asking for more time gives.")
    extensions_max: int = Field(3, ge=0, le=100, description="How often, until the job is released.")


class IdleRuleView(APIView):
    get_permissions = readers_and_administrators

    @operation("get_idle_rule", IdleRule, access=Access.SIGNED_IN, tag="cluster", query=ClusterQuery)
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """When a job that holds GPUs counts as idle, and the consequences."""
        return Response(_describe(rule_of(named_cluster(query))))

    @operation(
        "set_idle_rule",
        IdleRule,
        access=Access.ADMIN,
        tag="cluster",
        body=IdleRuleWish,
        problems=(403,),
        examples=[_EXAMPLE],
        query=ClusterQuery,
    )
    def put(self, request: Request, query: ClusterQuery, body: IdleRuleWish) -> Response:
        """Replace the whole rule. Missing keys get the defaults shown."""
        if body.release_after_s is not None and body.release_after_s < body.warn_after_s:
            message = f"must be at least warn_after_s ({body.warn_after_s:g}): a job is warned before it is suspended"
            raise Problems([FieldProblem("release_after_s", message, "too_early")])
        rule = set_idle_rule(actor=signed_in(request), cluster=named_cluster(query), values=body.model_dump())
        return Response(_describe(rule))


class ExtendView(APIView):
    @operation("extend_job", Job, access=Access.MEMBER, tag="jobs", path=["job"], problems=(403, 409))
    def post(self, request: Request, job: str, query: Query) -> Response:
        """Let an idle job with a warning keep its GPUs longer, for as long and as often as the rule allows.

        409 if it has no warning, would not be suspended, or has used all extensions.
        """
        user, now = signed_in(request), timezone.now()
        row = extend_job(actor=user, job=access_job(user, job, write=True), now=now)
        return Response(describe_jobs([access_job(user, str(row.pk))], now)[0])


def _describe(rule: IdleRuleRow) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in RULE}
