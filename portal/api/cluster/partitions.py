"""Partitions: sets of nodes that jobs name."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import KEY, User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import Body, ClusterPageQuery, ClusterQuery, Word
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import readers_and_administrators
from portal.api.shapes.clusters import Partition, PartitionPage
from portal.cluster.partitions import COLUMNS, remove_partition, set_partition, visible_partitions
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import Cluster
from portal.jobs.models import Partition as PartitionRow
from portal.snapshot.rows import nodes_of

EXAMPLE = OpenApiExample(
    "The nodes of one type", {"accelerator_types": ["titan_xp"], "priority": 10, "max_gpus": 8}, request_only=True
)


class WantedPartition(Body):
    priority: int = Field(0, ge=0, le=10**6, description="Against the other partitions'.")
    nodes: list[Word] = Field([], max_length=5_000, description="Names of nodes.")
    accelerator_types: list[Word] = Field([], max_length=50, description="All nodes of these types.")
    for_everybody: bool = Field(True, description="False: only for the projects named, and those below them.")
    projects: list[Word] = Field([], max_length=200)
    max_gpus: int | None = Field(None, ge=1, le=10**6, description="That one job may have.")
    max_duration_s: int | None = Field(None, ge=1, le=10**9, description="That one job may train.")
    is_default: bool = Field(False, description="For jobs that name none; it takes the place of another.")


class PartitionsView(APIView):
    @operation("list_partitions", PartitionPage, access=Access.SIGNED_IN, tag="cluster", query=ClusterPageQuery)
    def get(self, request: Request, query: ClusterPageQuery) -> Response:
        """Partitions that your projects may use, newest first."""
        user, cluster = signed_in(request), named_cluster(query)
        found, links = take_page(request, visible_partitions(user).filter(cluster=cluster), query, key="id")
        return Response({**links, "results": describe(user, cluster, found)})


class PartitionView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation(
        "get_partition", Partition, access=Access.SIGNED_IN, tag="cluster", path=["partition"], query=ClusterQuery
    )
    def get(self, request: Request, partition: str, query: ClusterQuery) -> Response:
        """A partition."""
        user, cluster = signed_in(request), named_cluster(query)
        return Response(describe(user, cluster, [visible_partitions(user).get(cluster=cluster, name=partition)])[0])

    @operation(
        "set_partition",
        Partition,
        access=Access.ADMIN,
        tag="cluster",
        path=["partition"],
        body=WantedPartition,
        problems=(403,),
        examples=[EXAMPLE],
        also={201: Partition},
        query=ClusterQuery,
    )
    def put(self, request: Request, partition: str, query: ClusterQuery, body: WantedPartition) -> Response:
        """Create the partition, or replace it. Missing keys get the defaults shown."""
        try:
            KEY(partition)
        except ValidationError as error:
            raise Problems([FieldProblem("partition", error.messages[0], "invalid")]) from None
        user, cluster = signed_in(request), named_cluster(query)
        row, made = set_partition(
            actor=user,
            cluster=cluster,
            name=partition,
            values=body.model_dump(include=set(COLUMNS)),
            projects=body.projects,
            is_default=body.is_default,
        )
        cluster.refresh_from_db()
        return Response(describe(user, cluster, [row])[0], status=201 if made else 200)

    @operation(
        "remove_partition",
        None,
        access=Access.ADMIN,
        tag="cluster",
        status=204,
        path=["partition"],
        problems=(403, 409),
        query=ClusterQuery,
    )
    def delete(self, request: Request, partition: str, query: ClusterQuery) -> Response:
        """Remove a partition without live jobs."""
        remove_partition(
            actor=signed_in(request), partition=PartitionRow.objects.get(cluster=named_cluster(query), name=partition)
        )
        return Response(status=204)


def describe(user: User, cluster: Cluster, rows: Sequence[PartitionRow]) -> list[dict[str, object]]:
    """Of the projects that may use one, only the reader's own."""
    mine = set(visible_projects(user).values_list("pk", flat=True))
    nodes = nodes_of(cluster)
    described = []
    for row in rows:
        inside = [node for node in nodes if row.has(node.name, node.type)]
        described.append(
            {
                "name": row.name,
                "node_count": len(inside),
                "gpus": sum(len(node.gpu_ids) for node in inside),
                "projects": sorted(one.key for one in row.projects.all() if one.pk in mine),
                "is_default": row.pk == cluster.default_partition_id,
                **{name: getattr(row, name) for name in COLUMNS},
            }
        )
    return described
