"""API tokens, a user's own and those of service accounts.

People create tokens in a session, never with a token, so that a leaked one cannot outlive its expiry. For service
accounts a token may create tokens, which have no more rights and expire no later.
"""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Q
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import tokens
from accounts.models import ApiToken, Project, Scope, User
from accounts.selectors import manageable_projects, role_in, visible_projects
from accounts.tokens import create_token, revoke_token, rotate_token
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.people import NewToken, TokenPage, TokenScope
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import OneLine


class TokenWish(Body):
    name: Annotated[str, OneLine] = Field(min_length=1, max_length=80, examples=["ci"])
    scopes: list[TokenScope] = Field(
        ["jobs:read", "jobs:write"],
        min_length=1,
        max_length=3,
        description="What it may be used for, within what its owner may do.",
    )
    project: Annotated[str, Field(max_length=40), OneLine] | None = Field(
        None, description="Key of a project: it works there and below only. Null: wherever I may."
    )
    expires_in_days: int = Field(
        tokens.DEFAULT_EXPIRY_DAYS,
        ge=1,
        le=tokens.MAX_EXPIRY_DAYS,
        description="By default 90, or as long as the token that asks has left.",
    )

    def days(self, actor: User) -> int:
        return self.expires_in_days if "expires_in_days" in self.model_fields_set else tokens.usual_days(actor)


class RotationWish(Body):
    overlap_hours: int = Field(
        tokens.DEFAULT_OVERLAP_HOURS,
        ge=0,
        le=tokens.MAX_OVERLAP_HOURS,
        description="How long the old one still works.",
        examples=[24],
    )


class TokensView(APIView):
    parser_classes = [JsonParser]

    @operation("list_tokens", TokenPage, access=Access.SIGNED_IN, tag="tokens", query=PageQuery)
    def get(self, request: Request, query: PageQuery) -> Response:
        """My valid tokens, newest first."""
        rows = ApiToken.objects.select_related("project").filter(user=signed_in(request), revoked_at=None)
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [describe_token(token) for token in found]})

    @operation("create_token", NewToken, access=Access.SESSION, tag="tokens", status=201, body=TokenWish)
    def post(self, request: Request, query: Query, body: TokenWish) -> Response:
        """Create a token; only this answer contains its secret. Needs a signed-in session."""
        user = signed_in(request)
        project = _project_of_mine(user, body.project) if body.project else None
        token, secret = create_token(
            user=user, name=body.name, expires_in_days=body.days(user), scopes=body.scopes, project=project
        )
        return Response({**describe_token(token), "secret": secret}, status=201)


class TokenView(APIView):
    @operation("revoke_token", None, access=Access.SIGNED_IN, tag="tokens", status=204, path=["token"])
    def delete(self, request: Request, token: int, query: Query) -> Response:
        """Revoke the token at once. A token without the scope `admin` may only revoke itself."""
        if isinstance(request.auth, ApiToken) and Scope.ADMIN not in request.auth.scopes and request.auth.pk != token:
            raise Refused(403, "Without the scope admin a token may revoke only itself.")
        revoke_token(actor=signed_in(request), token=_access_token(signed_in(request), token))
        return Response(status=204)


class RotateView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "rotate_token",
        NewToken,
        access=Access.SIGNED_IN,
        scope="admin",
        tag="tokens",
        status=201,
        path=["token"],
        body=RotationWish,
        problems=(409,),
    )
    def post(self, request: Request, token: int, query: Query, body: RotationWish) -> Response:
        """Create a new token with the same rights and lifetime; the old one stays valid for `overlap_hours`."""
        user = signed_in(request)
        row = _access_token(user, token)
        if row.user_id == user.pk and request.auth is not None:
            raise Refused(403, "A token cannot prolong its owner's tokens: sign in for that.")
        try:
            new, secret = rotate_token(actor=user, token=row, now=timezone.now(), overlap_hours=body.overlap_hours)
        except tokens.TokenEnded as error:
            raise Refused(409, str(error)) from None
        except tokens.WiderToken as error:
            raise Refused(403, str(error)) from None
        return Response({**describe_token(new), "secret": secret}, status=201)


def _access_token(user: User, pk: int) -> ApiToken:
    """The user's own, or one of a service account whose project they manage."""
    managed = Q(user__kind=User.Kind.SERVICE, user__project__in=manageable_projects(user))
    return ApiToken.objects.select_related("user", "project").get(Q(user=user) | managed, pk=pk)


def _project_of_mine(user: User, key: str) -> Project:
    project = visible_projects(user).filter(key=key.replace("\0", "")).first()
    if project is None:
        raise _wrong("project", "does not exist, or you may not see it", "unknown")
    if user.is_superuser:  # bound, its user is no administrator, and would reach nothing
        person = User.objects.get(pk=user.pk)
        person.is_superuser = False
        if role_in(person, project) is None:
            raise _wrong("project", "is one in which you have no role of your own; make a service account", "role")
    return project


def _wrong(field: str, message: str, code: str) -> Refused:
    return Refused(400, f"{field} {message}", [FieldProblem(field, message, code)])


def describe_token(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.pk,
        "name": token.name,
        "prefix": token.prefix,
        "scopes": token.scopes,
        "project": token.project.key if token.project else None,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "last_used_at": iso(token.last_used_at),
        "last_used_address": token.last_used_address,
        "revoked_at": iso(token.revoked_at),
    }
