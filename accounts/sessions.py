"""Sessions of browsers, shown with device and address, so that people can end those that are not theirs."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from accounts.audit import record_audit
from accounts.denials import record_denial
from accounts.models import User
from accounts.origin import address_of

_TOUCH_EVERY = timedelta(minutes=1)
#: Sessions of one person; one more sign-in ends the one not seen for longest.
LIMIT = 50
#: Parts of user agents, the more specific first.
_BROWSERS = (
    ("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iOS"), ("iPad", "iPadOS"), ("Android", "Android"), ("Windows", "Windows"),
    ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip


@receiver(user_logged_in)
def note_session(sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
    """A sign-in by any method."""
    if not request.session.session_key:
        request.session.save()
    values = {
        "user": user,
        "ip": address_of(request) or "0.0.0.0",  # noqa: S104 - unknown  # nosec B104
        "user_agent": request.META.get("HTTP_USER_AGENT", "")[:200],
        "last_seen_at": timezone.now(),
    }
    with transaction.atomic():
        UserSession.objects.update_or_create(session_key=request.session.session_key, defaults=values)
        for surplus in UserSession.objects.filter(user=user).order_by("-last_seen_at")[LIMIT:]:
            surplus.end()
        record_audit(actor=user, action="session.create", target=user.email)


@receiver(user_login_failed)
def note_failed_sign_in(
    sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any
) -> None:
    """A failed sign-in to an existing account, here or in the Django admin."""
    email = str(credentials.get("username") or "")
    known = User.objects.filter(email=User.objects.normalize_email(email)).first() if "\0" not in email else None
    if known and request is not None:
        who = f"address:{address_of(request)}"
        record_denial(actor=None, action="session.refused", target=known.email, detail={"status": 401}, who=who)


@receiver(user_logged_out)
def forget_session(sender: Any, request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    UserSession.objects.filter(session_key=request.session.session_key or "").delete()


def live_sessions(user: User) -> list[UserSession]:
    """The last seen first; expired ones are removed here."""
    oldest = timezone.now() - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    found = UserSession.objects.filter(user=user, created_at__gt=oldest).order_by("-last_seen_at")[:LIMIT]
    return [session for session in found if not session.purge()]


def user_of_session(key: str) -> User | None:
    """The present user of the session; None once the session ended, the password changed or the person left."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None


def touch_session(request: HttpRequest) -> None:
    """Store time and address of its last use; at most once a minute."""
    now = timezone.now()
    seen = UserSession.objects.filter(
        session_key=request.session.session_key or "", last_seen_at__lt=now - _TOUCH_EVERY
    )
    seen.update(last_seen_at=now, ip=address_of(request) or "0.0.0.0")  # noqa: S104 - unknown  # nosec B104


class SessionSeen(MiddlewareMixin):
    """When and from where a session was used last."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        session = getattr(request, "session", None)
        if session is not None and session.session_key and response.status_code < 500:
            touch_session(request)
        return response


def end_sessions(user: User, *, but: str | None = None) -> int:
    """End the user's sessions, all or all but the one with the key `but`; returns how many."""
    sessions = list(UserSession.objects.filter(user=user).exclude(session_key=but or ""))
    for session in sessions:
        session.end()
    return len(sessions)


@transaction.atomic
def end_session(*, actor: User, session: UserSession) -> None:
    """Sign one browser out, the user's own or another's."""
    email = session.user.email
    session.end()
    record_audit(actor=actor, action="session.end", target=email, detail={"device": device_of(session.user_agent)})


@transaction.atomic
def end_other_sessions(*, user: User, but: str | None) -> int:
    """Sign out all but the session with this key; returns how many ended."""
    ended = end_sessions(user, but=but)
    record_audit(actor=user, action="session.end_others", target=user.email, detail={"ended": ended})
    return ended


@transaction.atomic
def end_all_sessions(*, actor: User, user: User) -> int:
    """End all sessions of a person; returns how many."""
    ended = end_sessions(user)
    record_audit(actor=actor, action="session.end_all", target=user.email, detail={"ended": ended})
    return ended


def device_of(user_agent: str) -> str:
    """Browser and system in words, as far as a user agent tells."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or user_agent.partition("/")[0][:40] or "Unknown device"
