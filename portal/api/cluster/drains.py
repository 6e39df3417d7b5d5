"""Taking nodes out of service, at once or by a deadline, and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import At, Body, ClusterQuery, Word
from portal.api.http.named import named_node
from portal.api.http.operations import operation, signed_in
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes.clusters import DrainPreview
from portal.api.shapes.clusters import Node as NodeShape
from portal.cluster.drains import FURTHEST, check_deadline, drain_node, resume_node
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import Node
from portal.readmodels.cluster.drains import describe_with_drains, preview_drain

_FURTHEST_S = FURTHEST.total_seconds()
EXAMPLE = OpenApiExample(
    "Within two hours",
    {"within_s": 7200, "reason": "new fans"},
    request_only=True,
)


class WantedDrain(Body):
    deadline_at: At | None = Field(None, description="The node is empty by then; without it: at once.")
    within_s: float | None = Field(None, gt=0, le=_FURTHEST_S, description="Or how soon, in seconds.")
    reason: Word = Field("", description="Reason, shown to all users.", examples=["new fans"])


class DrainQuery(ClusterQuery):
    deadline_at: At | None = Field(None, description="The node is to be empty by then; without it: now.")
    within_s: float | None = Field(None, gt=0, le=_FURTHEST_S, description="Or how soon, in seconds.")


class DrainView(APIView):
    parser_classes = [JsonParser]
    permission_classes = ADMINISTRATORS

    @operation(
        "drain_node",
        NodeShape,
        access=Access.ADMIN,
        tag="cluster",
        path=["name"],
        body=WantedDrain,
        problems=(403,),
        examples=[EXAMPLE],
        query=ClusterQuery,
    )
    def post(self, request: Request, name: str, query: ClusterQuery, body: WantedDrain) -> Response:
        """Start no more jobs on a node. Without a deadline its jobs move with a checkpoint when there is room
        elsewhere.

        With a deadline, jobs that are expected to end before it stay, the others leave with a checkpoint in time, and
        jobs that cannot write checkpoints are stopped at the deadline. The answer lists them.
        """
        user, now = signed_in(request), timezone.now()
        deadline_at = _deadline(body.deadline_at, body.within_s, now)
        node = named_node(query, name)
        drain_node(actor=user, node=node, now=now, deadline_at=deadline_at, reason=body.reason)
        return Response(described_node(user, node, now))


class DrainPreviewView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "preview_drain",
        DrainPreview,
        access=Access.ADMIN,
        tag="cluster",
        path=["name"],
        query=DrainQuery,
        problems=(403,),
    )
    def get(self, request: Request, name: str, query: DrainQuery) -> Response:
        """What draining a node would do to each job on it. It changes nothing."""
        user, now = signed_in(request), timezone.now()
        deadline_at = _deadline(query.deadline_at, query.within_s, now)
        check_deadline(deadline_at, now)
        node = named_node(query, name)
        return Response(preview_drain(node, deadline_at, _mine(user), now))


class ResumeView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "resume_node",
        NodeShape,
        access=Access.ADMIN,
        tag="cluster",
        path=["name"],
        problems=(403, 409),
        query=ClusterQuery,
    )
    def post(self, request: Request, name: str, query: ClusterQuery) -> Response:
        """Use a drained node again, also before its deadline; jobs that have not left it stay. 409 if the engine
        drained it: resume it there."""
        user, now = signed_in(request), timezone.now()
        node = named_node(query, name)
        resume_node(actor=user, node=node, now=now)
        return Response(described_node(user, node, now))


def _mine(user: User) -> set[int]:
    return set(visible_projects(user).values_list("pk", flat=True))


def described_node(user: User, node: Node, now: datetime) -> dict[str, Any]:
    (described,) = describe_with_drains(Node.objects.filter(pk=node.pk), _mine(user), now)
    return described


def _deadline(deadline_at: datetime | None, within_s: float | None, now: datetime) -> datetime | None:
    if deadline_at is not None and within_s is not None:
        raise Problems([FieldProblem("within_s", "says the same as deadline_at: leave one of them out", "invalid")])
    return deadline_at if within_s is None else now + timedelta(seconds=within_s)
