"""The live WebSocket (docs/contracts.md "Live")."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from accounts import origin
from accounts.denials import record_denial
from accounts.models import User
from accounts.sessions import user_of_session
from portal.core.times import iso
from portal.live.publish import EVERYBODY, allowed_streams, existing_streams, group_name, watch

MAX_STREAMS = 1_000
PING_S = 10.0
#: How often it is checked again whether a socket's user may still see its streams.
CHECK_S = 25.0
#: How often a process registers its viewers, however many sockets it has.
LOOK_S = 5.0
NOT_SIGNED_IN = 4401


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # the library is untyped
    """One socket, any number of streams that its user may see."""

    pinging: asyncio.Task[None] | None = None
    looked_at = float("-inf")  # of all sockets of the process

    async def connect(self) -> None:
        self.streams: set[str] = set()
        self.checked_at = time.monotonic()
        self.user = self.scope.get("user")
        await self.accept()
        if not isinstance(self.user, User) or not self.user.is_active:
            await self.close(code=NOT_SIGNED_IN)
            return
        await self.channel_layer.group_add(EVERYBODY, self.channel_name)
        self.pinging = asyncio.create_task(self._ping())

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Diffs need no database, whose connections the library checks in a thread before each message."""
        if message["type"] == "live.message":
            await self.live_message(message)
        else:
            await super().dispatch(message)

    async def disconnect(self, code: int) -> None:
        if self.pinging:
            self.pinging.cancel()
        for group in (EVERYBODY, *map(group_name, self.streams)):
            await self.channel_layer.group_discard(group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            wanted = json.loads(text_data or "")["subscribe"]
            streams = [s for s in wanted if isinstance(s, str)][:MAX_STREAMS]
        except (ValueError, KeyError, TypeError):
            await self._say({"type": "error", "stream": None, "detail": 'Send {"subscribe": ["cluster"]}.'})
            return
        allowed = await self._still_allowed()
        if allowed is None:
            await self.close(code=NOT_SIGNED_IN)
            return
        if refused := [stream for stream in streams if stream not in allowed]:
            await database_sync_to_async(self._note_denials)(refused)
        for stream in streams:
            if stream not in allowed:
                await self._say({"type": "error", "stream": stream, "detail": "There is no such stream."})
                continue
            self.streams.add(stream)
            await self.channel_layer.group_add(group_name(stream), self.channel_name)
            await self._say({"type": "subscribed", "stream": stream})
        await self._look()

    def _note_denials(self, refused: list[str]) -> None:
        hidden = existing_streams(refused)
        if hidden:
            with origin.of_socket(self.scope):
                detail = {"status": 404, "streams": hidden}
                record_denial(actor=self.user, target=self.scope["path"], detail=detail, who=f"user:{self.user.pk}")

    async def _still_allowed(self) -> set[str] | None:
        """The streams that may be seen: sessions end, membership and accounts change while sockets live."""
        self.checked_at = time.monotonic()
        found: tuple[User | None, set[str]] = await database_sync_to_async(_session)(
            self.scope["session"].session_key or ""
        )
        user, allowed = found
        if user is None or user.pk != self.user.pk:
            return None
        self.user = user
        for stream in self.streams - allowed:
            await self.channel_layer.group_discard(group_name(stream), self.channel_name)
            await self._say({"type": "error", "stream": stream, "detail": "There is no such stream."})
        self.streams &= allowed
        return allowed

    async def live_message(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])

    async def live_numbers(self, event: dict[str, Any]) -> None:
        """Of all streams, one message for all sockets: each forwards those of its own streams."""
        own = {stream: event["numbers"][stream] for stream in self.streams & event["numbers"].keys()}
        if own:
            await self._say({"type": "numbers", "numbers": own})

    async def _say(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message))

    async def _ping(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(PING_S)
                due = time.monotonic() - self.checked_at >= CHECK_S
                if due and await self._still_allowed() is None:
                    await self.close(code=NOT_SIGNED_IN)
                    return
                await self._look()
                await self._say({"type": "ping", "at": iso(datetime.now(UTC))})

    async def _look(self) -> None:
        now_s = time.monotonic()
        if self.streams and now_s - LiveConsumer.looked_at >= LOOK_S:
            LiveConsumer.looked_at = now_s
            await sync_to_async(watch, thread_sensitive=False)()


def _session(key: str) -> tuple[User | None, set[str]]:
    user = user_of_session(key)
    return user, allowed_streams(user) if user else set()
