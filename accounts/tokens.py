"""API tokens: `ek_<prefix>_<secret>`, the secret with 256 bits of entropy, stored as SHA-256.

A token never exceeds its user's rights: its scopes limit the operations (portal.api.http.operations.HasScope), its
project limits the objects (accounts.selectors), and without the scope `admin`, or bound to a project, its user is no
administrator.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.audit import record_audit
from accounts.denials import record_denial
from accounts.models import ApiToken, Project, Scope, User
from accounts.origin import address_of, note_token
from accounts.tree import below

SCHEME = "ek"
DEFAULT_EXPIRY_DAYS = 90
MAX_EXPIRY_DAYS = 366
DEFAULT_OVERLAP_HOURS = 24
MAX_OVERLAP_HOURS = 7 * 24
DEFAULT_SCOPES = (Scope.JOBS_READ, Scope.JOBS_WRITE)
ALL_SCOPES = tuple(Scope)
_TOUCH_EVERY = timedelta(minutes=1)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class WiderToken(Exception):
    """A token may only create tokens that have no more rights and end no later."""


class TokenEnded(Exception):
    """Expired and revoked tokens cannot be rotated."""


def create_token(
    *,
    user: User,
    name: str,
    expires_in_days: int | None = DEFAULT_EXPIRY_DAYS,
    scopes: Sequence[str] = DEFAULT_SCOPES,
    project: Project | None = None,
    actor: User | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its text, which cannot be shown again. Raises WiderToken if `actor` acts with a token."""
    expires_at = timezone.now() + timedelta(days=expires_in_days) if expires_in_days else None
    token = ApiToken(user=user, name=name, project=project, expires_at=expires_at)
    token.scopes = [scope.value for scope in Scope if scope in scopes]
    actor = actor or user
    _check_not_wider(actor, token)
    detail = {"scopes": token.scopes, "project": project.key if project else None, "user": user.email}
    return token, _store(token, actor, "token.create", detail)


def _store(token: ApiToken, actor: User, action: str, detail: dict[str, Any]) -> str:
    """Returns the text of the token, which only its holder has from now on."""
    token.prefix, secret = secrets.token_hex(5), secrets.token_urlsafe(32)
    token.digest = _digest(secret)
    with transaction.atomic():
        token.save(force_insert=True)
        record_audit(actor=actor, action=action, target=str(token), detail=detail)
    return f"{SCHEME}_{token.prefix}_{secret}"


def usual_days(actor: User) -> int:
    """Default lifetime of a token: no longer than that of the one that `actor` acts with."""
    own = actor.acting_token
    if own is None or own.expires_at is None:
        return DEFAULT_EXPIRY_DAYS
    return max(1, min(DEFAULT_EXPIRY_DAYS, (own.expires_at - timezone.now()).days))


def _check_not_wider(actor: User, token: ApiToken) -> None:
    own = actor.acting_token
    if own is None:
        return
    if not set(token.scopes) <= set(own.scopes):
        raise WiderToken(f"scopes: this token has {', '.join(own.scopes) or 'none'} itself.")
    if own.project_id and not (token.project and below(own.project_id).filter(pk=token.project.pk).exists()):
        raise WiderToken("project: this token is bound to a project itself.")
    if own.expires_at and (token.expires_at is None or token.expires_at > own.expires_at):
        raise WiderToken(f"expires_in_days: this token itself ends on {own.expires_at:%F %H:%M} UTC.")


@transaction.atomic
def rotate_token(
    *, actor: User, token: ApiToken, now: datetime, overlap_hours: int = DEFAULT_OVERLAP_HOURS
) -> tuple[ApiToken, str]:
    """A new token that replaces one, which stays valid for a while. Raises TokenEnded, WiderToken.

    The new one has the same lifetime.
    """
    token = ApiToken.objects.select_for_update().get(pk=token.pk)
    if token.revoked_at or (token.expires_at and token.expires_at <= now):
        raise TokenEnded("This token works no longer: create a new one.")
    if ApiToken.objects.filter(rotated_from=token).exists():
        raise TokenEnded("This token has been rotated already: rotate the one that took its place.")
    lifetime = token.expires_at - token.created_at if token.expires_at else None
    lifetime = min(lifetime, timedelta(days=MAX_EXPIRY_DAYS)) if lifetime else None
    new = ApiToken(user_id=token.user_id, name=token.name, project=token.project, scopes=token.scopes)
    new.expires_at, new.rotated_from = now + lifetime if lifetime else None, token
    _check_not_wider(actor, new)
    ends_at = now + timedelta(hours=overlap_hours)
    ApiToken.objects.filter(pk=token.pk).filter(Q(expires_at=None) | Q(expires_at__gt=ends_at)).update(
        expires_at=ends_at
    )
    detail = {"from": token.prefix, "overlap_hours": overlap_hours}
    return new, _store(new, actor, "token.rotate", detail)


@transaction.atomic
def revoke_token(*, actor: User, token: ApiToken) -> None:
    """Revoked at once; revoking it again changes nothing."""
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
        record_audit(actor=actor, action="token.revoke", target=str(token))


def find_token(text: str, now: datetime) -> ApiToken | None:
    """The valid token with this text, or None."""
    scheme, _, rest = text.partition("_")
    prefix, _, secret = rest.partition("_")
    if scheme != SCHEME or not secret or not prefix.isalnum():
        return None
    token = (
        ApiToken.objects.select_related("user")
        .filter(Q(expires_at=None) | Q(expires_at__gt=now), prefix=prefix, revoked_at=None, user__is_active=True)
        .first()
    )
    return token if token and hmac.compare_digest(token.digest, _digest(secret)) else None


def user_of_token(token: ApiToken, now: datetime) -> User | None:
    """The present user of a token; None once it was revoked or expired or the person left."""
    live = ApiToken.objects.select_related("user").filter(
        Q(expires_at=None) | Q(expires_at__gt=now), pk=token.pk, revoked_at=None, user__is_active=True
    )
    found = live.first()
    return bounded_user(found) if found else None


def _note_refusal(text: str, request: Request) -> None:
    """Use of a formerly valid token: expired, revoked, of a person who left, or with a wrong secret."""
    known = ApiToken.objects.select_related("user").filter(prefix=text.split("_")[1][:12].replace("\0", "")).first()
    if known:
        detail = {"status": 401, "token": known.prefix, "method": request.method}
        record_denial(actor=known.user, target=request.path, detail=detail, who=f"token:{known.prefix}")


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer ek_...`. Other bearer tokens are left to other authenticators."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not text.startswith(f"{SCHEME}_"):
            return None
        now = timezone.now()
        token = find_token(text.strip(), now)
        if token is None:
            _note_refusal(text.strip(), request)
            raise AuthenticationFailed("This token is unknown, expired or revoked. Create a new one under API tokens.")
        if token.last_used_at is None or now - token.last_used_at > _TOUCH_EVERY:
            address = address_of(request) or None
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_used_address=address)
        note_token(token.prefix)
        return bounded_user(token), token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def bounded_user(token: ApiToken) -> User:
    """The token's user with no more rights than the token."""
    user = token.user
    user.acting_token = token
    if Scope.ADMIN not in token.scopes or token.project_id:
        user.is_superuser = user.is_staff = False
    return user
