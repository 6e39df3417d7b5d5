"""The first of several nodes: who joins, what is sent to them, when one is lost, and what it makes of their words."""

from __future__ import annotations

import json
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner import leading
from evenkeel.runner.bringing import DataUnavailable
from evenkeel.runner.channel import Channel
from evenkeel.runner.leading import (
    BEAT_S,
    JOIN_S,
    SILENCE_S,
    Follower,
    NodesMissing,
    Party,
    RemoteWorker,
    understand,
)
from evenkeel.runner.listening import Heard
from evenkeel.runner.verdict import Order
from evenkeel.sdk.control import Control

from tests.client.test_runner import spec


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(leading, "time", made)
    return made


class Line:
    """A channel to another node, with what was sent and what comes."""

    def __init__(self, clock: Clock) -> None:
        self.sent, self.comes = list[dict[str, Any]](), list[dict[str, Any]]()
        self.open, self.heard_at = True, clock.now

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.open = False

    def receive(self) -> list[dict[str, Any]]:
        came, self.comes = self.comes, []
        return came


@pytest.fixture
def party(tmp_path: Path, clock: Clock) -> Iterator[Party]:
    names = (("n1", 2), ("n2", 3), ("n3", 1))
    nodes = [{"name": name, "address": "127.0.0.1", "workers": count} for name, count in names]
    made = Party(tmp_path, spec(nodes=nodes, workers=2), b"key")
    made.followers = [Follower(name, Line(clock)) for name, _ in names[1:]]  # type: ignore[arg-type]
    yield made
    made._door.close()


def line_of(party: Party, index: int) -> Any:
    return party.followers[index].channel


def test_where_the_first_node_is_stands_in_a_file(party: Party, tmp_path: Path) -> None:
    found = json.loads((tmp_path / leading.HEAD_FILE).read_text())
    assert found == {"address": "127.0.0.1", "port": party._door.port, "host": socket.gethostname()}
    assert party.world_size == 6


def test_ranks_are_counted_through_the_nodes_in_their_order(party: Party, clock: Clock) -> None:
    clock.now += 200
    own, others = party.start({"step": 4})
    assert (own.first_rank, own.world_size, own.master_address) == (0, 6, "127.0.0.1")
    assert [one.rank for one in others] == [2, 3, 4, 5]
    said = [line_of(party, index).sent[0] for index in (0, 1)]
    assert [(one["kind"], one["workers"], one["checkpoint"]) for one in said] == [
        ("start", 3, {"step": 4}),
        ("start", 1, {"step": 4}),
    ]
    places = [one["place"] for one in said]
    assert [(one["first_rank"], one["group_rank"], one["world_size"]) for one in places] == [(2, 1, 6), (5, 2, 6)]
    assert {one["master_port"] for one in places} == {own.master_port}
    assert [line_of(party, index).heard_at for index in (0, 1)] == [clock.now] * 2


@pytest.mark.parametrize(("waits_s", "over"), [(JOIN_S, False), (JOIN_S + 0.5, True)])
def test_nodes_that_do_not_come_are_named(party: Party, clock: Clock, waits_s: float, over: bool) -> None:
    party.followers = []
    asked = list[bool]()

    def given_up() -> bool:
        asked.append(True)
        clock.now = 1_000.0 + waits_s
        return len(asked) > 1

    class Came:
        def get(self, timeout: float) -> tuple[str, Any]:
            return "n3", Line(clock)

    party._door.came = Came()  # type: ignore[assignment]
    with pytest.raises(NodesMissing, match=r"^n2 did not join|^n2, n3 did not join"):
        party.gather(given_up)
    assert len(asked) == (1 if over else 2)


def test_a_node_that_comes_twice_or_unasked_is_sent_away(party: Party, clock: Clock) -> None:
    party.followers = []
    lines = [Line(clock) for _ in range(4)]
    coming = list(zip(("n3", "n3", "stranger", "n2"), lines, strict=True))

    class Came:
        def get(self, timeout: float) -> tuple[str, Any]:
            return coming.pop(0)

    party._door.came = Came()  # type: ignore[assignment]
    party.gather(lambda: False)
    found: list[tuple[str, Any]] = [(follower.node, follower.channel) for follower in party.followers]
    assert found == [("n2", lines[3]), ("n3", lines[0])]
    assert [line.open for line in lines] == [True, False, False, True]
    party.gather(lambda: True)  # they are there


