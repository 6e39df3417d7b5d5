"""Runs the collected tests once for each mutant, in a child that is forked where all is imported and started.

A first child runs those of which nothing is known without a mistake and notes which test reaches which line, so that a
mutant's child needs to run only those that can notice it. The mistake is put into the functions that are loaded already
and, for the processes that tests start, into the file.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TextIO

import hypothesis
import pytest
from asgiref.sync import SyncToAsync
from coverage import Coverage
from django.db import connections
from hypothesis import Phase

READY = "tests/mutation/ready.py"
#: Of the tests that reach a line, so many seconds of them are run.
MOST_S = 90.0
#: A test hangs where it takes so much longer than without the mistake, and than its seconds so many times.
SLACK_S, TIMES = 30.0, 5
HANGS = "(hangs)"


@dataclass
class First:
    """What is known of the tests without a mistake: seconds, and the tests that reach a line of a module."""

    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, tests: dict[str, Any]) -> None:
        for test, found in tests.items():
            self.seconds[test] = found["seconds"]
            for module, lines in found["lines"].items():
                for line in lines:
                    self.reached[module, line].add(test)


class Listener:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.coverage: Coverage | None = None
        self.failed: list[str] = []
        self.why = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.coverage is not None:
            self.coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = round(time.monotonic() - begun, 3)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            self.why = report.longreprtext


@dataclass
class Tries:
    """The tests of a session, and where is said what is found."""

    session: pytest.Session
    listener: Listener
    items: list[pytest.Item]
    asked: dict[str, Any]
    first: First
    out: TextIO

    def say(self, **found: object) -> None:
        print(json.dumps(found), file=self.out, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    # The first counter-example is enough, and how long one takes on a machine that is busy says nothing.
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
    )
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
    if listener.failed:  # all others would fail for the same reason, and seem to notice every mutant
        raise pytest.UsageError(f"The servers could not be started:\n{listener.why}")
    connections.close_all()
    with Path(asked["results"]).open("a") as out:
        tries = Tries(session, listener, items, asked, First(), out)
        if _know(tries):
            for mutant in asked["mutants"]:
                tries.say(key=mutant["key"], **_try(tries, mutant))
    return True


def _child() -> None:
    os.setsid()
    SyncToAsync.single_thread_executor = ThreadPoolExecutor(max_workers=1)


def _run(session: pytest.Session, items: list[pytest.Item], *, stop: bool = False, begins: int | None = None) -> None:
    for index, item in enumerate(items):
        if begins is not None:
            os.write(begins, b".")
        # Never None: that would end what all children share.
        after = items[index + 1] if index + 1 < len(items) else session.items[0]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if stop and session.testsfailed:
            return


def _know(tries: Tries) -> bool:
    """Run the tests of which nothing is known without a mistake; those that fail, again. False: they fail again."""
    unknown = [item for item in tries.items if _file(item) not in tries.asked["known"]]
    for tests in tries.asked["known"].values():
        tries.first.take(tests)
    failed: list[str] = []
    for found in _records(tries, unknown):
        tries.first.take(found["tests"])
        failed += found["failed"]
        tries.say(**found)
    again = [item for item in unknown if item.nodeid in failed]
    still = [test for found in _records(tries, again) for test in found["failed"]]
    tries.say(flaky=sorted({*failed} - {*still}), broken=still)
    tries.items = [item for item in tries.items if item.nodeid not in failed]
    return not still


def _records(tries: Tries, items: list[pytest.Item]) -> Iterator[dict[str, Any]]:
    """What a child that runs tests without a mistake finds, file by file."""
    if not items:
        return
    source, target = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            with os.fdopen(target, "w") as out, warnings.catch_warnings(action="ignore"):
                _child()
                _record(tries, items, out)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(target)
    with os.fdopen(source) as lines:
        for line in lines:
            yield json.loads(line)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise pytest.UsageError("The run without a mistake ended early.")


def _record(tries: Tries, items: list[pytest.Item], out: TextIO) -> None:
    listener, modules = tries.listener, tries.asked["modules"]
    places = {str(Path(module).resolve()): module for module in modules}
    listener.coverage = Coverage(data_file=None, include=list(places), config_file=False, messages=False)
    listener.coverage.start()
    for file in dict.fromkeys(map(_file, items)):
        listener.failed.clear()
        mine = [item for item in items if _file(item) == file]
        _run(tries.session, mine)
        data = listener.coverage.get_data()
        data.set_query_contexts([f"^{re.escape(file)}::"])
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, module in places.items():
            for line, tests in data.contexts_by_lineno(place).items():
                for test in tests:
                    lines[test][module].append(line)
        sound = [item.nodeid for item in mine if item.nodeid not in listener.failed]
        found = {test: {"seconds": listener.seconds[test], "lines": lines[test]} for test in sound}
        print(json.dumps({"file": file, "tests": found, "failed": listener.failed}), file=out, flush=True)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _chosen(tries: Tries, mutant: dict[str, Any]) -> list[pytest.Item]:
    """Tests that reach one of the mutant's lines; what the first test of a module reaches may be its fixtures', so all
    of that module's come after; where tests start processes, all tests. Not those that did not notice it before."""
    items = [item for item in tries.items if mutant["files"] is None or _file(item) in mutant["files"]]
    reached = set().union(*(tries.first.reached.get((mutant["module"], line), set()) for line in mutant["lines"]))
    firsts = {_file(item): item.nodeid for item in reversed(tries.items)}
    whole = {file for file, test in firsts.items() if test in reached}
    chosen = [item for item in items if item.nodeid in reached]
    chosen += [item for item in items if (_file(item) in whole or mutant["apart"]) and item.nodeid not in reached]
    return _bounded(chosen, mutant["module"], tries.first)


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


