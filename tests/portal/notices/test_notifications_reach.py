"""Where webhooks may go: what a name means is looked up once, checked, and that is where the request goes."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from portal.config import env
from portal.notices import addresses
from portal.notices.transport import sending
from portal.notices.transport.sending import Outcome, Request, send_all, send_one
from tests.portal.receiver import Receiver, receiving

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def listed(settings: Any) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = LOOPBACK


def resolves(monkeypatch: pytest.MonkeyPatch, *found: str) -> list[str]:
    """Every name means these addresses; the names that were asked for."""
    asked: list[str] = []

    def look(host: str, port: int | None, **_: Any) -> list[Any]:
        asked.append(host)
        if not found:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    return asked


def post(url: str) -> Outcome:
    return send_one(Request(url, {}, b"{}"))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:db8::1",
    ],
)
def test_what_is_not_public_is_refused_as_a_number_and_behind_a_name(
    address: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = ()
    literal = f"[{address}]" if ":" in address else address
    with pytest.raises(ValueError, match="is not a public address"):
        addresses.check_url(f"https://{literal}/x")
    resolves(monkeypatch, address)
    assert "hooks.example.org is not a public address" in post("https://hooks.example.org/x").error
    resolves(monkeypatch, "93.184.215.14", address)  # one that is public does not help the other
    assert "is not a public address" in post("https://hooks.example.org/x").error


def test_public_addresses_are_let_through() -> None:
    for host in ("hooks.example.org", "93.184.215.14", "[2606:4700::1111]", "xn--bcher-kva.example"):
        assert addresses.check_url(f"https://{host}/x?y=1").path == "/x"


def test_what_is_listed_is_reached_and_nothing_beside_it(
    receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("10.0.0.0/8"),)
    assert "127.0.0.1" in post(receiver.url).error
    assert receiver.received == []
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("127.0.0.1/32"),)
    assert post(receiver.url) == Outcome(True, 200, "ok")
    resolves(monkeypatch, "127.0.0.1", "127.0.0.2")
    assert not post(receiver.url.replace("127.0.0.1", "hooks.example.org")).delivered
    assert len(receiver.received) == 1


def test_a_name_is_looked_up_once_and_the_request_goes_to_what_was_checked(
    receiver: Receiver, listed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolves(monkeypatch, "127.0.0.1")
    url = receiver.url.replace("127.0.0.1", "hooks.example.org")
    assert post(url).delivered
    assert asked.count("hooks.example.org") == 1
    host = receiver.received[0].headers["host"]
    assert host == url.split("/")[2]


def test_names_in_disguise_are_seen_through(settings: Any) -> None:
    """The resolver of the system reads these as 127.0.0.1."""
    settings.EVENKEEL_WEBHOOK_NETWORKS = ()
    for host in ("localhost", "127.1", "0x7f000001", "2130706433"):
        error = post(f"https://{host}/").error
        assert "is not a public address" in error or "cannot be found" in error


def test_plain_http_is_for_listed_networks(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = ()
    with pytest.raises(ValueError, match="must begin with https"):
        addresses.check_url("http://hooks.example.org/x")
    settings.EVENKEEL_WEBHOOK_NETWORKS = LOOPBACK
    resolves(monkeypatch, "93.184.215.14")
    assert "may be reached by https:// only" in post("http://hooks.example.org/x").error


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example.org/",
        "https://",
        "hooks.example.org",
        "https://user:pass@hooks.example.org/",
        "https://hooks.example.org/#part",
        "https://hooks.example.org:99999/",
        "https://[::1",
        "https://xn--a.example.org/",
        "https://hooks.example.org/" + "x" * 500,
        "javascript:alert(1)",
    ],
)
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"must|may have"):
        addresses.check_url(url)


def test_a_name_that_nobody_knows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves(monkeypatch)
    assert post("https://hooks.example.org/").error == "The name hooks.example.org cannot be found."


def test_proxies_of_the_environment_are_not_asked(
    receiver: Receiver, listed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert post(receiver.url).delivered


@contextmanager
def silent() -> Iterator[str]:
    """Takes connections and says a byte now and then, without end."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            taken, _ = server.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while not stop.wait(0.05):
                    try:
                        taken.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            stop.set()
            thread.join()


def test_an_answer_that_never_ends_is_cut_off(listed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WHOLE_S", 0.5)
    with silent() as url:
        assert post(url).error == "There was no answer within 0 s."


def test_nobody_who_listens_says_so(listed: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "It cannot be reached" in post(f"http://127.0.0.1:{port}/").error


def test_one_that_hangs_holds_up_no_other_and_what_is_late_is_not_begun(
    receiver: Receiver, listed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WHOLE_S", 0.5)
    request = Request(receiver.url, {}, b"{}")
    with silent() as url:
        hung, quick = send_all([[Request(url, {}, b"{}")] * 2, [request] * 3])
    assert [outcome.delivered for outcome in hung] == [False]
    assert [outcome.delivered for outcome in quick] == [True] * 3
    monkeypatch.setattr(sending, "BEGIN_WITHIN_S", 0.0)
    assert send_all([[request]]) == [[]]


class Certificates:
    """An authority, and what it says of a host."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        made = self._builder(self.name, self.key).add_extension(x509.BasicConstraints(True, None), True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
        made = made.add_extension(_usage(authority=True), True)
        (folder / "ca.pem").write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
        return made.not_valid_after(now + dt.timedelta(hours=1))

    def server(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), key)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), False)
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        path = self.folder / f"{host}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.pem"))


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


@pytest.mark.parametrize(("certified", "delivered"), [("hooks.example.org", True), ("other.example.org", False)])
def test_the_certificate_must_be_the_name_s_though_the_address_is_connected_to(
    certified: str, delivered: bool, listed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    trusted = certificates.trusting()
    monkeypatch.setattr(sending, "_trusted", lambda: trusted)
    with receiving(certificates.server(certified)) as receiver:
        resolves(monkeypatch, "127.0.0.1")
        outcome = post(receiver.url.replace("127.0.0.1", "hooks.example.org"))
    assert outcome.delivered is delivered
    assert len(receiver.received) == int(delivered)
    if not delivered:
        assert "certificate" in outcome.error


def test_networks_are_listed_as_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_WEBHOOK_NETWORKS", "10.20.0.0/16, fd00:20::/64")
    assert [str(one) for one in env.networks("EVENKEEL_WEBHOOK_NETWORKS")] == ["10.20.0.0/16", "fd00:20::/64"]
    monkeypatch.setenv("EVENKEEL_WEBHOOK_NETWORKS", "")
    assert env.networks("EVENKEEL_WEBHOOK_NETWORKS") == ()
    for wrong in ("10.20.0.1/16", "everything", "10.0.0.0/8;11.0.0.0/8"):
        monkeypatch.setenv("EVENKEEL_WEBHOOK_NETWORKS", wrong)
        with pytest.raises(env.BadSetting, match=r"EVENKEEL_WEBHOOK_NETWORKS must list networks such as"):
            env.networks("EVENKEEL_WEBHOOK_NETWORKS")
