"""Which refusals the audit log keeps: 403, and 404 where there is something that may not be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from rest_framework.request import Request

from accounts.denials import record_denial
from accounts.models import User
from accounts.origin import address_of
from portal.jobs.live import stream_exists
from portal.jobs.models import Job


def _job_exists(reference: str) -> bool:
    if reference.isdecimal() and len(reference) <= 18:
        return Job.objects.filter(number=int(reference)).exists()
    try:
        return Job.objects.filter(pk=UUID(reference)).exists()
    except ValueError:
        return False


def _project_exists(key: str) -> bool:
    return stream_exists(f"project:{key}")


#: By the name of a part of the address.
_EXISTS: dict[str, Callable[[str], bool]] = {
    "job": _job_exists,
    "project": _project_exists,
    "stream": stream_exists,
}


def note_denial(request: Request, status: int) -> None:
    if status not in (403, 404):
        return
    user = getattr(request, "_user", None)  # as far as it is known: asking might raise again
    actor = user if isinstance(user, User) else None
    if status == 404 and not (actor and _hides_something(request.parser_context["kwargs"])):
        return
    _note(request, actor, status)


def _note(request: Request | HttpRequest, actor: User | None, status: int) -> None:
    who = f"user:{actor.pk}" if actor else f"address:{address_of(request)}"
    detail: dict[str, Any] = {"status": status, "method": request.method}
    record_denial(actor=actor, target=request.path, detail=detail, who=who)


def _hides_something(kwargs: dict[str, Any]) -> bool:
    return any(exists(str(kwargs[name])) for name, exists in _EXISTS.items() if name in kwargs)


class PageDenials(MiddlewareMixin):
    """Notes what the pages outside the API refuse; the administration sends those it refuses to its sign-in."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith("/api/") or not self._refused(request, response.status_code):
            return response
        _note(request, request.user if isinstance(request.user, User) else None, response.status_code)
        return response

    @staticmethod
    def _refused(request: HttpRequest, status: int) -> bool:
        inside = request.path.startswith("/admin/") and not request.path.startswith(("/admin/login/", "/admin/logout/"))
        if status == 302 and inside:
            return request.user.is_authenticated and not request.user.is_staff
        return status == 403