def _try(tries: Tries, mutant: dict[str, Any]) -> dict[str, Any]:
    """What notices a mutant counts only where it does so twice: alone, or else where all runs again."""
    begun = time.monotonic()
    items = _chosen(tries, mutant)
    by, why = _once(tries, mutant, items) if items else ("", "")
    if by:
        alone = [item for item in items if item.nodeid == by.partition(" ")[0]]
        if not alone or not _once(tries, mutant, alone)[0]:
            by, why = _once(tries, mutant, items)
    seconds = round(time.monotonic() - begun, 1)
    return {"noticed": bool(by), "by": by, "why": why[-1500:], "tests": len(items), "seconds": seconds}


def _once(tries: Tries, mutant: dict[str, Any], items: list[pytest.Item]) -> tuple[str, str]:
    """The test that notices it, and what it says."""
    path = Path(mutant["module"])
    sound, times = path.read_bytes(), path.stat()
    said = Path(os.environ["MUTANTS_ASKED"]).with_suffix(".said")
    said.unlink(missing_ok=True)
    path.write_text(mutant["source"])
    source, target = os.pipe()
    try:
        if not (child := os.fork()):
            _notice(tries, items, mutant, said, target)
        os.close(target)
        at, status = _wait(child, source, [tries.first.seconds.get(item.nodeid, 0.0) for item in items])
    finally:
        os.close(source)
        path.write_bytes(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if status is None:
        return f"{items[at].nodeid} {HANGS}", ""
    if not said.exists():
        return f"{items[at].nodeid} (ends with {status})", ""
    found = json.loads(said.read_text())
    if isinstance(found, dict):
        raise pytest.UsageError(f"The mutant could not be tried:\n{found['error']}")
    *by, why = found
    return (by[0], why) if by else ("", "")


def _wait(child: int, begins: int, seconds: list[float]) -> tuple[int, int | None]:
    """Which test ran last, and the child's exit status: None where it was ended because that test hung."""
    os.set_blocking(begins, False)
    at, since = 0, time.monotonic()
    count = 0
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(BlockingIOError):
            count += len(os.read(begins, 4096))
        if count - 1 > at:
            at, since = count - 1, time.monotonic()
        if done:
            return at, os.waitstatus_to_exitcode(status)
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if time.monotonic() - since > (SLACK_S + TIMES * seconds[at]) * load:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return at, None
        time.sleep(0.02)


def _notice(tries: Tries, items: list[pytest.Item], mutant: dict[str, Any], said: Path, begins: int) -> None:
    status = 1
    try:
        _child()
        put_in(str(Path(mutant["module"]).resolve()), mutant["source"])
        tries.listener.failed.clear()
        tries.session.testsfailed = 0
        _run(tries.session, items, stop=True, begins=begins)
        said.write_text(json.dumps([*tries.listener.failed, tries.listener.why]))
        status = 0
    except Exception:
        said.write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        os._exit(status)


def put_in(file: str, source: str) -> None:
    """Give all functions loaded from a file the code that they have in `source`."""
    codes = dict(_codes(compile(source, file, "exec")))
    loaded: dict[str, list[CodeType]] = defaultdict(list)
    # By type(): some objects of others answer a question for their class with a warning, which is an error.
    functions = [one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename == file]
    for function in functions:
        if function.__code__ not in loaded[function.__code__.co_qualname]:
            loaded[function.__code__.co_qualname].append(function.__code__)
    for function in functions:
        if "<locals>" in function.__code__.co_qualname and (function.__code__.co_qualname, 1) in codes:
            continue  # one of several of that name: which one is not known
        same = sorted(loaded[function.__code__.co_qualname], key=lambda code: code.co_firstlineno)
        made = codes.get((function.__code__.co_qualname, same.index(function.__code__)))
        if made is not None and not made.co_freevars:  # such as where super() is gone
            made = made.replace(co_freevars=function.__code__.co_freevars)
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
