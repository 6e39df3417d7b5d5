"""Secrets of a project. Values are written and never returned."""

from __future__ import annotations

from typing import Annotated, Any

from django.core.exceptions import ValidationError
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.editing import only
from portal.api.http.inputs import PageQuery, Query, SecretBody
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.material import Secret, SecretPage
from portal.core.problems import FieldProblem, Problems
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.material import secrets
from portal.material.models import SECRET_NAME
from portal.material.models import Secret as SecretRow
from portal.material.selectors import access_secret, project_for_manager, project_for_member


class SecretWish(SecretBody):
    value: str = Field(
        min_length=secrets.MIN_BYTES,
        max_length=secrets.MAX_BYTES,
        description="Kept encrypted; no answer shows it.",
        examples=["hf_0123456789"],
    )
    description: Annotated[str, OneLine] | None = Field(
        None, max_length=200, description="Left out: as it was.", examples=["Read access to the model hub"]
    )


class SecretsView(APIView):
    @operation(
        "list_secrets", SecretPage, access=Access.MEMBER, tag="secrets", path=["project"], query=PageQuery,
        problems=(403,),
    )  # fmt: skip
    def get(self, request: Request, project: str, query: PageQuery) -> Response:
        """The project's secrets without their values, newest first."""
        owner = project_for_member(signed_in(request), project)
        found, links = take_page(request, owner.secrets.select_related("changed_by"), query, key="id")
        users = secrets.used_by(owner, [secret.name for secret in found])
        return Response({**links, "results": [_describe(secret, users) for secret in found]})


class SecretView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "get_secret", Secret, access=Access.MEMBER, tag="secrets", path=["project", "secret"], problems=(403,),
        version=only("changed_at"),
    )  # fmt: skip
    def get(self, request: Request, project: str, secret: str, query: Query) -> Response:
        """A secret without its value."""
        owner = project_for_member(signed_in(request), project)
        row = owner.secrets.select_related("changed_by").get(name=secret)
        return Response(_describe(row, secrets.used_by(owner, [row.name])))

    @operation(
        "set_secret", Secret, access=Access.MANAGER, scope="admin", tag="secrets", path=["project", "secret"],
        body=SecretWish, also={201: Secret}, problems=(403,),
    )  # fmt: skip
    def put(self, request: Request, project: str, secret: str, query: Query, body: SecretWish) -> Response:
        """Set a secret's value; 201 if it is new. Later launches get the new value."""
        owner = project_for_manager(signed_in(request), project)
        try:
            SECRET_NAME(secret)
        except ValidationError as error:
            raise Problems([FieldProblem("secret", error.messages[0], "invalid")]) from None
        row, created = secrets.set_secret(
            actor=signed_in(request), project=owner, name=secret, value=body.value, description=body.description
        )
        return Response(_describe(row, secrets.used_by(owner, [secret])), status=201 if created else 200)

    @operation(
        "delete_secret", None, access=Access.MANAGER, scope="admin", tag="secrets", status=204,
        path=["project", "secret"], problems=(403,),
    )  # fmt: skip
    def delete(self, request: Request, project: str, secret: str, query: Query) -> Response:
        """Delete a secret at once. A later launch that needs it fails with a message."""
        secrets.delete_secret(actor=signed_in(request), secret=access_secret(signed_in(request), project, secret))
        return Response(status=204)


def _describe(secret: SecretRow, users: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "name": secret.name,
        "description": secret.description,
        "created_at": iso(secret.created_at),
        "changed_at": iso(secret.changed_at),
        "changed_by": str(secret.changed_by) if secret.changed_by else None,
        "used_by": users.get(secret.name, []),
    }
