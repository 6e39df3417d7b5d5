"""Every error under /api/ as application/problem+json (RFC 9457); never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.views import defaults
from redis.exceptions import RedisError
from rest_framework import exceptions

from accounts.quota_changes import QuotaExists
from accounts.quotas import QuotaExceeded
from portal.api.http import rates
from portal.api.http.denials import note_denial
from portal.cluster.drains import DrainedByEngine
from portal.cluster.partitions import PartitionInUse
from portal.cluster.policy import NothingToUndo
from portal.cluster.service_levels import QosInUse
from portal.cluster.windows import WindowIsOver
from portal.core.problems import FieldProblem, Problems
from portal.lab.services import LabConflict
from portal.lifecycle.cancel import JobHasEnded
from portal.lifecycle.locking import JobConflict, NotAllowed
from portal.lifecycle.transitions import StaleRun
from portal.material.bundles import TooLarge
from portal.material.environments import InUse
from portal.rollouts.services import RolloutConflict
from portal.submission.saved import SavedConflict
from portal.submission.submit import IdempotencyConflict
from scheduling.errors import InvalidParameters

logger = logging.getLogger(__name__)
TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    416: "Range not satisfiable",
    415: "Unsupported content type",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}
NOT_FOUND = "There is nothing here that you may see."
#: A service's exception -> status; the exception's text is the detail.
_BY_TYPE: dict[type[Exception], int] = {
    IdempotencyConflict: 409,
    JobHasEnded: 409,
    StaleRun: 409,
    NothingToUndo: 409,
    QuotaExceeded: 409,
    QuotaExists: 409,
    QosInUse: 409,
    PartitionInUse: 409,
    WindowIsOver: 409,
    DrainedByEngine: 409,
    PermissionError: 403,
    InUse: 409,
    LabConflict: 409,
    RolloutConflict: 409,
    TooLarge: 413,
}
#: Problems whose fields are not those of the request.
_STATUS_OF_PROBLEMS: dict[type[Problems], int] = {NotAllowed: 403, JobConflict: 409, SavedConflict: 409}


class Refused(Exception):
    """An error with its status, for cases without a service exception."""

    def __init__(self, status: int, detail: str, problems: list[FieldProblem] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.problems = status, detail, problems or []


def status_of(error: Exception) -> int | None:
    """The status of a service's refusal; None for unexpected exceptions."""
    if isinstance(error, Problems):
        return _STATUS_OF_PROBLEMS.get(type(error), 400)
    return next((status for kind, status in _BY_TYPE.items() if isinstance(error, kind)), None)


def problem(
    status: int, detail: str, problems: list[FieldProblem] | None = None, headers: dict[str, str] | None = None
) -> JsonResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "errors": [{"field": p.field, "message": p.message, "code": p.code} for p in problems or []],
    }
    return JsonResponse(body, status=status, headers=headers, content_type="application/problem+json")


def problem_exception_handler(error: Exception, context: dict[str, Any]) -> HttpResponseBase:
    """The only translation of exceptions to HTTP; denied access is audited."""
    response = _translate(error, context)
    note_denial(context["request"], response.status_code)
    return response


def _translate(error: Exception, context: dict[str, Any]) -> HttpResponseBase:
    if isinstance(error, exceptions.APIException):
        return _of_framework(_counted(error, context))
    if isinstance(error, Refused):
        return problem(error.status, error.detail, error.problems)
    if isinstance(error, Problems):
        return problem(status_of(error) or 400, _sentence(error.problems), error.problems)
    if isinstance(error, QuotaExceeded | InvalidParameters):
        return _of_service(error)
    if isinstance(error, Http404 | ObjectDoesNotExist):
        return problem(404, NOT_FOUND)
    if isinstance(error, PermissionDenied):
        return problem(403, str(error) or "You may not do this.")
    if isinstance(error, SuspiciousOperation):
        return problem(400, "This request cannot be read.")
    for kind, status in _BY_TYPE.items():
        if isinstance(error, kind):
            return problem(status, str(error))
    return _unexpected(error)


def _counted(error: exceptions.APIException, context: dict[str, Any]) -> exceptions.APIException:
    try:
        rates.charge_refused(context["request"], error)
    except exceptions.Throttled as throttled:
        return throttled
    return error


def _of_service(error: QuotaExceeded | InvalidParameters) -> JsonResponse:
    """Errors with their own format for fields."""
    if isinstance(error, QuotaExceeded):
        return problem(409, str(error), [FieldProblem(field, text, "quota") for field, text in error.refusals])
    named = [FieldProblem(f"parameters.{name}", text, "invalid") for name, text in error.problems.items()]
    return problem(400, _sentence(named), named)


def _of_framework(error: exceptions.APIException) -> JsonResponse:
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    detail = error.detail if isinstance(error.detail, str) else "This request cannot be answered."
    if isinstance(error, exceptions.NotAuthenticated):
        detail = "Sign in, or send an API token as `Authorization: Bearer ek_…`."
    if isinstance(error, exceptions.Throttled):
        detail = f"Too many requests. Try again in {headers['Retry-After']} s."
    return problem(error.status_code, str(detail), headers=headers)


def _unexpected(error: Exception) -> JsonResponse:
    if isinstance(error, RedisError | OperationalError | InterfaceError):
        logger.warning("a server is not reachable: %s", error)
        return problem(
            503, "The database or Redis does not answer at the moment. Try again shortly.", headers={"Retry-After": "5"}
        )
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return problem(500, "Something unexpected happened; the portal's log has the details.")


def _sentence(problems: list[FieldProblem]) -> str:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{first.field}: {first.message}{more}"


def _handler(status: int, detail: str, otherwise: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Django's own error pages, as problem documents for programs."""

    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.path.startswith("/api/"):
            return problem(status, detail)
        return otherwise(request, *args, **kwargs)

    return answer


handler400 = _handler(400, "This request cannot be read.", defaults.bad_request)
handler403 = _handler(403, "You may not do this.", defaults.permission_denied)
handler404 = _handler(404, "Unknown address; /api/docs lists all of them.", defaults.page_not_found)
handler500 = _handler(500, "Something unexpected happened; the portal's log has the details.", defaults.server_error)
