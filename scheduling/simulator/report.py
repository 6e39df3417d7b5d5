"""What a simulation says: figures per policy as `simulation/1` JSON and as a table.

Times are seconds and means over finished jobs. `slowdown` is completion time over the time the job
would need alone on the whole cluster (1 is best); `finish_time_fairness` is completion time over the
time on an equal share of the cluster (at most 1 is fair; Themis, NSDI 2020).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any

from scheduling.lifecycle import TRAINING, WAITING
from scheduling.simulator.engine import LAUNCHING_DELAY, Outcome, Run
from scheduling.simulator.trace import Cluster

SCHEMA = "simulation/1"


def summarise(outcome: Outcome, cluster: Cluster) -> dict[str, Any]:
    """All figures of one simulation but its name and wall time."""
    done = [run for run in outcome.runs if run.finished_at is not None]
    times = [_jct(run) for run in done]
    slow = [_jct(run) * run.alone / run.job.total_steps for run in done if run.job.total_steps > 0]
    fair = [rho for run in done if (rho := _fairness(run, outcome, cluster)) is not None]
    makespan = outcome.end - outcome.first_arrival
    bound = [(level.seconds, level.variance) for level in outcome.levels if level.variance is not None]
    return {
        "jobs": len(outcome.runs),
        "finished": len(done),
        "makespan_s": makespan,
        "jct_s": {"mean": _mean(times), "p50": percentile(times, 0.5), "p99": percentile(times, 0.99)},
        "queueing_s": _mean([sum(run.seconds[state] for state in WAITING) for run in done]),
        "launching_s": _mean([sum(run.seconds[state] for state in LAUNCHING_DELAY) for run in done]),
        "running_s": _mean([sum(run.seconds[state] for state in TRAINING) for run in done]),
        "utilisation": _utilisation(outcome, cluster, makespan),
        "utilisation_cdf": _utilisation_cdf(outcome, cluster),
        "slowdown": {
            "mean": _mean(slow),
            "p99": percentile(slow, 0.99),
            "max": max(slow, default=0.0),
            "variance": pvariance(slow) if slow else 0.0,
        },
        "relative_throughput_variance": _weighted(bound),
        "finish_time_fairness": {"max": max(fair, default=0.0), "jain": _jain(fair)},
        "restarts": sum(run.restarts for run in outcome.runs),
        "cost": _cost(outcome, cluster),
        "rounds": outcome.rounds,
    }


def _jct(run: Run) -> float:
    assert run.finished_at is not None
    return run.finished_at - run.job.arrival_s


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between order statistics; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _weighted(parts: Sequence[tuple[float, float]]) -> float:
    seconds = sum(weight for weight, _ in parts)
    return sum(weight * value for weight, value in parts) / seconds if seconds else 0.0


def _utilisation(outcome: Outcome, cluster: Cluster, makespan: float) -> float:
    """Share of GPU time on which something trained."""
    trained = sum(level.seconds * level.training_gpus for level in outcome.levels)
    return trained / (makespan * cluster.gpus) if makespan > 0 and cluster.gpus else 0.0


def _utilisation_cdf(outcome: Outcome, cluster: Cluster) -> list[list[float]]:
    """[utilisation, share of time at or below it] at every twentieth."""
    total = sum(level.seconds for level in outcome.levels)
    points = []
    for step in range(21):
        most = step / 20 * cluster.gpus + 1e-9
        below = sum(level.seconds for level in outcome.levels if level.training_gpus <= most)
        points.append([step / 20, below / total if total else 0.0])
    return points


def _fairness(run: Run, outcome: Outcome, cluster: Cluster) -> float | None:
    """Completion time over that on 1/n of the cluster, n the mean number of live jobs meanwhile."""
    assert run.finished_at is not None
    seconds = _jct(run)
    if seconds <= 0:
        return None
    jobs = max(1.0, (_live_until(outcome, run.finished_at) - _live_until(outcome, run.job.arrival_s)) / seconds)
    speed = 0.0
    for kind, curve in run.job.curves.items():
        if run.job.types and kind not in run.job.types:
            continue
        gpus = sum(len(node.gpu_ids) for node in cluster.nodes if node.type == kind) / jobs
        gpus = min(gpus, float(run.job.max_gpus or gpus))
        least = max(run.job.min_gpus, 1)
        # Below its minimum a job would have its gang for a part of the time.
        speed = max(speed, curve.at(int(gpus)) if gpus >= least else curve.at(least) * gpus / least)
    return seconds * speed / run.job.total_steps if speed > 0 and run.job.total_steps > 0 else None


def _live_until(outcome: Outcome, at: float) -> float:
    """Integral of the number of live jobs up to a time."""
    points = outcome.live_integral
    index = bisect_right(points, (at, float("inf"))) - 1
    time, value = points[max(index, 0)]
    if index + 1 < len(points) and at > time:
        later, after = points[index + 1]
        value += (after - value) * (at - time) / (later - time)
    return value


def _jain(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _cost(outcome: Outcome, cluster: Cluster) -> float:
    """Held GPU hours by the cluster file's prices; held is from launching until the processes are gone."""
    return sum(
        seconds / 3600.0 * cluster.price_per_gpu_hour.get(kind, 0.0) for kind, seconds in outcome.gpu_seconds.items()
    )


# Table ---------------------------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("finished", "finished", "{:.0f}"),
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
    rows = [["policy", *(head for head, _, _ in _COLUMNS)]]
    for result in results:
        rows.append([label(result), *(form.format(_dig(result, path)) for _, path, form in _COLUMNS)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(lines)


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
