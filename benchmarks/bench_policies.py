"""The heterogeneity-aware policies: fidelity to the reference, gains, solve times and scale.

    python -m benchmarks.bench_policies [--only fidelity,gains,load,solve,scale]

Traces are read from EVENKEEL_SHARED (default ../shared). EVENKEEL_PEER_GAVEL names the `scheduler/` directory of a
checkout of stanford-futuredata/gavel beside a virtual environment `venv` with cvxpy and ecos; without it recorded times
stand in. What is absent is printed as skipped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # small matrices: more threads only wait for each other
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import reference_solves  # noqa: E402
from benchmarks.reference_traces import cluster, recorded, run  # noqa: E402

RESTART_S = 20.0, 5.0, 2.0
SPEC = "12:12:12"
TRACES = ("cont_single_300_lam2400", "static_multi_150")


def fidelity() -> None:
    """Theirs, ours by their rules, and ours by our own: without restart costs and with."""
    print("\n## Mean JCT and makespan in 1,000 s; ours by the reference's rules")
    heads = f"{'theirs':>14}{'ours':>14}{'difference':>18}{'own rules':>14}{'charged':>14}"
    print(f"{'trace':24}{'GPUs':9}{'policy':37}{heads}")
    outside = total = 0
    for entry in recorded():
        if entry.policy is None:
            print(f"{entry.trace:24}{entry.cluster:9}{entry.theirs:37}skipped: pairs that share GPUs")
            continue
        name, variant = entry.policy
        free, charged = cluster(entry.cluster), cluster(entry.cluster, restart_s=RESTART_S)
        theirs = entry.mean_jct_s, entry.makespan_s
        ours, own, real = (
            (float(found["jct_s"]["mean"]), float(found["makespan_s"]))
            for found in (
                run(entry.trace, free, name, variant=variant, compatible=True),
                run(entry.trace, free, name, variant=variant),
                run(entry.trace, charged, name, variant=variant),
            )
        )
        off = [here / there - 1.0 for here, there in zip(ours, theirs, strict=True)]
        total, outside = total + 1, outside + (max(map(abs, off)) > 0.03)
        pairs = "".join(
            f"{a / 1e3:7.1f}{b / 1e3:7.0f}" if n != 2 else f"{a:+9.1%}{b:+9.1%}"
            for n, (a, b) in enumerate((theirs, ours, off, own, real))
        )
        print(f"{entry.trace:24}{entry.cluster:9}{entry.theirs:37}{pairs}", flush=True)
    print(f"{total - outside} of {total} within 3 %" if total else "skipped: no traces")


def gains() -> None:
    """What knowing throughputs gains: agnostic over perf."""
    print("\n## Agnostic over heterogeneity-aware (restarts charged): mean JCT, makespan, cost")
    for trace in TRACES if any(recorded()) else ():
        on = cluster(SPEC, restart_s=RESTART_S)
        for name in ("max_min_fairness", "finish_time_fairness", "min_makespan", "max_min_fairness_water_filling"):
            blind, aware = (run(trace, on, name, variant=variant) for variant in ("agnostic", "perf"))
            ratios = (
                blind["jct_s"]["mean"] / aware["jct_s"]["mean"],
                blind["makespan_s"] / aware["makespan_s"],
                blind["cost"] / aware["cost"],
            )
            print(f"{trace:26}{name:34}" + "".join(f"{ratio:7.2f}x" for ratio in ratios), flush=True)


def low_load() -> None:
    """At low load nothing needs sharing: how far the rounds stay behind plain order."""
    print("\n## Low load (continuous trace): mean JCT over fifo_gang's")
    if not any(recorded()):
        print("skipped: no traces")
        return
    for label, restart_s in (("free restarts", (0.0, 0.0, 0.0)), ("charged", RESTART_S)):
        on = cluster(SPEC, restart_s=restart_s)
        plain = run(TRACES[0], on, "fifo_gang")["jct_s"]["mean"]
        for name in ("max_min_fairness", "finish_time_fairness", "max_min_fairness_water_filling"):
            theirs, own = (run(TRACES[0], on, name, compatible=c)["jct_s"]["mean"] / plain for c in (True, False))
            print(f"{label:16}{name:34}compatible {theirs:6.3f}   own rules {own:6.3f}", flush=True)


def main() -> None:
    parts = {
        "fidelity": fidelity,
        "gains": gains,
        "load": low_load,
        "solve": reference_solves.solve_times,
        "scale": reference_solves.scale,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(parts), help="parts, by commas")
    chosen = parser.parse_args().only.split(",")
    print(f"# Policies. Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: wall times depend on it.")
    for name in chosen:
        parts[name]()


if __name__ == "__main__":
    main()
