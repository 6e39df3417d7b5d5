"""Destinations of my notices, and their state."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.editing import only
from portal.api.http.errors import Refused
from portal.api.http.inputs import PageQuery, Query, SecretBody
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.notices import (
    DestinationKind,
    DestinationSecret,
    NewNoticeDestination,
    NoticeDestination,
    NoticeDestinationPage,
    NoticeKind,
)
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.notices import services
from portal.notices.models import DEFAULT_WAITING_MINUTES
from portal.notices.models import Destination as DestinationRow
from portal.notices.selectors import access_destination, own_destinations
from portal.notices.transport import mailing

EXAMPLE = OpenApiExample(
    "Ends of my jobs, to a webhook",
    {
        "kind": "webhook",
        "name": "ends",
        "url": "https://hooks.example.org/evenkeel",
        "events": ["job.succeeded", "job.failed"],
    },
    request_only=True,
)
CHANGE = OpenApiExample("Failures only", {"events": ["job.failed"]}, request_only=True)


def _no_doubles(kinds: list[NoticeKind]) -> list[NoticeKind]:
    return list(dict.fromkeys(kinds))


Name = Annotated[str, Field(min_length=1, max_length=80), OneLine]
Url = Annotated[str, Field(min_length=1, max_length=500), OneLine]
Kinds = Annotated[list[NoticeKind], Field(min_length=1, max_length=20), AfterValidator(_no_doubles)]
ProjectKey = Annotated[str, Field(max_length=40), OneLine]
Minutes = Annotated[int, Field(ge=1, le=43_200)]


class DestinationWish(SecretBody):
    kind: DestinationKind
    name: Name
    url: Url | None = Field(None, description="Of a webhook or of a chat; e-mail goes to my own address.")
    events: Kinds = Field(description="What to tell.")
    own_jobs: bool = Field(True, description="Of my jobs only; false: of all jobs of `project` and below.")
    project: ProjectKey | None = Field(
        None, description="Key of a project: of it and below only. Left out with a token of one project: that one."
    )
    waiting_minutes: Minutes = Field(
        DEFAULT_WAITING_MINUTES, description="After how long a pending job causes `job.waiting`."
    )
    enabled: bool = True


class DestinationChange(SecretBody):
    name: Name | None = None
    url: Url | None = Field(None, description="Left out: as it was. It is never shown.")
    events: Kinds | None = None
    own_jobs: bool | None = None
    project: ProjectKey | None = Field(None, description="Null: jobs of all projects.")
    waiting_minutes: Minutes | None = None
    enabled: bool | None = Field(None, description="Enabled again, it starts with new notices.")


class DestinationsView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "list_destinations", NoticeDestinationPage, access=Access.SIGNED_IN, tag="notifications", query=PageQuery
    )
    def get(self, request: Request, query: PageQuery) -> Response:
        """My destinations, newest first."""
        found, links = take_page(request, own_destinations(signed_in(request)), query, key="id")
        results = [_describe(row) for row in found]
        return Response({**links, "email_available": mailing.is_set_up(), "results": results})

    @operation(
        "create_destination",
        NewNoticeDestination,
        access=Access.SIGNED_IN,
        tag="notifications",
        status=201,
        body=DestinationWish,
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: DestinationWish) -> Response:
        """Add a webhook, a chat or my e-mail address. Only this answer contains the secret of a webhook."""
        user = signed_in(request)
        values = body.model_dump(include={"name", "events", "own_jobs", "waiting_minutes", "enabled"})
        values["project"] = _project(user, body.project)
        row, secret = services.create_destination(
            actor=user,
            kind=body.kind,
            url=body.url,
            portal_url=request.build_absolute_uri("/"),
            values=values,
        )
        return Response({**_describe(row), "secret": secret}, status=201)


class DestinationView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "get_destination",
        NoticeDestination,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["destination"],
        version=only("name", "address", "events", "own_jobs", "project", "waiting_minutes", "enabled"),
    )
    def get(self, request: Request, destination: int, query: Query) -> Response:
        """One of my destinations."""
        return Response(_describe(access_destination(signed_in(request), destination)))

    @operation(
        "change_destination",
        NoticeDestination,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["destination"],
        body=DestinationChange,
        examples=[CHANGE],
    )
    def patch(self, request: Request, destination: int, query: Query, body: DestinationChange) -> Response:
        """Change the given keys. Disabling it drops waiting deliveries."""
        user = signed_in(request)
        row = access_destination(user, destination)
        values = body.model_dump(exclude_unset=True, exclude={"url", "project"})
        values = {name: value for name, value in values.items() if value is not None}
        if "project" in body.model_fields_set:
            values["project"] = _project(user, body.project)
        changed = services.change_destination(
            actor=user, destination=row, url=body.url, values=values, now=timezone.now()
        )
        return Response(_describe(changed))

    @operation(
        "remove_destination", None, access=Access.SIGNED_IN, tag="notifications", status=204, path=["destination"]
    )
    def delete(self, request: Request, destination: int, query: Query) -> Response:
        """Delete a destination with its log. Waiting deliveries are not sent any more."""
        user = signed_in(request)
        services.remove_destination(actor=user, destination=access_destination(user, destination))
        return Response(status=204)


class DestinationRotateView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "rotate_destination_secret",
        DestinationSecret,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["destination"],
        problems=(409,),
    )
    def post(self, request: Request, destination: int, query: Query) -> Response:
        """A new secret for a webhook; the previous one stays valid for a day."""
        user, now = signed_in(request), timezone.now()
        row = access_destination(user, destination)
        try:
            secret = services.rotate_secret(actor=user, destination=row, now=now)
        except services.NotNow as error:
            raise Refused(409, str(error)) from None
        return Response({"secret": secret, "old_until": iso(now + services.OVERLAP)})


def _project(user: User, key: str | None) -> Project | None:
    """A token that is bound to a project sends nothing about other projects."""
    token = user.acting_token
    if key is None:
        return token.project if token else None
    project = visible_projects(user).filter(key=key).first()
    if project is None:
        unknown = FieldProblem("project", "does not exist, or you may not see it", "unknown")
        raise Refused(400, f"project {unknown.message}", [unknown])
    return project


def _describe(row: DestinationRow) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "kind": row.kind,
        "address": row.user.email if row.kind == DestinationRow.Kind.EMAIL else row.shown_address,
        "events": row.events,
        "own_jobs": row.own_jobs,
        "project": row.project.key if row.project else None,
        "waiting_minutes": row.waiting_minutes,
        "enabled": row.enabled,
        "disabled_why": row.disabled_why,
        "failing_since": iso(row.failing_since),
        "failures": row.failures,
        "delivered_at": iso(row.delivered_at),
        "created_at": iso(row.created_at),
    }
