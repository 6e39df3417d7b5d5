"""The cluster: live streams, nodes, catalogue, policy, events."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, ClusterPageQuery, ClusterQuery, PageQuery, Query, Word
from portal.api.http.named import named_cluster, named_node, named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import ADMINISTRATORS, readers_and_administrators
from portal.api.shapes import clusters as shapes
from portal.api.shapes.jobs import EventPage
from portal.api.shapes.live import Live
from portal.api.shapes.previews import PolicyPreview
from portal.cluster.policy import set_policy, undo_policy
from portal.core.problems import FieldProblem
from portal.forecasts.previews import preview_policy
from portal.jobfile.fields import OneLine
from portal.jobs.access import visible_events
from portal.jobs.models import Cluster, Node
from portal.live import publish
from portal.live.streams import describe_event
from portal.readmodels.cluster import catalogue, policies
from portal.readmodels.cluster.drains import describe_with_drains
from portal.readmodels.cluster.node import describe_node_page
from scheduling.policies import POLICIES


class LiveView(APIView):
    @operation("get_live", Live, access=Access.VIEWER, tag="cluster", path=["stream"])
    def get(self, request: Request, stream: str, query: Query) -> Response:
        """A live stream's state, to which the WebSocket's diffs with a greater `seq` apply; `cluster` is for
        everybody."""
        if stream not in publish.allowed_streams(signed_in(request)):
            raise Cluster.DoesNotExist
        seq, state = publish.snapshot(stream, timezone.now())
        return Response({"stream": stream, "seq": seq, "state": state})


class EventsQuery(PageQuery):
    project: Word | None = Field(None, description="Key of a project.")
    kind: Word | None = None


class EventsView(APIView):
    @operation("list_events", EventPage, access=Access.SIGNED_IN, tag="cluster", query=EventsQuery, problems=(404,))
    def get(self, request: Request, query: EventsQuery) -> Response:
        """Events of my projects' jobs and of the cluster, newest first."""
        rows = visible_events(signed_in(request))
        if query.project:
            rows = rows.filter(project=named_project(signed_in(request), query.project))
        if query.kind:
            rows = rows.filter(kind=query.kind)
        events, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [describe_event(event) for event in events]})


class ModelTypesView(APIView):
    @operation("list_model_types", shapes.ModelTypes, access=Access.SIGNED_IN, tag="catalogue", query=ClusterQuery)
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """The catalogue, with the known throughput of each program."""
        return Response(catalogue.describe_model_types(named_cluster(query), timezone.now()))


class AcceleratorTypesView(APIView):
    @operation(
        "list_accelerator_types", shapes.AcceleratorTypes, access=Access.SIGNED_IN, tag="catalogue", query=ClusterQuery
    )
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """Accelerator types of the cluster and their prices."""
        return Response(catalogue.describe_accelerator_types(named_cluster(query), timezone.now()))


class NodesView(APIView):
    @operation("list_nodes", shapes.Nodes, access=Access.SIGNED_IN, tag="cluster", query=ClusterQuery)
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """Nodes with their accelerators and jobs; for drained ones, what happens to each job that is still there."""
        mine = set(visible_projects(signed_in(request)).values_list("pk", flat=True))
        return Response(describe_with_drains(Node.objects.filter(cluster=named_cluster(query)), mine, timezone.now()))


class NodeView(APIView):
    @operation("get_node", shapes.NodeDetail, access=Access.SIGNED_IN, tag="cluster", path=["name"], query=ClusterQuery)
    def get(self, request: Request, name: str, query: ClusterQuery) -> Response:
        """A node with its jobs, its use in the last day, failures on it, and its events."""
        mine = set(visible_projects(signed_in(request)).values_list("pk", flat=True))
        return Response(describe_node_page(named_node(query, name), mine, timezone.now()))


class PoliciesView(APIView):
    @operation("list_policies", shapes.PolicyKinds, access=Access.SIGNED_IN, tag="policy")
    def get(self, request: Request, query: Query) -> Response:
        """Policies to choose from, each with the schema of its parameters."""
        return Response(policies.describe_policies())


class PolicyChoice(Body):
    name: Annotated[str, Field(max_length=60), OneLine] = Field(examples=["f_scheduling"])
    parameters: dict[str, Any] = Field({}, examples=[{"v_bound": 0.05}], max_length=100)


class PolicyView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation("get_policy", shapes.Policy, access=Access.SIGNED_IN, tag="policy", query=ClusterQuery)
    def get(self, request: Request, query: ClusterQuery) -> Response:
        """The policy in force."""
        return Response(policies.describe_policy(named_cluster(query)))

    @operation(
        "set_policy",
        shapes.Policy,
        access=Access.ADMIN,
        tag="policy",
        body=PolicyChoice,
        problems=(403,),
        query=ClusterQuery,
    )
    def put(self, request: Request, query: ClusterQuery, body: PolicyChoice) -> Response:
        """Choose a policy and its parameters, from the next round on."""
        _check_name(body)
        cluster = named_cluster(query)
        set_policy(actor=signed_in(request), cluster=cluster, name=body.name, parameters=body.parameters)
        cluster.refresh_from_db()
        return Response(policies.describe_policy(cluster))


def _check_name(body: PolicyChoice) -> None:
    if body.name not in POLICIES:
        wrong = FieldProblem("name", f"unknown policy; there are {', '.join(POLICIES)}", "unknown")
        raise Refused(400, f"name {wrong.message}", [wrong])


class PolicyPreviewView(APIView):
    parser_classes = [JsonParser]
    permission_classes = ADMINISTRATORS

    @operation(
        "preview_policy",
        PolicyPreview,
        access=Access.ADMIN,
        tag="policy",
        body=PolicyChoice,
        problems=(403,),
        query=ClusterQuery,
    )
    def post(self, request: Request, query: ClusterQuery, body: PolicyChoice) -> Response:
        """What the next round would do under another policy or parameters, compared with those in force. It changes
        nothing."""
        _check_name(body)
        return Response(preview_policy(signed_in(request), named_cluster(query), body.name, body.parameters))


class UndoPolicyView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("undo_policy", shapes.Policy, access=Access.ADMIN, tag="policy", problems=(403, 409), query=ClusterQuery)
    def post(self, request: Request, query: ClusterQuery) -> Response:
        """Return to the previous policy. 409 if there is none."""
        cluster = named_cluster(query)
        undo_policy(actor=signed_in(request), cluster=cluster)
        cluster.refresh_from_db()
        return Response(policies.describe_policy(cluster))


class PolicyHistoryView(APIView):
    @operation(
        "list_policy_changes", shapes.PolicyChangePage, access=Access.SIGNED_IN, tag="policy", query=ClusterPageQuery
    )
    def get(self, request: Request, query: ClusterPageQuery) -> Response:
        """Changes of the policy, newest first."""
        rows = named_cluster(query).policy_changes.select_related("changed_by")
        changes, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [policies.describe_change(change) for change in changes]})
