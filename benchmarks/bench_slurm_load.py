"""What the portal costs Slurm's controller: how long a look takes, and how many requests a quiet minute makes.

python -m benchmarks.bench_slurm_load [--pending 5000] [--commands DIR]

Needs root. A throw-away Slurm on this host with that many pending jobs of another account, three running jobs of ours,
and a look every 5 s, as rounds make them. `--commands`: of another Slurm, see scripts.slurm_chroot; all of this then
runs in its root file system, so that no look pays for entering it. Prints a row of the table in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.bench_launch import request
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.slurm_cluster import SlurmCluster, install, running, until

RUNS, ROUND_S, MINUTE_S, QUIET_AFTER_S, REPEAT = 3, 5.0, 60.0, 125.0, 7
SLEEPS = "import time; time.sleep(3600)"


def fill(cluster: SlurmCluster, pending: int) -> None:
    """Jobs of somebody else that no node has room for."""
    words = ("sbatch", "--uid=65534", "--gid=65534", "--gres=gpu:4", "--nodes=3", "--mem=60000", "--cpus-per-task=16",
             "--hold", "--output=/dev/null", "--chdir=/", "--wrap=true")  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cluster._ask(*words), range(pending)))


def requests_of(cluster: SlurmCluster) -> int:
    """Since the counts were reset: those that somebody asks, not what daemons say to each other."""
    text = cluster._ask("sdiag").partition("message type")[2].partition("by user")[0]
    found = dict(re.findall(r"(REQUEST_\w+) .*?count:(\d+)", text))
    return sum(int(count) for name, count in found.items() if name != "REQUEST_STATS_INFO")


def look(executor: SlurmExecutor, known: list[tuple[str, int]]) -> float:
    began = time.monotonic()
    executor.inventory()
    executor.observe(known)
    return time.monotonic() - began


def end(executor: SlurmExecutor, known: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """What is left of them."""
    for launch in known:
        executor.kill(*launch)
    return [launch for launch in known if executor._live(*launch)]


def measure(cluster: SlurmCluster, place: Path, pending: int) -> str:
    executor = SlurmExecutor(place, conf=str(cluster.conf), emulated=True)
    wishes = [request(executor, place, 1) for _ in range(RUNS)]
    for wish in wishes:
        executor.launch(wish)
    known = [(wish.run_id, wish.epoch) for wish in wishes]
    fill(cluster, pending)
    waiting = len(cluster._ask("squeue", "-h", "--states=PENDING").splitlines())
    time.sleep(QUIET_AFTER_S)
    looks = []
    for _ in range(REPEAT):
        time.sleep(2.1)
        executor.refresh()
        looks.append(look(executor, known))
    cluster._ask("sdiag", "--reset")
    end_at = time.monotonic() + MINUTE_S
    while time.monotonic() < end_at:
        look(executor, known)
        time.sleep(ROUND_S)
    count = requests_of(cluster)
    until(lambda: not end(executor, known), "the end of our jobs")
    version = cluster._ask("sbatch", "--version").split()[-1]
    words = f"{statistics.median(looks):.2f} ({min(looks):.2f} to {max(looks):.2f})"
    return f"| {version} | {waiting:,} | {words} | {count} |"


def inside(commands: Path, pending: int) -> int:
    """This benchmark in the root file system of those commands."""
    with tempfile.TemporaryDirectory() as name:
        enter = Path(name) / "env"  # each command enters by its own name
        enter.symlink_to(commands / ".enter")
        tree = Path(__file__).resolve().parent.parent
        words = ("-C", str(tree), sys.executable, "-m", "benchmarks.bench_slurm_load", f"--pending={pending}")
        return subprocess.run([enter, *words], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=int, default=5_000)
    parser.add_argument("--commands", type=Path)
    options = parser.parse_args()
    if options.commands:
        return inside(options.commands, options.pending)
    if reason := install():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp", ignore_cleanup_errors=True) as name:
        cluster = SlurmCluster(Path(name) / "slurm", nodes=3, gpus=4)
        cluster.root.mkdir()
        Path(name).chmod(0o755)
        os.environ.update(cluster.environment)  # its commands are ours
        with running(cluster):
            print("| Slurm | pending jobs of others | a look, s | requests in a quiet minute |")
            print("|---|---|---|---|")
            print(measure(cluster, Path(name) / "data", options.pending))
    return 0


if __name__ == "__main__":
    sys.exit(main())
