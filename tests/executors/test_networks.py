"""What is decided of runs' networks without one: settings, what doctor says, and a pasta that fails."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.config.engines import read_run_network
from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.machine import networks
from scheduling.executors.local.machine.networks import Networks, local_resolver, loopback_port, way_out
from tests.executors.contract import ended, reason, requests_for, until

ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
DEFAULT = "{name}\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
NEAR = "{name}\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
DEFAULT_6 = f"{'0' * 32} 00 {'0' * 32} 00 {'f' * 32} 00000400 00000001 00000000 00000003 {{name:>8}}\n"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-networks-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


def find(monkeypatch: pytest.MonkeyPatch, directory: Path, pasta: str | None) -> None:
    """A pasta of this text is found, or none."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    if pasta is not None:
        (directory / "pasta").write_text(f"#!/bin/sh\n{pasta}\n")
        (directory / "pasta").chmod(0o755)
    monkeypatch.setattr(networks, "find_pasta", lambda: "" if pasta is None else str(directory / "pasta"))


def made(place: Path, wish: str, uid: int | None = 2_105_000) -> Networks:
    return Networks(place / "network", wish, [5000], uid=uid, members=lambda account: ())


@pytest.mark.parametrize(
    ("wish", "uid", "pasta", "own"),
    [
        ("auto", 2_105_000, "exit 1", True),
        ("auto", 2_105_000, None, False),
        ("auto", None, "exit 1", False),
        ("machine", 2_105_000, "exit 1", False),
        ("own", 2_105_000, "exit 1", True),
    ],
)
def test_runs_have_a_network_where_there_are_accounts_and_pasta(
    place: Path, monkeypatch: pytest.MonkeyPatch, wish: str, uid: int | None, pasta: str | None, own: bool
) -> None:
    find(monkeypatch, place / "bin", pasta)
    found = made(place, wish, uid)
    assert (found.own, found.problem) == (own, None)
    if not own:
        with found.joined(Account(2_100_001), "http://127.0.0.1:8800") as network:
            assert network is None


@pytest.mark.parametrize(("uid", "pasta", "words"), [(None, "exit 1", "runs as root"), (2_105_000, None, "passt")])
def test_a_network_that_was_asked_for_and_cannot_be_had_stops_everything(
    place: Path, monkeypatch: pytest.MonkeyPatch, uid: int | None, pasta: str | None, words: str
) -> None:
    find(monkeypatch, place / "bin", pasta)
    found = made(place, "own", uid)
    assert found.problem is not None
    assert words in found.problem
    line = found.examine()
    assert (line.ok, line.seen) == (False, found.problem)


@pytest.mark.parametrize(("wish", "fix"), [("auto", "passt"), ("machine", "EVENKEEL_RUN_NETWORK")])
def test_doctor_says_that_runs_share_the_machines_network(
    place: Path, monkeypatch: pytest.MonkeyPatch, wish: str, fix: str
) -> None:
    find(monkeypatch, place / "bin", None)
    line = made(place, wish).examine()
    assert (line.subject, line.ok, line.warning) == ("network of runs", True, True)
    assert "MASTER_PORT" in line.seen
    assert fix in line.fix


