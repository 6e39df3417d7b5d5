"""The report of a simulation: figures per policy as `simulation/1` JSON and as a table.

Each figure is defined in docs/simulator.md; times are seconds, and means are over finished jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any

from scheduling.domain import WHOLE
from scheduling.lifecycle import TRAINING, WAITING, State
from scheduling.simulator.inputs.trace import Cluster, Sizes, sizes
from scheduling.simulator.outcome import LAUNCHING_DELAY, Outcome
from scheduling.simulator.run import Run

SCHEMA = "simulation/1"


def summarise(outcome: Outcome, cluster: Cluster) -> dict[str, Any]:
    """All figures of one simulation except its name and wall time."""
    done = [run for run in outcome.runs if run.finished_at is not None]
    times = [_jct(run) for run in done]
    slow = [value for run in done if (value := slowdown(run)) is not None]
    of = sizes(cluster.nodes)
    fair = [rho for run in done if (rho := fairness(run, outcome, of)) is not None]
    makespan = outcome.end - outcome.first_arrival
    return {
        "jobs": len(outcome.runs),
        "finished": len(done),
        "interrupted": outcome.interrupted,
        "makespan_s": makespan,
        "jct_s": {"mean": _mean(times), "p50": percentile(times, 0.5), "p99": percentile(times, 0.99)},
        "queueing_s": _mean([seconds_in(run, WAITING) for run in done]),
        "launching_s": _mean([seconds_in(run, LAUNCHING_DELAY) for run in done]),
        "running_s": _mean([seconds_in(run, TRAINING) for run in done]),
        "utilisation": _utilisation(outcome, cluster, makespan),
        "utilisation_cdf": _utilisation_cdf(outcome, cluster),
        "slowdown": {
            "mean": _mean(slow),
            "p99": percentile(slow, 0.99),
            "max": max(slow, default=0.0),
            "variance": pvariance(slow) if slow else 0.0,
        },
        "relative_throughput_variance": outcome.meter.mean_variance,
        "finish_time_fairness": {"max": max(fair, default=0.0), "jain": _jain(fair)},
        "restarts": sum(run.restarts for run in outcome.runs),
        "failures": {
            "nodes": outcome.failures,
            "jobs": sum(run.failures for run in outcome.runs),
            "lost_gpu_s": sum(run.lost_gpu_s for run in outcome.runs),
        },
        "cost": sum(run.cost for run in outcome.runs),
        "rounds": outcome.rounds,
        "fallbacks": outcome.fallbacks,
    }


def seconds_in(run: Run, states: frozenset[State]) -> float:
    return sum(run.seconds[state] for state in states if state in run.seconds)


def slowdown(run: Run) -> float | None:
    """Completion time over the time alone on the whole cluster."""
    return _jct(run) * run.alone / run.job.total_steps if run.job.total_steps > 0 and run.alone > 0 else None


def _jct(run: Run) -> float:
    assert run.finished_at is not None
    return run.finished_at - run.job.arrival_s


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between order statistics; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _utilisation(outcome: Outcome, cluster: Cluster, makespan: float) -> float:
    """Fraction of GPU time during which a job trained."""
    return outcome.meter.gpu_seconds / (makespan * cluster.gpus) if makespan > 0 and cluster.gpus else 0.0


def _utilisation_cdf(outcome: Outcome, cluster: Cluster) -> list[list[float]]:
    """[utilisation, fraction of time at or below it] in steps of a twentieth."""
    seconds_at = sorted(outcome.meter.seconds_at.items())
    total = sum(seconds for _, seconds in seconds_at)
    points = []
    for step in range(21):
        most = step / 20 * cluster.gpus * WHOLE + 1e-6
        below = sum(seconds for milli, seconds in seconds_at if milli <= most)
        points.append([step / 20, below / total if total else 0.0])
    return points


def fairness(run: Run, outcome: Outcome, of: Sizes) -> float | None:
    """Completion time over that on 1/n of the cluster, n being the mean number of live jobs meanwhile."""
    assert run.finished_at is not None
    seconds = _jct(run)
    if seconds <= 0 or run.job.total_steps <= 0:
        return None
    jobs = max(1.0, outcome.meter.mean_live(run.job.arrival_s, run.finished_at))
    speed = 0.0
    for kind, curve in run.job.curves.items():
        if kind not in of or (run.job.types and kind not in run.job.types):
            continue
        gpus = of[kind][0] / jobs
        gpus = min(gpus, float(run.job.max_gpus or gpus))
        least = max(run.job.min_gpus, 1)
        # below its minimum a job would have its gang for a fraction of the time
        speed = max(speed, curve.at(int(gpus)) if gpus >= least else curve.at(least) * gpus / least)
    return seconds * speed / run.job.total_steps if speed > 0 else None


def _jain(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


# Table ---------------------------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("makespan s", "makespan_s", "{:,.0f}"),
    ("JCT mean s", "jct_s.mean", "{:,.0f}"),
    ("JCT p99 s", "jct_s.p99", "{:,.0f}"),
    ("queue s", "queueing_s", "{:,.0f}"),
    ("launch s", "launching_s", "{:,.0f}"),
    ("run s", "running_s", "{:,.0f}"),
    ("util.", "utilisation", "{:.0%}"),
    ("slowdown", "slowdown.mean", "{:.2f}"),
    ("worst", "slowdown.max", "{:.2f}"),
    ("Jain", "finish_time_fairness.jain", "{:.3f}"),
    ("restarts", "restarts", "{:.0f}"),
    ("cost", "cost", "{:,.2f}"),
    ("rounds", "rounds", "{:.0f}"),
    ("wall s", "wall_s", "{:.2f}"),
)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per policy; numbers right-aligned."""
    rows = [["policy", "finished", *(head for head, _, _ in _COLUMNS)]]
    for result in results:
        figures = [form.format(_dig(result, path)) for _, path, form in _COLUMNS]
        rows.append([label(result), f"{result['finished']}/{result['jobs']}", *figures])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(lines)


def remarks(results: Sequence[Mapping[str, Any]], asked: Sequence[str]) -> list[str]:
    """Remarks beside the table: policies that look better because jobs were left out, policies that were stopped, and
    labels in `asked` without a line."""
    said = [text for result in results if (text := _remark(result))]
    begun = Counter(label(result) for result in results)
    waiting = Counter(asked) - begun
    if waiting:
        said.append(f"Not begun: {', '.join(waiting.elements())}.")
    return said


def _remark(result: Mapping[str, Any]) -> str:
    name, jobs, finished = label(result), result["jobs"], result["finished"]
    if result["interrupted"]:
        return f"{name}: interrupted when {finished:,} of {jobs:,} jobs had finished: its figures are up to then."
    if not finished:
        return f"{name}: none of {jobs:,} jobs ever finished."
    if finished < jobs:
        return f"{name}: {jobs - finished:,} of {jobs:,} jobs never finished: its makespan and cost are of the others."
    return ""


def label(result: Mapping[str, Any]) -> str:
    given = result.get("given", {})
    return str(result["policy"]) + (
        f" ({', '.join(f'{key}={value}' for key, value in given.items())})" if given else ""
    )


def _dig(result: Mapping[str, Any], path: str) -> Any:
    value: Any = result
    for key in path.split("."):
        value = value[key]
    return value
