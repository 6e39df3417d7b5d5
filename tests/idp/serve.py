"""Make the provider's database, one client and one person; print the port; serve until killed."""

from __future__ import annotations

import os
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def main(redirect_uri: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.idp.settings"
    django.setup()
    from allauth.idp.oidc.models import Client
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

    call_command("migrate", verbosity=0)
    User.objects.create_user("dora", "dora@example.org", "dora's password")
    client = Client(id="evenkeel", name="Evenkeel", skip_consent=True)
    client.set_scopes(["openid", "profile", "email"])
    client.set_redirect_uris([redirect_uri])
    client.set_secret("the client's secret")
    client.save()
    with make_server("127.0.0.1", 0, get_wsgi_application(), Server, Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
