"""From a request to stop to SIGTERM and SIGKILL on a clock that the test moves, and what ends with a run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner import engine
from evenkeel.runner.engine import Runner
from evenkeel.runner.grace import TERM_GRACE_S
from evenkeel.runner.listening import Heard
from evenkeel.runner.neighbours import Neighbours
from evenkeel.runner.reports import Reporter, report_url
from evenkeel.runner.verdict import Order, judge
from evenkeel.sdk.control import CHECKPOINT_AND_STOP

from tests.cases import in_turn
from tests.client.test_runner import LIMITS, Portal, launch, portal, spec, worker

__all__ = ["portal"]  # the fixture


@dataclass
class Clock:
    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Played:
    """A worker that notes the signals that it gets, and when."""

    clock: Clock
    rank: int = 0
    pid: int = -1
    running: bool = True
    failed: bool = False
    killed: bool = False
    signalled: bool = False
    signals: list[tuple[float, int]] = field(default_factory=list)

    def send(self, number: int) -> None:
        self.signalled = True
        self.signals.append((self.clock.now - 1_000.0, number))


@dataclass
class Stage:
    clock: Clock
    runner: Runner
    worker: Played

    def until(self, end_s: float) -> list[tuple[float, str]]:
        """The signals by then: SIGTERM, and the first SIGKILL."""
        while self.clock.now < 1_000.0 + end_s:
            self.runner._carry_out()
            self.runner._escalate()
            self.clock.now = round(self.clock.now + 0.5, 3)
        found: dict[int, float] = {}
        for at, number in self.worker.signals:
            found.setdefault(number, at)
        return [(at, signal.Signals(number).name) for number, at in sorted(found.items(), key=lambda one: one[1])]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    def made(*, ready: bool = True, **changes: Any) -> Stage:
        for name in ("sdk", "spool", "logs"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "token").write_text("t")
        clock = Clock()
        monkeypatch.setattr(engine, "time", clock)
        runner = Runner(tmp_path, spec(**{"workdir": str(tmp_path), "total_steps": 100} | changes), can_fork=False)
        played = Played(clock)
        runner._workers = [played]  # type: ignore[list-item]
        runner._heard.ready_at = 1.0 if ready else None
        return Stage(clock, runner, played)

    return made


# From stop to kill -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "term_s"), [(Order.STOP, 100.0), (Order.LEASE, 30.0), (Order.TIME_LIMIT, 15.0)])
def test_who_trains_is_asked_first_then_told_and_then_ended(
    make: Callable[..., Stage], order: Order, term_s: float
) -> None:
    stage = make()
    stage.runner.order(order)
    assert stage.until(term_s) == []
    assert stage.runner._control.request == CHECKPOINT_AND_STOP
    assert stage.until(term_s + 10) == [(term_s, "SIGTERM")]
    assert len(stage.worker.signals) == 1  # once: a second one would interrupt what the first began
    assert stage.until(term_s + 12) == [(term_s, "SIGTERM"), (term_s + 10, "SIGKILL")]
    assert len(stage.worker.signals) > 3  # until it is gone


@pytest.mark.parametrize("order", [Order.STOP, Order.LEASE, Order.TIME_LIMIT])
def test_who_has_nothing_to_save_yet_is_told_at_once(make: Callable[..., Stage], order: Order) -> None:
    stage = make(ready=False)
    stage.runner.order(order)
    assert stage.until(12) == [(0.0, "SIGTERM"), (10.0, "SIGKILL")]
    assert stage.runner._control.request != CHECKPOINT_AND_STOP


@pytest.mark.parametrize("order", [Order.KILL, Order.MEMORY])
def test_a_kill_ends_within_the_grace_of_a_sigterm(make: Callable[..., Stage], order: Order) -> None:
    stage = make()
    stage.runner.order(order)
    at = {name: at_s for at_s, name in stage.until(TERM_GRACE_S + 5)}
    assert at["SIGKILL"] <= TERM_GRACE_S
    assert at.get("SIGTERM", 0.0) == 0.0


def test_a_graver_order_takes_the_place_of_another_and_not_the_other_way_round(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner.order(Order.STOP)
    assert stage.until(5) == []
    stage.runner.order(Order.LEASE)
    stage.runner.order(Order.STOP)
    assert stage.until(36) == [(35.0, "SIGTERM")]
    stage.runner.order(Order.KILL)
    assert stage.until(46)[-1][1] == "SIGKILL"


def test_a_later_end_puts_off_no_earlier_one(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner.order(Order.TIME_LIMIT)
    stage.until(5)
    stage.runner._end_by(stage.clock.now + 60)
    assert stage.until(16) == [(15.0, "SIGTERM")]


def test_who_has_said_its_last_word_has_a_while_to_leave(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner.order(Order.STOP)
    stage.until(2)
    stage.runner._heard.stopped = True
    assert stage.until(17) == []
    assert stage.until(18) == [(17.0, "SIGTERM")]


def test_one_that_failed_takes_the_others_along_soon(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner._after_end_of(Played(stage.clock, rank=1, running=False, failed=True))  # type: ignore[arg-type]
    assert stage.until(6) == [(0.5, "SIGTERM"), (3.5, "SIGKILL")]


@pytest.mark.parametrize(("rank", "done", "ends"), [(0, True, True), (1, True, False), (0, False, False)])
def test_others_may_linger_after_the_first_is_done(
    make: Callable[..., Stage], rank: int, done: bool, ends: bool
) -> None:
    stage = make()
    stage.runner._heard.done = done
    stage.runner._after_end_of(Played(stage.clock, rank=rank, running=False))  # type: ignore[arg-type]
    assert stage.until(71) == ([(60.0, "SIGTERM"), (70.0, "SIGKILL")] if ends else [])


def test_after_an_order_a_failure_hastens_nothing(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner.order(Order.STOP)
    stage.until(1)
    stage.runner._after_end_of(Played(stage.clock, rank=1, running=False, failed=True))  # type: ignore[arg-type]
    assert stage.until(50) == []


# What makes it stop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed_s", "over"), [(0.0, False), (30.0, False), (30.5, True)])
@pytest.mark.parametrize("before", [None, Order.STOP, Order.TIME_LIMIT])
def test_a_lease_is_over_after_its_time_without_an_answer(
    make: Callable[..., Stage], passed_s: float, over: bool, before: Order | None
) -> None:
    stage = make(lease_s=30.0)
    stage.runner._ordered = before
    stage.runner._reporter.answered_at = 1_000.0
    stage.runner._check_lease(1_000.0 + passed_s)
    assert stage.runner._ordered is (Order.LEASE if over and before is not Order.TIME_LIMIT else before)


def test_without_a_lease_none_is_over(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner._reporter.answered_at = 0.0
    stage.runner._check_lease(10**9)
    assert stage.runner._ordered is None


@pytest.mark.parametrize(("given", "told"), [(50.0, {}), (500.0, {"max_duration_s": 50.0})])
def test_time_in_training_counts_from_its_beginning(
    make: Callable[..., Stage], given: float, told: dict[str, float]
) -> None:
    stage = make(ready=False, max_duration_s=given)
    stage.runner._reporter.limits = dict(told)
    stage.runner._check_duration(0.0)
    stage.runner._ready_at = 1.0
    stage.runner._check_duration(100.0)
    stage.runner._check_duration(149.9)
    assert stage.runner._ordered is None
    stage.runner._check_duration(150.0)
    assert stage.runner._ordered is Order.TIME_LIMIT


@pytest.mark.parametrize(("used_mib", "over"), [(99.0, False), (100.0, False), (100.5, True)])
def test_more_memory_than_the_job_has_ends_it(
    make: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, used_mib: float, over: bool
) -> None:
    stage = make(memory_mib=100)
    monkeypatch.setattr(stage.runner, "_used_mib", lambda: used_mib)
    stage.runner._check_limits()
    assert stage.runner._ordered is (Order.MEMORY if over else None)


def test_a_total_grows_and_never_shrinks(make: Callable[..., Stage]) -> None:
    stage = make(total_steps=100)
    wanted = []
    for total in (None, 90, 100, 130, 120, 130, 131, None, 101):
        stage.runner._reporter.limits = {"total_steps": total}
        stage.runner._grow()
        wanted.append(stage.runner._control.total_wanted or 0)
    assert wanted == [0, 0, 0, 130, 130, 130, 131, 131, 131]


@pytest.mark.parametrize(
    ("asked_s", "lease_s", "interval_s"), [(None, None, 1.0), (7.0, None, 7.0), (7.0, 40.0, 7.0), (7.0, 20.0, 5.0)]
)
def test_a_report_comes_well_before_the_lease_is_over(
    make: Callable[..., Stage], asked_s: float | None, lease_s: float | None, interval_s: float
) -> None:
    stage = make(lease_s=lease_s)
    stage.runner._reporter.interval_s = asked_s
    assert stage.runner._report_interval_s() == interval_s


# What ends with a run --------------------------------------------------------------------------------------

LEAVES_AN_ORPHAN = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path("orphan").write_text(str(child.pid))
"""


