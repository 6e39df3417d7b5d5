"""Django's ASGI handler for synchronous views and middleware."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class SynchronousHandler(ASGIHandler):
    """One thread runs a request through middleware and view.

    Most of Django's middleware needs no thread, and the usual handler therefore switches between the event loop and the
    thread for each of them.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response)(request)
