"""Sign-in by OpenID Connect, with django-allauth: who may sign in, to which account, and with which roles."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.signals import user_logged_in
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.openid_connect.views import login
from django.conf import settings
from django.core.exceptions import ValidationError
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from requests import RequestException

from accounts.addresses import prove_address
from accounts.connecting import connect_account
from accounts.denials import record_denial
from accounts.directory import apply_groups
from accounts.mail_address import checked
from accounts.models import Proof, User
from accounts.origin import address_of
from accounts.unix_accounts import follow_claim

logger = logging.getLogger(__name__)
#: The provider's name in addresses; there is one.
PROVIDER = "sso"


def _refused(request: HttpRequest, why: str, email: str = "") -> HttpResponse:
    """Redirect to the sign-in page, which shows the reason."""
    detail = {"by": "oidc", "reason": why}
    who = f"address:{address_of(request)}"
    record_denial(actor=None, action="session.refused", target=email or PROVIDER, detail=detail, who=who)
    return redirect(f"/signin?error={why}")


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # the library is untyped
    """Accounts are created by administrators, invitations and the directory, never by a form."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def clean_email(self, email: str) -> str:
        """The provider's address, checked before any lookup; a refused one counts as missing."""
        try:
            return checked(email)
        except ValueError as error:
            logger.warning("an address of the provider %s", error)
            raise ValidationError(str(error)) from error

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """The front end shows none."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return address_of(request)

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        return _refused(request, "inactive", user.email)


class DirectoryAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, **kwargs: Any
    ) -> None:
        logger.warning("single sign-on failed on the way back: %s", exception or error or "no reason given")
        raise ImmediateHttpResponse(_refused(request, "directory"))

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Only with an address that the provider has verified: people are found and invited by it."""
        emails = [address.email for address in sociallogin.email_addresses if address.verified]
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            raise ImmediateHttpResponse(_refused(request, "directory"))
        if not sociallogin.is_existing and not emails:
            raise ImmediateHttpResponse(_refused(request, "unverified"))
        if not sociallogin.is_existing and sociallogin.user.email not in emails:
            raise ImmediateHttpResponse(_refused(request, "unverified"))
        if sociallogin.is_existing and sociallogin.user.kind != User.Kind.PERSON:
            raise ImmediateHttpResponse(_refused(request, "directory", sociallogin.user.email))
        if sociallogin.is_existing and sociallogin.account.pk is None:  # found by its address, not by the provider's id
            connect_account(user=sociallogin.user, now=timezone.now())
            sociallogin.user.refresh_from_db()


def begin_sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Redirect to the provider. The library reports errors on the way back, but not an unreachable provider."""
    try:
        answer: HttpResponse = login(request, provider_id)
    except (RequestException, KeyError) as error:
        logger.warning("the provider of single sign-on does not answer as one: %s", error)
        return _refused(request, "directory")
    return answer


@receiver(user_logged_in)
def follow_provider(sender: Any, request: HttpRequest, user: User, sociallogin: Any = None, **kwargs: Any) -> None:
    """Apply the provider's data at each sign-in: the verified address, and the groups."""
    if sociallogin is None:
        return
    if _names(sociallogin, user.email):
        prove_address(user=user, by=Proof.IDENTITY_PROVIDER, now=timezone.now())
    if claim := settings.EVENKEEL_OIDC_ACCOUNT_CLAIM:
        said = groups_in(sociallogin.account.extra_data, claim)
        follow_claim(user=user, name=said[0] if len(said) == 1 else "")
    if not settings.EVENKEEL_OIDC_GROUPS_CLAIM:
        return
    groups = groups_in(sociallogin.account.extra_data, settings.EVENKEEL_OIDC_GROUPS_CLAIM)
    apply_groups(user=user, groups=groups, mapping=settings.EVENKEEL_OIDC_GROUP_ROLES)


def _names(sociallogin: Any, email: str) -> bool:
    """Whether the provider verifies the address now; addresses that the library read from its own tables do not
    count."""
    return any(one.verified and one.email == email for one in sociallogin.email_addresses)


def groups_in(data: dict[str, Any], claim: str) -> list[str]:
    """Groups from the provider, in its user info or in the ID token; a single one may be plain text."""
    for part in (data.get("userinfo"), data.get("id_token")):
        if isinstance(part, dict) and claim in part:
            found = part[claim]
            return [str(group) for group in found] if isinstance(found, list) else [str(found)]
    return []
