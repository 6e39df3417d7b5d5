"""Checks of nodes and whole clusters on request, and use of nodes despite a failed check."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.cluster.drains import described_node
from portal.api.http.access import Access
from portal.api.http.inputs import ClusterQuery
from portal.api.http.named import named_cluster, named_node
from portal.api.http.operations import operation, signed_in
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes.clusters import Examination
from portal.api.shapes.clusters import Node as NodeShape
from portal.cluster.node_checks import check_now, use_anyway
from portal.execution.checks.stored import begin_examination, last_examination


class CheckView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "check_node", NodeShape, access=Access.ADMIN, tag="cluster", path=["name"], problems=(403,), query=ClusterQuery
    )
    def post(self, request: Request, name: str, query: ClusterQuery) -> Response:
        """Examine a node soon: `check.open` of the answer, which becomes `check.last`. Running jobs continue.

        A node in use stays in use unless the check fails; a node whose check failed is used again once a check passes.
        """
        user, now = signed_in(request), timezone.now()
        node = named_node(query, name)
        check_now(actor=user, node=node, now=now)
        return Response(described_node(user, node, now))


class UseAnywayView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "use_node_anyway",
        NodeShape,
        access=Access.ADMIN,
        tag="cluster",
        path=["name"],
        problems=(403,),
        query=ClusterQuery,
    )
    def post(self, request: Request, name: str, query: ClusterQuery) -> Response:
        """Place jobs on a node whose check failed, or has not ended. The next check may change that again."""
        user, now = signed_in(request), timezone.now()
        node = named_node(query, name)
        use_anyway(actor=user, node=node, now=now)
        return Response(described_node(user, node, now))


class ExaminationView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "get_examination",
        Examination,
        access=Access.ADMIN,
        tag="cluster",
        problems=(403,),
        query=ClusterQuery,
    )
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """Result of the newest examination of a cluster, kept for an hour; `ended_at` is null while it is under way."""
        return Response(last_examination(named_cluster(query)))

    @operation(
        "examine_cluster",
        Examination,
        access=Access.ADMIN,
        tag="cluster",
        status=202,
        problems=(403,),
        query=ClusterQuery,
    )
    def post(self, request: Request, query: ClusterQuery) -> Response:
        """Examine a cluster's engine, nodes, storage and data. It takes seconds to minutes; then get its result.

        Only one examination runs at a time.
        """
        return Response(begin_examination(named_cluster(query), timezone.now()), status=202)
