"""The F-scheduling paper's workload live on six emulated accelerators: elastic against four static partitions.

Each policy gets a portal of its own (databases, workers, training) at the same speed-up. Ratios are to F-scheduling
in the same run; seconds are real and, multiplied by the speed-up, workload seconds. Spec: f-scheduling.md.

python -m benchmarks.bench_live [--speedup 1.5] [--steps 2000] [--policy NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
POLICIES = ("f_scheduling:v_bound=0.5", *(f"static_partition:n={n}" for n in (1, 2, 3, 6)))
PAPER_S = dict(zip(POLICIES, (1350, 1557, 1593, 1498, 2138), strict=True))
LIMIT_S = 5_400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speedup", type=float, default=1.5, help="at most 3, so that launches do not dominate")
    parser.add_argument("--steps", type=int, default=2_000, help="of each job; the paper has 2,000")
    parser.add_argument("--policy", nargs="+", default=POLICIES)
    parser.add_argument("--port", type=int, default=8_890)
    options = parser.parse_args()
    if not 0 < options.speedup <= 3:
        parser.error("--speedup must be above 0 and at most 3")
    print(f"{options.steps:,} steps a job at {options.speedup:g} times the speed; seconds real (workload)", flush=True)
    print(f"{'policy':28}{'completion':>18}{'queueing':>16}{'launching':>16}{'running':>16}{'rescales':>9}{'ratio':>7}")
    took_s: dict[str, float] = {}
    for policy in options.policy:
        result = run(policy, options)
        took_s[policy] = completion(result["jobs"])
        print(row(policy, result, took_s[policy], took_s[policy] / took_s[options.policy[0]]), flush=True)
    if options.steps == 2_000:
        print("paper, workload seconds: " + ", ".join(f"{name} {seconds}" for name, seconds in PAPER_S.items()))
    ahead = POLICIES[0] not in took_s or min(took_s, key=lambda name: took_s[name]) == POLICIES[0]
    if not ahead:
        print("F-scheduling is not ahead.", file=sys.stderr)
    return 0 if ahead else 1


def run(policy: str, options: argparse.Namespace) -> dict[str, Any]:
    """The jobs as they ended under one policy, in a portal of its own."""
    data = Path(tempfile.mkdtemp(prefix="evenkeel-bench-"))
    data.chmod(0o755)
    out = data.parent / f"{data.name}.json"
    environment = os.environ | {
        "DEMO_EXIT": "1",
        "EVENKEEL_DATA": str(data),
        "EVENKEEL_PORT": str(options.port),
        "EVENKEEL_SPEEDUP": str(options.speedup),
    }
    command = [
        sys.executable,
        "manage.py",
        "demo",
        "--policy",
        policy,
        "--steps",
        str(options.steps),
        "--json",
        str(out),
    ]
    try:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=True, timeout=LIMIT_S)
        return dict(json.loads(out.read_text()))
    finally:
        end_leftovers(data)
        shutil.rmtree(data, ignore_errors=True)
        out.unlink(missing_ok=True)


def end_leftovers(data: Path) -> None:
    """Fork servers stay warm for a while; here nobody comes back to them."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(data):
                process.kill()
        except psutil.Error:
            continue


def completion(jobs: list[dict[str, Any]]) -> float:
    began = min(datetime.fromisoformat(job["submitted_at"]) for job in jobs)
    return (max(datetime.fromisoformat(job["finished_at"]) for job in jobs) - began).total_seconds()


def row(policy: str, result: dict[str, Any], completion_s: float, ratio: float) -> str:
    jobs, factor = result["jobs"], result["speedup"]

    def seconds(real_s: float) -> str:
        return f"{real_s:,.0f} ({real_s * factor:,.0f})"

    means = [sum(job["times"][name] for job in jobs) / len(jobs) for name in ("queueing_s", "launching_s", "running_s")]
    missed = " pace missed" if any(job["pace_missed"] for job in jobs) else ""
    columns = f"{policy:28}{seconds(completion_s):>18}" + "".join(f"{seconds(mean):>16}" for mean in means)
    return f"{columns}{sum(job['rescales'] for job in jobs):>9}{ratio:>7.2f}{missed}"


if __name__ == "__main__":
    sys.exit(main())
