"""What the runner does on every turn: reports, limits, memory, signals, on a clock that the test moves."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from evenkeel.runner import engine
from evenkeel.runner.leading import Follower, RemoteWorker
from evenkeel.runner.reports import CROWDED_INTERVAL_S
from evenkeel.runner.verdict import Order

from tests.client.engine_stage import Course, Nodes, Store, below, course, make
from tests.client.test_escalation import Played, Stage
from tests.client.test_runner import worker

__all__ = ["course", "make"]  # the fixtures


# Every turn -------------------------------------------------------------------------------------------------


class Output:
    """What a worker writes: read to its end."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.read: list[bytes] = []

    def pump(self) -> bool:
        self.read.append(os.read(self.read_fd, 100))
        return bool(self.read[-1])


def test_what_workers_and_other_nodes_say_is_taken_in_until_nobody_runs_or_leaves(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, output, heard, turns = course(), Output(), list[str](), list[int]()
    here, there = socket.socketpair()
    channel: Any = SimpleNamespace(fileno=here.fileno, open=True)
    follower = Follower("n2", channel)
    leaving = [True, True, False]

    def hear(one: Follower) -> None:
        heard.append(one.node)
        channel.open = here.recv(10) != b"bye"

    def tick() -> None:
        turns.append(len(turns))
        match len(turns):
            case 2:
                os.write(output.write_fd, b"two")
                there.sendall(b"hello")
            case 4:
                os.close(output.write_fd)
                there.sendall(b"bye")
            case 6:
                there.sendall(b"nobody listens")
            case 8:
                run.runner._workers[0].ended_at = 1.0

    monkeypatch.setattr(engine, "TICK_S", 0.01)
    monkeypatch.setattr(run.runner, "_hear", hear)
    monkeypatch.setattr(run.runner, "_tick", tick)
    monkeypatch.setattr(run.runner, "_is_leaving", lambda: leaving.pop(0))
    os.write(output.write_fd, b"one")
    made = worker(0)
    made.ended_at, made.output = None, output  # type: ignore[assignment]
    run.runner._workers = [made, remote(1)]
    run.runner._workers[1].ended_at = 1.0
    run.runner._party = Nodes(followers=[follower])
    run.runner._watch()
    assert output.read == [b"one", b"two", b""]
    assert heard == ["n2", "n2"]
    assert (len(turns), leaving) == (10, [])
    os.close(output.read_fd)
    for end in (here, there):
        end.close()


def test_a_turn_takes_in_ends_and_what_other_nodes_lost(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = course(), list[Any]()
    lost = [remote(1)]

    def tick(control: Any, step: int | None) -> list[Any]:
        calls.append(step)
        return lost

    run.runner._party = Nodes()
    run.runner._heard.step = 7
    monkeypatch.setattr(run.runner._party, "tick", tick)
    monkeypatch.setattr(run.runner, "_reap", lambda: calls.append("reap"))
    monkeypatch.setattr(run.runner, "_lose", calls.append)
    monkeypatch.setattr(run.runner, "_notice_ready", lambda: calls.append("ready"))
    run.runner._tick()
    assert calls == ["reap", 7, lost, "ready"]


@pytest.mark.parametrize(
    ("ready", "store", "urgent"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_news_of_the_program_or_the_store_are_reported_at_once(
    course: Callable[..., Course], ready: bool, store: bool, urgent: bool
) -> None:
    run = course(ready=False)
    run.runner._storing = Store(urgent=store)
    run.runner._report_at = 10**6
    if ready:
        run.says({"kind": "ready", "step": 3})
    run.runner._tick()
    assert run.reports.put_with == ([(True, True)] if urgent else [])
    assert run.runner._storing.offered == [None]


def test_a_turn_hears_of_limits_and_carries_out_orders(course: Callable[..., Course]) -> None:
    run = course(total_steps=100)
    run.reports.limits = {"total_steps": 120.0}
    run.runner._ordered = Order.KILL
    run.says({"kind": "checkpoint", "step": 5, "path": "step-5", "bytes": 1, "seconds": 0.1})
    run.runner._storing = Store()
    run.runner._tick()
    assert run.runner._control.total_wanted == 120
    assert run.stage.worker.signals == [(0.0, signal.SIGTERM)]
    assert run.runner._storing.offered[0]["path"] == "step-5"


def test_reports_are_a_beat_apart_and_the_first_is_not_on_it(course: Callable[..., Course]) -> None:
    run = course(report_interval_s=4.0)
    run.runner._beat_phase = 0.0
    at = list[float]()
    for _ in range(60):
        before = len(run.reports.reports)
        run.runner._report_when_due(False)
        at += [run.stage.clock.now - 1_000] * (len(run.reports.reports) - before)
        run.stage.clock.now += 0.25
    assert at == [0.0, 4.0, 8.0, 12.0]
    assert run.reports.put_with == [(False, False), *[(False, True)] * 3]
    run.stage.clock.now += 0.1
    run.runner._report_when_due(True)
    run.runner._report_when_due(False)
    assert run.reports.put_with[4:] == [(True, True)]  # the next one a beat later


@pytest.mark.parametrize(
    ("asked_s", "lease_s", "interval_s"),
    [(None, None, CROWDED_INTERVAL_S), (100.0, None, 100.0), (5.0, None, CROWDED_INTERVAL_S), (5.0, 80.0, 20.0)],
)
def test_where_reports_pile_up_fewer_are_written_yet_enough_for_the_lease(
    course: Callable[..., Course], asked_s: float | None, lease_s: float | None, interval_s: float
) -> None:
    run = course(lease_s=lease_s)
    run.reports.crowded, run.reports.interval_s = True, asked_s
    assert run.runner._report_interval_s() == interval_s


def test_the_ends_of_workers_are_taken_in_one_by_one_and_those_of_others_passed_over(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [(8, 0), (99, 0), (7, 256), (0, 0)]

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        assert (pid, options) == (-1, os.WNOHANG)
        return ends.pop(0)

    run, told = course(), list[int]()
    workers = [worker(0), worker(1), worker(2)]
    for one, pid in zip(workers, (7, 8, 9), strict=True):
        one.pid, one.ended_at = pid, None
    run.runner._workers = workers
    monkeypatch.setattr(os, "waitpid", waitpid)
    monkeypatch.setattr(run.runner, "_after_end_of", lambda one: told.append(one.rank))
    run.runner._reap()
    assert (ends, told) == ([], [1, 0])
    assert [(one.exit_code, one.order, one.running) for one in workers] == [
        (1, 1, False),
        (0, 0, False),
        (None, 2, True),
    ]


def test_without_children_there_is_nobody_to_take_in(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waitpid(pid: int, options: int) -> tuple[int, int]:
        raise ChildProcessError

    run = course()
    monkeypatch.setattr(os, "waitpid", waitpid)
    run.runner._reap()
    assert run.stage.worker.running


@pytest.mark.parametrize(
    ("killed", "signalled", "kills", "oom"),
    [(True, False, 4, True), (True, False, 3, False), (True, True, 4, False), (False, False, 4, False)],
)
def test_a_worker_that_the_kernel_killed_while_it_killed_for_memory_ran_out_of_it(
    course: Callable[..., Course],
    monkeypatch: pytest.MonkeyPatch,
    killed: bool,
    signalled: bool,
    kills: int,
    oom: bool,
) -> None:
    run = course()
    run.runner._oom_kills = 3
    monkeypatch.setattr(engine, "kernel_oom_kills", lambda: kills)
    run.runner._after_end_of(Played(run.stage.clock, running=False, failed=True, killed=killed, signalled=signalled))
    assert run.runner._oom is oom


def remote(rank: int, sent: list[Any] | None = None) -> RemoteWorker:
    channel: Any = SimpleNamespace(send=(sent if sent is not None else []).append)
    return RemoteWorker(rank=rank, pid=-1, channel=channel)


def test_want_of_memory_elsewhere_is_as_that_node_says(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course()
    first, second = remote(1), remote(2)
    run.runner._workers = [first, second]
    monkeypatch.setattr(engine, "kernel_oom_kills", lambda: 10**6)  # this node's say nothing of the other's
    run.runner._end_remote(first, signal.SIGKILL, False)
    assert (run.runner._oom, first.signal, first.order) == (False, 9, 0)
    run.runner._end_remote(second, signal.SIGKILL, True)
    assert (run.runner._oom, second.order) == (True, 1)
    run.runner._end_remote(second, 0, False)
    assert run.runner._oom


@pytest.mark.parametrize(("lost", "order", "ends_s"), [(1, None, 0.5), (1, Order.STOP, 15.0), (0, Order.STOP, 100.0)])
def test_ranks_that_wait_for_a_lost_node_have_little_time_to_leave(
    course: Callable[..., Course], lost: int, order: Order | None, ends_s: float
) -> None:
    run = course()
    if order:
        run.runner.order(order)
        run.runner._carry_out()
    others = [remote(1)][:lost]
    run.runner._lose(others)
    assert [one.signal for one in others] == [signal.SIGKILL] * lost
    assert run.stage.until(101)[0] == (ends_s, "SIGTERM")


# What counts as training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "contact", "passed_s", "ready"),
    [
        (False, False, 1.75, False),
        (False, False, 2.0, True),
        (True, False, 2.0, False),
        (False, True, 2.0, False),
    ],
)
def test_a_program_without_the_sdk_trains_after_a_while(
    course: Callable[..., Course], expected: bool, contact: bool, passed_s: float, ready: bool
) -> None:
    run = course(ready=False)
    run.runner._expects_sdk, run.runner._heard.contact, run.runner._report_at = expected, contact, 10**6
    run.stage.clock.now += passed_s
    run.runner._notice_ready()
    assert run.runner._ready_at == (run.stage.clock.time() if ready else None)
    assert run.runner._report_at == (0.0 if ready else 10**6)  # told at once
    before = run.runner._ready_at
    run.stage.clock.now += 1
    run.runner._report_at = 10**6
    if ready:
        run.runner._notice_ready()
        assert (run.runner._ready_at, run.runner._report_at) == (before, 10**6)


def test_with_the_sdk_a_program_trains_when_it_says_so(course: Callable[..., Course]) -> None:
    run = course(ready=False)
    run.runner._ready_at, run.runner._heard.ready_at = 9.0, 5.0
    run.runner._notice_ready()
    assert run.runner._ready_at == 5.0


@pytest.mark.parametrize(
    ("order", "trains", "ready", "phase"),
    [
        (None, False, False, "launching"),
        (None, False, True, "running"),
        (None, True, True, "running"),
        (Order.STOP, True, True, "checkpointing"),
        (Order.STOP, False, True, "running"),
        (Order.STOP, False, False, "launching"),
    ],
)
def test_a_run_saves_a_checkpoint_once_it_was_asked_to_and_can(
    course: Callable[..., Course], order: Order | None, trains: bool, ready: bool, phase: str
) -> None:
    run = course(ready=trains)
    run.runner._order, run.runner._ready_at = order, 1.0 if ready else None
    assert run.runner._report()["phase"] == phase
    assert run.runner._report({"reason": "done"})["phase"] == "stopped"


def test_samples_and_the_time_in_training_begin_together_and_once(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = course(ready=False), list[float]()
    monkeypatch.setattr(run.runner._sampler, "begin", lambda: begun.append(run.stage.clock.now))
    run.runner._check_duration(5.0)
    run.runner._ready_at = 0.0
    for now in (7.0, 8.0):
        run.runner._check_duration(now)
    assert (len(begun), run.runner._trains_since, run.runner._ordered) == (1, 7.0, None)


# Ending the workers -----------------------------------------------------------------------------------------


def test_an_order_is_reported_at_once_and_carried_out_once(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._report_at = 10**6
    run.runner._carry_out()
    assert run.runner._report_at == 10**6
    run.runner.order(Order.STOP)
    run.runner._carry_out()
    assert run.runner._report_at == 0.0
    run.runner._control.request = 0
    run.stage.clock.now += 5
    run.runner._carry_out()
    assert run.runner._control.request == 0
    assert run.stage.until(101) == [(100.0, "SIGTERM")]


def test_for_want_of_memory_there_is_no_grace(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner.order(Order.MEMORY)
    assert stage.until(1) == [(0.0, "SIGKILL")]


def test_who_stops_by_itself_has_a_while_to_leave(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner._heard.stopped = True
    assert stage.until(30) == [(15.0, "SIGTERM"), (25.0, "SIGKILL")]


def test_one_that_ended_well_hastens_nobody(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.runner._after_end_of(Played(stage.clock, rank=1, running=False))  # type: ignore[arg-type]
    assert stage.until(120) == []


@pytest.mark.parametrize(
    ("order", "now_s", "leaving"),
    [
        (Order.STOP, -0.5, False),
        (Order.STOP, 0.0, True),
        (Order.STOP, 9.5, True),
        (Order.STOP, 10.0, False),
        (None, 5.0, False),
        (Order.MEMORY, 5.0, False),
    ],
)
def test_what_the_workers_left_has_the_rest_of_the_grace(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch, order: Order | None, now_s: float, leaving: bool
) -> None:
    run, told = course(), list[tuple[int, int]]()
    now = run.stage.clock.now
    run.runner._order, run.runner._term_at, run.runner._kill_at = order, now, now + 10
    run.stage.clock.now += now_s
    run.runner._workers = [worker(0, 0)]
    run.runner._workers[0].pid = 40
    monkeypatch.setattr(engine, "descendants", lambda pid: [below(50), below(51), below(52, state="Z")])
    monkeypatch.setattr(engine, "group_of", lambda pid: 40 if pid == 51 else pid)
    monkeypatch.setattr(engine, "signal_quietly", lambda pid, number: told.append((pid, number)))
    assert [run.runner._is_leaving(), run.runner._is_leaving()] == [leaving] * 2
    # Once, and not those who got it with the worker's group.
    assert told == ([(50, signal.SIGTERM)] if leaving else [])


def test_nobody_is_waited_for_when_only_the_dead_are_left(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course()
    run.runner._order, run.runner._term_at = Order.STOP, 0.0
    monkeypatch.setattr(engine, "descendants", lambda pid: [below(50, state="Z")])
    assert run.runner._is_leaving() is False


@pytest.mark.parametrize("gone_after", [1, 3, 10**9])
def test_what_is_left_is_killed_until_it_is_gone_and_not_for_ever(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch, gone_after: int
) -> None:
    run, killed, reaped, drained = course(), list[tuple[int, int]](), list[bool](), list[bool]()
    output: Any = SimpleNamespace(drain=lambda: drained.append(True))
    run.runner._workers = [SimpleNamespace(output=output)]
    monkeypatch.setattr(engine, "descendants", lambda pid: [below(50)] * (len(reaped) < gone_after))
    monkeypatch.setattr(engine, "signal_quietly", lambda pid, number: killed.append((pid, number)))
    monkeypatch.setattr(run.runner, "_reap", lambda: reaped.append(True))
    run.runner._end_descendants()
    times = min(gone_after, len(reaped))
    assert killed == [(50, signal.SIGKILL)] * times
    assert run.stage.clock.now <= 1_010.02
    assert (len(reaped) == gone_after) or run.stage.clock.now >= 1_010
    assert drained == [True]


def test_ours_that_have_ended_come_before_what_another_node_says(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker there fails because one of ours has ended, of which nobody has looked yet."""
    run, came = course(), list[str]()
    channel: Any = SimpleNamespace(receive=lambda: came.append("words") or [])  # type: ignore[func-returns-value]
    monkeypatch.setattr(run.runner, "_reap", lambda: came.append("ends"))
    run.runner._hear(Follower("n2", channel))
    assert came == ["ends", "words"]
