"""Runs the collected tests once for each mutant, in a child that is forked where all is imported and started.

A first child runs everything without a mistake and notes which test reaches which line, so that a mutant's child needs
to run only those that can notice it. The mistake is put into the functions that are loaded already and, for the
processes that tests start, into the file.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import pytest
from asgiref.sync import SyncToAsync
from coverage import Coverage
from django.db import connections

READY = "tests/mutation/ready.py"
#: Of the tests that reach a line, so many seconds of them are run.
MOST_S = 120.0
#: A mutant that takes so much longer than its tests without it hangs, which is noticed.
SLACK_S = 60.0


@dataclass
class First:
    """What the run without a mistake found: failures, seconds by test, and the tests that reach a line of a file."""

    failed: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))


class Listener:
    def __init__(self) -> None:
        self.first = First()
        self.coverage: Coverage | None = None
        self.failed: list[str] = []
        self.why = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.coverage is not None:
            self.coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        result = yield
        self.first.seconds[item.nodeid] = time.monotonic() - begun
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            self.why = report.longreprtext


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    asked = json.loads(Path(os.environ["MUTANTS_ASKED"]).read_text())
    listener = Listener()
    session.config.pluginmanager.register(listener)
    ready = [item for item in session.items if item.nodeid.startswith(READY)]
    items = [item for item in session.items if item not in ready]
    for item in ready:  # starts the servers
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[0])
    connections.close_all()
    results = Path(asked["results"])
    first = _first(session, listener, items, asked, results.with_suffix(".first"))
    with results.open("a") as out:
        print(json.dumps({"failed_without": sorted(first.failed), "tests": len(items)}), file=out, flush=True)
        for mutant in asked["mutants"]:
            found = _try(session, listener, _chosen(items, first, mutant), mutant, first)
            print(json.dumps({"key": mutant["key"], **found}), file=out, flush=True)
    return True


def _child() -> None:
    os.setsid()
    SyncToAsync.single_thread_executor = ThreadPoolExecutor(max_workers=1)


def _run(session: pytest.Session, items: list[pytest.Item], *, stop: bool) -> None:
    for index, item in enumerate(items):
        # Never None: that would end what all children share.
        after = items[index + 1] if index + 1 < len(items) else session.items[0]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if stop and session.testsfailed:
            return


def _first(
    session: pytest.Session, listener: Listener, items: list[pytest.Item], asked: dict[str, Any], path: Path
) -> First:
    if child := os.fork():
        os.waitpid(child, 0)
        found: First = pickle.loads(path.read_bytes())
        return found
    try:
        _child()
        files = sorted({str(Path(one["module"]).resolve()) for one in asked["mutants"]})
        listener.coverage = Coverage(data_file=None, include=files, config_file=False, messages=False)
        listener.coverage.start()
        _run(session, items, stop=False)
        listener.coverage.stop()
        first, data = listener.first, listener.coverage.get_data()
        first.failed = set(listener.failed)
        for file in files:
            for line, tests in data.contexts_by_lineno(file).items():
                first.reached[file, line] = set(tests)
        path.write_bytes(pickle.dumps(first))
    finally:
        sys.stdout.flush()
        os._exit(0)


def _chosen(items: list[pytest.Item], first: First, mutant: dict[str, Any]) -> list[pytest.Item]:
    """Tests that reach one of the mutant's lines; what the first test of a module reaches may be its fixtures', so all
    of that module's come after; where tests start processes, all tests."""
    sound = [item for item in items if item.nodeid not in first.failed]
    file = str(Path(mutant["module"]).resolve())
    reached = set().union(*(first.reached.get((file, line), set()) for line in mutant["lines"]))
    beginnings = {item.nodeid: item.path for item in reversed(items) if item.nodeid in _firsts(items)}
    whole = {beginnings[test] for test in reached if test in beginnings}
    chosen = [item for item in sound if item.nodeid in reached]
    chosen += [item for item in sound if (item.path in whole or mutant["apart"]) and item.nodeid not in reached]
    return _bounded(chosen, mutant["module"], first)


