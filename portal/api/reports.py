"""What runners say of themselves. No user: the bearer token is that of one (run, epoch).

A runner may carry along what others on its node have to say, each with its own token: a node's runs then cost one
request. Each is taken or refused by itself, as if it had come alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Any, NamedTuple
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework import exceptions
from rest_framework.authentication import get_authorization_header
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal import logs
from portal.api.access import Access
from portal.api.denials import note_run_denial
from portal.api.errors import Refused
from portal.api.inputs import Body, Query, read_body
from portal.api.operations import operation
from portal.api.parsing import JsonParser, malformed, read_text
from portal.api.rates import charge_address, charge_run, count, standing_kept
from portal.api.shapes.base import Shape
from portal.jobs import reporting
from portal.jobs.models import Run
from portal.jobs.run_tokens import is_run_token
from portal.jobs.schema import Problems
from portal.jobs.services.moves import StaleRun
from portal.jobs.services.reports import Report, StaleEpoch, record_report

#: Notices of a run in an hour: each is an event that everybody in the project reads.
MAX_NOTICES = 100
MAX_BYTES = 1024 * 1024
#: Reports that one may carry along.
MAX_OTHERS = 63


class CarriedReport(Body):
    run: UUID
    token: str = Field(max_length=100, description="Of that run and epoch.")
    report: dict[str, Any] = Field(description="As it would be sent alone.")


class NodeReport(Report):
    others: list[CarriedReport] = Field([], max_length=MAX_OTHERS, description="Of other runs on this node.")


class Orders(Shape):
    command: str | None = Field(
        description="checkpoint_and_stop, kill, or nothing.", json_schema_extra={"examples": ["kill"]}
    )
    next_report_s: float = Field(description="When the next report is due; later where very many runs report.")
    total_steps: int = Field(description="What the job is to do; it may have grown since the launch.")
    max_duration_s: float | None = Field(description="How long this launch may train.")


class CarriedAnswer(Shape):
    status: int = Field(
        description="What the report would have been answered with alone.", json_schema_extra={"examples": [200]}
    )
    orders: Orders | None = Field(description="With 200.")


class ReportAnswer(Orders):
    others: list[CarriedAnswer] = Field(description="In the order of what was carried along.")


class Sent(NamedTuple):
    run: UUID
    token: str
    report: Report


class ReportParser(JsonParser):
    """Programs log what they like: what cannot be stored is replaced, so that no report is stuck for it."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        text = read_text(stream, parser_context, MAX_BYTES)
        try:
            return _storable(json.loads(text, parse_constant=lambda name: None))
        except (ValueError, RecursionError) as error:
            raise malformed(f"The body is not JSON: {error}") from None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "�").encode(errors="replace").decode()
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value


class ReportsView(APIView):
    authentication_classes = []
    permission_classes = []
    throttle_classes = []  # counted once its token is known to be right: nobody else can use up what it may send
    parser_classes = [ReportParser]

    @operation(
        "report_run",
        ReportAnswer,
        access=Access.RUN,
        tag="runs",
        path=["run"],
        request=NodeReport,
        problems=(401, 409, 503),
        public=True,
    )
    def post(self, request: Request, run: UUID, query: Query) -> Response:
        """A runner's steps, metrics and checkpoints. 409: another launch has taken over; checkpoint and stop."""
        said = read_body(request.data, NodeReport)
        scheme, _, token = get_authorization_header(request).decode("latin-1").partition(" ")
        logs.note({"run_id": str(run), "epoch": said.epoch})
        orders = _take(request, Sent(run, token.strip() if scheme.lower() == "bearer" else "", said))
        with standing_kept(request):
            others = [_take_along(request, one) for one in said.others]
        return Response({**orders, "others": others})


def _take(request: Request, sent: Sent) -> dict[str, Any]:
    """Raises Refused, Throttled, Run.DoesNotExist."""
    run, token, report = sent
    if not is_run_token(token, run, report.epoch):
        charge_address(request)
        if token.startswith("ekr_"):
            note_run_denial(request, run)
        raise Refused(401, "This is not the token of that run and epoch.")
    charge_run(request, run)
    report = report.model_copy(update={"notices": _bounded(run, report.notices)})
    try:
        orders = record_report(run_id=run, report=report, now=timezone.now())
    except StaleEpoch as error:
        raise Refused(409, str(error)) from None
    except StaleRun as error:  # not the runner's fault: it keeps the report and sends it again
        raise Refused(503, str(error)) from None
    return asdict(orders) | {"next_report_s": reporting.interval_s()}


def _take_along(request: Request, one: CarriedReport) -> dict[str, Any]:
    try:
        sent = Sent(one.run, one.token, read_body(one.report, Report))
        return {"status": 200, "orders": _take(request, sent)}
    except Refused as error:
        status = error.status
    except Problems:
        status = 400
    except exceptions.Throttled:
        status = 429
    except Run.DoesNotExist:
        status = 404
    return {"status": status, "orders": None}


def _bounded(run: UUID, notices: list[str]) -> list[str]:
    if not notices:
        return notices
    standing = count("notices", str(run), MAX_NOTICES, by=len(notices), window_s=3_600)
    if standing is None or standing.allowed:
        return notices
    room = MAX_NOTICES - (standing.used - len(notices))
    last = [f"more than {MAX_NOTICES} notices in an hour: the rest of them is left out"]
    return notices[:room] + last if room >= 0 else []