def test_nobody_whom_a_program_left_behind_survives_it(tmp_path: Path, portal: Portal) -> None:
    assert launch(tmp_path, portal, LEAVES_AN_ORPHAN).wait(60) == 0
    orphan = int((tmp_path / "orphan").read_text())
    give_up_at = time.monotonic() + 10
    while Path(f"/proc/{orphan}").exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    alive = Path(f"/proc/{orphan}").exists()
    if alive:
        os.kill(orphan, signal.SIGKILL)
    assert not alive


@in_turn(("order", "reason"), [(Order.STOP, "stopped"), (Order.LEASE, "stopped"), (None, "signal")])
def test_a_sigterm_to_all_processes_of_a_run_that_was_asked_to_stop_is_no_failure(
    order: Order | None, reason: str
) -> None:
    assert judge([worker(0, by=15), worker(1, by=15)], Heard(), order, LIMITS, oom=False).reason == reason


@in_turn("order", [Order.STOP, Order.LEASE])
def test_a_failure_of_its_own_is_one_whatever_was_asked(order: Order) -> None:
    assert judge([worker(0, 1), worker(1, by=15)], Heard(), order, LIMITS, oom=False).reason == "user_error"
    assert judge([worker(0, by=11), worker(1, by=15)], Heard(), order, LIMITS, oom=False).signal == 11


