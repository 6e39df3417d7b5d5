"""Workloads of the Sia artifact (SOSP 2023) with its measured curves: elastic jobs.

A workload names application, batch size and arrival. f(R) on each GPU type comes from
`traces/<application>/scalability-<type>.csv`: the step time of the batch split evenly over R replicas, linear between
measured local batches, accumulated in several passes where a share exceeds the largest. The work is the number of
iterations of the validation run with the nearest batch size, in proportion to the batch.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from functools import lru_cache
from math import ceil, log
from pathlib import Path

from scheduling.domain import Curve
from scheduling.errors import InvalidInput
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context
from scheduling.simulator.readers.rows import Row, header, table
from scheduling.throughput.curves import make_curve

Points = list[tuple[float, float, float]]  # local batch, step time, synchronisation part of it; seconds


def matches(path: Path, text: str) -> bool:
    return {"time", "application", "num_replicas", "batch_size"} <= header(text)


def read(path: Path, context: Context) -> list[TraceJob]:
    folder = _folder(path)
    jobs = []
    for number, row in enumerate(table(path), 1):
        application, batch = row.text("application"), row.integer("batch_size", least=1)
        if not (folder / application).is_dir():
            raise row.error("application", f"there are no curves of {application!r} in {folder}")
        curves = _curves(folder / application, batch)
        if not curves:
            raise row.error("batch_size", f"no curve of {application!r} allows a batch of {batch}")
        jobs.append(
            TraceJob(
                id=row.text("name") if "name" in row else str(number),
                number=number,
                arrival_s=row.number("time"),
                total_steps=_iterations(folder / application, batch, row),
                curves=curves,
                model_type=application,
                max_gpus=max(len(curve.steps_per_s) for curve in curves.values()),
            )
        )
    return jobs


def _folder(path: Path) -> Path:
    """`traces` beside the workloads, or in EVENKEEL_SHARED."""
    shared = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data" / "sia"
    for folder in (*path.resolve().parents, shared):
        if (folder / "traces" / "cifar10").is_dir():
            return folder / "traces"
    raise InvalidInput(f"{path}: Sia's curves (traces/<application>/scalability-*.csv) are not beside it")


@lru_cache(maxsize=1024)
def _curves(folder: Path, batch: int) -> dict[str, Curve]:
    found = {}
    for path in sorted(folder.glob("scalability-*.csv")):
        measured: defaultdict[int, Points] = defaultdict(list)
        for row in table(path):
            point = (row.number("local_bsz"), row.number("step_time"), row.number("sync_time"))
            measured[row.integer("num_replicas", least=1)].append(point)
        speeds = {n: 1.0 / seconds for n, points in measured.items() if (seconds := _step_s(points, batch / n)) > 0}
        if speeds:
            found[path.stem.removeprefix("scalability-")] = make_curve(speeds)
    return found


def _step_s(points: Points, local: float) -> float:
    """Seconds of a step with this many samples on each replica."""
    best = {size: min(point[1:] for point in points if point[0] == size) for size, *_ in points}
    sizes = sorted(best)
    if local < 1.0:
        return 0.0
    passes = ceil(local / sizes[-1] - 1e-9) if local > sizes[-1] else 1
    share = local / passes
    index = min(max(bisect_left(sizes, share), 1), len(sizes) - 1) if len(sizes) > 1 else 0
    low, high = sizes[max(0, index - 1)], sizes[index]
    part = min(1.0, max(0.0, (share - low) / (high - low))) if high > low else 0.0
    step, sync = (a + (b - a) * part for a, b in zip(best[low], best[high], strict=True))
    return passes * (step - sync) + sync if passes > 1 else step


def _iterations(folder: Path, batch: int, row: Row) -> float:
    known = {int(path.stem.removeprefix("validation-")): path for path in folder.glob("validation-*.csv")}
    if not known:
        raise row.error("application", f"{folder} has no validation runs, so its work is unknown")
    nearest = min(known, key=lambda size: (abs(log(size / batch)), size))
    return _last_iteration(known[nearest]) * nearest / batch


@lru_cache(maxsize=256)
def _last_iteration(path: Path) -> float:
    return max((row.number("iteration") for row in table(path)), default=0.0)
