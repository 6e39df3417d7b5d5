"""Rechecks permissions during long answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from channels.db import database_sync_to_async
from django.utils import timezone
from rest_framework.request import Request

from accounts.models import ApiToken, User
from accounts.sessions import user_of_session
from accounts.tokens import user_of_token

ASK_AGAIN_S = 5.0


def user_now(request: Request) -> User | None:
    """The present user of the request's token or session."""
    if isinstance(request.auth, ApiToken):
        return user_of_token(request.auth, timezone.now())
    return user_of_session(request.session.session_key or "")


class Standing:
    """Calls `may` again every few seconds; a refusal is final."""

    def __init__(self, may: Callable[[], bool]) -> None:
        self._may = may
        self._asked_at = time.monotonic()
        self.over = False

    async def ended(self) -> bool:
        if not self.over and time.monotonic() - self._asked_at >= ASK_AGAIN_S:
            self.over = not await database_sync_to_async(self._may)()
            self._asked_at = time.monotonic()
        return self.over