def test_only_three_wishes(place: Path) -> None:
    with pytest.raises(ExecutorError, match="auto, own, machine"):
        made(place, "mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="networks of their own need root")
@pytest.mark.parametrize("pasta", ["echo no route to anywhere >&2; exit 1", "exec /nowhere/at/all", "sleep 600"])
def test_nothing_starts_where_pasta_fails(place: Path, monkeypatch: pytest.MonkeyPatch, pasta: str) -> None:
    """Not in the machine's network either."""
    find(monkeypatch, place / "bin", pasta)
    monkeypatch.setattr(networks, "START_S", 3.0)
    executor = LocalExecutor(place / "data", "titan_xp:6", preload=(), run_network="auto")
    request = requests_for(executor, place)("print('it ran')")
    with pytest.raises(ExecutorError, match="the network of the run"):
        executor.launch(request)
    assert executor.observe([(request.run_id, 1)])[0].kind == "absent"
    [line] = [line for line in executor.examine("http://127.0.0.1:9") if line.subject == "network of runs"]
    assert not line.ok
    assert ("no route to anywhere" in line.seen) == ("no route" in pasta)

    shared = LocalExecutor(place / "data", "titan_xp:6", preload=(), warm_start=False, run_network="machine")
    shared.launch(request)
    assert reason(ended(shared, request.run_id)) == "done"


@pytest.mark.skipif(os.geteuid() != 0, reason="networks of their own need root")
def test_a_way_out_that_cannot_be_mended_keeps_no_look_waiting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of each project double, and no two are mended at a time."""
    find(monkeypatch, place / "bin", "exit 1")
    found, goes_on, tried, now = made(place, "own"), threading.Event(), list[int | None](), [1_000.0]

    def joined(account: Account) -> None:
        tried.append(account.uid)
        assert goes_on.wait(30)
        raise ExecutorError("pasta did not set it up", permanent=False)

    def look(*uids: int) -> None:
        for uid in uids:
            found.mend(Account(uid), process.pid)

    def attempts() -> list[int | None]:
        """By now, with the last one ended."""
        goes_on.set()
        if found._mending is not None:
            found._mending.join(30)
        goes_on.clear()
        return tried

    monkeypatch.setattr(found, "joined", joined)
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as process:
        try:
            until(lambda: networks.network_of(process.pid) != networks.network_of("self"), "a network")
            monkeypatch.setattr("scheduling.executors.local.machine.networks.time.monotonic", lambda: now[0])
            look(1, 2, 1)  # while the first is being mended
            assert attempts() == [1]
            look(1, 2, 1, 2)
            assert attempts() == [1, 2]
            now[0] += networks.MEND_AGAIN_S + 1
            look(1)
            assert attempts() == [1, 2, 1]
            now[0] += networks.MEND_AGAIN_S + 1
            look(1)
            assert attempts() == [1, 2, 1], "the second pause is longer"
            now[0] += networks.MEND_AGAIN_S
            look(1)
            assert attempts() == [1, 2, 1, 1]
            now[0] += networks.MOST_MEND_AGAIN_S + 1
            look(1)
            now[0] += networks.MOST_MEND_AGAIN_S + 1
            attempts()
            look(1)
            assert attempts().count(1) == 5, "the longest pause is no longer than that"
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("http://127.0.0.1:8800", {8800}),
        ("http://localhost:8800/", {8800}),
        ("https://[::1]", {443}),
        ("http://127.0.0.2", {80}),
        ("https://portal.example.org:8443", set()),
        ("http://192.0.2.7:8800", set()),
        ("", set()),
    ],
)
def test_the_portals_port_is_carried_where_it_is_on_loopback(url: str, ports: set[int]) -> None:
    assert loopback_port(url) == ports


@pytest.mark.parametrize(
    ("routes", "routes_6", "found"),
    [
        (NEAR.format(name="ib0") + DEFAULT.format(name="eth0"), "", ("eth0", False)),
        (DEFAULT.format(name="eth0"), DEFAULT_6.format(name="lo") + DEFAULT_6.format(name="eth1"), ("eth0", True)),
        (NEAR.format(name="ib0"), DEFAULT_6.format(name="eth1"), ("eth1", True)),
        (NEAR.format(name="ib0"), DEFAULT_6.format(name="lo"), ("ib0", False)),
        ("", "", ("eth7", False)),
    ],
)
def test_the_way_out_is_that_of_the_default_route(
    tmp_path: Path, routes: str, routes_6: str, found: tuple[str, bool]
) -> None:
    (tmp_path / "route").write_text(ROUTE + routes)
    (tmp_path / "ipv6_route").write_text(routes_6)
    (tmp_path / "class" / "eth7").mkdir(parents=True)
    assert way_out(tmp_path, tmp_path / "class") == found


@pytest.mark.parametrize(
    ("text", "resolver"),
    [
        ("# comment\nnameserver 127.0.0.53\nnameserver 192.0.2.1\n", "127.0.0.53"),
        ("search here\nnameserver 192.0.2.1\nnameserver 127.0.0.53\n", "127.0.0.53"),
        ("nameserver ::1\n", ""),
        ("nameserver\n", ""),
    ],
)
def test_the_resolver_of_the_machine(tmp_path: Path, text: str, resolver: str) -> None:
    (tmp_path / "resolv.conf").write_text(text)
    assert local_resolver(tmp_path / "resolv.conf") == resolver


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_run_network() == {"run_network": "auto", "loopback_ports": ()}
    monkeypatch.setenv("EVENKEEL_RUN_NETWORK", "own")
    monkeypatch.setenv("EVENKEEL_RUN_LOOPBACK_PORTS", " 9000, 3141,9000")
    assert read_run_network() == {"run_network": "own", "loopback_ports": (3141, 9000)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EVENKEEL_RUN_NETWORK", "none"),
        ("EVENKEEL_RUN_LOOPBACK_PORTS", "0"),
        ("EVENKEEL_RUN_LOOPBACK_PORTS", "65536"),
        ("EVENKEEL_RUN_LOOPBACK_PORTS", "80-90"),
        ("EVENKEEL_RUN_LOOPBACK_PORTS", "²"),
    ],
)
def test_settings_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured, match=name):
        read_run_network()
