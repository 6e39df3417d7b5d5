"""Rollouts of policies: shadow evaluation, promotion under guard, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.cluster.clusters import PolicyView
from portal.api.http import editing
from portal.api.http.access import Access
from portal.api.http.inputs import ClusterPageQuery, ClusterQuery, PageQuery, Query
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes import rollouts as shapes
from portal.rollouts import services
from portal.rollouts.bounds import MOST_GUARD_S
from portal.rollouts.describe import describe_check, describe_decisions, describe_rollout, describe_with_steps
from portal.rollouts.models import UNFINISHED
from portal.rollouts.selectors import access_rollout, visible_rollouts
from portal.rollouts.spec import Promotion, RolloutWish

START = OpenApiExample(
    "Beside the live policy first",
    {"mode": "shadow", "policy": "fifo_gang", "parameters": {}, "guard_s": 86400},
    request_only=True,
)
PROMOTE = OpenApiExample(
    "Under guard for six hours",
    {"guard_s": 21600, "bounds": {"wait_p95_s": {"most": 900}, "slowdown_variance": None}},
    request_only=True,
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "maxLength": 1000},
    OpenApiParameter.HEADER,
    description="ETag of `policy` as you read it. 412 where the policy in force was changed since.",
)


class RolloutsQuery(ClusterPageQuery):
    open: bool | None = Field(None, description="Those that are in the shadow or under guard, or the others.")


class ProposalQuery(ClusterQuery):
    trial: UUID | None = Field(None, description="A finished trial whose figures are the prediction.")
    rollout: UUID | None = Field(None, description="Instead: one whose prediction is there already.")
    guard_s: int = Field(86_400, ge=60, le=MOST_GUARD_S)


@contextmanager
def _policy_unchanged(request: Request) -> Iterator[None]:
    with editing.unchanged(PolicyView(), "put", request, {}):
        yield


class RolloutsView(APIView):
    parser_classes = [JsonParser]
    permission_classes = ADMINISTRATORS

    @operation("list_rollouts", shapes.RolloutPage, access=Access.ADMIN, tag="lab", query=RolloutsQuery)
    def get(self, request: Request, query: RolloutsQuery) -> Response:
        """Rollouts, newest first; at most one is open."""
        rows = visible_rollouts(signed_in(request)).filter(cluster=named_cluster(query))
        if query.open is not None:
            rows = rows.filter(phase__in=UNFINISHED) if query.open else rows.exclude(phase__in=UNFINISHED)
        found, links = take_page(request, rows, query)
        return Response({**links, "results": [describe_rollout(row) for row in found]})

    @operation(
        "start_rollout",
        shapes.RolloutDetail,
        access=Access.ADMIN,
        tag="lab",
        status=201,
        body=RolloutWish,
        problems=(403, 409, 412),
        parameters=[IF_MATCH],
        examples=[START],
        query=ClusterQuery,
    )
    def post(self, request: Request, query: ClusterQuery, body: RolloutWish) -> Response:
        """Evaluate a policy in the shadow of the live one, or put it in force under guard. 409 while a rollout is
        open."""
        with _policy_unchanged(request):
            made = services.start_rollout(actor=signed_in(request), cluster=named_cluster(query), wish=body)
        return Response(_describe(request, made.id), status=201)


class RolloutProposalView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "propose_rollout", shapes.RolloutProposal, access=Access.ADMIN, tag="lab", query=ProposalQuery, problems=(404,)
    )
    def get(self, request: Request, query: ProposalQuery) -> Response:
        """The default bounds of a policy: prediction, earlier measurements, bounds."""
        user = signed_in(request)
        row = access_rollout(user, query.rollout) if query.rollout else None
        return Response(
            services.propose(
                actor=user, cluster=named_cluster(query), trial=query.trial, rollout=row, guard_s=query.guard_s
            )
        )


class RolloutView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("get_rollout", shapes.RolloutDetail, access=Access.ADMIN, tag="lab", path=["rollout"])
    def get(self, request: Request, rollout: UUID, query: Query) -> Response:
        """A rollout with its steps."""
        return Response(_describe(request, rollout))


class RolloutPromoteView(APIView):
    parser_classes = [JsonParser]
    permission_classes = ADMINISTRATORS

    @operation(
        "promote_rollout",
        shapes.RolloutDetail,
        access=Access.ADMIN,
        tag="lab",
        path=["rollout"],
        body=Promotion,
        problems=(409, 412),
        parameters=[IF_MATCH],
        examples=[PROMOTE],
        query=ClusterQuery,
    )
    def post(self, request: Request, rollout: UUID, query: ClusterQuery, body: Promotion) -> Response:
        """Put the policy in the shadow in force, under guard. 409 if it is not in the shadow."""
        user = signed_in(request)
        with _policy_unchanged(request):
            services.promote_rollout(actor=user, rollout=access_rollout(user, rollout), wish=body)
        return Response(_describe(request, rollout))


class RolloutKeepView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("keep_rollout", shapes.RolloutDetail, access=Access.ADMIN, tag="lab", path=["rollout"], problems=(409,))
    def post(self, request: Request, rollout: UUID, query: Query) -> Response:
        """Keep the policy in force and stop watching it. 409 if it is not under guard."""
        return _step(request, rollout, services.keep_rollout)


class RolloutRollBackView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "roll_back_rollout", shapes.RolloutDetail, access=Access.ADMIN, tag="lab", path=["rollout"], problems=(409,)
    )
    def post(self, request: Request, rollout: UUID, query: Query) -> Response:
        """Return to the previous policy now. 409 if it is not under guard."""
        return _step(request, rollout, services.roll_back_rollout)


class RolloutCancelView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "cancel_rollout", shapes.RolloutDetail, access=Access.ADMIN, tag="lab", path=["rollout"], problems=(409,)
    )
    def post(self, request: Request, rollout: UUID, query: Query) -> Response:
        """End the shadow evaluation. 409 if the policy is not in the shadow."""
        return _step(request, rollout, services.cancel_rollout)


class RolloutDecisionsView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "list_shadow_decisions",
        shapes.ShadowDecisionPage,
        access=Access.ADMIN,
        tag="lab",
        path=["rollout"],
        query=PageQuery,
    )
    def get(self, request: Request, rollout: UUID, query: PageQuery) -> Response:
        """Decisions of the candidate that differ, newest first; equal ones in successive rounds are one entry."""
        rows = access_rollout(signed_in(request), rollout).decisions.all()
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": describe_decisions(found)})


class RolloutChecksView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("list_guard_checks", shapes.GuardChecks, access=Access.ADMIN, tag="lab", path=["rollout"])
    def get(self, request: Request, rollout: UUID, query: Query) -> Response:
        """Measurements since the policy is in force."""
        rows = access_rollout(signed_in(request), rollout).checks.order_by("at")
        return Response({"checks": [describe_check(row) for row in rows]})


def _step(request: Request, key: UUID, step: Callable[..., Any]) -> Response:
    user = signed_in(request)
    step(actor=user, rollout=access_rollout(user, key))
    return Response(_describe(request, key))


def _describe(request: Request, key: UUID) -> dict[str, Any]:
    return describe_with_steps(access_rollout(signed_in(request), key))
