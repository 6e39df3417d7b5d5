"""Where the web process listens, and that no job can listen beside it under the same name."""

from __future__ import annotations

import errno
import socket

import pytest

from portal.web import listening
from portal.web.listening import CannotListen, listen
from tests.supervisor.running import free_port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
def port() -> int:
    return free_port()


def _listening(host: str, port: int) -> list[str]:
    sockets = listen(host, port)
    try:
        return [one.getsockname()[0] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@ipv6
@pytest.mark.parametrize(
    ("host", "addresses"),
    [("127.0.0.1", ["127.0.0.1", "::1"]), ("::1", ["::1", "127.0.0.1"]), ("0.0.0.0", ["0.0.0.0", "::"])],
)
def test_the_counterpart_of_an_address_is_taken_too(host: str, addresses: list[str], port: int) -> None:
    assert _listening(host, port) == addresses


@ipv6
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nothing_else_can_listen_as_localhost(host: str, port: int) -> None:
    sockets = listen(host, port)
    try:
        with socket.socket(socket.AF_INET6) as job:
            job.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                job.bind(("::1", port))
    finally:
        for one in sockets:
            one.close()


@ipv6
def test_where_the_counterpart_is_taken_nothing_stays_open(port: int) -> None:
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", port))
        other.listen()
        with pytest.raises(CannotListen, match=f"Port {port} on ::1 is in use") as refused:
            listen("127.0.0.1", port)
    assert refused.value.in_use
    assert "::1" in _listening("127.0.0.1", port)


def test_a_machine_without_ipv6_listens_on_ipv4(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = listening._listen

    def without(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return made(family, address, port)

    monkeypatch.setattr(listening, "_listen", without)
    assert _listening("127.0.0.1", port) == ["127.0.0.1"]


def test_another_address_has_no_counterpart(port: int) -> None:
    assert _listening("127.0.0.2", port) == ["127.0.0.2"]


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_this_machines_is_said(host: str, port: int) -> None:
    with pytest.raises(CannotListen, match=f"on {host} cannot be used"):
        listen(host, port)
