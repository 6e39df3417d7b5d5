"""My API tokens. A token can list and revoke tokens, but only somebody signed in can make one: a token that leaks
cannot outlive its own end."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import ApiToken, Scope
from accounts.tokens import DEFAULT_EXPIRY_DAYS, create_token, revoke_token
from portal.api.access import Access
from portal.api.errors import Refused
from portal.api.inputs import Body, PageQuery, Query
from portal.api.operations import operation, signed_in
from portal.api.pagination import take_page
from portal.api.parsing import JsonParser
from portal.api.shapes.accounts import NewToken, TokenPage
from portal.jobs.describe import iso
from portal.jobs.schema import no_control


class TokenWish(Body):
    name: Annotated[str, AfterValidator(no_control)] = Field(min_length=1, max_length=80, examples=["ci"])
    expires_in_days: int | None = Field(DEFAULT_EXPIRY_DAYS, ge=1, le=3_650, description="Null: it does not expire.")


class TokensView(APIView):
    parser_classes = [JsonParser]

    @operation("list_tokens", TokenPage, access=Access.SIGNED_IN, tag="tokens", query=PageQuery)
    def get(self, request: Request, query: PageQuery) -> Response:
        """My tokens that are not revoked, newest first."""
        rows = ApiToken.objects.filter(user=signed_in(request), revoked_at=None)
        tokens, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(token) for token in tokens]})

    @operation(
        "create_token", NewToken, access=Access.SESSION, tag="tokens", status=201, body=TokenWish, problems=(403,)
    )
    def post(self, request: Request, query: Query, body: TokenWish) -> Response:
        """A new token; its secret is in this answer only. Needs a signed-in session."""
        token, secret = create_token(user=signed_in(request), name=body.name, expires_in_days=body.expires_in_days)
        return Response({**_describe(token), "secret": secret}, status=201)


class TokenView(APIView):
    @operation("revoke_token", None, access=Access.SIGNED_IN, tag="tokens", status=204, path=["token"])
    def delete(self, request: Request, token: int, query: Query) -> Response:
        """The token stops working at once. A token without the scope `admin` revokes itself only."""
        if isinstance(request.auth, ApiToken) and Scope.ADMIN not in request.auth.scopes and request.auth.pk != token:
            raise Refused(403, "Without the scope admin a token may revoke only itself.")
        revoke_token(actor=signed_in(request), token=ApiToken.objects.get(pk=token, user=signed_in(request)))
        return Response(status=204)


def _describe(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.pk,
        "name": token.name,
        "prefix": token.prefix,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "last_used_at": iso(token.last_used_at),
        "revoked_at": iso(token.revoked_at),
    }
