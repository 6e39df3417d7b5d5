"""Several policies on one trace: in this process or in several, with progress, and can be stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from scheduling.collector import freeze_loaded_objects
from scheduling.simulator import Simulation, run_policy
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options

#: Jobs finished since the last call.
Report = Callable[[int], None]
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Suite:
    jobs: Sequence[TraceJob]
    cluster: Cluster
    policies: Sequence[tuple[str, Mapping[str, Any]]]
    options: Options


def run_suite(suite: Suite, processes: int, report: Report) -> list[Simulation]:
    """In the order of the policies. Ctrl-C ends running simulations where they are; the others are left out."""
    if processes > 1 and len(suite.policies) > 1:
        return _in_processes(suite, min(processes, len(suite.policies)), report)
    with _interrupt() as interrupted:
        results = []
        for policy in suite.policies:
            options = replace(suite.options, progress=_Progress(report, interrupted))
            results.append(run_policy(suite.jobs, suite.cluster, *policy, options))
            if interrupted():
                break
        return results


class _Progress:
    """Reports the number of finished jobs now and then, and whether to stop."""

    def __init__(self, report: Report, interrupted: Callable[[], bool]) -> None:
        self._report, self._interrupted = report, interrupted
        self._reported, self._calls, self._at = 0, 0, time.monotonic()

    def __call__(self, ended: int) -> bool:
        self._calls += 1
        if self._calls % 64:
            return False
        now = time.monotonic()
        if now - self._at > _POLL_S:
            self._report(ended - self._reported)
            self._reported, self._at = ended, now
        return self._interrupted()


@contextmanager
def _interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is recorded; a second one ends the program as usual."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: object) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


# Processes -----------------------------------------------------------------------------------------


class _Worker:
    """State of a worker process: set once when it starts, so that jobs are transferred once."""

    suite: Suite
    ended: Synchronized[int]
    stop: Synchronized[int]


def _start_worker(suite: Suite, ended: Synchronized[int], stop: Synchronized[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides when to stop
    _Worker.suite, _Worker.ended, _Worker.stop = suite, ended, stop
    freeze_loaded_objects()


def _run(index: int) -> Simulation | None:
    if _Worker.stop.value:
        return None

    def report(count: int) -> None:
        with _Worker.ended.get_lock():
            _Worker.ended.value += count

    suite = _Worker.suite
    options = replace(suite.options, progress=_Progress(report, lambda: bool(_Worker.stop.value)))
    done = run_policy(suite.jobs, suite.cluster, *suite.policies[index], options)
    for run in done.outcome.runs:
        run.seen = None
    return done


@contextmanager
def _blocked() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, not even during imports; this one sees it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_processes(suite: Suite, processes: int, report: Report) -> list[Simulation]:
    context = get_context("spawn")
    ended, stop = context.Value("q", 0), context.Value("q", 0)
    arguments = (suite, ended, stop)
    with (
        _interrupt() as interrupted,
        ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=arguments) as pool,
    ):
        waiting: set[Future[Simulation | None]] = set()
        with _blocked():
            futures = [pool.submit(_run, index) for index in range(len(suite.policies))]
        waiting.update(futures)
        reported = 0
        while waiting:
            waiting = wait(waiting, timeout=_POLL_S).not_done
            stop.value = int(interrupted())
            report(ended.value - reported)
            reported = ended.value
        return [done for future in futures if (done := future.result()) is not None]
