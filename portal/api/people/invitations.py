"""Invitations to a project, and their acceptance."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from django.contrib.auth import login
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.utils import timezone
from pydantic import Field
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import attempts
from accounts.invitations import (
    DEFAULT_DAYS,
    MAX_DAYS,
    BadInvitation,
    OtherAccount,
    accept_invitation,
    find_invitation,
    invite,
    revoke_invitation,
)
from accounts.models import ApiToken, Membership, User
from accounts.models import Invitation as InvitationRow
from accounts.origin import address_of
from accounts.selectors import access_project
from accounts.text import isolated
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query, SecretBody
from portal.api.http.operations import CSRF_TOKEN, operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.people.members import Email
from portal.api.shapes.base import Role
from portal.api.shapes.people import EXAMPLE_SECRET, AcceptedInvitation, InvitationPage, NewInvitation, OpenInvitation
from portal.core.own_address import UnknownAddress, own_address
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.notices.transport import mailing

logger = logging.getLogger(__name__)
MANAGER = Membership.Role.MANAGER


class InvitationWish(Body):
    email: Email
    role: Role = "member"
    expires_in_days: int = Field(DEFAULT_DAYS, ge=1, le=MAX_DAYS)


class Look(SecretBody):
    secret: str = Field(
        min_length=1, max_length=100, description="What the link has after #.", examples=[EXAMPLE_SECRET]
    )


class Acceptance(Look):
    name: Annotated[str, OneLine] = Field("", max_length=150, examples=["Ana"])
    password: str = Field(
        "",
        max_length=1_024,
        description="For the new account, ten characters or more; left out by signed-in users.",
        examples=["correct horse battery"],
    )


class InvitationsView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "list_invitations",
        InvitationPage,
        access=Access.MANAGER,
        tag="invitations",
        path=["project"],
        query=PageQuery,
    )
    def get(self, request: Request, project: str, query: PageQuery) -> Response:
        """Invitations to the project, newest first, used and revoked ones too."""
        row, _ = access_project(signed_in(request), project, role=MANAGER)
        rows = InvitationRow.objects.select_related("created_by", "project").filter(project=row)
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(invitation) for invitation in found]})

    @operation(
        "create_invitation",
        NewInvitation,
        access=Access.MANAGER,
        scope="admin",
        tag="invitations",
        path=["project"],
        status=201,
        body=InvitationWish,
        problems=(409, 503),
    )
    def post(self, request: Request, project: str, query: Query, body: InvitationWish) -> Response:
        """Invite an address. If the portal sends e-mail, the link is sent to the address only, and accepting it proves
        the address. Otherwise the link is in this answer, once, and the account that it creates is marked as
        unproved."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        if row.archived_at:
            raise Refused(409, f"{row.name} is archived.")
        mailed, now = mailing.is_set_up(), timezone.now()
        try:
            page = (own_address(request) if mailed else request.build_absolute_uri("/").rstrip("/")) + "/invitation"
        except UnknownAddress as error:
            raise Refused(400, str(error)) from None
        invitation, secret = invite(
            actor=user,
            project=row,
            email=body.email,
            role=body.role,
            now=now,
            expires_in_days=body.expires_in_days,
            mailed=mailed,
        )
        # after # it is sent to no server and is in no log
        link = f"{page}#{secret}"
        if mailed:
            _mail(invitation, link)
        return Response({**_describe(invitation), "link": None if mailed else link, "mailed": mailed}, status=201)


