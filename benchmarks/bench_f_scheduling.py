"""How long one F-scheduling decision takes, and against the literal algorithm where that can run.

    python benchmarks/bench_f_scheduling.py [--gpus 10000] [--jobs 2000] [--repeat 3]

Seconds are CPU seconds of the one thread that decides, the best of `--repeat`: on an idle machine that is the
wall time, and on a shared one it is still a measurement. In the first three lines every job has a curve of its
own, so that nothing can be merged; in the others jobs have one of `--models` curves, as in practice.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scheduling.capacity.cluster_view import view  # noqa: E402
from scheduling.domain import Curve, Snapshot  # noqa: E402
from scheduling.engine.rounds import plan_round  # noqa: E402
from scheduling.policies import load_policy  # noqa: E402
from scheduling.policies.elastic.f_scheduling import pose, solve  # noqa: E402
from tests.builders import make_job, make_nodes, make_snapshot  # noqa: E402
from tests.scheduling.literal import scheduler  # noqa: E402

LITERAL = (120, 40)  # GPUs and jobs at which the literal algorithm takes seconds, not hours


def cluster(gpus: int, jobs: int, curves: int, seed: int = 1) -> Snapshot:
    """Jobs with Amdahl curves up to 64 GPUs on nodes of 8 GPUs of one type."""
    rng = random.Random(seed)
    pool = []
    for _ in range(curves):
        serial, parallel = rng.uniform(0.0005, 0.05), rng.uniform(0.05, 2.0)
        pool.append(Curve(tuple(1 / (serial + parallel / n) for n in range(1, 65))))
    made = [make_job(curve=pool[i % curves], number=i + 1, project=f"p{i % 20}") for i in range(jobs)]
    return make_snapshot(*made, nodes=make_nodes(*[8] * (gpus // 8)))


def best_of(repeat: int, call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.gpus} GPUs x {args.jobs} jobs, seconds for one decision")
    print(f"{'curves':>8} {'v_bound':>8} {'objective':>10} {'greedy':>8} {'policy':>8} {'plan_round':>11}")
    for curves in (args.jobs, args.models):
        snapshot = cluster(args.gpus, args.jobs, curves)
        for bound, objective in ((0.5, "paper"), (0.01, "paper"), (0.001, "relative")):
            policy = load_policy("f_scheduling", {"v_bound": bound, "objective": objective})
            field = view(snapshot)
            problem = pose(snapshot, field, objective)
            greedy = best_of(args.repeat, lambda s=snapshot, f=field, p=problem, b=bound: solve(s, f, p, b))  # type: ignore[misc]
            whole = best_of(args.repeat, lambda s=snapshot, p=policy: p.allocate(s))  # type: ignore[misc]
            plan = best_of(args.repeat, lambda s=snapshot, p=policy: plan_round(s, p))  # type: ignore[misc]
            print(f"{curves:>8} {bound:>8} {objective:>10} {greedy:>8.3f} {whole:>8.3f} {plan:>11.3f}")
    compare_with_literal(args.repeat)


def compare_with_literal(repeat: int) -> None:
    gpus, jobs = LITERAL
    snapshot = cluster(gpus, jobs, jobs)
    field = view(snapshot)
    print(f"\nagainst the literal O(N J^2) algorithm at {gpus} GPUs x {jobs} jobs")
    for bound in (0.5, 0.01):
        problem = pose(snapshot, field, "paper")
        lows = [count for _, count in problem.seats]
        start = time.process_time()
        expected = scheduler(list(problem.kinds), lows, problem.free[0], [], bound, [])
        literal = time.process_time() - start
        ours = best_of(repeat, lambda p=problem, b=bound: solve(snapshot, field, p, b))  # type: ignore[misc]
        same = [count for _, count in solve(snapshot, field, problem, bound)[0]] == expected
        ratio = literal / ours
        print(f"v_bound {bound}: literal {literal:.2f} s, ours {ours:.4f} s, ratio {ratio:.0f}, same plan: {same}")


if __name__ == "__main__":
    main()
