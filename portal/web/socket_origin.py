"""Only the portal's own pages may open sockets: a browser sends its cookies with those of any other page, too."""

from __future__ import annotations

from typing import cast

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, WebSocketScope
from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from portal.core.own_address import is_own_origin


class OwnOrigin:
    """Refuses sockets from other origins: another scheme, host or port, or none."""

    def __init__(self, application: object) -> None:
        self._application = cast("ASGI3Application", application)

    async def __call__(self, scope: WebSocketScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        application = self._application if _is_own(scope) else WebsocketDenier()
        await application(scope, receive, send)


def _is_own(scope: WebSocketScope) -> bool:
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return is_own_origin(origin, host=host, secure=_is_secure(scope, headers))


def _is_secure(scope: WebSocketScope, headers: dict[bytes, str]) -> bool:
    """As for pages: by the proxy's header if EVENKEEL_HTTPS says that there is one."""
    if settings.SECURE_PROXY_SSL_HEADER is None:
        return scope.get("scheme") == "wss"
    name, value = settings.SECURE_PROXY_SSL_HEADER
    said = headers.get(name.removeprefix("HTTP_").replace("_", "-").lower().encode())
    return said == value if said is not None else scope.get("scheme") == "wss"
