"""Multifactor priority: what age adds to fair share, and how fast priorities and backfill are worked out.

python -m benchmarks.bench_priority [--only neuron,speed] [--days 30]

`neuron`: KISTI's cluster (260 GPUs), a few heavy and many light users, fair share alone beside fair share with age, at
several loads. Where mean waits are alike (within 10 %) age has to cut both the deviation and the longest wait; exit
code 1 where it does not, or where no mean waits are alike.
`speed`: CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scheduling.domain import Curve, Entity, Gang, Job, Node, Snapshot
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.queue.multifactor import Multifactor
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob

HOUR, DAY = 3_600.0, 86_400.0
#: (type, nodes, GPUs of each)
NEURON = (("v100", 5, 8), ("v100", 19, 4), ("v100", 12, 2), ("a100", 14, 8), ("a100", 2, 4))
HEAVY, LIGHT = 4, 60
#: Work over what the whole cluster can do: of the four heavy users together, and of all others.
LIGHT_LOAD = 0.35
HEAVY_LOADS = (0.40, 0.45, 0.50)
#: Mean waits further apart than this are not compared.
ALIKE = 0.1
PRIORITY_S, BACKFILL_S = 1.0, 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="neuron,speed")
    parser.add_argument("--days", type=float, default=30.0)
    options = parser.parse_args()
    missed: list[str] = []
    if "neuron" in options.only:
        missed += neuron(options.days)
    if "speed" in options.only:
        missed += speed()
    for what in missed:
        print(f"MISSED: {what}")
    return 1 if missed else 0


# Neuron --------------------------------------------------------------------------------------------


def machines() -> tuple[Node, ...]:
    nodes: list[Node] = []
    first = 0
    for kind, count, gpus in NEURON:
        for _ in range(count):
            nodes.append(Node(f"n{len(nodes)}", kind, tuple(range(first, first + gpus))))
            first += gpus
    return tuple(nodes)


def workload(days: float, heavy_load: float, seed: int) -> list[TraceJob]:
    """Poisson arrivals of sessions: heavy users submit many jobs at once, light ones one or two."""
    rng, gpus = random.Random(seed), sum(count * size for _, count, size in NEURON)
    wanted: list[tuple[float, str, float, int]] = []
    for users, load, name, burst in ((HEAVY, heavy_load, "heavy", 40), (LIGHT, LIGHT_LOAD, "light", 2)):
        for user in range(users):
            budget = load * gpus * days * DAY / users
            while budget > 0:
                at = rng.uniform(0, days * DAY)
                for _ in range(rng.randint(1, burst)):
                    size = rng.choices((1, 2, 4, 8), (0.4, 0.2, 0.2, 0.2))[0]
                    seconds = min(rng.lognormvariate(1.8, 1.2), 48.0) * HOUR
                    wanted.append((at + rng.uniform(0, 600), f"{name}{user}", seconds, size))
                    budget -= seconds * size
    return [
        TraceJob(
            id=str(n), number=n, arrival_s=at, total_steps=seconds, user=user, project="neuron", min_gpus=size,
            max_gpus=size, curves={kind: Curve((0.0,) * (size - 1) + (1.0,)) for kind in ("v100", "a100")},
        )
        for n, (at, user, seconds, size) in enumerate(sorted(wanted), 1)
    ]  # fmt: skip


@dataclass(frozen=True)
class Waits:
    mean: float
    deviation: float
    longest: float
    light_mean: float

    @classmethod
    def of(cls, engine: Engine) -> Waits:
        waits = [((run.started_at or 0.0) - run.job.arrival_s) / HOUR for run in engine.runs]
        light = [wait for wait, run in zip(waits, engine.runs, strict=True) if run.job.user.startswith("light")]
        return cls(statistics.fmean(waits), statistics.pstdev(waits), max(waits), statistics.fmean(light))


def neuron(days: float) -> list[str]:
    cluster = Cluster(machines(), {}, launch_s=20.0)
    print(
        f"{'seed':>4} {'load':>5} {'policy':22}{'mean h':>8}{'sd h':>8}{'longest h':>11}{'light mean h':>15}{'jobs':>7}"
    )
    found: dict[str, list[Waits]] = {"fair share": [], "fair share and age": []}
    for seed in (1, 2):
        for heavy_load in HEAVY_LOADS:
            jobs = workload(days, heavy_load, seed)
            for name, age in (("fair share", 0), ("fair share and age", 10_000)):
                policy = load_policy("multifactor", {"weight_age": age, "weight_fair_share": 3_000})
                engine = Engine(jobs, cluster, policy, seed)
                engine.run()
                waits = Waits.of(engine)
                found[name].append(waits)
                print(
                    f"{seed:4} {heavy_load + LIGHT_LOAD:5.2f} {name:22}{waits.mean:8.2f}{waits.deviation:8.2f}"
                    f"{waits.longest:11.1f}{waits.light_mean:15.2f}{len(jobs):7}",
                    flush=True,
                )
    return _compare(*found.values())


def _compare(alone: list[Waits], both: list[Waits]) -> list[str]:
    alike = [(one, other) for one in alone for other in both if abs(other.mean / one.mean - 1) <= ALIKE]
    for one, other in alike:
        print(
            f"mean {one.mean:.2f} and {other.mean:.2f} h: deviation {one.deviation:.1f} -> {other.deviation:.1f}, "
            f"longest {one.longest:.0f} -> {other.longest:.0f} h"
        )
    if not alike:
        return ["no two mean waits are alike"]
    worse = [1 for one, other in alike if other.deviation >= one.deviation or other.longest >= one.longest]
    return [f"in {len(worse)} of {len(alike)} pairs age cuts not both deviation and longest wait"] if worse else []


# Speed ---------------------------------------------------------------------------------------------


def speed() -> list[str]:
    print(f"{'queued':>8} {'what':44}{'CPU s':>8}")
    missed = []
    snapshot = crowd(100_000)
    waiting = [job for job in snapshot.jobs if job.gang is None]
    policy = Multifactor()
    seconds = best(lambda: policy.scores_of(snapshot, waiting).order)
    missed += said(len(waiting), "priorities, 500 projects, 3,000 users", seconds, PRIORITY_S)
    snapshot = crowd(10_000)
    for kind in ("easy", "conservative"):
        filling = load_policy("multifactor", {"backfill": kind, "backfill_depth": 100_000})

        def decide(policy: Any = filling) -> None:
            policy.allocate(replace(snapshot))  # as if the round were the first to look

        seconds = best(decide)
        missed += said(10_000, f"decision with {kind} backfill, 1,000 nodes", seconds, BACKFILL_S)
    return missed


def best(call: Any) -> float:
    times = []
    for _ in range(3):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def said(jobs: int, what: str, seconds: float, bound: float) -> list[str]:
    print(f"{jobs:8,} {what:44}{seconds:8.2f}", flush=True)
    return [f"{what}: {seconds:.2f} of {bound:g} s"] if seconds > bound else []


def crowd(waiting: int) -> Snapshot:
    """1,000 nodes of 8 GPUs, full, and so many jobs that wait."""
    rng, now = random.Random(1), 1e7
    curves = {size: {"v100": Curve((1.0,) * size)} for size in (1, 2, 4, 8)}

    def job(number: int, size: int, **more: Any) -> Job:
        values: dict[str, Any] = {
            "id": f"j{number}", "number": number, "project": f"p{number % 500}", "user": f"u{number % 3_000}",
            "state": State.WAITING_FOR_RESOURCE, "submitted_at": now - rng.uniform(0, 1e6), "curves": curves[size],
            "min_gpus": size, "max_gpus": size, "remaining_steps": rng.uniform(600, 1e5),
        }  # fmt: skip
        return Job(**(values | more))

    nodes = tuple(Node(f"n{n}", "v100", tuple(range(8 * n, 8 * n + 8))) for n in range(1_000))
    jobs, taken = [], 0
    while taken < 8_000:
        size = min(rng.choice((1, 2, 4, 8)), 8 - taken % 8)
        size = max(power for power in (1, 2, 4, 8) if power <= size)
        gpus = tuple(range(taken, taken + size))
        held = {"state": State.RUNNING, "gpu_ids": gpus, "gang": Gang("v100", size), "held_since": now - 1_000}
        jobs.append(job(10**6 + taken, size, **held))
        taken += size
    jobs += [job(number, rng.choice((1, 1, 1, 2, 4, 8))) for number in range(waiting)]
    entities = {f"p{n}": Entity(f"p{n // 10}" if n >= 10 else None, 1 + n % 3) for n in range(500)}
    usage = {f"p{n}": {f"u{u}": {"v100": rng.uniform(0, 1e6)} for u in range(n, 3_000, 500)} for n in range(500)}
    return Snapshot(now, nodes, tuple(jobs), entities=entities, usage=usage, usage_at=now)


if __name__ == "__main__":
    sys.exit(main())
