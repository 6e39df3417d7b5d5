"""Accounts for programs, each in one project: CI pipelines, robots."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import ApiToken, Membership, Project, User
from accounts.people import (
    NameTaken,
    create_service_account,
    deactivate_user,
    reactivate_user,
    set_service_role,
)
from accounts.selectors import access_project
from accounts.tokens import WiderToken, create_token
from portal.api.http.access import Access
from portal.api.http.editing import only
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.people.tokens import TokenWish, describe_token
from portal.api.shapes.base import Role
from portal.api.shapes.people import NewToken, ServiceAccount, ServiceAccountPage, TokenPage
from portal.core.problems import FieldProblem
from portal.core.times import iso

MANAGER = Membership.Role.MANAGER


class AccountWish(Body):
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$", examples=["ci"])
    role: Role = "member"


class AccountChange(Body):
    role: Role | None = None
    is_active: bool | None = Field(None, description="False: its tokens stop at once, for good.")


class ServiceAccountsView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "list_service_accounts",
        ServiceAccountPage,
        access=Access.MANAGER,
        tag="service accounts",
        path=["project"],
        query=PageQuery,
    )
    def get(self, request: Request, project: str, query: PageQuery) -> Response:
        """Service accounts of the project, newest first."""
        row, _ = access_project(signed_in(request), project, role=MANAGER)
        found, links = take_page(request, _accounts(row), query, key="id")
        return Response({**links, "results": [_describe(account, row) for account in found]})

    @operation(
        "create_service_account",
        ServiceAccount,
        access=Access.MANAGER,
        scope="admin",
        tag="service accounts",
        path=["project"],
        status=201,
        body=AccountWish,
        problems=(409,),
    )
    def post(self, request: Request, project: str, query: Query, body: AccountWish) -> Response:
        """Create an account that cannot sign in: it only has tokens, and accesses this project and below only."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        try:
            account = create_service_account(actor=user, project=row, name=body.name, role=body.role)
        except NameTaken as error:
            raise Refused(409, str(error), [FieldProblem("name", "is taken", "taken")]) from None
        return Response(_describe(_accounts(row).get(pk=account.pk), row), status=201)


class ServiceAccountView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "get_service_account",
        ServiceAccount,
        access=Access.MANAGER,
        tag="service accounts",
        path=["project", "account"],
        version=only("role", "is_active"),
    )
    def get(self, request: Request, project: str, account: int, query: Query) -> Response:
        """A service account of the project."""
        row, _ = access_project(signed_in(request), project, role=MANAGER)
        return Response(_describe(_accounts(row).get(pk=account), row))

    @operation(
        "change_service_account",
        ServiceAccount,
        access=Access.MANAGER,
        scope="admin",
        tag="service accounts",
        path=["project", "account"],
        body=AccountChange,
    )
    def patch(self, request: Request, project: str, account: int, query: Query, body: AccountChange) -> Response:
        """Change its role, deactivate or activate it. Its jobs stay with the project."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        found = _accounts(row).get(pk=account)
        if body.role is not None:
            set_service_role(actor=user, account=found, role=body.role)
        if body.is_active is True:
            reactivate_user(actor=user, user=found)
        elif body.is_active is False:
            deactivate_user(actor=user, user=found, now=timezone.now())
        return Response(_describe(_accounts(row).get(pk=account), row))


class ServiceTokensView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "list_service_tokens",
        TokenPage,
        access=Access.MANAGER,
        tag="service accounts",
        path=["project", "account"],
        query=PageQuery,
    )
    def get(self, request: Request, project: str, account: int, query: PageQuery) -> Response:
        """Its valid tokens, newest first."""
        row, _ = access_project(signed_in(request), project, role=MANAGER)
        found = _accounts(row).get(pk=account)
        rows = ApiToken.objects.select_related("project").filter(user=found, revoked_at=None)
        tokens, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [describe_token(token) for token in tokens]})

    @operation(
        "create_service_token",
        NewToken,
        access=Access.MANAGER,
        scope="admin",
        tag="service accounts",
        path=["project", "account"],
        status=201,
        body=TokenWish,
        problems=(409,),
    )
    def post(self, request: Request, project: str, account: int, query: Query, body: TokenWish) -> Response:
        """Create a token for it; only this answer contains the secret. It gives access at most to the account's
        project."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        found = _accounts(row).get(pk=account)
        if not found.is_active:
            raise Refused(409, f"{found.first_name} is deactivated.")
        bound = _below(row, body.project) if body.project else row
        try:
            token, secret = create_token(
                user=found,
                name=body.name,
                expires_in_days=body.days(user),
                scopes=body.scopes,
                project=bound,
                actor=user,
            )
        except WiderToken as error:
            raise Refused(403, str(error)) from None
        return Response({**describe_token(token), "secret": secret}, status=201)


def _accounts(project: Project) -> QuerySet[User]:
    alive = Q(tokens__revoked_at=None) & (Q(tokens__expires_at=None) | Q(tokens__expires_at__gt=timezone.now()))
    accounts = User.objects.filter(kind=User.Kind.SERVICE, project=project).prefetch_related("memberships")
    return accounts.annotate(live_tokens=Count("tokens", filter=alive & Q(tokens__isnull=False)))


def _below(project: Project, key: str) -> Project:
    bound = Project.objects.filter(ancestry__contains=[project.pk], key=key.replace("\0", "")).first()
    if bound is None:
        wrong = FieldProblem("project", f"must be {project.key} or below it", "unknown")
        raise Refused(400, f"project {wrong.message}", [wrong])
    return bound


def _describe(account: Any, project: Project) -> dict[str, Any]:
    role = next((m.role for m in account.memberships.all() if m.project_id == project.pk), Membership.Role.VIEWER)
    return {
        "id": account.pk,
        "name": account.first_name,
        "email": account.email,
        "project": project.key,
        "role": role,
        "is_active": account.is_active,
        "tokens": account.live_tokens,
        "created_at": iso(account.date_joined),
    }
