"""Members of a project, with roles given there or inherited."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.addresses import Unproved, check_proved, is_proved, provenance
from accounts.mail_address import checked
from accounts.models import Membership, Project, User
from accounts.projects import NoSuchMember, remove_member
from accounts.selectors import ROLES, access_project, memberships_reaching
from accounts.services import add_member
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Address, Body, PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.base import Role
from portal.api.shapes.people import Member, MemberPage
from portal.core.problems import FieldProblem
from portal.jobfile.fields import OneLine

MANAGER = Membership.Role.MANAGER
Email = Annotated[
    str,
    Field(pattern=r"^[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]{1,189}$", examples=["ana@example.org"]),
    OneLine,
    AfterValidator(checked),
]


ConfirmUnproved = Annotated[
    bool,
    Field(
        description="True: trust the account although its address was never proved; without it that is a 409 that says "
        "where the account comes from."
    ),
]


class MemberWish(Body):
    email: Email
    role: Role = "member"
    confirm_unproved: ConfirmUnproved = False


class MembersQuery(PageQuery):
    email: Address | None = Field(None, description="Whose address this is, in any spelling of it.")


class RoleWish(Body):
    role: Role = Field(examples=["viewer"])
    confirm_unproved: ConfirmUnproved = False


class MembersView(APIView):
    parser_classes = [JsonParser]

    @operation("list_members", MemberPage, access=Access.VIEWER, tag="projects", path=["project"], query=MembersQuery)
    def get(self, request: Request, project: str, query: MembersQuery) -> Response:
        """Everybody with a role in the project, with the highest role of each and its origin."""
        row, role = access_project(signed_in(request), project)
        everybody = User.objects.filter(pk__in=memberships_reaching(row).order_by().values("user"))
        if query.email is not None:
            everybody = everybody.filter(email=query.email)
        people, links = take_page(request, everybody, query, key="id", newest_first=False)
        highest: dict[int, Membership] = {}
        for membership in memberships_reaching(row).filter(user__in=people):
            highest.setdefault(membership.user_id, membership)
        return Response({**links, "results": [_describe(row, highest[person.pk], role) for person in people]})

    @operation(
        "add_member",
        Member,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project"],
        status=201,
        body=MemberWish,
        problems=(409,),
    )
    def post(self, request: Request, project: str, query: Query, body: MemberWish) -> Response:
        """Give a role to a person with an account. A person without an account is invited. 409 if the account's address
        was never proved, unless that is confirmed."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        person = User.objects.filter(email=body.email, kind=User.Kind.PERSON, is_active=True).first()
        if person is None:
            unknown = FieldProblem("email", "has no account here: send an invitation", "unknown")
            raise Refused(400, f"email {unknown.message}", [unknown])
        refuse_unproved(person, confirmed=body.confirm_unproved)
        add_member(actor=user, project=row, user=person, role=body.role)
        return Response(_describe_one(row, person), status=201)


class MemberView(APIView):
    parser_classes = [JsonParser]

    @operation("get_member", Member, access=Access.VIEWER, tag="projects", path=["project", "person"])
    def get(self, request: Request, project: str, person: int, query: Query) -> Response:
        """A person's role in the project, and its origin."""
        row, role = access_project(signed_in(request), project)
        return Response(_describe(row, memberships_reaching(row).filter(user_id=person)[:1].get(), role))

    @operation(
        "change_member",
        Member,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project", "person"],
        body=RoleWish,
        problems=(409,),
    )
    def patch(self, request: Request, project: str, person: int, query: Query, body: RoleWish) -> Response:
        """Change a role here. An inherited one stays, and the higher of both counts. 409 if an account whose address
        was never proved would get a higher one, unless that is confirmed."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        held = memberships_reaching(row).filter(user_id=person, user__kind=User.Kind.PERSON)[:1].get()
        member = held.user
        if ROLES.index(Membership.Role(body.role)) > ROLES.index(Membership.Role(held.role)):
            refuse_unproved(member, confirmed=body.confirm_unproved)
        add_member(actor=user, project=row, user=member, role=body.role)
        return Response(_describe_one(row, member))

    @operation(
        "remove_member",
        None,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project", "person"],
        status=204,
        problems=(409,),
    )
    def delete(self, request: Request, project: str, person: int, query: Query) -> Response:
        """Remove the role that was given here. 409 if it is inherited or comes from the person's groups."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        member = memberships_reaching(row).filter(user_id=person)[:1].get().user
        try:
            remove_member(actor=user, project=row, user=member)
        except NoSuchMember as error:
            raise Refused(409, str(error)) from None
        return Response(status=204)


def inherited_from(user: User, project: Project) -> str | None:
    """Key of the project above that gives the user's role; None: given here, or an administrator's."""
    if user.is_superuser:
        return None
    first = memberships_reaching(project).filter(user=user).first()
    return first.project.key if first and first.project_id != project.pk else None


def refuse_unproved(user: User, *, confirmed: bool) -> None:
    """Raises Refused if the account's address was never proved."""
    try:
        check_proved(user, confirmed=confirmed)
    except Unproved as error:
        wrong = FieldProblem("confirm_unproved", str(error), "unproved")
        raise Refused(409, f"{error} Send confirm_unproved: true if you know whose account it is.", [wrong]) from None


def _describe_one(project: Project, user: User) -> dict[str, Any]:
    return _describe(project, memberships_reaching(project).filter(user=user)[:1].get(), MANAGER)


def _describe(project: Project, membership: Membership, mine: str) -> dict[str, Any]:
    """`mine`: the reader's role. Managers see an account's origin, others only that its address is unproved."""
    user = membership.user
    return {
        "user": {"id": user.pk, "email": user.email, "name": str(user)},
        "kind": user.kind,
        "is_active": user.is_active,
        "role": membership.role,
        "inherited_from": membership.project.key if membership.project_id != project.pk else None,
        "by_directory": membership.by_directory,
        "address_proved": is_proved(user),
        "provenance": provenance(user) if mine == MANAGER and not is_proved(user) else None,
    }
