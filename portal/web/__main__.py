"""The web process: `python -m portal.web` serves pages, the API and live streams on EVENKEEL_HOST and EVENKEEL_PORT."""

from __future__ import annotations

import contextlib
import logging
import sys

import django
import uvicorn
from django.conf import settings

from portal.config.environment_notes import environment_notes
from portal.web.listening import CannotListen, listen

logger = logging.getLogger("portal.web")
#: Live streams are cut after so long when the portal ends; browsers come back by themselves.
GRACE_S = 3


def main() -> int:
    try:
        sockets = listen(settings.EVENKEEL_HOST, settings.EVENKEEL_PORT)
    except CannotListen as error:
        sys.stderr.write(f"{error}\n")
        return 1
    django.setup()  # the log's form
    for note in environment_notes():
        logger.warning("%s", note)
    # uvicorn's default believes what this machine says of addresses, and jobs run there.
    proxies = settings.FORWARDED_ALLOW_IPS
    config = uvicorn.Config(
        "portal.asgi:application",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
    )
    server = uvicorn.Server(config)
    with contextlib.ExitStack() as opened, contextlib.suppress(KeyboardInterrupt):
        for one in sockets:
            opened.enter_context(one)
        server.run(sockets=sockets)
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
