"""Certificates that the command line trusts."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from evenkeel.client import Client, ConnectionFailed


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"user": null, "clusters": []}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("authority")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    return place / "cert.pem"


@pytest.fixture
def address(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = HTTPServer(("127.0.0.1", 0), Answering)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_this_machine_trusts_is_trusted(address: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority of the site's own, which is not among those that come with httpx."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with Client(address, sleep=lambda _: None) as client, pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY"):
        client.session()

    def as_installed(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        context.load_verify_locations(certificate)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", as_installed)
    with Client(address) as client:
        assert client.session()["user"] is None
