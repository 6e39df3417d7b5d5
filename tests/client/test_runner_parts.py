"""The parts of the runner at their limits: what it hears, how workers end, files, trees and last words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evenkeel.runner import following, listening, workers
from evenkeel.runner.files import (
    MAX_DEPTH,
    create_private,
    exists,
    open_plain,
    parse_json,
    read_object,
    read_plain,
)
from evenkeel.runner.following import FollowingRunner
from evenkeel.runner.last_words import MAX_WORDS, is_out_of_memory, last_words
from evenkeel.runner.listening import MAX_METRICS, SPEED_WINDOW_S, Heard, Listener
from evenkeel.runner.output import RotatingLog
from evenkeel.runner.processes import Process
from evenkeel.runner.secrets import Secrets
from evenkeel.runner.trees import Bounds, OutOfBounds, remove_below, remove_tree, walk
from evenkeel.runner.workers import Worker, start_workers

from tests.cases import in_turn
from tests.client.test_runner import spec, worker

# What a program says ----------------------------------------------------------------------------------------


@in_turn(
    ("line", "urgent", "changes"),
    [
        ({"kind": "ready", "step": 3}, True, {"ready_at": 5.0, "step": 3}),
        ({"kind": "done", "step": 9}, False, {"step": 9, "done": True}),
        ({"kind": "stopped", "step": 9}, False, {"step": 9, "stopped": True}),
        ({"kind": "error", "text": "x"}, False, {"errors": [{"kind": "error", "text": "x", "t": 5.0}]}),
        ({"kind": "link", "name": "n" * 70, "url": "u" * 1_001}, True, {"links": {"n" * 60: "u" * 1_000}}),
        (
            {"kind": "checkpoint", "step": 4, "path": "p", "bytes": 6, "seconds": 0.5, "reason": "end"},
            True,
            {"checkpoint": {"step": 4, "path": "p", "bytes": 6, "seconds": 0.5, "at": 5.0}},
        ),
        ({"kind": "dance", "step": 9}, False, {}),
    ],
)
def test_each_line_says_one_thing(line: dict[str, Any], urgent: bool, changes: dict[str, Any]) -> None:
    heard, usual = Heard(), Heard()
    assert heard.take(line | {"t": 5.0}) is urgent
    names = ("contact", "ready_at", "step", "checkpoint", "done", "stopped", "errors", "links")
    assert {n: getattr(heard, n) for n in names if getattr(heard, n) != getattr(usual, n)} == changes


def test_who_is_done_and_stopped_has_said_both() -> None:
    heard = Heard()
    for kind in ("stopped", "done", "stopped"):
        heard.take({"kind": kind, "step": 1})
    assert (heard.done, heard.stopped) == (True, True)


def test_a_speed_is_that_of_the_last_seconds() -> None:
    heard, speeds = Heard(), list[Any]()
    heard.take({"kind": "ready", "t": 10.0, "step": 100})
    for at, step in ((10.0, 100), (11.0, 102), (12.0, 106), (13.0, 116), (20.0, 123)):
        heard.take({"kind": "step", "t": at, "step": step, "metrics": {"loss": 1, "step": 9, "at": 9}})
        speeds.append(heard.metrics[-1]["steps_per_s"])
    assert SPEED_WINDOW_S == 2.0
    assert speeds == [None, 2.0, 3.0, 7.0, 1.0]
    assert heard.metrics[-1] == {"step": 123, "at": 20.0, "steps_per_s": 1.0, "loss": 1}


@in_turn(("count", "taken"), [(0, 0), (1, 1), (200, 200), (201, 101), (400, 200), (900, 200)])
def test_metrics_are_thinned_to_what_a_report_carries(count: int, taken: int) -> None:
    heard = Heard()
    for step in range(count):
        heard.take({"kind": "step", "t": float(step), "step": step})
    found = [metric["step"] for metric in heard.take_metrics()]
    assert len(found) == taken <= MAX_METRICS
    assert found == sorted(found)
    assert found[-1:] == [count - 1][:count]
    assert heard.take_metrics() == []


def test_notices_are_cut_counted_and_taken_once() -> None:
    heard = Heard()
    for number in range(60):
        heard.take({"kind": "notice", "text": f"{number} " + "x" * 3_000})
    found = heard.take_notices()
    assert [text.split()[0] for text in found] == [str(number) for number in range(10, 60)]
    assert {len(text) for text in found} == {2_000}
    assert heard.take_notices() == []


def test_rank_0_speaks_for_the_run_and_each_rank_of_the_node_of_its_errors(tmp_path: Path) -> None:
    said = [{"kind": "ready", "t": 1, "step": 5}, {"kind": "error", "t": 2, "text": "x"}]
    for rank in (0, 1, 2, 3):
        (tmp_path / f"rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    first, second = Listener(tmp_path, 2), Listener(tmp_path, 1, 2)
    assert (first.listen(), second.listen()) == (True, False)
    assert (first.heard.step, second.heard.step) == (5, None)
    assert [error["rank"] for error in first.heard.errors] == [0, 1]
    assert [error["rank"] for error in second.heard.errors] == [2]
    assert not first.listen()
    assert len(first.heard.errors) == 2


def test_a_program_has_made_contact_once_it_has_a_file(tmp_path: Path) -> None:
    listener = Listener(tmp_path, 1)
    listener.listen()
    assert not listener.heard.contact
    (tmp_path / "rank0.jsonl").touch()
    listener.listen()
    assert listener.heard.contact


def test_a_line_that_is_too_long_is_skipped_and_what_follows_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_READ_BYTES", 64)
    line = json.dumps({"kind": "ready", "t": 1, "step": 7})
    (tmp_path / "rank0.jsonl").write_text("x" * 200 + "\n" + line + "\n")
    listener = Listener(tmp_path, 1)
    for _ in range(6):
        listener.listen()
    assert listener.heard.step == 7


# Workers ----------------------------------------------------------------------------------------------------


@in_turn(
    ("status", "code", "number", "failed", "killed"),
    [
        (0, 0, None, False, False),
        (1 << 8, 1, None, True, False),
        (137 << 8, 137, None, True, True),
        (136 << 8, 136, None, True, False),
        (9, None, 9, True, True),
        (15, None, 15, True, False),
    ],
)
def test_how_a_worker_ended(status: int, code: int | None, number: int | None, failed: bool, killed: bool) -> None:
    made = worker(0)
    made.ended_at = None
    assert (made.running, made.failed) == (True, False)
    made.end(status, 3)
    assert (made.exit_code, made.signal, made.order) == (code, number, 3)
    assert (made.running, made.failed, made.killed) == (False, failed, killed)


def _process(pid: int) -> Process:
    return Process(pid, "python", "S", 1, 1, 0.0, 1, 0.0)


@in_turn(
    ("guarded", "below", "number", "told"),
    [
        (False, [61, 62], 15, [-60, 60]),
        (True, [61, 62], 15, [61, 62]),  # what waits for the program would take it along
        (True, [61, 62], 9, [-60, 60]),
        (True, [], 15, [-60, 60]),
    ],
)
def test_a_signal_goes_to_the_worker_and_its_group_or_to_what_it_guards(
    monkeypatch: pytest.MonkeyPatch, guarded: bool, below: list[int], number: int, told: list[int]
) -> None:
    sent = list[tuple[int, int]]()
    monkeypatch.setattr(workers, "descendants", lambda pid: [_process(one) for one in below] if pid == 60 else [])
    monkeypatch.setattr(workers, "signal_quietly", lambda pid, number: sent.append((pid, number)))
    made = Worker(0, 60, worker(0).output, guarded=guarded)
    made.send(number)
    assert sent == [(pid, number) for pid in told]
    assert made.signalled
    made.end(0, 0)
    sent.clear()
    made.send(number)
    assert sent == []


def test_where_one_worker_cannot_be_started_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids, killed = [4_000_001, 4_000_002], list[tuple[int, int]]()

    def spawn(*_: Any) -> int:
        if not pids:
            raise BlockingIOError("no more processes")
        return pids.pop(0)

    monkeypatch.setattr(workers, "_spawn", spawn)
    monkeypatch.setattr(workers, "signal_quietly", lambda pid, number: killed.append((pid, number)))
    with pytest.raises(BlockingIOError):
        start_workers(spec(workers=3), tmp_path, False, Secrets())
    assert killed == [(pid, 9) for pid in (-4_000_001, 4_000_001, -4_000_002, 4_000_002)]


# Files ------------------------------------------------------------------------------------------------------


@in_turn(("size", "taken"), [(0, True), (9, True), (10, True), (11, False)])
def test_a_file_may_be_as_large_as_is_said(tmp_path: Path, size: int, taken: bool) -> None:
    (tmp_path / "it").write_bytes(b"x" * size)
    if taken:
        assert read_plain(tmp_path / "it", 10) == b"x" * size
    else:
        with pytest.raises(OSError, match="more than the 10 bytes"):
            read_plain(tmp_path / "it", 10)


def test_only_a_regular_file_is_opened_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dir").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("link", "dir", "none"):
        with pytest.raises(OSError, match=r".+"):
            open_plain(tmp_path / name)
    with open_plain(tmp_path / "file") as file:
        assert file.read() == b"x"
        assert not os.get_inheritable(file.fileno())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [exists(tmp_path / name) for name in ("file", "link", "dir", "none", "\0")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    (tmp_path / "file").unlink()
    assert exists(tmp_path / "link")  # the name is there


def test_a_private_file_is_a_new_one_that_nobody_else_reads(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "it").symlink_to("old")
    fd = create_private(tmp_path / "it")
    os.write(fd, b"new")
    os.close(fd)
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "it").stat().st_mode & 0o777 == 0o600


@in_turn(("count", "taken"), [(3, True), (4, False)])
def test_json_may_have_as_many_values_as_is_said(count: int, taken: bool) -> None:
    for text in (b"[" + b",".join([b"1"] * count) + b"]", b'{"a": ' + b"[" * (count - 1) + b"]" * (count - 1) + b"}"):
        if taken:
            parse_json(text, 3)
        else:
            with pytest.raises(ValueError, match="more than 3 values"):
                parse_json(text, 3)


def test_json_may_be_nested_to_a_depth() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert parse_json(b"[" + b"[]," * (MAX_DEPTH + 1) + b"[]]")  # beside each other, not in each other


@in_turn(("text", "found"), [("{}", {}), ('{"a": 1}', {"a": 1}), ("[]", None), ("x", None), ("", None)])
def test_an_object_or_nothing_is_read(tmp_path: Path, text: str, found: Any) -> None:
    (tmp_path / "it").write_text(text)
    assert read_object(tmp_path / "it") == found
    assert read_object(tmp_path / "none") is None
    assert read_object(tmp_path / "it", max_bytes=1) is None


# Trees ------------------------------------------------------------------------------------------------------


def test_as_many_entries_as_allowed_are_looked_at_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bounds = Bounds(2, 10.0)
    bounds.count()
    now = 60.0
    bounds.count()
    with pytest.raises(OutOfBounds):
        bounds.count()
    bounds, now = Bounds(2, 10.0), 70.5
    with pytest.raises(OutOfBounds):
        bounds.count()


@in_turn(("entries", "removed"), [(2, False), (3, True)])
def test_a_tree_is_gone_once_all_of_its_entries_were_allowed(tmp_path: Path, entries: int, removed: bool) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "tree" / name).touch()
    assert remove_tree(tmp_path / "tree", max_entries=entries) is removed
    assert (tmp_path / "tree").exists() is not removed


def test_only_what_is_named_is_removed_and_the_way_to_it_stays(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    (tmp_path / "a" / "b" / "kept").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert remove_below(tmp_path, ("a", "b", "c"))
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["kept"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_walk_enters_what_its_visitor_wants_and_tells_of_each_entry(tmp_path: Path) -> None:
    for name in ("in/deep", "out/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in" / "file").touch()
    seen, left = list[str](), list[int]()

    def visit(directory: int, name: str) -> bool:
        seen.append(name)
        return name in ("in", "file", "none")

    top = os.open(tmp_path, os.O_RDONLY)
    try:
        walk(top, Bounds(), visit, left.append)
    finally:
        os.close(top)
    assert sorted(seen) == ["deep", "file", "in", "out"]
    assert len(left) == 2


@in_turn("strict", [True, False])
def test_a_walk_passes_over_what_is_closed_where_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    really, seen = os.open, list[str]()

    def opened(name: str, *arguments: Any, **keys: Any) -> int:
        if name == "closed":
            raise PermissionError(13, "Permission denied", name)
        return really(name, *arguments, **keys)

    def visit(directory: int, name: str) -> bool:
        seen.append(name)
        return True

    for name in ("closed", "open/below"):
        (tmp_path / name).mkdir(parents=True)
    top = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "open", opened)
    try:
        if strict:
            with pytest.raises(PermissionError):
                walk(top, Bounds(), visit)
        else:
            walk(top, Bounds(), visit, strict=False)
            assert sorted(seen) == ["below", "closed", "open"]
    finally:
        os.close(top)


# Last words -------------------------------------------------------------------------------------------------

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    train()\n'


@in_turn(("between", "found"), [(11, True), (12, False)])
def test_an_exception_is_looked_for_so_far_from_the_end(between: int, found: bool) -> None:
    output = TRACEBACK + "ValueError: first\n" + "said\n" * between
    assert ("ValueError" in last_words(output.encode(), 1).text) is found


@in_turn(("code", "text"), [(1, "ValueError: a ... leaving"), (3, "leaving"), (None, "leaving")])
def test_an_exception_before_the_last_line_counts_where_python_ended_by_it(code: int | None, text: str) -> None:
    assert last_words((TRACEBACK + "ValueError: a\nleaving\n").encode(), code).text == text


def test_neither_of_two_long_words_is_left_out() -> None:
    output = TRACEBACK + "ValueError: " + "a" * 900 + "\n" + "b" * 900 + "\n"
    text = last_words(output.encode(), 1).text
    assert len(text) <= MAX_WORDS
    assert text.startswith("ValueError: aaa")
    assert text.count("b") == MAX_WORDS // 2 - 3
    assert len(last_words(b"c" * 900).text) == MAX_WORDS


@in_turn(
    ("kind", "text", "memory"),
    [
        ("MemoryError", "", True),
        ("torch.cuda.OutOfMemoryError", "anything", True),
        ("tensorflow.ResourceExhaustedError", "", True),
        ("RuntimeError", "  CUDA out of memory. Tried", True),
        ("RuntimeError", "CUDA error: out of memory", True),
        ("RuntimeError", "HIP error: out of memory", True),
        ("AcceleratorError", "CUDA error: out of memory", True),
        ("AcceleratorError", "CUDA out of memory.", False),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: x", True),
        ("ValueError", "CUDA out of memory.", False),
        ("RuntimeError", "it said: CUDA out of memory.", False),
        ("NotMemoryError", "", False),
    ],
)
def test_want_of_memory_is_known_by_the_type_and_the_beginning_of_the_text(kind: str, text: str, memory: bool) -> None:
    assert is_out_of_memory(kind, text) is memory


def test_what_the_runner_and_its_libraries_write_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "runner.log"
    log.write_text("before\n")
    code = """
