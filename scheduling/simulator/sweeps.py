"""Trials with different jobs and clusters, in a few processes that end with the one that started them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from scheduling.collector import freeze_loaded_objects
from scheduling.lifecycle import TRAINING, WAITING
from scheduling.simulator import Simulation, run_policy
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import LAUNCHING_DELAY, Options
from scheduling.simulator.output.report import percentile, seconds_in, slowdown
from scheduling.simulator.run import Run

JOB_KEYS = (
    "id", "project", "user", "arrival_s", "started_s", "finished_s", "wait_s", "launching_s", "running_s", "gpu_s",
    "cost", "restarts", "slowdown",
)  # fmt: skip
MOST_POINTS, MOST_SPANS = 200, 20_000
_POLL_S = 0.25
_REPORT_EVERY = 64


@dataclass(frozen=True, slots=True)
class Trial:
    key: str
    jobs: Sequence[TraceJob]
    cluster: Cluster
    policy: str
    parameters: Mapping[str, Any]
    options: Options


@dataclass(frozen=True, slots=True)
class Done:
    """Of one trial: its figures, and the data for charts and comparisons; or its error."""

    key: str
    result: dict[str, Any]
    detail: dict[str, Any]
    error: str = ""


def run_trials(
    trials: Sequence[Trial], processes: int, on_done: Callable[[Done], None], look: Callable[[int], bool]
) -> bool:
    """In this order. `look` gets the number of finished jobs and returns whether to stop; False if it did."""
    context = get_context("spawn")
    ended, stop = context.Value("q", 0), context.Value("q", 0)
    with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(ended, stop)) as pool:
        open_trials: set[Future[Done | None]] = {pool.submit(_run, trial) for trial in trials}
        try:
            while open_trials:
                done, open_trials = wait(open_trials, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    if (found := future.result()) is not None:
                        on_done(found)
                if look(ended.value):
                    return False
            return True
        finally:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


class _Shared:
    """State shared between the processes."""

    ended: Synchronized[int]
    stop: Synchronized[int]


def _begin(ended: Synchronized[int], stop: Synchronized[int]) -> None:
    _Shared.ended, _Shared.stop = ended, stop
    freeze_loaded_objects()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(trial: Trial) -> Done | None:
    if _Shared.stop.value:
        return None
    reported = calls = 0

    def progress(count: int) -> bool:
        nonlocal reported, calls
        calls += 1
        if calls % _REPORT_EVERY == 0 and count > reported:
            with _Shared.ended.get_lock():
                _Shared.ended.value += count - reported
            reported = count
        return bool(_Shared.stop.value)

    done = run_trial(replace(trial, options=replace(trial.options, progress=progress)))
    with _Shared.ended.get_lock():
        _Shared.ended.value += len(trial.jobs) - reported
    return None if _Shared.stop.value else done


def run_trial(trial: Trial) -> Done:
    """In this process."""
    try:
        made = run_policy(trial.jobs, trial.cluster, trial.policy, trial.parameters, trial.options)
    except Exception as error:  # one failing policy must not lose the others' results
        return Done(trial.key, {}, {}, f"{type(error).__name__}: {error}"[:500])
    done = [run for run in made.outcome.runs if run.finished_at is not None]
    waits = [seconds_in(run, WAITING) for run in done]
    shares = {f"p{part}": percentile(waits, part / 100) for part in (50, 95, 99)}
    wait_s = {"mean": sum(waits) / len(waits) if waits else 0.0, **shares}
    return Done(trial.key, {**made.result, "wait_s": wait_s}, detail_of(made, trial.cluster))


def detail_of(made: Simulation, cluster: Cluster) -> dict[str, Any]:
    outcome = made.outcome
    held: dict[str, float] = {}
    kind_of = {gpu: node.type for node in cluster.nodes for gpu in node.gpu_ids}
    for _, gpus, start, end in outcome.holds:
        for gpu in gpus:
            held[kind_of[gpu]] = held.get(kind_of[gpu], 0.0) + end - start
    return {
        "start_s": outcome.first_arrival,
        "end_s": outcome.end,
        "jobs": [_row(run) for run in outcome.runs],
        "spans": _spans(made),
        "held_gpu_s": held,
        "utilisation": _over_time(made, cluster.gpus),
        "utilisation_cdf": made.result["utilisation_cdf"],
    }


def _row(run: Run) -> list[Any]:
    job = run.job
    times = (seconds_in(run, states) for states in (WAITING, LAUNCHING_DELAY, TRAINING))
    slow = slowdown(run) if run.finished_at is not None else None
    values = [job.arrival_s, run.started_at, run.finished_at, *times, run.gpu_seconds, run.cost, run.restarts, slow]
    rounded = [round(value, 4) if isinstance(value, float) else value for value in values]
    return [job.id, job.project, job.user, *rounded]


def _spans(made: Simulation) -> list[list[Any]]:
    """[job's index, first GPU, last GPU, from, to]; the longest if there are too many."""
    place = {run.job.number: index for index, run in enumerate(made.outcome.runs)}
    spans: list[list[Any]] = []
    for number, gpus, start, end in made.outcome.holds:
        ordered = sorted(gpus)
        firsts = [gpu for before, gpu in zip([-2, *ordered], ordered, strict=False) if gpu != before + 1]
        lasts = [gpu for gpu, after in zip(ordered, [*ordered[1:], -2], strict=True) if after != gpu + 1]
        for first, last in zip(firsts, lasts, strict=True):
            spans.append([place[number], first, last, round(start, 3), round(end, 3)])
    spans.sort(key=lambda span: float(span[3]) - float(span[4]))
    return sorted(spans[:MOST_SPANS], key=lambda span: (span[3], span[1]))


def _over_time(made: Simulation, gpus: int) -> list[list[float]]:
    """[time, fraction of GPUs that train], means over equal intervals."""
    meter, start, end = made.outcome.meter, made.outcome.first_arrival, made.outcome.end
    if end <= start or not gpus:
        return []
    width = (end - start) / MOST_POINTS
    sums = [0.0] * MOST_POINTS
    for index, (at, milli) in enumerate(zip(meter.times, meter.levels, strict=True)):
        until = min(end, meter.times[index + 1] if index + 1 < len(meter.times) else meter.at)
        while at < until:
            slot = int((at - start) / width)
            slot += start + (slot + 1) * width <= at  # an interval that ends here except for rounding
            slot = min(MOST_POINTS - 1, slot)
            upto = until if slot == MOST_POINTS - 1 else min(until, start + (slot + 1) * width)
            sums[slot] += milli * (upto - at)
            at = upto
    return [[round(start + i * width, 3), round(value / width / 1000 / gpus, 6)] for i, value in enumerate(sums)]
