"""Rate limits: fixed windows, counted in Redis with atomic increments.

Signed-in users have one count per token and one for their sessions; others one per address; each run has its own.
Requests refused early (no sign-in, a wrong token) also count for the address, so that tokens cannot be guessed quickly.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from redis.exceptions import RedisError
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from accounts import counting
from accounts.models import ApiToken, User
from accounts.origin import address_of

if TYPE_CHECKING:  # views read the settings that name what is here
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)
WINDOW_S = 60
#: Requests of one person in a window.
MOST_WHAT_IFS = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one count in its window."""

    policy: str
    limit: int
    used: int
    reset_s: int

    @property
    def allowed(self) -> bool:
        return self.used <= self.limit

    def headers(self) -> dict[str, str]:
        """In the format of draft-ietf-httpapi-ratelimit-headers."""
        left = max(0, self.limit - self.used)
        return {
            "RateLimit-Policy": f'"{self.policy}";q={self.limit};w={WINDOW_S}',
            "RateLimit": f'"{self.policy}";r={left};t={self.reset_s}',
        }


def count(policy: str, who: str, limit: int, *, by: int = 1, window_s: int = WINDOW_S) -> Standing | None:
    """Counts `by` for `who` and returns the new state; None: there is no limit, or Redis is unreachable."""
    return count_many(policy, [who], limit, by=[by], window_s=window_s)[0]


def count_many(
    policy: str, whose: Sequence[str], limit: int, *, by: Sequence[int] | None = None, window_s: int = WINDOW_S
) -> list[Standing | None]:
    """The state of each count, like `count`."""
    if limit == 0 or not whose:
        return [None] * len(whose)
    now = time.time()
    window = int(now // window_s)
    keys = [f"rate:{policy}:{hashlib.sha256(who.encode()).hexdigest()[:32]}:{window}" for who in whose]
    try:
        counted = counting.count_many(keys, 2 * window_s, by or [1] * len(keys))
    except RedisError as error:
        logger.warning("requests are not counted: %s", error)
        return [None] * len(whose)
    reset_s = max(1, int((window + 1) * window_s - now))
    return [Standing(policy, limit, used, reset_s) for used in counted]


def _count_anonymous(request: Request | HttpRequest) -> Standing | None:
    return _keep(request, count("anonymous", address_of(request), settings.RATES_PER_MINUTE["anonymous"]))


def _keep(request: Request | HttpRequest, standing: Standing | None) -> Standing | None:
    """Kept for the headers of the answer."""
    plain = request._request if isinstance(request, Request) else request
    plain.rate_standing = standing  # type: ignore[attr-defined]
    return standing


def _count_person(request: Request) -> Standing | None:
    """Per token, else per user, else per address."""
    if isinstance(request.auth, ApiToken):
        return _keep(request, count("token", str(request.auth.pk), settings.RATES_PER_MINUTE["user"]))
    if isinstance(request.user, User):
        return _keep(request, count("user", str(request.user.pk), settings.RATES_PER_MINUTE["user"]))
    return _count_anonymous(request)


class RateThrottle(BaseThrottle):
    standing: Standing | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        self.standing = _count_person(request)
        return self.standing is None or self.standing.allowed

    def wait(self) -> float | None:
        return self.standing.reset_s if self.standing else None


def charge_runs(request: Request, runs: Sequence[UUID]) -> list[bool]:
    """Which of the runs may report: each reports every few seconds and at events, so the limit is generous. The
    answer's headers are those of the first run. Raises Throttled for that one."""
    standings = count_many("run", [str(run) for run in runs], settings.RATES_PER_MINUTE["run"])
    _require(_keep(request, standings[0]))
    return [standing is None or standing.allowed for standing in standings]


@contextmanager
def standing_kept(request: Request) -> Iterator[None]:
    """Charges inside do not change the answer's headers."""
    before = getattr(request._request, "rate_standing", None)
    try:
        yield
    finally:
        _keep(request, before)


def charge_what_if(request: Request) -> None:
    """Each costs some seconds of a core. Raises Throttled."""
    _require(count("what-if", str(request.user.pk), MOST_WHAT_IFS))


def charge_address(request: Request) -> None:
    """A request without permission counts as anonymous. Raises Throttled."""
    _require(_count_anonymous(request))


def charge_refused(request: Request, error: exceptions.APIException) -> None:
    """Counts requests that were refused before the throttles. Raises Throttled."""
    if hasattr(request._request, "rate_standing"):
        return
    if isinstance(error, exceptions.AuthenticationFailed | exceptions.NotAuthenticated):
        charge_address(request)
    elif isinstance(error, exceptions.PermissionDenied):
        _require(_count_person(request))


def _require(standing: Standing | None) -> None:
    if standing and not standing.allowed:
        raise exceptions.Throttled(standing.reset_s)


_HEADERS: dict[str, Any] = {
    "RateLimit-Policy": {
        "schema": {"type": "string"},
        "description": 'Whose count, its limit and window in seconds: `"token";q=3000;w=60`. On every counted answer.',
    },
    "RateLimit": {
        "schema": {"type": "string"},
        "description": 'What is left of it, and the seconds until it starts again: `"token";r=2990;t=17`.',
    },
    "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."},
}


def document_rates(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A drf-spectacular hook: the headers of a refusal."""
    result["components"]["headers"] = _HEADERS
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}
    for methods in result["paths"].values():
        for operation in methods.values():
            if "429" in operation["responses"]:
                operation["responses"]["429"]["headers"] = references
    return result
