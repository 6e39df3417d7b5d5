"""How long a real Slurm's scheduling cycle takes, beside our decision on the same queue.

python -m benchmarks.slurm_cycles [--jobs 1000] [--nodes 16]      (make slurm-cycles)

The throw-away Slurm of slurm_parity (as root) with full nodes and so many pending jobs; both of its schedulers look at
all of them. What `sdiag` prints (wall-clock microseconds of a thread of slurmctld) stands beside the CPU seconds of
our multifactor with EASY and conservative backfill over the same jobs on the same nodes. Where Slurm is not
installed it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.bench_priority import best
from benchmarks.real_slurm import ask, missing, slurm, until
from scheduling.domain import Curve, Entity, Gang, Job, Node, Snapshot
from scheduling.lifecycle import State
from scheduling.policies import load_policy

GPUS, CPUS = 4, 16
WHO = (("alice", "teama"), ("bob", "teama"), ("carol", "teamb"))
SHARES = {"teama": 60.0, "teamb": 40.0}
FULL_S = 20 * 3_600
OBSERVED_S = 45.0
CYCLES = {
    "main, last cycle": ("Main schedule", "Last cycle"),
    "main, mean cycle": ("Main schedule", "Mean cycle"),
    "backfill, last cycle": ("Backfilling stats", "Last cycle"),
    "backfill, mean cycle": ("Backfilling stats", "Mean cycle"),
    "backfill, jobs looked at last": ("Backfilling stats", "Last depth cycle"),
}


@dataclass(frozen=True)
class Wish:
    user: str
    account: str
    gpus: int
    minutes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if (lacking := missing()) is not None:
        print(f"SKIPPED: {lacking}")
        return 0
    queue = list(wishes(options.jobs, random.Random(options.seed)))
    deep = (
        f",default_queue_depth={options.jobs},bf_max_job_test={options.jobs},bf_window=2880,bf_continue,bf_max_time=60"
    )
    with slurm(nodes=options.nodes, env={"GRES_MODE": "file"}, scheduler=deep):
        fill(options.nodes)
        for user, account in WHO:
            submit_all([wish for wish in queue if (wish.user, wish.account) == (user, account)])
        theirs = cycles()
    ours = {kind: decision_s(queue, options.nodes, kind) for kind in ("easy", "conservative")}
    report(options.jobs, options.nodes, theirs, ours)
    return 0


def wishes(count: int, rng: random.Random) -> Iterator[Wish]:
    for _ in range(count):
        yield Wish(*rng.choice(WHO), rng.choice((1, 1, 1, 2, 4)), rng.randint(10, 1_200))


# Slurm ---------------------------------------------------------------------------------------------


def fill(nodes: int) -> None:
    line = f"sbatch -A teama -p main -N1 --gres=gpu:{GPUS} -t {FULL_S // 60} --wrap 'sleep 3000' -o /dev/null -D /tmp"
    shell("alice", f"for n in $(seq {nodes}); do {line}; done")
    until(lambda: len(ask("squeue", "-h", "-t", "R").split("\n")) > nodes, 60)


def submit_all(queue: list[Wish]) -> None:
    """One after the other in one shell of the user: starting a process for each would take longer than Slurm does."""
    if not queue:
        return
    common = f"sbatch -A {queue[0].account} -p main -N1 -n1 -o /dev/null -D /tmp --wrap 'sleep 30'"
    shell(queue[0].user, "\n".join(f"{common} --gres=gpu:{wish.gpus} -t {wish.minutes}" for wish in queue))


def shell(user: str, text: str) -> None:
    command = ("runuser", "-u", user, "--", "bash", "-e")
    subprocess.run(command, input=text, text=True, check=True, timeout=150, stdout=subprocess.DEVNULL)


def cycles() -> dict[str, int]:
    """What it counted while all of the queue waited."""
    ask("sdiag", "--reset")
    time.sleep(OBSERVED_S)
    return read_cycles(ask("sdiag"))


def read_cycles(text: str) -> dict[str, int]:
    found = {}
    for name, (part, line) in CYCLES.items():
        after = text[text.index(part) :]
        if match := re.search(rf"{line}:\s*(\d+)", after):
            found[name] = int(match[1])
    return found


# Ours ----------------------------------------------------------------------------------------------


def snapshot_of(queue: list[Wish], nodes: int) -> Snapshot:
    now = 1e7

    def job(number: int, wish: Wish, **more: Any) -> Job:
        values: dict[str, Any] = {
            "id": f"j{number}", "number": number, "project": wish.account, "user": wish.user,
            "state": State.WAITING_FOR_RESOURCE, "submitted_at": now - 60,
            "curves": {"a100": Curve((1.0,) * wish.gpus)}, "min_gpus": wish.gpus, "max_gpus": wish.gpus,
            "remaining_steps": wish.minutes * 60.0,
        }  # fmt: skip
        return Job(**(values | more))

    full = Wish(*WHO[0], GPUS, FULL_S // 60)
    held = [
        job(
            10**6 + n, full, state=State.RUNNING, gpu_ids=tuple(range(GPUS * n, GPUS * n + GPUS)),
            gang=Gang("a100", GPUS), held_since=now - 60,
        )
        for n in range(nodes)
    ]  # fmt: skip
    machines = tuple(Node(f"gpu{n}", "a100", tuple(range(GPUS * n, GPUS * n + GPUS))) for n in range(nodes))
    entities = {account: Entity(None, share) for account, share in SHARES.items()}
    usage = {"teama": {"alice": {"a100": 1e4}}}
    waiting = [job(number, wish) for number, wish in enumerate(queue)]
    return Snapshot(now, machines, tuple(held + waiting), entities=entities, usage=usage, usage_at=now)


def decision_s(queue: list[Wish], nodes: int, kind: str) -> float:
    snapshot = snapshot_of(queue, nodes)
    policy = load_policy("multifactor", {"backfill": kind, "backfill_depth": 100_000})

    def decide() -> None:
        policy.allocate(replace(snapshot))  # as if the round were the first to look

    return best(decide)


def report(jobs: int, nodes: int, theirs: dict[str, int], ours: dict[str, float]) -> None:
    print(f"{jobs:,} pending jobs, {nodes} nodes of {GPUS} GPUs, all held")
    for name, value in theirs.items():
        print(f"  Slurm, {name:34}{value:12,}{'' if 'looked' in name else ' us'}")
    mean_s = theirs.get("backfill, mean cycle", 0) / 1e6
    for kind, seconds in ours.items():
        ratio = f"   {seconds / mean_s:6.2f} of Slurm's mean backfill cycle" if mean_s else ""
        print(f"  ours, decision with {kind:21}{seconds * 1e6:12,.0f} us{ratio}")


if __name__ == "__main__":
    sys.exit(main())
