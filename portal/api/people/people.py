"""People of the whole installation, for administrators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.addresses import is_proved, provenance
from accounts.models import Membership, User
from accounts.people import (
    LastAdministrator,
    NotForServiceAccounts,
    deactivate_user,
    reactivate_user,
    set_administrator,
)
from accounts.sessions import end_all_sessions
from accounts.unix_accounts import BadAccount, set_unix_account, suggestion_for
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Address, Body, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.people.members import ConfirmUnproved, refuse_unproved
from portal.api.shapes.people import Account, AccountPage, Ended
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import OneLine

MOST_PROJECTS = 20


class PeopleQuery(PageQuery):
    search: Word | None = Field(None, description="Part of a name or of an email.")
    email: Address | None = Field(None, description="Whose address this is, in any spelling of it.")
    kind: Literal["person", "service"] | None = None
    is_admin: bool | None = None
    is_active: bool | None = None


class PersonChange(Body):
    is_admin: bool | None = Field(None, description="Administrator of the cluster.")
    is_active: bool | None = Field(
        None, description="False: tokens and sessions end at once, jobs stay with their projects."
    )
    unix_account: Annotated[str, Field(max_length=32), OneLine] | None = Field(
        None, description="As whom their jobs run on clusters that run jobs as people; empty: they have none any more."
    )
    confirm_unproved: ConfirmUnproved = False


class PeopleView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("list_people", AccountPage, access=Access.ADMIN, tag="people", query=PeopleQuery)
    def get(self, request: Request, query: PeopleQuery) -> Response:
        """Everybody with an account, and service accounts; newest first."""
        rows = _people()
        if query.search:
            words = query.search.strip()
            rows = rows.filter(
                Q(email__icontains=words)
                | Q(email=User.objects.normalize_email(words))
                | Q(first_name__icontains=words)
                | Q(last_name__icontains=words)
            )
        if query.email is not None:
            rows = rows.filter(email=query.email)
        if query.kind is not None:
            rows = rows.filter(kind=query.kind)
        if query.is_admin is not None:
            rows = rows.filter(is_superuser=query.is_admin)
        if query.is_active is not None:
            rows = rows.filter(is_active=query.is_active)
        people, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(person) for person in people]})


class PersonView(APIView):
    permission_classes = ADMINISTRATORS
    parser_classes = [JsonParser]

    @operation("get_person", Account, access=Access.ADMIN, tag="people", path=["person"])
    def get(self, request: Request, person: int, query: Query) -> Response:
        """One account."""
        return Response(_describe(_people().get(pk=person)))

    @operation(
        "change_person",
        Account,
        access=Access.ADMIN,
        tag="people",
        path=["person"],
        body=PersonChange,
        problems=(409,),
    )
    def patch(self, request: Request, person: int, query: Query, body: PersonChange) -> Response:
        """Grant or revoke administration, deactivate or reactivate, set the Unix account. 409: the last administrator
        cannot be removed, and an account whose address was never proved becomes one only if that is confirmed."""
        actor, user = signed_in(request), User.objects.get(pk=person)
        if body.is_admin and not user.is_superuser:
            refuse_unproved(user, confirmed=body.confirm_unproved)
        try:
            if body.is_active is True:
                reactivate_user(actor=actor, user=user)
            if body.unix_account is not None:
                _set_account(actor, user, body.unix_account)
            if body.is_admin is not None:
                set_administrator(actor=actor, user=user, administrator=body.is_admin)
            if body.is_active is False:
                deactivate_user(actor=actor, user=user, now=timezone.now())
        except (LastAdministrator, NotForServiceAccounts) as error:
            raise Refused(409, str(error)) from None
        return Response(_describe(_people().get(pk=person)))


class PersonSessionsView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("end_person_sessions", Ended, access=Access.ADMIN, tag="people", path=["person"])
    def delete(self, request: Request, person: int, query: Query) -> Response:
        """Sign a person out of all sessions, at once. Their tokens stay valid, and they may sign in again."""
        user = User.objects.get(pk=person)
        return Response({"ended": end_all_sessions(actor=signed_in(request), user=user)})


def _set_account(actor: User, user: User, name: str) -> None:
    try:
        set_unix_account(actor=actor, user=user, name=name)
    except BadAccount as error:
        problem = FieldProblem("unix_account", str(error), "invalid")
        raise Refused(400, f"{name!r} {error}", [problem]) from None


def _people() -> QuerySet[User]:
    given = Membership.objects.select_related("project").order_by("pk")[: MOST_PROJECTS + 1]
    return User.objects.select_related("invited_by", "invited_into").prefetch_related(
        Prefetch("memberships", given, to_attr="given")
    )


def _describe(user: Any) -> dict[str, Any]:
    """`user`: one of `_people`."""
    given: list[Membership] = user.given
    return {
        "id": user.pk,
        "email": user.email,
        "name": str(user),
        "kind": user.kind,
        "is_admin": user.is_superuser,
        "admin_by_directory": user.admin_by_directory,
        "is_active": user.is_active,
        "projects": [
            {"key": one.project.key, "name": one.project.name, "role": one.role} for one in given[:MOST_PROJECTS]
        ],
        "more_projects": len(given) > MOST_PROJECTS,
        "last_sign_in_at": iso(user.last_login),
        "created_at": iso(user.date_joined),
        "deactivated_at": iso(user.deactivated_at),
        "address_proved_at": iso(user.address_proved_at),
        "address_proved_by": user.address_proved_by or None,
        "unix_account": user.unix_account or None,
        "unix_account_by": user.unix_account_by or None,
        "unix_account_suggestion": suggestion_for(user),
        "provenance": None if is_proved(user) else provenance(user),
    }