class InvitationView(APIView):
    @operation(
        "revoke_invitation",
        None,
        access=Access.MANAGER,
        scope="admin",
        tag="invitations",
        path=["project", "invitation"],
        status=204,
    )
    def delete(self, request: Request, project: str, invitation: int, query: Query) -> Response:
        """Revoke the link. An accepted invitation stays accepted."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        found = InvitationRow.objects.select_related("project").get(pk=invitation, project=row)
        revoke_invitation(actor=user, invitation=found, now=timezone.now())
        return Response(status=204)


class LookView(APIView):
    permission_classes = [AllowAny]
    parser_classes = [JsonParser]

    @operation(
        "show_invitation",
        OpenInvitation,
        access=Access.PUBLIC,
        tag="invitations",
        body=Look,
        problems=(403, 404),
        public=True,
    )
    def post(self, request: Request, query: Query, body: Look) -> Response:
        """The invitation behind a link, before it is accepted; only the holder of the link can read it. Needs no
        sign-in, and a CSRF token only with a session."""
        _slow_down(request)
        try:
            invitation = find_invitation(body.secret, timezone.now())
        except BadInvitation as error:
            raise Refused(404, str(error)) from None
        described = _describe(invitation)
        return Response(
            {name: described[name] for name in ("email", "role", "invited_by", "expires_at")}
            | {"project_name": invitation.project.name}
        )


class AcceptView(APIView):
    permission_classes = [AllowAny]
    parser_classes = [JsonParser]

    @operation(
        "accept_invitation",
        AcceptedInvitation,
        access=Access.PUBLIC,
        tag="invitations",
        body=Acceptance,
        problems=(403, 404, 409),
        public=True,
        parameters=[CSRF_TOKEN],
    )
    def post(self, request: Request, query: Query, body: Acceptance) -> Response:
        """Join the project: as the signed-in user, or with a new account, which is then signed in. Needs no sign-in,
        but always the CSRF token: GET session first, then send its cookies and the token. API tokens get 403."""
        if isinstance(request.auth, ApiToken):
            raise Refused(403, "A token cannot accept invitations: sign in for that.")
        SessionAuthentication().enforce_csrf(request)
        _slow_down(request)
        present = request.user if isinstance(request.user, User) else None
        try:
            invitation, user = accept_invitation(
                secret=body.secret, user=present, now=timezone.now(), name=body.name, password=body.password
            )
        except BadInvitation as error:
            raise Refused(404, str(error)) from None
        except OtherAccount as error:
            raise Refused(409, str(error)) from None
        except ValidationError as error:
            wrong = [FieldProblem("password", message, "weak") for message in error.messages]
            raise Refused(400, f"password: {error.messages[0]}", wrong) from None
        if present is None:
            login(request._request, user, backend="django.contrib.auth.backends.ModelBackend")
        return Response({"project": invitation.project.key, "role": invitation.role, "email": user.email})


def _slow_down(request: Request) -> None:
    if seconds := attempts.invitation_wait_s(address_of(request)):
        raise Throttled(seconds)


def _mail(invitation: InvitationRow, link: str) -> None:
    """Raises Refused: a link that could not be sent is useless, since it must not be shown to anybody else."""
    project = isolated(invitation.project.name)
    text = (
        f"{isolated(str(invitation.created_by))} invites you to {project} on Evenkeel as {invitation.role}.\n\n"
        f"{link}\n\nThe link works once, until {invitation.expires_at:%F %H:%M} UTC.\n"
    )
    try:
        send_mail(f"Invitation to {project}", text, None, [invitation.email])
    except (OSError, ValueError) as error:  # smtplib's, and addresses that cannot be written
        logger.warning("an invitation could not be mailed: %s", error)
        revoke_invitation(actor=invitation.created_by, invitation=invitation, now=timezone.now())
        detail = "The invitation could not be mailed, so it was withdrawn: check the address, or try again later."
        raise Refused(503, detail) from None


def _describe(invitation: InvitationRow) -> dict[str, Any]:
    return {
        "id": invitation.pk,
        "email": invitation.email,
        "role": invitation.role,
        "project": invitation.project.key,
        "invited_by": invitation.created_by.email,
        "created_at": iso(invitation.created_at),
        "expires_at": iso(invitation.expires_at),
        "accepted_at": iso(invitation.accepted_at),
        "revoked_at": iso(invitation.revoked_at),
    }
