"""How the runner begins and ends an epoch: orders, what keeps it from starting, and the verdict it writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner import engine
from evenkeel.runner.bringing import LOG_EVERY_S, DataUnavailable, GivenUp
from evenkeel.runner.leading import JOIN_S, NodesMissing
from evenkeel.runner.secrets import Secrets
from evenkeel.runner.software import SoftwareUnavailable
from evenkeel.runner.verdict import Order, Verdict
from evenkeel.store import StoreError

from tests.client.engine_stage import Course, Data, Nodes, Store, course, make
from tests.client.test_escalation import Stage
from tests.client.test_runner import worker

__all__ = ["course", "make"]  # the fixtures


def alone(course: Course, monkeypatch: pytest.MonkeyPatch, *, watch: Callable[[], None] = lambda: None) -> None:
    """A run whose program has ended well by itself."""
    ended = worker(0, 0)
    monkeypatch.setattr(course.runner, "_start_workers", lambda: [ended])
    monkeypatch.setattr(course.runner, "_watch", watch)
    monkeypatch.setattr(course.runner, "_end_descendants", lambda: None)


# Orders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "order"), [("checkpoint_and_stop", Order.STOP), ("kill", Order.KILL), ("dance", None), ("", None)]
)
def test_the_portal_orders_a_stop_or_a_kill(make: Callable[..., Stage], command: str, order: Order | None) -> None:
    runner = make().runner
    runner._command_from_portal(command)
    assert runner._ordered is order


@pytest.mark.parametrize("file", [True, False])
@pytest.mark.parametrize("order", [None, Order.STOP, Order.MEMORY])
def test_a_launch_is_over_once_it_is_asked_to_stop_in_any_way(
    course: Callable[..., Course], file: bool, order: Order | None
) -> None:
    run = course()
    if file:
        (run.place / "stop").touch()
    run.runner._ordered = order
    assert run.runner._is_over() is (file or order is not None)


@pytest.mark.parametrize("asked", [True, False])
def test_the_file_that_asks_for_a_stop_is_looked_for_on_every_turn(course: Callable[..., Course], asked: bool) -> None:
    run = course()
    run.runner._memory_at = float("inf")
    if asked:
        (run.place / "stop").touch()
    run.runner._check_limits()
    assert run.runner._ordered is (Order.STOP if asked else None)


def test_a_directory_that_the_job_has_closed_asks_for_nothing(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(path)

    run = course()
    monkeypatch.setattr(Path, "exists", closed)
    assert run.runner._asked_to_stop() is False


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _is_same_pipe(fd: int, other: int) -> bool:
    return _is_open(fd) and os.path.sameopenfile(fd, other)


def test_a_signal_wakes_the_runner_and_nothing_stays_open() -> None:
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with engine.woken_by_signals() as woken:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert os.read(woken, 100) == bytes([signal.SIGUSR1])
            with pytest.raises(BlockingIOError):
                os.read(woken, 100)
            ends = {fd for fd in range(1_000) if _is_same_pipe(fd, woken)}
            assert len(ends) == 2
        assert not any(map(_is_open, ends))
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGUSR1, handler)


# Before the workers start -----------------------------------------------------------------------------------

UNABLE = [
    (StoreError("no bucket"), "launch_failed", "the checkpoint to begin with cannot be had: no bucket", False, None),
    (DataUnavailable("no such object", permanent=True), "data_unavailable", "no such object", True, None),
    (DataUnavailable("disk full", nodes_fault=True), "data_unavailable", "disk full", False, True),
    (SoftwareUnavailable("no module"), "launch_failed", "no module", True, None),
    (SoftwareUnavailable("no answer", permanent=False), "launch_failed", "no answer", False, None),
    (NodesMissing("n2 did not join"), "launch_failed", "n2 did not join", False, None),
    (OSError("no such file"), "launch_failed", "the program could not be started: no such file", False, None),
]


@pytest.mark.parametrize(("error", "reason", "message", "permanent", "nodes_fault"), UNABLE)
def test_what_keeps_a_launch_from_beginning_is_told(
    course: Callable[..., Course],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
    message: str,
    permanent: bool,
    nodes_fault: bool | None,
) -> None:
    def fail() -> None:
        raise error

    run, ended = course(), list[bool]()
    run.runner._workers, run.runner._party = [], Nodes()
    monkeypatch.setattr(run.runner, "_bring_data", fail)
    monkeypatch.setattr(run.runner, "_end_descendants", lambda: ended.append(True))
    run.runner.run()
    found = {name: run.ended[name] for name in ("reason", "message", "permanent", "nodes_fault")}
    assert found == {"reason": reason, "message": message, "permanent": permanent, "nodes_fault": nodes_fault}
    assert run.reports.reports[-1]["exit"]["reason"] == reason
    assert run.reports.calls == ["start", "flush", "close"]
    if isinstance(error, OSError):
        assert ended == [True]
    else:
        assert run.runner._party.calls == ["dismiss"]


@pytest.mark.parametrize(
    ("order", "reason", "message", "number"),
    [
        (None, "data_unavailable", "gone", None),
        (Order.STOP, "stopped", "stopped before it started", None),
        (Order.LEASE, "stopped", "stopped before it started", None),
        (Order.KILL, "signal", "killed on request", 9),
    ],
)
def test_who_was_asked_to_end_meanwhile_has_ended_on_request(
    course: Callable[..., Course],
    monkeypatch: pytest.MonkeyPatch,
    order: Order | None,
    reason: str,
    message: str,
    number: int | None,
) -> None:
    def fail() -> None:
        run.runner._ordered = order
        raise DataUnavailable("gone")

    run = course()
    monkeypatch.setattr(run.runner, "_settle_checkpoint", fail)
    run.runner.run()
    assert (run.ended["reason"], run.ended["message"], run.ended["signal"]) == (reason, message, number)


def test_who_was_asked_to_stop_before_brings_nothing(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, brought = course(), list[bool]()
    monkeypatch.setattr(run.runner, "_bring_data", lambda: brought.append(True))
    (run.place / "stop").touch()
    run.runner.run()
    assert (run.ended["reason"], run.ended["message"], brought) == ("stopped", "stopped before it started", [])


def test_a_program_is_given_the_places_of_its_data_and_its_launch_counts_from_then(
    course: Callable[..., Course],
) -> None:
    def bring(place: Path, tell: Callable[[str], None], is_over: Callable[[], bool]) -> dict[str, str]:
        run.stage.clock.now += 50
        tell("3 of 9 GB")
        return {"DATA": str(place / "x")}

    run = course()
    nodes = run.runner._party = Nodes(words=["1 of 9 GB on n2", "2 of 9 GB on n2", "3 of 9 GB on n2", ""])
    run.runner._data = Data(bring)
    run.runner._bring_data()
    assert run.runner._spec.environment["DATA"] == str(run.place / "data" / "x")
    assert run.runner._started == run.stage.clock.now > 1_050
    assert run.runner._fetching == ""
    assert nodes.calls[0] == "gather"
    assert [report["fetching"] for report in run.reports.reports] == ["3 of 9 GB"]
    log = (run.place / "logs" / "rank0.log").read_text()
    assert "[evenkeel] cached\n" in log


def test_a_node_alone_fetches_its_data_and_says_how_far_it_is(course: Callable[..., Course]) -> None:
    def bring(place: Path, tell: Callable[[str], None], is_over: Callable[[], bool]) -> dict[str, str]:
        tell("3 of 9 GB")
        return {"DATA": "x"}

    run = course()
    run.runner._data = Data(bring)
    run.runner._bring_data()
    assert run.runner._spec.environment["DATA"] == "x"
    assert [report["fetching"] for report in run.reports.reports] == ["3 of 9 GB"]


def test_who_is_over_while_other_nodes_fetch_waits_no_longer(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._party = Nodes(words=["1 GB", "2 GB", "3 GB"])
    run.runner._data = Data(lambda *_: {})
    run.runner._ordered = Order.STOP
    with pytest.raises(GivenUp):
        run.runner._bring_data()
    assert run.runner._party.words == ["3 GB"]


def test_how_far_a_launch_is_is_told_with_reports_and_now_and_then_in_the_log(course: Callable[..., Course]) -> None:
    run = course(report_interval_s=2.0)
    nodes = run.runner._party = Nodes()
    run.runner._beat_phase = 0.0
    logged = []
    for _ in range(6):
        run.stage.clock.now += 1.0
        run.runner._tell_progress(f"{run.stage.clock.now:g}")
        path = run.place / "logs" / "rank0.log"
        logged.append(len(path.read_text().splitlines()) if path.exists() else 0)
    assert LOG_EVERY_S == 5.0
    assert logged == [0, 0, 0, 0, 1, 1]
    assert nodes.calls == ["tend_data"] * 6
    assert [report["fetching"] for report in run.reports.reports] == ["1001", "1004", "1006"]
    assert run.reports.calls == ["send_now"] * 3
    assert run.reports.put_with[0] == (False, False)


def test_what_the_runner_writes_into_a_log_hides_the_token(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._redactor = Secrets().hiding("ekr_0123456789").redactor()
    run.runner._write_log("with ekr_0123456789")
    assert (run.place / "logs" / "rank0.log").read_text() == "[evenkeel] with [redacted]\n"


@pytest.mark.parametrize(("nodes", "most_s"), [(None, float("inf")), (Nodes(), JOIN_S / 2)])
def test_the_checkpoint_to_begin_with_is_there_before_the_others_give_up(
    course: Callable[..., Course], nodes: Nodes | None, most_s: float
) -> None:
    run, store = course(), Store()
    run.runner._party, run.runner._storing = nodes, store
    run.stage.clock.now += 500
    run.runner._settle_checkpoint()
    assert store.settled_with == [most_s]
    assert run.runner._spec.environment["EVENKEEL_CHECKPOINT_DIR"] == "/checkpoints"
    assert run.reports.answered_at == run.stage.clock.now  # the lease did not run meanwhile


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_launch_waits_for_others_where_it_has_several_nodes(make: Callable[..., Stage], count: int) -> None:
    nodes = [{"name": f"n{number}", "address": "127.0.0.1", "workers": 1} for number in range(count)]
    party = make(nodes=nodes).runner._party
    assert (party is not None) == (count > 1)
    if party:
        party.dismiss()


def test_a_programs_secrets_are_given_to_it_and_hidden_with_the_token(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    spec = make().runner._spec
    (tmp_path / "token").write_text("ekr_0123456789")
    runner = engine.Runner(tmp_path, spec, can_fork=False, secrets=Secrets({"KEY": "s3cret-word"}))
    assert runner._secrets.variables == {"KEY": "s3cret-word"}
    assert runner._redactor.clean_text("s3cret-word 0123456789 rest") == "[redacted] [redacted] rest"


@pytest.mark.parametrize("forks", [True, False])
def test_a_run_of_one_node_may_start_warm_and_one_of_several_may_not(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    given = list[tuple[Any, ...]]()

    def start(*arguments: Any) -> list[str]:
        given.append(arguments)
        return ["here"]

    run = course()
    monkeypatch.setattr(engine, "start_workers", start)
    run.runner._can_fork = forks
    assert run.runner._start_workers() == ["here"]
    run.runner._party, run.runner._storing = Nodes(), Store(chosen={"step": 4})
    assert run.runner._start_workers() == ["here", "elsewhere"]
    assert run.runner._party.calls == ["gather", {"step": 4}]
    assert [one[2] for one in given] == [forks, False]
    assert given[1][4] == "place"
    run.runner._storing = None
    run.runner._start_workers()
    assert run.runner._party.calls[-1] is None


def test_the_other_nodes_are_let_go_where_the_program_cannot_be_started(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> None:
        raise FileNotFoundError

    run = course()
    monkeypatch.setattr(engine, "start_workers", start)
    run.runner._party = Nodes()
    with pytest.raises(FileNotFoundError):
        run.runner._start_workers()
    assert run.runner._party.calls[-1] == "dismiss"


# How it ends ------------------------------------------------------------------------------------------------


def test_what_a_program_said_last_counts(course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch) -> None:
    run, store = course(ready=False), Store()
    alone(run, monkeypatch, watch=lambda: run.says({"kind": "step", "step": 7}, {"kind": "stopped", "step": 8}))
    run.runner._storing = store
    run.runner.run()
    assert run.ended == {
        "run_id": "r",
        "epoch": 1,
        "reason": "stopped",
        "exit_code": 0,
        "signal": None,
        "step": 8,
        "message": "",
        "permanent": False,
        "nodes_fault": None,
        "at": run.stage.clock.time(),
    }
    assert run.reports.reports[-1]["exit"] == {
        name: value for name, value in run.ended.items() if name not in ("run_id", "epoch")
    }
    assert run.reports.put_with[-1] == (True, False)
    assert run.reports.calls == ["start", "flush", "close"]
    assert store.finished_with == [True]


def test_nobody_below_survives_and_the_other_nodes_are_let_go(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = course(), list[str]()
    alone(run, monkeypatch, watch=lambda: calls.append("watch"))
    monkeypatch.setattr(run.runner, "_end_descendants", lambda: calls.append("end"))
    monkeypatch.setattr(run.runner._sampler, "start", lambda: calls.append("sample"))
    run.runner._party = Nodes()
    run.runner.run()
    assert (calls, run.runner._party.calls) == (["sample", "watch", "end"], ["dismiss"])


@pytest.mark.parametrize(
    ("order", "reason", "message"), [(None, "runner_lost", "node n2 was lost"), (Order.STOP, "stopped", "not saved")]
)
def test_a_lost_node_is_the_reason_where_nobody_had_asked_for_an_end(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch, order: Order | None, reason: str, message: str
) -> None:
    run = course()
    alone(run, monkeypatch)
    run.runner._party, run.runner._order = Nodes(lost=Verdict("runner_lost", "node n2 was lost")), order
    run.runner._storing = Store(unsaved="not saved")
    run.runner.run()
    assert (run.ended["reason"], run.ended["message"]) == (reason, message)


def test_an_end_says_what_did_not_get_into_the_store_after_its_own_words(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course()
    alone(run, monkeypatch)
    monkeypatch.setattr(run.runner, "_start_workers", lambda: [worker(0, 3)])
    run.runner._storing = Store(unsaved="step 5 was not saved")
    run.runner.run()
    assert run.ended["message"] == "worker 0 ended with code 3; step 5 was not saved"


@pytest.mark.parametrize(("group", "reason"), [("r.1", "out_of_memory"), ("r.2", "user_error"), ("r", "user_error")])
def test_want_of_memory_is_looked_for_in_the_control_group_of_this_epoch(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch, group: str, reason: str
) -> None:
    run = course()
    alone(run, monkeypatch)
    monkeypatch.setattr(run.runner, "_start_workers", lambda: [worker(0, 3)])
    monkeypatch.setattr(engine, "group_oom_kills", lambda name: int(name == group))
    run.runner.run()
    assert run.ended["reason"] == reason


def test_an_end_names_the_limit_that_the_portal_gave_last(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course(max_duration_s=60.0)
    alone(run, monkeypatch)
    run.reports.limits, run.runner._order = {"max_duration_s": 90.0}, Order.TIME_LIMIT
    run.runner.run()
    assert run.ended["message"] == "stopped after its limit of 90 s"


def test_words_about_an_end_hide_the_token(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._redactor = Secrets().hiding("ekr_0123456789").redactor()
    run.runner._heard.links = {"x": "https://a.example.org/ekr_0123456789"}
    run.runner._fetching = "data"
    run.runner._finish(Verdict("user_error", "no ekr_0123456789"))
    assert run.ended["message"] == "no [redacted]"
    assert run.reports.reports[-1]["links"] == {"x": "https://a.example.org/[redacted]"}
    assert run.reports.reports[-1]["fetching"] is None
    assert run.reports.calls == ["flush", "close"]  # it reports already, as there are workers


@pytest.mark.parametrize(
    ("order", "stopped", "asked"),
    [(None, False, False), (None, True, True), (Order.STOP, False, True), (Order.KILL, False, True)],
)
def test_the_store_knows_whether_the_end_was_asked_for(
    course: Callable[..., Course], order: Order | None, stopped: bool, asked: bool
) -> None:
    run, store = course(), Store()
    run.runner._storing, run.runner._order, run.runner._ordered = store, order, order
    run.runner._heard.stopped, run.runner._heard.checkpoint = stopped, {"step": 9}
    run.runner._await_store()
    assert (store.offered, store.finished_with) == ([{"step": 9}], [asked])
    assert store.gives_up == [order is Order.KILL]
    assert run.reports.put_with == [(False, False)]  # reports go on
