"""Results of a simulation: figures, charts, comparison of users, and fidelity."""

from __future__ import annotations

import json
from typing import Literal
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.sheets import csv_lines, harmless
from portal.api.shapes import simulations as shapes
from portal.core.problems import FieldProblem, Problems
from portal.lab import results
from portal.lab.exports import COLUMNS, export_document, export_rows
from portal.lab.fidelity import fidelity_of
from portal.lab.models import Simulation, Trial
from portal.lab.selectors import access_simulation


class GanttQuery(Query):
    trial: UUID


class CompareQuery(Query):
    base: UUID
    other: UUID


class SimulationExportQuery(Query):
    format: Literal["csv", "json"] = "csv"


class SimulationTableView(APIView):
    @operation("get_simulation_table", shapes.SimulationTable, access=Access.SIGNED_IN, tag="lab", path=["simulation"])
    def get(self, request: Request, simulation: UUID, query: Query) -> Response:
        """One row per policy: means over seeds with 95 % intervals, best and worst marked."""
        return Response(results.table_of(access_simulation(signed_in(request), simulation)))


class SimulationChartsView(APIView):
    @operation(
        "get_simulation_charts", shapes.SimulationCharts, access=Access.SIGNED_IN, tag="lab", path=["simulation"]
    )
    def get(self, request: Request, simulation: UUID, query: Query) -> Response:
        """Curves of the first seed of each policy, at most 200 points each."""
        return Response(results.charts_of(access_simulation(signed_in(request), simulation)))


class SimulationGanttView(APIView):
    @operation(
        "get_simulation_gantt",
        shapes.SimulationGantt,
        access=Access.SIGNED_IN,
        tag="lab",
        path=["simulation"],
        query=GanttQuery,
    )
    def get(self, request: Request, simulation: UUID, query: GanttQuery) -> Response:
        """Which job held which GPUs when: the first 128 GPUs, and at most the 20,000 longest intervals."""
        row = access_simulation(signed_in(request), simulation)
        return Response(results.gantt_of(row, _trial(row, query.trial, "trial")))


class SimulationCompareView(APIView):
    @operation(
        "compare_simulation_trials",
        shapes.SimulationComparison,
        access=Access.SIGNED_IN,
        tag="lab",
        path=["simulation"],
        query=CompareQuery,
    )
    def get(self, request: Request, simulation: UUID, query: CompareQuery) -> Response:
        """Whose waits would change: projects, users and their jobs, the largest difference first."""
        row = access_simulation(signed_in(request), simulation)
        return Response(results.compare(_trial(row, query.base, "base"), _trial(row, query.other, "other")))


class SimulationFidelityView(APIView):
    @operation(
        "get_simulation_fidelity", shapes.SimulationFidelity, access=Access.SIGNED_IN, tag="lab", path=["simulation"]
    )
    def get(self, request: Request, simulation: UUID, query: Query) -> Response:
        """Simulated compared with recorded, under the policy that really ran; only for the cluster's history."""
        return Response(fidelity_of(access_simulation(signed_in(request), simulation)))


class SimulationExportView(APIView):
    @operation(
        "export_simulation",
        OpenApiTypes.STR,
        media_type="text/csv",
        also={(200, "application/json"): OpenApiTypes.OBJECT},
        access=Access.SIGNED_IN,
        tag="lab",
        path=["simulation"],
        query=SimulationExportQuery,
    )
    def get(self, request: Request, simulation: UUID, query: SimulationExportQuery) -> HttpResponseBase:
        """One line per job and trial as CSV, or as JSON everything needed to repeat it, with the results."""
        row = access_simulation(signed_in(request), simulation)
        name = {"Content-Disposition": f'attachment; filename="simulation-{row.number}.{query.format}"'}
        if query.format == "json":
            return HttpResponse(json.dumps(export_document(row)), content_type="application/json", headers=name)
        lines = ([harmless(v) if isinstance(v, str) else v for v in line] for line in export_rows(row))
        return HttpResponse(csv_lines([COLUMNS, *lines]), content_type="text/csv; charset=utf-8", headers=name)


def _trial(row: Simulation, key: UUID, field: str) -> Trial:
    found = Trial.objects.filter(simulation=row.pk, pk=key, packed__isnull=False).first()
    if found is None:
        raise Problems([FieldProblem(field, "is not a finished trial of this simulation", "unknown")])
    return found
