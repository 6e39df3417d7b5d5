"""What a runner makes of the portal's answers, and what becomes of a report that cannot be written, read or sent."""

from __future__ import annotations

import io
import json
import os
import random
import time
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.neighbours import SHORTEST_S
from evenkeel.runner.reports import BACKOFF_S, CROWDED, Reporter, write_atomically


class Neighbours:
    """Alone on its node, or with others who carry its report."""

    def __init__(self, carried: tuple[int, Any] | None = None) -> None:
        self.carried, self.given, self.closed = carried, list[Any](), False

    def carry(self, report: Any) -> tuple[int, Any] | None:
        self.given.append(report["seq"])
        return self.carried

    def guests(self, most_bytes: int) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True


class Portal:
    """Answers in turn, the last for ever: a status and a body, or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.taken = list(answers) or [{}], list[dict[str, Any]]()

    def open(self, request: Any, timeout: float) -> io.BytesIO:
        self.taken.append(json.loads(request.data) | {"authorization": request.get_header("Authorization")})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise urllib.error.HTTPError(request.full_url, answer, "", Message(), None)
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer if isinstance(answer, bytes) else json.dumps(answer).encode())


class Made:
    def __init__(self, spool: Path, *answers: Any, neighbours: Neighbours | None = None) -> None:
        self.spool, self.portal, self.commands = spool, Portal(*answers), list[str]()
        self.neighbours = neighbours or Neighbours()
        url = "http://192.0.2.1/api/v1/runs/r/reports"
        self.reporter = Reporter(spool, url, "t0k", self.commands.append, self.neighbours)  # type: ignore[arg-type]
        self.reporter._opener = self.portal  # type: ignore[assignment]

    def put(self, **report: Any) -> None:
        self.reporter.put(report, urgent=True)

    @property
    def left(self) -> list[str]:
        return sorted(path.stem for path in self.spool.glob("[0-9]*.json"))


# Answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "interval_s"),
    [
        (5, 5.0),
        (0.1, 0.2),
        (0.2, 0.2),
        (4_000, 3_600.0),
        (3_600, 3_600.0),
        (0, None),
        (-1, None),
        ("5", None),
        (None, None),
    ],
)
def test_the_portal_says_when_it_wants_to_hear_again(tmp_path: Path, said: Any, interval_s: float | None) -> None:
    made = Made(tmp_path, {"next_report_s": said})
    made.put()
    made.reporter.send_now()
    assert made.reporter.interval_s == interval_s
    assert (made.left, made.commands) == ([], [])


@pytest.mark.parametrize(
    ("answer", "limits"),
    [
        ({}, {}),
        ({"total_steps": 9}, {"total_steps": 9}),
        ({"max_duration_s": None}, {"max_duration_s": None}),
        ({"total_steps": "many", "max_duration_s": 1.5}, {"max_duration_s": 1.5}),
        ([], {}),
        ("x", {}),
    ],
)
def test_limits_are_what_the_portal_said_of_them(tmp_path: Path, answer: Any, limits: dict[str, Any]) -> None:
    made = Made(tmp_path, answer)
    made.put()
    made.reporter.send_now()
    assert made.reporter.limits == limits
    assert made.left == []


@pytest.mark.parametrize(
    ("answer", "stays", "commands"),
    [
        ({"command": "kill"}, False, ["kill"]),
        ({"command": None}, False, []),
        (409, False, ["checkpoint_and_stop"]),
        (400, False, []),
        (413, False, []),
        (422, False, []),
        (401, True, []),
        (404, True, []),
        (500, True, []),
        (OSError("away"), True, []),
        (b"<html>", True, []),
        (b'"%s"' % (b"x" * 1_500_000), True, []),  # more than the portal would say
    ],
)
def test_what_is_not_taken_and_may_be_later_stays(
    tmp_path: Path, answer: Any, stays: bool, commands: list[str]
) -> None:
    made = Made(tmp_path, answer)
    made.put(step=3)
    before = made.reporter.answered_at
    assert made.reporter._send_all() is not stays
    assert made.left == (["1"] if stays else [])
    assert made.commands == commands
    assert (made.reporter.answered_at > before) == isinstance(answer, dict)
    assert made.portal.taken[0]["step"] == 3
    assert made.portal.taken[0]["authorization"] == "Bearer t0k"


def test_nothing_is_sent_after_one_that_was_not_taken(tmp_path: Path) -> None:
    made = Made(tmp_path, {}, 503, {})
    for _ in range(3):
        made.put()
    assert made.reporter._send_all() is False
    assert [report["seq"] for report in made.portal.taken] == [1, 2]
    assert made.left == ["2", "3"]
    assert made.reporter._send_all() is True
    assert [report["seq"] for report in made.portal.taken] == [1, 2, 2, 3]


# The spool --------------------------------------------------------------------------------------------------


def test_numbers_go_on_after_those_that_are_spooled(tmp_path: Path) -> None:
    (tmp_path / "9.json").write_text("{}")
    (tmp_path / "10.json").write_text("{}")
    (tmp_path / "77x.json").write_text("{}")
    made = Made(tmp_path)
    made.put()
    assert (tmp_path / "11.json").exists()


def test_a_spool_that_cannot_be_read_or_written_costs_reports_only(tmp_path: Path) -> None:
    made = Made(tmp_path / "none")
    made.put()
    assert made.reporter._send_all() is True
    assert (made.portal.taken, made.reporter.flush(5.0), made.reporter.crowded) == ([], True, False)
    (tmp_path / "1.json").mkdir()
    made = Made(tmp_path)
    made.put()
    assert made.reporter._send_all() is True
    assert [report["seq"] for report in made.portal.taken] == [2]


@pytest.mark.parametrize(("count", "crowded"), [(CROWDED, False), (CROWDED + 1, True)])
def test_a_spool_is_crowded_beyond_a_number(tmp_path: Path, count: int, crowded: bool) -> None:
    for number in range(1, count + 1):
        (tmp_path / f"{number}.json").touch()
    assert Made(tmp_path).reporter.crowded == crowded


@pytest.mark.parametrize("durable", [True, False])
def test_what_must_last_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "exit.json", list[bool]()
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(path.exists()))
    write_atomically(path, {"a": 1}, durable=durable)
    assert seen == ([False] if durable else [])
    assert json.loads(path.read_text()) == {"a": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["exit.json"]


# Together with others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval_s", "urgent", "on_beat", "together"),
    [
        (SHORTEST_S, False, True, True),
        (SHORTEST_S - 0.01, False, True, False),
        (None, False, True, False),
        (SHORTEST_S, True, True, False),
        (SHORTEST_S, False, False, False),
    ],
)
def test_a_report_on_the_beat_travels_with_others(
    tmp_path: Path, interval_s: float | None, urgent: bool, on_beat: bool, together: bool
) -> None:
    made = Made(tmp_path, neighbours=Neighbours((200, {"command": "kill"})))
    made.reporter.interval_s = interval_s
    made.reporter.put({}, urgent=urgent, on_beat=on_beat)
    assert made.reporter._send_all() is True
    assert (made.neighbours.given, len(made.portal.taken)) == (([1], 0) if together else ([], 1))
    assert (made.commands, made.left) == (["kill"] if together else [], [])


def test_what_was_not_carried_is_sent_alone_and_so_is_what_waits_with_others(tmp_path: Path) -> None:
    made = Made(tmp_path, neighbours=Neighbours((503, None)))
    made.reporter.interval_s = SHORTEST_S
    made.reporter.put({}, urgent=False, on_beat=True)
    assert made.reporter._send_all() is False
    assert made.reporter._send_all() is True
    assert (made.neighbours.given, len(made.portal.taken)) == ([1], 1)
    made.put()
    made.reporter.put({}, urgent=False, on_beat=True)
    assert made.reporter._send_all() is True
    assert (made.neighbours.given, len(made.portal.taken)) == ([1], 3)


def test_half_a_report_on_the_beat_is_sent_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path, 400)
    made.reporter.interval_s = SHORTEST_S
    sent: list[bytes] = []

    def post(body: bytes, guests: Any = ()) -> tuple[int, None]:
        sent.append(body)
        return 400, None

    monkeypatch.setattr(made.reporter, "_post", post)
    made.reporter.put({}, urgent=False, on_beat=True)
    (tmp_path / "1.json").write_text('{"seq":')
    assert made.reporter._send_all() is True
    assert (sent, made.left) == ([b'{"seq":'], [])


# The thread -------------------------------------------------------------------------------------------------


def test_failures_are_further_and_further_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, waits, failing = Made(tmp_path, *[503] * 7, {}), list[float](), list[bool]()
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    made.put()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        failing.append(made.reporter._failing)
        made.reporter._closed = len(waits) == 9

    monkeypatch.setattr(made.reporter._wake, "wait", wait)
    made.reporter._send_forever()
    low, high = BACKOFF_S
    assert waits == [low, 2 * low, 4 * low, 8 * low, 16 * low, high, high, high, high]
    assert failing == [True] * 7 + [False] * 2
    assert (made.reporter._begun, made.reporter._failed_attempt, made.reporter._failing) == (9, 7, False)


@pytest.mark.parametrize(("failing", "urgent", "woken"), [(0, 0, 1), (1, 0, 0), (0, 1, 1), (1, 1, 1)])
def test_what_is_not_urgent_waits_while_the_portal_is_away(
    tmp_path: Path, failing: int, urgent: int, woken: int
) -> None:
    made = Made(tmp_path)
    made.reporter._failing = bool(failing)
    made.reporter.put({}, urgent=bool(urgent))
    assert made.reporter._wake.is_set() == bool(woken)


def test_one_that_is_closed_sends_no_more_and_lets_its_neighbours_know(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.put()
    made.reporter._wake.clear()
    made.reporter.close()
    assert made.reporter._wake.is_set()
    made.reporter._send_forever()
    assert (made.portal.taken, made.left, made.neighbours.closed) == ([], ["1"], True)


def test_the_last_reports_are_waited_for_by_one_attempt_and_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = Made(tmp_path)
    made.put()

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", passes)
    assert made.reporter.flush(2.0) is False
    assert now[0] == pytest.approx(102.0, abs=0.05)

    def fails(seconds: float) -> None:
        now[0] += seconds
        made.reporter._begun += 1
        made.reporter._failed_attempt = made.reporter._begun

    monkeypatch.setattr(time, "sleep", fails)
    assert made.reporter.flush(50.0) is False
    assert now[0] < 103.0

    def taken(seconds: float) -> None:
        (tmp_path / "1.json").unlink()

    monkeypatch.setattr(time, "sleep", taken)
    assert made.reporter.flush(50.0) is True
