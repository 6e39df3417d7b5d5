"""`shortest_remaining_time` beside every other policy, restarts charged to all, with lower bounds.

    python -m benchmarks.bench_own_policy [--only continuous,multi,static,elastic] [--seeds 201 202]

Continuous and static mixes come from our generator (the published table, three types), with seeds that the policy was
not tuned on (1 to 8 are those that it was). The reference's two traces and Sia's workloads stand beside them where
EVENKEEL_SHARED (default ../shared) has them, unless seeds are named.

Bounds: no mean JCT is below the mean of each job's time alone on its fastest gang, no makespan below the fractional
one of all jobs at once (and of each after its arrival). Slowdown is JCT over that time alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # small matrices: more threads only wait for each other
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from benchmarks.reference_traces import TRACES, cluster, made  # noqa: E402
from scheduling.domain import Node  # noqa: E402
from scheduling.simulator import simulate  # noqa: E402
from scheduling.simulator.inputs.generate import Recipe  # noqa: E402
from scheduling.simulator.inputs.trace import Cluster, TraceJob, sizes, speed_alone  # noqa: E402
from scheduling.simulator.readers import read_trace  # noqa: E402
from scheduling.solvers.lp import LinearProgram  # noqa: E402

RESTART_S = 20.0, 5.0, 2.0
SPEC = "12:12:12"
SEEDS = 101, 102, 103
OURS = "shortest_remaining_time"
RIGID = (
    OURS,
    "fifo_gang",
    "max_min_fairness",
    "max_min_fairness_water_filling",
    "finish_time_fairness",
    "max_sum_throughput",
    "shortest_job_first",
    "min_mean_jct",
    "min_makespan",
    "fifo",
    "isolated",
    "f_scheduling",
)
ELASTIC = (OURS, "f_scheduling", "max_min_fairness", "shortest_job_first", "min_mean_jct", "fifo_gang")


@dataclass(frozen=True)
class Case:
    name: str
    jobs: Sequence[TraceJob]
    on: Cluster
    policies: tuple[str, ...] = RIGID


def cases(kinds: set[str], seeds: Sequence[int] = ()) -> Iterator[Case]:
    shapes: dict[str, list[tuple[int, float | None, bool]]] = {
        "continuous": [(300, 1.5, False), (300, 2.2, False)],
        "multi": [(200, 0.6, True)],
        "static": [(150, None, False), (150, None, True)],
    }
    for kind, recipes in shapes.items():
        for jobs, rate, multi in recipes if kind in kinds else ():
            for seed in seeds or SEEDS:
                recipe = Recipe(jobs, rate, multi_gpu=multi, seed=seed)
                label = f"{kind}{'' if rate is None else f' {rate:g}/h'}{' multi-GPU' if multi else ''} seed {seed}"
                yield Case(label, made(recipe), cluster(SPEC, restart_s=RESTART_S))
    if seeds:
        return
    for trace, kind in (("cont_single_300_lam2400", "continuous"), ("static_multi_150", "static")):
        path = TRACES / f"{trace}.jobs.json"
        if kind in kinds and path.is_file():
            yield Case(f"reference's {trace}", read_trace(path), cluster(SPEC, restart_s=RESTART_S))
    if "elastic" in kinds:
        yield from elastic()


def elastic() -> Iterator[Case]:
    """Sia's heterogeneous cluster: 6 nodes of 4 T4, 3 of 8 2080 Ti, 2 of 8 A100."""
    nodes: list[Node] = []
    for kind, count, gpus in (("aws", 6, 4), ("rtx", 3, 8), ("dgx", 2, 8)):
        for n in range(count):
            start = sum(len(node.gpu_ids) for node in nodes)
            nodes.append(Node(f"{kind}-{n}", kind, tuple(range(start, start + gpus))))
    on = Cluster(tuple(nodes), {}, *RESTART_S)
    for name in ("philly", "saturn", "newtrace"):
        path = TRACES.parent / "sia" / "workloads" / name / "workload-1.csv"
        if path.is_file():
            yield Case(f"Sia {name}", read_trace(path), on, ELASTIC)


def alone_s(case: Case) -> list[float]:
    size_of = sizes(case.on.nodes)
    return [job.total_steps / speed_alone(job, size_of, case.on.multi_node) for job in case.jobs]


def least_makespan_s(case: Case) -> float:
    """Of the fractional schedule in which every job may be on several types at a time, arrivals apart; and of no job
    less than its arrival and its time alone."""
    kinds = sorted({node.type for node in case.on.nodes})
    capacity = {kind: sum(len(node.gpu_ids) for node in case.on.nodes if node.type == kind) for kind in kinds}
    columns = [
        (n, kind, count, speed)
        for n, job in enumerate(case.jobs)
        for kind in kinds
        if kind in job.curves
        for count in range(job.min_gpus, min(job.max_gpus or capacity[kind], capacity[kind]) + 1)
        if (speed := job.curves[kind].at(count)) > job.curves[kind].at(count - 1 if count > job.min_gpus else 0)
    ]
    # minimise T; x: seconds on (type, count)
    program = LinearProgram(np.r_[np.zeros(len(columns)), 1.0], maximise=False)
    for n, job in enumerate(case.jobs):
        own = [c for c, column in enumerate(columns) if column[0] == n]
        program.add_row(own, [columns[c][3] / job.total_steps for c in own], 1.0, 1.0)
    for kind in kinds:
        own = [c for c, column in enumerate(columns) if column[1] == kind]
        used = [float(columns[c][2]) for c in own]
        program.add_row([*own, len(columns)], [*used, -float(capacity[kind])], -np.inf, 0.0)
    latest = max(job.arrival_s + seconds for job, seconds in zip(case.jobs, alone_s(case), strict=True))
    return max(program.solve().objective, latest)


def show(case: Case) -> bool:
    """Whether no other policy is better in both mean JCT and 99th-percentile slowdown."""
    least = fmean(alone_s(case))
    print(f"\n## {case.name}: {len(case.jobs)} jobs on {len([g for n in case.on.nodes for g in n.gpu_ids])} GPUs")
    print(f"bounds: mean JCT {least / 3600:.2f} h, makespan {least_makespan_s(case) / 3600:.1f} h")
    print(
        f"{'policy':34}{'mean JCT h':>12}{'ratio':>8}{'slowdown p99':>14}{'mean':>8}{'makespan h':>12}{'restarts':>10}"
    )
    found = {}
    for name in case.policies:
        one = simulate(case.jobs, case.on, name)
        found[name] = one["jct_s"]["mean"], one["slowdown"]["p99"]
        ratio = one["jct_s"]["mean"] / found[OURS][0]
        print(
            f"{name:34}{one['jct_s']['mean'] / 3600:12.2f}{ratio:8.3f}{one['slowdown']['p99']:14.2f}"
            f"{one['slowdown']['mean']:8.2f}{one['makespan_s'] / 3600:12.1f}{one['restarts']:10d}",
            flush=True,
        )
    better = [name for name, both in found.items() if all(a < b for a, b in zip(both, found[OURS], strict=True))]
    print(f"better in both: {', '.join(better) or 'none'}")
    return not better


def main() -> int:
    kinds = ("continuous", "multi", "static", "elastic")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(kinds), help="parts, by commas")
    parser.add_argument("--seeds", type=int, nargs="+", default=(), help="made-up traces of these seeds alone")
    options = parser.parse_args()
    shown = [show(case) for case in cases(set(options.only.split(",")), options.seeds)]
    print(f"\n{sum(shown)} of {len(shown)}: no policy is better in both")
    return 0 if all(shown) else 1


if __name__ == "__main__":
    sys.exit(main())
