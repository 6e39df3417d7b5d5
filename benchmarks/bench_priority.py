"""Multifactor priority: what age adds to fair share, and how fast priorities and backfill are worked out.

python -m benchmarks.bench_priority [--only neuron,speed] [--days 60]

`neuron`: KISTI's cluster (260 GPUs), a few heavy and many light users, fair share alone beside fair share with age. At
equal mean wait (within 10 %) age has to cut both the deviation and the longest wait; exit code 1 where it does not.
`speed`: CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scheduling.domain import Curve, Entity, Gang, Job, Node, Snapshot
from scheduling.lifecycle import State
from scheduling.policies import _view, load_policy
from scheduling.policies.multifactor import Multifactor
from scheduling.simulator.engine import Engine
from scheduling.simulator.trace import Cluster, TraceJob

HOUR, DAY = 3_600.0, 86_400.0
#: (type, nodes, GPUs of each)
NEURON = (("v100", 5, 8), ("v100", 19, 4), ("v100", 12, 2), ("a100", 14, 8), ("a100", 2, 4))
HEAVY, LIGHT = 4, 60
#: Of the work: the four heavy users want so much of the whole cluster together, and all others so much.
HEAVY_LOAD, LIGHT_LOAD = 0.75, 0.2
PRIORITY_S, BACKFILL_S = 1.0, 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="neuron,speed")
    parser.add_argument("--days", type=float, default=60.0)
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


def workload(days: float, seed: int) -> list[TraceJob]:
    """Poisson arrivals of sessions: heavy users submit many jobs at once, light ones one or two."""
    rng, gpus = random.Random(seed), sum(count * size for _, count, size in NEURON)
    wanted: list[tuple[float, str, float, int]] = []
    for users, load, name, burst in ((HEAVY, HEAVY_LOAD, "heavy", 25), (LIGHT, LIGHT_LOAD, "light", 2)):
        for user in range(users):
            budget = load * gpus * days * DAY / users
            while budget > 0:
                at = rng.uniform(0, days * DAY)
                for _ in range(rng.randint(1, burst)):
                    size = rng.choices((1, 2, 4, 8), (0.5, 0.2, 0.2, 0.1))[0]
                    seconds = rng.lognormvariate(1.2, 1.0) * HOUR
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
    missed = []
    cluster = Cluster(machines(), {}, launch_s=20.0)
    print(f"{'seed':>4} {'policy':28}{'mean h':>8}{'sd h':>8}{'longest h':>11}{'light, mean h':>15}{'jobs':>8}")
    for seed in (1, 2, 3):
        jobs = workload(days, seed)
        found = {}
        for name, age in (("fair share", 0), ("fair share and age", 10_000)):
            policy = load_policy("multifactor", {"weight_age": age, "weight_fair_share": 3_000})
            engine = Engine(jobs, cluster, policy, seed)
            engine.run()
            found[name] = waits = Waits.of(engine)
            print(
                f"{seed:4} {name:28}{waits.mean:8.2f}{waits.deviation:8.2f}{waits.longest:11.1f}"
                f"{waits.light_mean:15.2f}{len(jobs):8}",
                flush=True,
            )
        alone, both = found["fair share"], found["fair share and age"]
        if abs(both.mean / alone.mean - 1) > 0.1:
            missed.append(f"seed {seed}: means {alone.mean:.2f} and {both.mean:.2f} h are not comparable")
        elif both.deviation >= alone.deviation or both.longest >= alone.longest:
            missed.append(f"seed {seed}: age cuts not both deviation and longest wait")
    return missed


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
            _view._Latest.snapshot = None  # as if the round were the first to look
            policy.allocate(snapshot)

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
