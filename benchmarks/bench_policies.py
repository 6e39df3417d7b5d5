"""The heterogeneity-aware policies: fidelity to the reference, gains, solve times and scale.

    python -m benchmarks.bench_policies [--only fidelity,gains,both,solve,scale]

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

from benchmarks import policy_gains, reference_solves  # noqa: E402
from benchmarks.reference_traces import cluster, recorded, run  # noqa: E402

RESTART_S = policy_gains.RESTART_S


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


def main() -> None:
    parts = {
        "fidelity": fidelity,
        "gains": policy_gains.gains,
        "both": policy_gains.both_ways,
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
