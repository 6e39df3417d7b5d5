"""Reports of runners. No user: the bearer token belongs to one (run, epoch).

A runner may forward the reports of others on its node, each with its own token: a node's runs then need one request.
Each report is accepted or refused as if it had come alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any, NamedTuple
from uuid import UUID

from pydantic import Field
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.denials import note_run_denial
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, Query, read_body
from portal.api.http.operations import operation
from portal.api.http.parsing import JsonParser, malformed, read_text
from portal.api.http.rates import charge_address, charge_runs, standing_kept
from portal.api.shapes.base import Shape
from portal.core import job_log
from portal.core.problems import Problems
from portal.jobs.models import Run
from portal.lifecycle import report_interval
from portal.lifecycle.transitions import StaleRun
from portal.reporting.report_batches import NotTaken, Outcome, record_batch
from portal.reporting.reports import Report, StaleEpoch
from portal.reporting.run_tokens import is_run_token

MAX_BYTES = 1024 * 1024
#: Reports that one request may forward.
MAX_OTHERS = 63
_STATUS: dict[type[Exception], int] = {
    StaleEpoch: 409,
    StaleRun: 503,
    NotTaken: 503,
    Run.DoesNotExist: 404,
    Throttled: 429,
}


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
    """Programs may log anything: characters that cannot be stored are replaced, so that no report is blocked."""

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
    throttle_classes = []  # counted once its token is verified, so that no stranger can use up its limit
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
        job_log.note({"run_id": str(run), "epoch": said.epoch})
        mine = Sent(run, token.strip() if scheme.lower() == "bearer" else "", said)
        _check(request, mine)
        with standing_kept(request):
            others = [_check_along(request, one) for one in said.others]
        first, *rest = _take(request, [mine, *(one for one in others if isinstance(one, Sent))])
        if isinstance(first, Run.DoesNotExist):
            raise first
        if isinstance(first, Exception):
            raise Refused(_STATUS[type(first)], str(first))
        answers, next_s = iter(rest), {"next_report_s": report_interval.interval_s()}
        return Response({**asdict(first), **next_s, "others": [_answer_along(one, answers, next_s) for one in others]})


def _check(request: Request, sent: Sent) -> None:
    """Raises Refused, Throttled."""
    if not is_run_token(sent.token, sent.run, sent.report.epoch):
        charge_address(request)
        if sent.token.startswith("ekr_"):
            note_run_denial(request, sent.run)
        raise Refused(401, "This is not the token of that run and epoch.")


def _check_along(request: Request, one: CarriedReport) -> Sent | int:
    """The accepted reports, and the errors of the others."""
    try:
        sent = Sent(one.run, one.token, read_body(one.report, Report))
        _check(request, sent)
    except Refused as error:
        return error.status
    except Problems:
        return 400
    except Throttled:
        return 429
    return sent


def _take(request: Request, sent: Sequence[Sent]) -> list[Outcome | Throttled]:
    """In their order. Raises Throttled for the first; the others are sent again."""
    may = charge_runs(request, [one.run for one in sent])
    taken = iter(record_batch([(one.run, one.report) for one, good in zip(sent, may, strict=True) if good]))
    return [next(taken) if good else Throttled() for good in may]


def _answer_along(checked: Sent | int, answers: Iterator[Any], next_s: dict[str, float]) -> dict[str, Any]:
    """`answers`: of the accepted ones, in order."""
    if isinstance(checked, int):
        return {"status": checked, "orders": None}
    said = next(answers)
    if isinstance(said, Exception):
        return {"status": _STATUS[type(said)], "orders": None}
    return {"status": 200, "orders": asdict(said) | next_s}
