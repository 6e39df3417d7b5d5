"""What knowing throughputs gains, and what the reference's rules cost: the same traces under both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reference_traces import TRACES, cluster, made, recorded, run
from scheduling.simulator import simulate
from scheduling.simulator.inputs.generate import Recipe
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers import read_trace

RESTART_S = 20.0, 5.0, 2.0
SPEC = "12:12:12"
CONTINUOUS, STATIC = "cont_single_300_lam2400", "static_multi_150"
#: Policy here -> the reference's name of its agnostic one.
PAIRS = {
    "max_min_fairness": "max_min_fairness",
    "finish_time_fairness": "finish_time_fairness",
    "min_makespan": "min_total_duration",
    "fifo": "fifo",
}
SHARING = "max_min_fairness", "finish_time_fairness", "max_min_fairness_water_filling"
LOADS_PER_HOUR = 1.5, 3.0, 4.5
SEED = 11


def gains() -> None:
    """Agnostic over perf, restarts charged, beside what the reference recorded and what the paper says."""
    print("\n## Agnostic over heterogeneity-aware: mean JCT, makespan, cost (restarts charged); the reference's own")
    print("the paper: mean JCT up to 3.5x, makespan 1.4x (simulated 2.5x), cost 1.4x")
    theirs = {(entry.trace, entry.theirs): entry for entry in recorded() if entry.cluster == SPEC}
    if not theirs:
        print("skipped: no traces")
        return
    on = cluster(SPEC, restart_s=RESTART_S)
    for trace in (CONTINUOUS, STATIC):
        for name, their_name in PAIRS.items():
            blind, aware = (run(trace, on, name, variant=variant) for variant in ("agnostic", "perf"))
            before, after = theirs[trace, their_name], theirs[trace, f"{their_name}_perf"]
            ratios = before.mean_jct_s / after.mean_jct_s, before.makespan_s / after.makespan_s
            _line(f"{trace:26}{name:24}", blind, aware, "  reference" + "".join(f"{ratio:7.2f}x" for ratio in ratios))
        blind, aware = (run(trace, on, "min_cost", variant=variant) for variant in ("agnostic", "perf"))
        _line(f"{trace:26}{'min_cost':24}", blind, aware)
    for load in LOADS_PER_HOUR:
        jobs = made(Recipe(300, load, seed=SEED))
        blind, aware = (simulate(jobs, on, "max_min_fairness", {"variant": v}) for v in ("agnostic", "perf"))
        _line(f"{f'300 jobs, {load:g} an hour':26}{'max_min_fairness':24}", blind, aware)


def _line(head: str, blind: Mapping[str, Any], aware: Mapping[str, Any], tail: str = "") -> None:
    ratios = (
        blind["jct_s"]["mean"] / aware["jct_s"]["mean"],
        blind["makespan_s"] / aware["makespan_s"],
        blind["cost"] / aware["cost"],
    )
    print(head + "".join(f"{ratio:7.2f}x" for ratio in ratios) + tail, flush=True)


def both_ways() -> None:
    """`compatible` true and false side by side: fixed fill order, spread gangs, and moves that cost nothing."""
    print("\n## The reference's rules and our own: mean JCT in h, and over that of its fifo")
    print(f"{'trace':32}{'moves':9}{'policy':32}{'compatible':>18}{'own rules':>18}{'restarts':>18}")
    for label, jobs in _traces():
        for cost, restart_s in (("free", (0.0, 0.0, 0.0)), ("charged", RESTART_S)):
            on = cluster(SPEC, restart_s=restart_s)
            plain = float(simulate(jobs, on, "fifo", {"compatible": True})["jct_s"]["mean"])
            for name in SHARING:
                pair = [simulate(jobs, on, name, {"compatible": compatible}) for compatible in (True, False)]
                means = [one["jct_s"]["mean"] for one in pair]
                shown = "".join(f"{mean / 3600:9.2f}{f'({mean / plain:.3f})':>9}" for mean in means)
                restarts = "".join(f"{one['restarts']:9d}" for one in pair)
                print(f"{label:32}{cost:9}{name:32}{shown}{restarts}", flush=True)


def _traces() -> list[tuple[str, Sequence[TraceJob]]]:
    """Single GPUs at low load, and gangs that are slower where they span nodes."""
    found = [
        ("100 jobs, 0.3 an hour", made(Recipe(100, 0.3, seed=SEED))),
        ("100 gangs, 0.3 an hour", made(Recipe(100, 0.3, multi_gpu=True, seed=SEED))),
    ]
    path = TRACES / f"{CONTINUOUS}.jobs.json"
    return found + ([("reference's continuous", read_trace(path))] if path.is_file() else [])