import os, pathlib, sys
from evenkeel.runner import entry
entry._redirect(pathlib.Path(sys.argv[1]))
os.write(1, b"output\\n")
os.write(2, b"errors\\n")
print("printed", os.read(0, 10))
"""
    done = subprocess.run([sys.executable, "-c", code, log], input=b"typed", capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert log.read_text() == "before\noutput\nerrors\nprinted b''\n"


def test_a_process_that_no_worker_is_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker left behind becomes the runner's own child, and ends before it or after."""
    (tmp_path / "token").touch()
    follower = FollowingRunner(tmp_path, spec(), "n2", Secrets())
    one = worker(0)
    follower._workers = [one]
    ended = iter([(one.pid + 1, 9), (one.pid, 1 << 8), (one.pid + 2, 0), (0, 0)])
    monkeypatch.setattr(os, "waitpid", lambda pid, options: next(ended))
    follower._reap()
    assert one.exit_code == 1
    assert [(who, status) for _, who, status in follower._ended] == [(one, 1 << 8)]
    assert next(ended, None) is None


@in_turn(
    ("killed", "signalled", "kills", "oom"),
    [(True, False, 1, True), (True, True, 1, False), (False, False, 1, False), (True, False, 0, False)],
)
def test_the_first_node_is_told_whether_memory_was_short_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool, signalled: bool, kills: int, oom: bool
) -> None:
    (tmp_path / "token").touch()
    follower, sent = FollowingRunner(tmp_path, spec(), "n2", Secrets()), list[Any]()
    follower._channel, follower._oom_kills = SimpleNamespace(send=sent.append), 0  # type: ignore[assignment]
    monkeypatch.setattr(following, "kernel_oom_kills", lambda: kills)
    one: Any = SimpleNamespace(rank=3, killed=killed, signalled=signalled, output=SimpleNamespace(tail=b"last"))
    follower._tell_end(one, 9)
    assert sent == [{"kind": "ended", "rank": 3, "status": 9, "tail": "last", "oom": oom}]


def test_a_log_is_for_its_account_and_group_and_is_opened_once_at_a_time(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "log", 4)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        log.write(b"four")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    log.close()
    assert {path.stat().st_mode & 0o137 for path in tmp_path.iterdir()} <= {0, 0o40}