def test_signs_of_life_are_a_second_apart_and_news_goes_at_once(party: Party, clock: Clock, tmp_path: Path) -> None:
    control = Control.create(tmp_path / "control")
    at = list[float]()
    for _ in range(8):
        before = len(line_of(party, 1).sent)
        party.tick(control, 5)
        at += [clock.now - 1_000] * (len(line_of(party, 1).sent) - before)
        clock.now += BEAT_S / 4
        if clock.now == 1_001.25:
            control.stop_at = 7
        if clock.now == 1_001.5:
            control.total = 90
    assert at == [0.0, 1.0, 1.25, 1.5]
    assert line_of(party, 0).sent[-1] == {"kind": "beat", "stop_at": 7, "total": 90, "step": 5}


@pytest.mark.parametrize(
    ("silent_s", "closed", "runs", "lost"),
    [
        (SILENCE_S, False, True, False),
        (SILENCE_S + 0.5, False, True, True),
        (0.0, True, True, True),
        (SILENCE_S + 0.5, True, False, False),
    ],
)
def test_a_node_is_lost_that_is_silent_or_gone_while_its_workers_run(
    party: Party, clock: Clock, tmp_path: Path, silent_s: float, closed: bool, runs: bool, lost: bool
) -> None:
    party.start()
    gone = party.followers[0]
    clock.now += silent_s
    line_of(party, 1).heard_at = clock.now
    gone.channel.open = not closed
    for one in gone.workers[1:] if runs else gone.workers:
        one.end(0, 0)
    found = party.tick(Control.create(tmp_path / "control"))
    assert [one.rank for one in found] == ([2] if lost else [])
    assert party.lost == (["n2"] if lost else [])
    verdict = party.verdict()
    assert (verdict is None) is not lost
    if verdict:
        assert (verdict.reason, verdict.message) == ("runner_lost", "node n2 was lost")
        party.followers[1].problem, party.followers[1].permanent = "no such image", True
        told = party.verdict()
        assert told is not None
        assert (told.reason, told.message, told.permanent) == ("launch_failed", "no such image", True)
        assert not gone.channel.open


@pytest.mark.parametrize(
    ("silent_s", "closed", "has_data", "lost"),
    [
        (SILENCE_S, False, False, False),
        (SILENCE_S + 0.5, False, False, True),
        (0.0, True, False, True),
        (SILENCE_S + 0.5, True, True, False),
    ],
)
def test_while_data_is_fetched_every_node_is_heard_of(
    party: Party,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    silent_s: float,
    closed: bool,
    has_data: bool,
    lost: bool,
) -> None:
    monkeypatch.setattr(select, "select", lambda *_: ([], [], []))
    party.followers[1].has_data = True
    party.followers[0].has_data = has_data
    party.followers[0].channel.open = not closed
    clock.now += silent_s
    if lost:
        with pytest.raises(NodesMissing, match="node n2 was lost while data was fetched"):
            party.tend_data()
    else:
        assert party.tend_data() == ("" if has_data else "waiting on n2")


def test_how_far_the_others_are_is_in_the_words_of_the_first_that_waits(
    party: Party, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "select", lambda lines, *_: ([one for one in lines if one.comes], [], []))
    assert party.tend_data() == "waiting on n2"
    line_of(party, 0).comes = [{"kind": "data", "text": "3 of 9 GB" + "." * 300, "done": False}]
    line_of(party, 1).comes = [{"kind": "data", "text": "1 of 9 GB"}]
    assert party.tend_data() == ("3 of 9 GB" + "." * 300)[:200] + " on n2"
    line_of(party, 0).comes = [{"kind": "data", "text": "all", "done": True}]
    assert party.tend_data() == "1 of 9 GB on n3"
    line_of(party, 1).comes = [{"kind": "no_data", "text": "disk full", "nodes_fault": True}]
    with pytest.raises(DataUnavailable, match=r"^disk full \(on n3\)$") as said:
        party.tend_data()
    assert (said.value.permanent, said.value.nodes_fault) == (False, True)
    assert [len(line_of(party, index).sent) for index in (0, 1)] == [1, 1]  # one sign of life in this second
    clock.now += BEAT_S
    line_of(party, 1).comes = [{"kind": "data", "done": True}]
    assert party.tend_data() == ""
    assert line_of(party, 0).sent == [{"kind": "beat"}] * 2


