"""HTTP and WebSocket entry point: `uvicorn portal.asgi:application`."""

import gc
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup(set_prefix=False)  # loads the apps: the imports below need them

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import WebsocketDenier  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from portal.live.websocket import LiveConsumer  # noqa: E402
from portal.web.bodies import BodyLimit  # noqa: E402
from portal.web.handler import SynchronousHandler  # noqa: E402
from portal.web.socket_origin import OwnOrigin  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(
            SynchronousHandler(),
            limit=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
            upload_limit=settings.EVENKEEL_MATERIAL.bundle_max_bytes,
        ),
        "websocket": OwnOrigin(
            AuthMiddlewareStack(
                URLRouter([path("ws/v1/live", LiveConsumer.as_asgi()), re_path("", WebsocketDenier.as_asgi())])
            )
        ),
    }
)

# objects loaded by now last as long as the process: requests need not wait while they are scanned
gc.collect()
gc.freeze()
