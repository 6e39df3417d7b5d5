"""Simulations of the policy lab."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes import simulations as shapes
from portal.core.problems import FieldProblem, Problems
from portal.lab import services
from portal.lab.describe import describe_simulation, describe_trace
from portal.lab.selectors import access_simulation, visible_simulations
from portal.lab.spec import Spec
from portal.lab.traces import MOST_BYTES, store_trace

EXAMPLE = OpenApiExample(
    "Two policies on a synthetic mix",
    {
        "name": "Fifo or fair",
        "workload": {"kind": "synthetic", "jobs": 200, "jobs_per_hour": 20.0, "multi_gpu": True},
        "policies": [{"name": "fifo_gang"}, {"name": "f_scheduling", "sweep": {"v_bound": [0.01, 0.1]}}],
        "repetitions": 3,
    },
    request_only=True,
)


class SimulationsQuery(PageQuery):
    state: shapes.SimulationState | None = Field(None, description="Only those.")


class SimulationsView(APIView):
    parser_classes = [JsonParser]

    @operation("list_simulations", shapes.SimulationPage, access=Access.SIGNED_IN, tag="lab", query=SimulationsQuery)
    def get(self, request: Request, query: SimulationsQuery) -> Response:
        """My simulations, newest first; administrators see all."""
        rows = visible_simulations(signed_in(request))
        if query.state is not None:
            rows = rows.filter(state=query.state)
        found, links = take_page(request, rows.prefetch_related(services.TRIALS), query)
        return Response({**links, "results": [describe_simulation(row) for row in found]})

    @operation(
        "create_simulation",
        shapes.Simulation,
        access=Access.SIGNED_IN,
        tag="lab",
        status=201,
        body=Spec,
        problems=(403, 409),
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: Spec) -> Response:
        """Run a workload under up to eight policies. The cluster's own history: administrators only."""
        made = services.create_simulation(actor=signed_in(request), spec=body)
        return Response(_describe(request, made.id), status=201)


class SimulationView(APIView):
    @operation("get_simulation", shapes.Simulation, access=Access.SIGNED_IN, tag="lab", path=["simulation"])
    def get(self, request: Request, simulation: UUID, query: Query) -> Response:
        """A simulation with its progress, and the figures of its trials."""
        return Response(_describe(request, simulation))

    @operation("delete_simulation", None, access=Access.SIGNED_IN, tag="lab", status=204, path=["simulation"])
    def delete(self, request: Request, simulation: UUID, query: Query) -> Response:
        """Delete a simulation with its results; a running one is stopped."""
        user = signed_in(request)
        services.delete_simulation(actor=user, simulation=access_simulation(user, simulation))
        return Response(status=204)


class SimulationCancelView(APIView):
    @operation(
        "cancel_simulation",
        shapes.Simulation,
        access=Access.SIGNED_IN,
        tag="lab",
        path=["simulation"],
        problems=(409,),
    )
    def post(self, request: Request, simulation: UUID, query: Query) -> Response:
        """Cancel a simulation: at once if it waits, within a second or so if it runs. 409 if it has ended."""
        user = signed_in(request)
        services.cancel_simulation(actor=user, simulation=access_simulation(user, simulation))
        return Response(_describe(request, simulation))


class SimulationRerunView(APIView):
    @operation(
        "rerun_simulation",
        shapes.Simulation,
        access=Access.SIGNED_IN,
        tag="lab",
        status=201,
        path=["simulation"],
        problems=(403, 409),
    )
    def post(self, request: Request, simulation: UUID, query: Query) -> Response:
        """A new simulation with the same specification, jobs and hardware."""
        user = signed_in(request)
        made = services.rerun_simulation(actor=user, simulation=access_simulation(user, simulation))
        return Response(_describe(request, made.id), status=201)


class SimulationTracesView(APIView):
    parser_classes = [MultiPartParser]

    @operation(
        "upload_simulation_trace",
        shapes.SimulationTrace,
        access=Access.SIGNED_IN,
        tag="lab",
        status=201,
        request={
            "multipart/form-data": {
                "type": "object",
                "properties": {"file": {"type": "string", "format": "binary"}, "format": {"type": "string"}},
                "required": ["file"],
            }
        },
        problems=(403,),
    )
    def post(self, request: Request, query: Query) -> Response:
        """Upload a trace in any format that `manage.py simulate` reads: at most 20,000 jobs and 32 MiB."""
        length = str(request.META.get("CONTENT_LENGTH") or "0")
        if not (length.isascii() and length.isdecimal()) or int(length) > MOST_BYTES + 65_536:
            raise Refused(413, f"A trace may have {MOST_BYTES // 1024**2} MiB at most.")
        file, name = request.FILES.get("file"), str(request.POST.get("format") or "")
        if file is None:
            raise Problems([FieldProblem("file", "is missing", "missing")])
        return Response(describe_trace(store_trace(actor=signed_in(request), file=file, format=name)), status=201)


def _describe(request: Request, key: UUID) -> dict[str, Any]:
    rows = visible_simulations(signed_in(request)).prefetch_related(services.TRIALS)
    return describe_simulation(rows.get(id=key))
