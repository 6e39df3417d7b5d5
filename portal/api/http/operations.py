"""The declaration of every endpoint: validated inputs, the shape of the answer, and possible errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.models import User
from portal.api import deprecated
from portal.api.http import editing, openapi  # noqa: F401 - registers how models become schemas
from portal.api.http.access import Access, Scope, scope_for, sentence
from portal.api.http.editing import Version
from portal.api.http.errors import TITLES
from portal.api.http.inputs import Query, query_parameters, read_body, read_query
from portal.api.shapes.base import Problem

Method = Callable[..., HttpResponseBase]
PATH_PARAMETERS = {
    "job": OpenApiParameter(
        "job", str, OpenApiParameter.PATH, description="UUID or number of the job; of an array also 57_3."
    ),
    "array": OpenApiParameter("array", int, OpenApiParameter.PATH, description="Number of the array."),
    "run": OpenApiParameter(
        "run", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="UUID of the run."
    ),
    "preview": OpenApiParameter(
        "preview", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="`forecast` of the preview."
    ),
    "what_if": OpenApiParameter(
        "what_if", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="`what_if` of the answer."
    ),
    "simulation": OpenApiParameter(
        "simulation", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="UUID of the simulation."
    ),
    "rollout": OpenApiParameter(
        "rollout", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="UUID of the rollout."
    ),
    "round": OpenApiParameter("round", int, OpenApiParameter.PATH, description="Number of the round."),
    "replay": OpenApiParameter(
        "replay", {"type": "string", "format": "uuid"}, OpenApiParameter.PATH, description="`replay` of what was asked."
    ),
    "project": OpenApiParameter("project", str, OpenApiParameter.PATH, description="Key of the project."),
    "sha256": OpenApiParameter("sha256", str, OpenApiParameter.PATH, description="SHA-256 of the bundle."),
    "digest": OpenApiParameter("digest", str, OpenApiParameter.PATH, description="Digest of the environment."),
    "secret": OpenApiParameter("secret", str, OpenApiParameter.PATH, description="Name of the secret."),
    "artifact": OpenApiParameter("artifact", int, OpenApiParameter.PATH, description="Id of the artifact."),
    "stream": OpenApiParameter("stream", str, OpenApiParameter.PATH, description="`cluster` or `project:<key>`."),
    "name": OpenApiParameter("name", str, OpenApiParameter.PATH, description="Name of the node."),
    "level": OpenApiParameter("level", str, OpenApiParameter.PATH, description="Name of the QoS."),
    "partition": OpenApiParameter("partition", str, OpenApiParameter.PATH, description="Name of the partition."),
    "window": OpenApiParameter("window", int, OpenApiParameter.PATH, description="Id of the window."),
    "limit": OpenApiParameter("limit", int, OpenApiParameter.PATH, description="Id of the limit."),
    "token": OpenApiParameter("token", int, OpenApiParameter.PATH, description="Id of the token."),
    "person": OpenApiParameter("person", int, OpenApiParameter.PATH, description="Id of the person."),
    "invitation": OpenApiParameter("invitation", int, OpenApiParameter.PATH, description="Id of the invitation."),
    "account": OpenApiParameter("account", int, OpenApiParameter.PATH, description="Id of the service account."),
    "view": OpenApiParameter("view", int, OpenApiParameter.PATH, description="Id of the saved view."),
    "template": OpenApiParameter("template", int, OpenApiParameter.PATH, description="Id of the template."),
    "destination": OpenApiParameter(
        "destination", int, OpenApiParameter.PATH, description="Id of the destination of notices."
    ),
    "delivery": OpenApiParameter("delivery", int, OpenApiParameter.PATH, description="Id of the delivery."),
    "browser": OpenApiParameter("browser", int, OpenApiParameter.PATH, description="Id of the session."),
}
#: For public operations that sign in or out: checked even without a session.
CSRF_TOKEN = OpenApiParameter(
    "X-CSRFToken",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description="The cookie `csrftoken`, to be sent as well; GET /api/v1/session sets it. 403 where they differ.",
)


def signed_in(request: Request) -> User:
    """The user, in operations that require sign-in."""
    assert isinstance(request.user, User)
    return request.user


def _problems(statuses: set[int]) -> dict[Any, Any]:
    return {
        (status, "application/problem+json"): OpenApiResponse(Problem, description=TITLES[status])
        for status in sorted(statuses)
    }


def _summary(said: str) -> str:
    """The first sentence, without its full stop."""
    return said.split(". ")[0].rstrip(".")


def operation(
    name: str,
    answer: Any,
    *,
    tag: str,
    access: Access | None = None,
    scope: Scope | None = None,
    status: int | tuple[int, str] = 200,
    path: Sequence[str] = (),
    query: type[BaseModel] = Query,
    body: type[BaseModel] | None = None,
    problems: Sequence[int] = (),
    public: bool = False,
    parameters: Sequence[OpenApiParameter] = (),
    request: Any = None,
    also: dict[Any, Any] | None = None,
    media_type: str | None = None,
    examples: Sequence[OpenApiExample] = (),
    version: Version | None = None,
) -> Callable[[Method], Method]:
    """Checks the query parameters and the body and hands them to the method as `query` and `body`.

    `also`: further successful answers. `media_type`: of the answer, if it is not JSON. `request`: documentation of a
    body that the method reads itself. `access`: the required access; `scope`: of tokens, if it is not the default for
    that access. `version`: the part that people edit, if the answer also changes by itself (see
    `portal.api.http.editing`).
    """
    failures = {400, 429, *problems} | (set() if public else {401, 403}) | ({404} if path else set())
    failures |= {413, 415} if body or request else set()
    responses = {(status, media_type) if media_type else status: answer, **(also or {}), **_problems(failures)}
    visits = deprecated.visits_of((answer, *(also or {}).values()))

    def decorate(method: Method) -> Method:
        needed = scope or (scope_for(access, method.__name__) if access else None)
        said = " ".join((method.__doc__ or "").split())

        @extend_schema(
            operation_id=name,
            summary=_summary(said),
            description=f"{said}\n\n{sentence(access, needed)}" if access else said,
            extensions={"x-access": access.value, "x-scope": needed} if access else {},
            tags=[tag],
            request=body or request,
            responses=responses,
            examples=list(examples),
            parameters=[*(PATH_PARAMETERS[p] for p in path), *query_parameters(query), *parameters],
            auth=[] if public else None,
        )
        @wraps(method)
        def checked(view: APIView, given: Request, /, **kwargs: Any) -> HttpResponseBase:
            where = dict(kwargs)
            with deprecated.noted() as used:
                kwargs["query"] = read_query(given, query)
                if body is not None:
                    kwargs["body"] = read_body(given.data, body)
            with editing.unchanged(view, method.__name__, given, where):
                response = method(view, given, **kwargs)
            deprecated.complete_answer(response, visits, used)
            if method.__name__ == "get" and editing.is_edited(view):
                editing.tag(response, version)
            return response

        checked.access, checked.scope = access, needed  # type: ignore[attr-defined]  # read by HasScope
        return checked

    return decorate