def test_what_the_others_use_is_added_up(party: Party) -> None:
    party.followers[0].usage = {"cpu_s": 1.5, "rss_mib": 10.0, "other": 5.0}
    party.followers[1].usage = {"cpu_s": 2.0}
    assert party.usage() == {"cpu_s": 3.5, "rss_mib": 10.0}
    party.dismiss()
    assert [line_of(party, index).sent for index in (0, 1)] == [[{"kind": "leave"}]] * 2
    assert not any(line_of(party, index).open for index in (0, 1))


def hears(party: Party, message: dict[str, Any]) -> tuple[Heard, list[Order], list[tuple[int, int, bool]]]:
    heard, orders, ends = Heard(), list[Order](), list[tuple[int, int, bool]]()

    def end(one: RemoteWorker, status: int, oom: bool) -> None:
        ends.append((one.rank, status, oom))

    understand(message, party.followers[0], heard, orders.append, end)
    return heard, orders, ends


@pytest.mark.parametrize(("rank", "ended", "told"), [(3, False, True), (3, True, False), (5, False, False)])
def test_the_end_of_a_worker_elsewhere_counts_once_and_for_its_own_node(
    party: Party, rank: int, ended: bool, told: bool
) -> None:
    party.start()
    if ended:
        party.followers[0].workers[1].end(0, 0)
    message = {"kind": "ended", "rank": rank, "status": 256, "oom": True, "tail": "ValueError: x"}
    assert hears(party, message)[2] == ([(rank, 256, True)] if told else [])
    assert party.followers[0].workers[1].output.tail == (b"ValueError: x" if told else b"")


@pytest.mark.parametrize(
    ("message", "orders", "contact"),
    [
        ({"kind": "asked_to_end"}, [Order.STOP], False),
        ({"kind": "usage", "usage": {"cpu_s": "2"}, "over": True}, [Order.MEMORY], False),
        ({"kind": "usage", "usage": {"cpu_s": 2}, "over": False, "contact": True}, [], True),
        ({"kind": "dance"}, [], False),
    ],
)
def test_what_another_node_asks_for_is_done_here(
    party: Party, message: dict[str, Any], orders: list[Order], contact: bool
) -> None:
    heard, found, _ = hears(party, message)
    assert (found, heard.contact) == (orders, contact)
    assert party.followers[0].usage == ({"cpu_s": 2.0} if message["kind"] == "usage" else {})


def test_contact_elsewhere_is_not_forgotten(party: Party) -> None:
    heard = Heard(contact=True)
    message = {"kind": "usage", "usage": {}, "contact": False}
    understand(message, party.followers[0], heard, lambda order: None, lambda *_: None)
    assert heard.contact


def test_errors_and_problems_elsewhere_are_told_in_their_words(party: Party) -> None:
    assert hears(party, {"kind": "error", "line": {"rank": 4, "text": "x"}})[0].errors == [{"rank": 4, "text": "x"}]
    hears(party, {"kind": "failed", "text": "y" * 500, "permanent": True})
    gone = party.followers[0]
    assert (gone.problem, gone.permanent, gone.channel.open) == ("y" * 400, True, False)


def test_a_signal_to_a_worker_elsewhere_is_sent_while_it_runs(clock: Clock) -> None:
    line: Any = Line(clock)
    one = RemoteWorker(rank=4, pid=-1, channel=line)
    one.send(15)
    assert (line.sent, one.signalled) == ([{"kind": "signal", "rank": 4, "number": 15}], True)
    one.end(signal.SIGTERM, 0)
    one.send(9)
    assert len(line.sent) == 1


@pytest.mark.parametrize(
    ("data", "messages", "open_after"),
    [
        (b'{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}], True),
        (b'[1]\n{"b": 2}\n"x"\n', [{"b": 2}], True),
        (b'{"a": 1}\nnonsense\n', [], False),
        (b'{"a": ', [], True),
    ],
)
def test_of_what_comes_only_whole_objects_count(data: bytes, messages: list[Any], open_after: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    there = socket.create_connection(listener.getsockname())
    channel = Channel(listener.accept()[0])
    there.sendall(data)
    assert channel.receive() == messages
    assert channel.open is open_after
    if open_after:
        there.sendall(b"1}\n" if data.endswith(b" ") else b'{"c": 3}\n')
        assert channel.receive() == [{"a": 1} if data.endswith(b" ") else {"c": 3}]
        there.close()
        assert channel.receive() == []
        assert not channel.open
        channel.send({"a": 1})  # says nothing
    for one in (there, listener):
        one.close()
    channel.close()
