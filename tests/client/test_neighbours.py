"""Runs on one node whose reports travel together."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from evenkeel.runner.neighbours import Neighbours, next_beat, phase_of_node
from evenkeel.runner.reports import Reporter, report_url
from evenkeel.runner.workers import free_port
from hypothesis import given
from hypothesis import strategies as st

from tests.client.test_runner import Portal, launch

ORDERS = {"command": None, "next_report_s": 10.0, "total_steps": 1_000, "max_duration_s": None}


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    give_up_at = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return condition()


@given(st.floats(0, 1e7), st.floats(0.1, 600), st.floats(0, 1, exclude_max=True))
def test_a_beat_is_about_one_interval_away_and_the_same_for_all(now: float, interval_s: float, phase: float) -> None:
    beat = next_beat(now, interval_s, phase)
    assert 0.49 * interval_s <= beat - now <= 1.51 * interval_s
    # The fraction of an interval is the node's, whenever it is asked for.
    parts = [((at / interval_s) - phase) % 1 for at in (beat, next_beat(now + 0.3 * interval_s, interval_s, phase))]
    assert all(min(part, 1 - part) < 1e-4 for part in parts)


def test_a_node_has_its_own_phase() -> None:
    assert 0 <= phase_of_node() < 1
    assert phase_of_node() == phase_of_node()


class Run:
    made: ClassVar[list[Run]] = []

    def __init__(self, name: str, portal: Portal, spool: Path) -> None:
        spool.mkdir()
        self.name, self.spool, self.commands = name, spool, list[str]()
        api = f"http://127.0.0.1:{portal.port}"
        self.neighbours = Neighbours(api, name, f"token of {name}")
        self.reporter = Reporter(
            spool, report_url(api, name), f"token of {name}", self.commands.append, self.neighbours
        )
        self.reporter.interval_s = 10.0
        self.reporter.start()
        self.made.append(self)

    def report(self, step: int, *, on_beat: bool = True, urgent: bool = False) -> None:
        self.reporter.put({"epoch": 1, "step": step}, urgent=urgent, on_beat=on_beat)

    @property
    def all_taken(self) -> bool:
        return not list(self.spool.iterdir())


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal(free_port())
    made.answer = lambda report: (200, answer(report))
    made.up()
    yield made
    made.down()
    while Run.made:  # threads that nobody ends would go on through other tests
        Run.made.pop().reporter.close()


def answer(report: dict[str, Any], of: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> dict[str, Any]:
    others = report.get("others", [])
    return ORDERS | {"others": [of(one) if of else {"status": 200, "orders": ORDERS} for one in others]}


@pytest.fixture
def runs(portal: Portal, tmp_path: Path) -> list[Run]:
    """The first carries."""
    made = [Run(name, portal, tmp_path / name) for name in "abcd"]
    made[0].report(1)
    assert eventually(lambda: made[0].all_taken)
    portal.reports.clear()
    return made


def beat(runs: list[Run], step: int) -> None:
    for run in runs:
        run.report(step)
    assert eventually(lambda: all(run.all_taken for run in runs))


def test_one_request_brings_what_all_on_the_node_report(portal: Portal, runs: list[Run]) -> None:
    for step in (2, 3):
        beat(runs, step)
    assert [report["path"] for report in portal.reports] == ["/api/v1/runs/a/reports"] * 2
    for number, report in enumerate(portal.reports, 2):
        assert report["step"] == number
        said = sorted((one["run"], one["token"], one["report"]["step"]) for one in report["others"])
        assert said == [(name, f"token of {name}", number) for name in "bcd"]
    assert portal.tokens == {"Bearer token of a"}


def test_each_obeys_what_it_was_told(portal: Portal, runs: list[Run]) -> None:
    said: dict[str, dict[str, Any]] = {
        "b": {"status": 200, "orders": ORDERS | {"command": "kill", "next_report_s": 20.0, "total_steps": 7}},
        "c": {"status": 409, "orders": None},
        "d": {"status": 200, "orders": ORDERS},
    }
    portal.answer = lambda report: (200, answer(report, lambda one: said[one["run"]]))
    before = time.monotonic()
    beat(runs, 2)
    assert [run.commands for run in runs] == [[], ["kill"], ["checkpoint_and_stop"], []]
    assert [run.reporter.interval_s for run in runs] == [10.0, 20.0, 10.0, 10.0]
    assert runs[1].reporter.limits["total_steps"] == 7
    assert [run.reporter.answered_at > before for run in runs] == [True, True, False, True]


def test_a_lease_counts_from_before_the_portal_took_the_report_in(portal: Portal, runs: list[Run]) -> None:
    """The portal counts from that moment, and frees GPUs by it."""
    taken_at: list[float] = []

    def slowly(report: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        taken_at.append(time.monotonic())
        time.sleep(0.5)
        return 200, answer(report)

    portal.answer = slowly
    before = time.monotonic()
    beat(runs, 2)
    assert len(taken_at) == 1
    assert all(before < run.reporter.answered_at < taken_at[0] for run in runs)


def test_what_is_not_taken_is_kept_and_sent_again(portal: Portal, runs: list[Run]) -> None:
    refused: dict[str, Any] = {"status": 503, "orders": None}
    portal.answer = lambda report: (200, answer(report, lambda one: refused))
    for run in runs:
        run.report(2)
    assert eventually(lambda: runs[0].all_taken)
    assert not any(run.all_taken for run in runs[1:])
    portal.answer = lambda report: (200, answer(report))
    assert eventually(lambda: all(run.all_taken for run in runs))


@pytest.mark.parametrize("status", [409, 400, 401, 503])
def test_the_carriers_own_trouble_is_nobody_elses(portal: Portal, runs: list[Run], status: int) -> None:
    portal.answer = lambda report: (status, {}) if "/a/" in report["path"] else (200, answer(report))
    for run in runs:
        run.report(2)
    assert eventually(lambda: all(run.all_taken for run in runs[1:]))
    assert all(not run.commands for run in runs[1:])


def test_urgent_reports_and_those_out_of_step_wait_for_nobody(portal: Portal, runs: list[Run]) -> None:
    runs[1].report(2, urgent=True)
    assert eventually(lambda: runs[1].all_taken)
    runs[2].report(2, on_beat=False)
    assert eventually(lambda: runs[2].all_taken)
    assert [report["path"] for report in portal.reports] == [f"/api/v1/runs/{name}/reports" for name in "bc"]
    assert not any("others" in report for report in portal.reports)


def test_who_is_not_taken_along_goes_alone(portal: Portal, runs: list[Run]) -> None:
    runs[1].report(2)  # the carrier has nothing to say
    assert eventually(lambda: runs[1].all_taken)
    assert [report["path"] for report in portal.reports] == ["/api/v1/runs/b/reports"]
    portal.reports.clear()
    beat(runs[:2], 3)
    assert [one["run"] for one in portal.reports[0]["others"]] == ["b"]


def test_when_the_carrier_has_gone_another_carries(portal: Portal, tmp_path: Path) -> None:
    api = f"http://127.0.0.1:{portal.port}"
    ready, leave = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            assert Neighbours(api, "gone", "token").carry({}) is None
            os.write(leave, b"x")
            time.sleep(60)
        finally:
            os._exit(0)
    os.read(ready, 1)
    try:
        runs = [Run(name, portal, tmp_path / name) for name in "ab"]
        runs[0].report(1)
        assert eventually(lambda: runs[0].all_taken)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    for step in (2, 3, 4):
        beat(runs, step)
    assert any(len(report.get("others", [])) == 1 for report in portal.reports)


def test_strangers_and_nonsense_bring_nothing_down(portal: Portal, runs: list[Run]) -> None:
    name = runs[0].neighbours._name
    for nonsense in (b"", b"\n", b"[]\n", b"{}\n", b'{"run": 1, "token": 2, "report": 3}\n', b"\xff\xff\n"):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(name)
            line.sendall(nonsense)
    beat(runs, 2)
    assert sorted(one["run"] for one in portal.reports[-1]["others"]) == ["b", "c", "d"]


def test_a_name_that_another_account_holds_is_left_alone(
    portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run("a", portal, tmp_path / "a")
    came: list[bytes] = []

    def listen(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            came.append(connection.recv(1 << 16))

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(run.neighbours._name)
        server.listen(1)
        threading.Thread(target=listen, args=(server,), daemon=True).start()
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
        run.report(1)
        assert eventually(lambda: run.all_taken)
    assert [report["path"] for report in portal.reports] == ["/api/v1/runs/a/reports"]
    assert eventually(lambda: came == [b""])


def test_runners_on_one_node_report_together(portal: Portal, tmp_path: Path) -> None:
    portal.answer = lambda report: (
        200,
        answer(report, lambda one: {"status": 200, "orders": ORDERS | {"next_report_s": 2.0}}) | {"next_report_s": 2.0},
    )
    names = ["r1", "r2", "r3"]
    started = []
    for name in names:
        (tmp_path / name).mkdir()
        environment = {"EVENKEEL_CHECKPOINT_EVERY": "1000000"}
        started.append(launch(tmp_path / name, portal, run_id=name, report_interval_s=2.0, environment=environment))
    try:
        assert eventually(lambda: sum(len(report.get("others", [])) == 2 for report in portal.reports) >= 3, 60.0)
    finally:
        for name in names:
            (tmp_path / name / "epoch" / "stop").touch()
        assert [runner.wait(60) for runner in started] == [0, 0, 0]
    told: dict[str, list[int]] = {name: [] for name in names}
    for report in portal.reports:
        told[report["path"].split("/")[4]].append(report["seq"])
        for one in report.get("others", []):
            told[one["run"]].append(one["report"]["seq"])
    for name in names:
        assert sorted(set(told[name])) == list(range(1, max(told[name]) + 1))
        assert not list((tmp_path / name / "epoch" / "spool").iterdir())