@in_turn("order", [Order.STOP, Order.LEASE])
@in_turn("echo", [{"code": 1}, {"by": 6}])
def test_what_fails_after_an_engine_has_ended_its_peer_is_no_failure_of_its_own(
    echo: dict[str, Any], order: Order
) -> None:
    ended = [worker(0, by=15), worker(1, by=15), worker(2, **echo), worker(3, **echo)]
    assert judge(ended, Heard(), order, LIMITS, oom=False).reason == "stopped"
    assert judge(ended, Heard(), None, LIMITS, oom=False).reason == "signal"
    assert judge([worker(0, 1), *ended[1:]], Heard(), order, LIMITS, oom=False).reason == "user_error"
    ours = worker(0, by=15, ours=True)
    assert judge([ours, *ended[2:]], Heard(), order, LIMITS, oom=False).reason != "stopped"
    assert judge([*ended, worker(4, by=9)], Heard(), order, LIMITS, oom=True).reason == "out_of_memory"


@in_turn(
    ("done", "stopped", "order", "reason"),
    [
        (True, False, None, "done"),
        (False, False, None, "done"),
        (False, True, None, "stopped"),
        (True, True, None, "done"),
        (False, False, Order.STOP, "stopped"),
        (True, True, Order.STOP, "done"),
        (False, True, Order.TIME_LIMIT, "time_limit"),
        (True, False, Order.TIME_LIMIT, "done"),
    ],
)
def test_what_it_means_that_all_ended_well(done: bool, stopped: bool, order: Order | None, reason: str) -> None:
    heard = Heard(done=done, stopped=stopped)
    assert judge([worker(0, 0), worker(1, 0)], heard, order, LIMITS, oom=False).reason == reason


# The spool -------------------------------------------------------------------------------------------------


def reporter(place: Path, portal: Portal, taken: list[str]) -> Reporter:
    url = f"http://127.0.0.1:{portal.port}"
    return Reporter(place, report_url(url, "r1"), "t", taken.append, Neighbours(url, "r1", "t"))


def test_reports_are_sent_in_the_order_of_their_numbers(tmp_path: Path, portal: Portal) -> None:
    for number in (100, 9, 10, 2):
        (tmp_path / f"{number}.json").write_text(json.dumps({"seq": number}))
    (tmp_path / ".11.json.1").write_text("half")
    made = reporter(tmp_path, portal, [])
    made.put({}, urgent=True)
    made.send_now()
    assert portal.sequence() == [2, 9, 10, 100, 101]
    assert [path.name for path in tmp_path.glob("*.json")] == []


def test_what_a_portal_refuses_goes_and_what_it_cannot_take_now_stays(tmp_path: Path, portal: Portal) -> None:
    statuses = {1: 400, 2: 200, 3: 503, 4: 200}
    portal.answer = lambda report: (statuses[report["seq"]], {})
    made = reporter(tmp_path, portal, [])
    for _ in statuses:
        made.put({}, urgent=True)
    made.send_now()
    assert portal.sequence()[:3] == [1, 2, 3]
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == ["3", "4"]


def test_an_answer_that_the_launch_is_over_stops_it(tmp_path: Path, portal: Portal) -> None:
    portal.answer = lambda report: (409, {})
    taken: list[str] = []
    made = reporter(tmp_path, portal, taken)
    made.put({}, urgent=True)
    made.send_now()
    assert taken == ["checkpoint_and_stop"]
    assert not list(tmp_path.glob("*.json"))


# What is said of the program ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contact", "ready", "ended", "speaks"),
    [
        (True, False, False, True),
        (True, True, True, True),
        (False, False, False, None),
        (False, True, False, False),
        (False, False, True, False),
    ],
)
def test_whether_a_program_has_the_sdk_is_open_until_it_trains_or_ends(
    make: Callable[..., Stage], contact: bool, ready: bool, ended: bool, speaks: bool | None
) -> None:
    runner = make(ready=False).runner
    runner._heard.contact, runner._ready_at = contact, 1.0 if ready else None
    assert runner._speaks_sdk(ended=ended) is speaks


def test_the_order_in_which_workers_end_counts_those_before(make: Callable[..., Stage]) -> None:
    stage, lost = make(), list[tuple[int, int]]()

    @dataclass
    class Remote(Played):
        def end(self, status: int, order: int) -> None:
            lost.append((self.rank, order))
            self.running = False

    stage.worker.running = False
    others: list[Any] = [Remote(stage.clock, rank) for rank in (1, 2)]
    stage.runner._workers = [stage.worker, *others]  # type: ignore[list-item]
    stage.runner._lose(others)
    assert lost == [(1, 1), (2, 2)]
