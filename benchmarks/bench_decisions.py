"""How long one round of each policy takes: `python -m benchmarks.bench_decisions [--jobs 2000] [--repeat 3]`.

Half of the jobs hold a GPU each of two types in nodes of eight, the others wait for one to four; twelve kinds of job.
Seconds are CPU seconds of `plan_round` as the worker calls it, the best of `--repeat`.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from scheduling.domain import Curve, Job, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.policies import POLICIES, load_policy
from tests.builders import make_job, make_nodes, make_snapshot

TYPES = ("v100", "k80")
KINDS = 12


def cluster(jobs: int, seed: int = 1) -> Snapshot:
    rng = random.Random(seed)
    kinds = [_curves(rng) for _ in range(KINDS)]
    each = jobs // 4 // 8 * 8
    nodes = [
        node for n, kind in enumerate(TYPES) for node in make_nodes(*[8] * (each // 8), type=kind, first_id=n * each)
    ]
    made = [_job(number, kinds[number % KINDS], each, rng) for number in range(1, jobs + 1)]
    return make_snapshot(*made, nodes=nodes, prices={"v100": 2.48, "k80": 0.45})


def _curves(rng: random.Random) -> dict[str, Curve]:
    serial, parallel, slower = rng.uniform(0.0005, 0.05), rng.uniform(0.05, 2.0), rng.uniform(2, 6)
    speeds = [1 / (serial + parallel / n) for n in range(1, 9)]
    return {"v100": Curve(tuple(speeds)), "k80": Curve(tuple(speed / slower for speed in speeds))}


def _job(number: int, curves: dict[str, Curve], each: int, rng: random.Random) -> Job:
    common: dict[str, Any] = {
        "curves": curves,
        "number": number,
        "project": f"p{number % 20}",
        "user": f"u{number % 100}",
    }
    steps = rng.uniform(1e3, 1e5)
    if number <= 2 * each:
        kind = TYPES[(number - 1) // each]
        return make_job(holds=[number - 1], type=kind, max_gpus=8, remaining_steps=steps, **common)
    return make_job(min_gpus=rng.choice([1, 1, 1, 2, 4]), max_gpus=8, remaining_steps=steps, **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    snapshot = cluster(options.jobs)
    print(f"{options.jobs} jobs on {sum(len(node.gpu_ids) for node in snapshot.nodes)} GPUs, CPU seconds of one round")
    for name in POLICIES:
        policy, taken = load_policy(name), []
        for _ in range(options.repeat):
            began = time.process_time()
            plan_round(snapshot, policy)
            taken.append(time.process_time() - began)
        print(f"{name:34}{min(taken):8.3f}", flush=True)


if __name__ == "__main__":
    main()