def _bounded(items: list[pytest.Item], module: str, first: First) -> list[pytest.Item]:
    """As many as there is time for: those of files that import the module come first, and a few of each file before
    all of one."""
    name = re.compile(rf"^(from|import) .*\b{re.escape(Path(module).stem)}\b", re.MULTILINE)
    files = {item.path: not name.search(item.path.read_text()) for item in items}
    places: Counter[Path] = Counter()
    turns = []
    for index, item in enumerate(items):
        places[item.path] += 1
        turns.append((files[item.path], places[item.path], index))
    kept, seconds = list[int](), 0.0
    for _, _, index in sorted(turns):
        seconds += first.seconds.get(items[index].nodeid, 0.0)
        if kept and seconds > MOST_S:
            break
        kept.append(index)
    return [items[index] for index in sorted(kept, key=lambda index: (files[items[index].path], index))]


def _firsts(items: list[pytest.Item]) -> set[str]:
    return {item.nodeid for item in {item.path: item for item in reversed(items)}.values()}


def _try(
    session: pytest.Session, listener: Listener, items: list[pytest.Item], mutant: dict[str, Any], first: First
) -> dict[str, Any]:
    path = Path(mutant["module"])
    sound, times = path.read_bytes(), path.stat()
    said = Path(os.environ["MUTANTS_ASKED"]).with_suffix(".said")
    said.unlink(missing_ok=True)
    begun, allowed_s = time.monotonic(), SLACK_S + 3 * sum(first.seconds.get(item.nodeid, 0.0) for item in items)
    path.write_text(mutant["source"])
    try:
        child = os.fork()
        if not child:
            _notice(session, listener, items, mutant, said)
        status = _wait(child, allowed_s)
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    by = json.loads(said.read_text()) if said.exists() else [""]
    why = by.pop()
    if status is None:
        by = ["(hangs)"]
    elif not by and status != 0:
        by = [f"(ends with {status})"]
    return {
        "noticed": bool(by),
        "by": by[:1],
        "why": why[-1500:],
        "tests": len(items),
        "seconds": round(time.monotonic() - begun, 1),
    }


def _wait(child: int, allowed_s: float) -> int | None:
    """The child's exit status; None where it was ended after the time allowed."""
    end_at = time.monotonic() + allowed_s
    while time.monotonic() < end_at:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _notice(
    session: pytest.Session, listener: Listener, items: list[pytest.Item], mutant: dict[str, Any], said: Path
) -> None:
    status = 1
    try:
        _child()
        put_in(str(Path(mutant["module"]).resolve()), mutant["source"])
        listener.failed.clear()
        session.testsfailed = 0
        _run(session, items, stop=True)
        said.write_text(json.dumps([*listener.failed, listener.why]))
        status = 0
    finally:
        os._exit(status)


def put_in(file: str, source: str) -> None:
    """Give all functions loaded from a file the code that they have in `source`."""
    codes = dict(_codes(compile(source, file, "exec")))
    loaded: dict[str, list[CodeType]] = defaultdict(list)
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename == file]
    for function in functions:
        if function.__code__ not in loaded[function.__code__.co_qualname]:
            loaded[function.__code__.co_qualname].append(function.__code__)
    for function in functions:
        if "<locals>" in function.__code__.co_qualname and (function.__code__.co_qualname, 1) in codes:
            continue  # one of several of that name: which one is not known
        same = sorted(loaded[function.__code__.co_qualname], key=lambda code: code.co_firstlineno)
        made = codes.get((function.__code__.co_qualname, same.index(function.__code__)))
        if made is not None and made.co_freevars == function.__code__.co_freevars:
            function.__code__ = made


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """All functions of a module with the place that each has among those of its name."""
    seen: dict[str, int] = defaultdict(int)
    todo = [code]
    while todo:
        for inner in (each for each in todo.pop(0).co_consts if isinstance(each, CodeType)):
            yield (inner.co_qualname, seen[inner.co_qualname]), inner
            seen[inner.co_qualname] += 1
            todo.append(inner)
