"""How fast the simulator is: Philly's jobs, growth with the number of jobs, and the reference on its own traces.

    python -m benchmarks.bench_simulator [--full]

Without --full: samples (up to 10,000 jobs on 500 GPUs). Published traces are read from EVENKEEL_SHARED
(default ../shared), and what is absent is printed as skipped. CPU seconds are of the simulation alone;
wall seconds depend on what else the machine does. EVENKEEL_PEER_GAVEL names the `scheduler/` directory of a checkout of
stanford-futuredata/gavel beside a virtual environment `venv`; without it recorded times stand in.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from math import log
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scheduling.collector import freeze_loaded_objects  # noqa: E402
from scheduling.domain import Curve, Node  # noqa: E402
from scheduling.policies import POLICIES  # noqa: E402
from scheduling.simulator import simulate  # noqa: E402
from scheduling.simulator.inputs.trace import Cluster, TraceJob  # noqa: E402
from scheduling.simulator.readers import read_trace  # noqa: E402
from scheduling.throughput.curves import amdahl  # noqa: E402

DATA = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data"
TYPES = {"v100": 1.0, "p100": 0.6, "k80": 0.25}
LOAD = 0.8
SAMPLED = ("cont_single_300_lam2400.trace", "static_multi_150.trace")
PEER_LIMIT_S = 600
#: Policy here -> its name in the recorded results of the reference.
RECORDED = {
    "fifo": "fifo_perf",
    "max_min_fairness": "max_min_fairness_perf",
    "finish_time_fairness": "finish_time_fairness_perf",
    "min_makespan": "min_total_duration_perf",
    "isolated": "isolated",
}


def cluster(gpus: int, types: Sequence[str] = tuple(TYPES), node_size: int = 8) -> Cluster:
    """Nodes of the types in turn."""
    ids = count()
    sizes = [min(node_size, gpus - start) for start in range(0, gpus, node_size)]
    nodes = tuple(
        Node(f"n{index}", types[index % len(types)], tuple(next(ids) for _ in range(size)))
        for index, size in enumerate(sizes)
    )
    return Cluster(nodes, dict.fromkeys(types, 1.0), 20.0, 3.0, 2.0)


def workload(jobs: int, gpus: int, *, elastic: bool) -> list[TraceJob]:
    """The paper's durations and Philly's gangs at 80 % load; elastic ones may grow to 8 times their minimum."""
    rng, now, found = random.Random(1), 0.0, []
    mean_gpus = 1.0 if elastic else 0.7 * 1 + 0.1 * 2 + 0.15 * 4 + 0.05 * 8
    speed_of_mix = sum(TYPES.values()) / len(TYPES)
    rate = LOAD * gpus * speed_of_mix / (1006.0 * 60.0 * mean_gpus)
    shapes = [
        {kind: Curve(amdahl(0.005 * k / speed, 0.2 / speed, 8)) for kind, speed in TYPES.items()} for k in range(1, 13)
    ]
    for number in range(1, jobs + 1):
        now += rng.expovariate(rate)
        curves = rng.choice(shapes)
        gang = 1 if elastic else rng.choices([1, 2, 4, 8], [0.7, 0.1, 0.15, 0.05])[0]
        low, high = (1.5, 3.0) if rng.random() < 0.8 else (3.0, 4.0)
        steps = 60.0 * 10.0 ** rng.uniform(low, high) * curves["v100"].at(gang)
        most = 8 if elastic else gang
        found.append(TraceJob(str(number), number, now, steps, curves, min_gpus=gang, max_gpus=most))
    return found


def measure(jobs: Sequence[TraceJob], on: Cluster, policy: str) -> tuple[float, float, dict[str, float]]:
    started = time.process_time()
    result = simulate(jobs, on, policy)
    return time.process_time() - started, float(result["wall_s"]), result


def philly(*, full: bool) -> None:
    path = DATA / "philly" / "philly_jobs_sia.csv"
    print("\n## Philly's jobs, fifo_gang, 2,488 GPUs in nodes of 8")
    if not path.is_file():
        print(f"skipped: {path} is absent")
        return
    on = cluster(2488, ["gpu"])
    jobs = read_trace(path, types=["gpu"])
    for size in (20_000, len(jobs)) if full else (20_000,):
        cpu, wall, result = measure(jobs[:size], on, "fifo_gang")
        print(f"{size:7,} jobs: {cpu:6.1f} s CPU, {wall:6.1f} s wall, {result['rounds']:,.0f} rounds")


def growth(policy: str, gpus: int, sizes: Sequence[int]) -> None:
    elastic = policy.startswith("f_scheduling")
    print(f"\n## {policy}, {gpus:,} GPUs of three types, {LOAD:.0%} load")
    if policy not in POLICIES:
        print("skipped: there is no such policy")
        return
    print("   jobs    CPU s   wall s    rounds   CPU us per job   per job and log2(jobs)")
    for size in sizes:
        cpu, wall, result = measure(workload(size, gpus, elastic=elastic), cluster(gpus), policy)
        per_job = cpu / size * 1e6
        rounds = result["rounds"]
        print(
            f"{size:7,} {cpu:8.1f} {wall:8.1f} {rounds:9,.0f} {per_job:16,.0f} {per_job / log(size, 2):24,.1f}",
            flush=True,
        )


def reference(*, full: bool) -> None:
    """Seconds for a trace here and there (both CPU, or as recorded on two shared cores)."""
    print("\n## The reference's simulator on its traces (12 V100, 12 P100, 12 K80)")
    path = DATA / "traces" / "reference_results.json"
    if not path.is_file():
        print(f"skipped: {path} is absent")
        return
    recorded = {(entry["trace"], entry["policy"], entry["cluster"]): entry for entry in json.loads(path.read_text())}
    on = cluster(36, node_size=4)
    for (trace, name, spec), entry in recorded.items():
        policy = next((ours for ours, theirs in RECORDED.items() if theirs == name), None)
        if spec != "12:12:12" or policy not in POLICIES or policy is None or not (full or trace in SAMPLED):
            continue
        jobs = read_trace(DATA / "traces" / trace.replace(".trace", ".jobs.json"))
        cpu, _, result = measure(jobs, on, policy)
        there = peer_s(trace, name, spec)
        how = "CPU" if there is not None else "recorded"
        there = there if there is not None else float(entry["wall_s"])
        print(
            f"{trace:32} {policy:22} {cpu:7.2f} s here ({result['rounds']:,.0f} rounds), "
            f"{there:7.2f} s there ({how}): {there / cpu:.1f}x",
            flush=True,
        )


def peer_s(trace: str, policy: str, spec: str) -> float | None:
    """CPU seconds of the reference in this run, where it is here."""
    where = os.environ.get("EVENKEEL_PEER_GAVEL", "")
    if not where:
        return None
    python, script = Path(where).parent / "venv" / "bin" / "python", Path(__file__).with_name("reference_simulation.py")
    command = [str(python), str(script), where, str(DATA / "traces" / trace), policy, spec]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_LIMIT_S, check=True)
        return float(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None


def main() -> None:
    parts = ("philly", "fifo_gang", "max_min_fairness", "f_scheduling", "reference")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="up to 100,000 jobs on 5,000 GPUs, and all of Philly")
    parser.add_argument("--only", default=",".join(parts), help="parts, by commas")
    options = parser.parse_args()
    full, only = options.full, options.only.split(",")
    freeze_loaded_objects()  # as `manage.py simulate` does
    print(f"# Simulator. Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: wall times depend on it.")
    if "philly" in only:
        philly(full=full)
    sizes = (1_000, 10_000, 100_000) if full else (1_000, 10_000)
    if "fifo_gang" in only:
        growth("fifo_gang", 5_000 if full else 500, sizes)
    if "max_min_fairness" in only:
        growth("max_min_fairness", 5_000 if full else 500, sizes if full else (300, 1_000))
    if "f_scheduling" in only:
        growth("f_scheduling", 500, (1_000, 3_000, 10_000) if full else (300, 1_000))
    if "reference" in only:
        reference(full=full)


if __name__ == "__main__":
    main()
