"""Which refusals are audited: 403, and 400 or 404 if something exists that the user may not see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from rest_framework.request import Request

from accounts.denials import record_denial
from accounts.models import ApiToken, Project, Quota, User
from accounts.origin import address_of
from accounts.selectors import visible_projects
from portal.jobs.access import jobs_named, visible_arrays, visible_jobs
from portal.jobs.models import Job, JobArray, JobTemplate, Run, SavedView

#: At most this many names of one request are checked.
MAX_NAMES = 1_000
_LONGEST_NAME = 80


def _hides_job(user: User, reference: str) -> bool:
    return bool(hidden_jobs(user, [reference]))


def hidden_jobs(user: User, references: Iterable[str]) -> list[int]:
    """Numbers of existing jobs among them that the user may not see, at most 20."""
    there = Job.objects.filter(jobs_named(list(references)[:MAX_NAMES]))
    return sorted(
        there.exclude(pk__in=visible_jobs(user).order_by().values("pk")).values_list("number", flat=True)[:20]
    )


def _hides_project(user: User, key: str) -> bool:
    return _hides(Project.objects.filter(key=key[:40]), visible_projects(user))


def _hides(there: QuerySet[Any], visible: QuerySet[Any]) -> bool:
    return there.exists() and not visible.filter(pk__in=there.order_by().values("pk")).exists()


def _hides_array(user: User, number: str) -> bool:
    return _hides(JobArray.objects.filter(number=int(number[:18])), visible_arrays(user))


#: By the name of a part of the address, of the query or of the body.
_HIDES: dict[str, Callable[[User, str], bool]] = {
    "job": _hides_job,
    "array": _hides_array,
    "project": _hides_project,
    "parent": _hides_project,
    "stream": lambda user, name: name.startswith("project:") and _hides_project(user, name.removeprefix("project:")),
}
#: Objects that exist but were not found are hidden.
_THERE: dict[str, type[ApiToken | Quota | SavedView | JobTemplate]] = {
    "token": ApiToken,
    "limit": Quota,
    "view": SavedView,
    "template": JobTemplate,
}
_IN_QUERY = _IN_BODY = ("project", "parent", "job")
_WITHIN_BODY = ("resume_from", "filter")


def note_denial(request: Request, status: int) -> None:
    if status not in (400, 403, 404):
        return
    user = getattr(request, "_user", None)  # as far as it is known: asking again might raise an error
    actor = user if isinstance(user, User) else None
    hidden = _hidden(actor, request) if actor is not None else {}
    if status != 403 and not hidden and not (status == 404 and actor is not None and _is_there(request)):
        return
    _note(request, actor, status, {"hidden": hidden} if hidden else None)


def note_hidden_jobs(request: Request, user: User, references: Iterable[str]) -> None:
    """Jobs in the body that the answer calls unknown."""
    numbers = hidden_jobs(user, references)
    if numbers:
        _note(request, user, 404, {"jobs": numbers})


def note_run_denial(request: Request, run: UUID) -> None:
    """A token of another run or launch, if the requested run exists."""
    if Run.objects.filter(pk=run).exists():
        _note(request, None, 401)


def _note(request: Request | HttpRequest, actor: User | None, status: int, more: dict[str, Any] | None = None) -> None:
    who = f"user:{actor.pk}" if actor else f"address:{address_of(request)}"
    detail: dict[str, Any] = {"status": status, "method": request.method, **(more or {})}
    record_denial(actor=actor, target=request.path, detail=detail, who=who)


def _hidden(user: User, request: Request) -> dict[str, list[str]]:
    """Existing objects of the request that the user may not see; the address is in the entry anyway."""
    asked = [(name, value) for name, value in _named(request) if "\0" not in value]
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in asked:
        if _HIDES[name](user, value):
            found[name].append(value[:_LONGEST_NAME])
    return dict(found)


def _is_there(request: Request) -> bool:
    where = request.parser_context["kwargs"]
    return any(rows.objects.filter(pk=where[name]).exists() for name, rows in _THERE.items() if name in where)


def _named(request: Request) -> Iterator[tuple[str, str]]:
    """Objects that the request refers to by name."""
    where = request.parser_context["kwargs"]
    yield from ((name, str(value)) for name, value in where.items() if name in _HIDES)
    yield from ((name, request.query_params[name]) for name in _IN_QUERY if name in request.query_params)
    body = getattr(request, "_full_data", None)  # None: not read, or not readable
    if isinstance(body, Mapping):
        for part in (body, *(body.get(name) for name in _WITHIN_BODY)):
            values = {name: part.get(name) for name in _IN_BODY} if isinstance(part, Mapping) else {}
            yield from ((name, str(value)) for name, value in values.items() if isinstance(value, str | int))


class PageDenials(MiddlewareMixin):
    """Audits refusals of pages outside the API; the Django admin redirects refused users to its sign-in."""

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
