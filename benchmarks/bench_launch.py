"""How long a launch takes, cold and warm, and what a checkpoint costs. Prints tables in Markdown.

python benchmarks/bench_launch.py [--repeat 5] [--workers 1,2] [--sizes 1,64,256] [--executor local|ray|slurm]
With `--executor slurm` (or `ray`) a throw-away cluster of two nodes on this host beside the local executor's cold
start, in turn; the last rows are of a gang with one worker on each node.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.sdk.state import copy_state

from scheduling.executors.base import Executor, LaunchRequest
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.ray.executor import RayExecutor
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.ray_cluster import NodePlan, RayCluster
from scripts.slurm_cluster import SlurmCluster, install, running

PROGRAM = """
import torch, evenkeel
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.AdamW(model.parameters())
with evenkeel.training() as run:
    run.checkpoint(model=model, optimizer=optimizer)
    wrapped = run.wrap(model)
    for step in run.steps():
        loss = wrapped(torch.ones(run.local_batch, 64)).square().mean()
        optimizer.zero_grad()
        run.scale_loss(loss).backward()
        optimizer.step()
"""


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # accounts of jobs pass through
        yield Path(name)


def request(executor: Executor, place: Path, workers: int, nodes: int = 1) -> LaunchRequest:
    """With `workers` on each of the first `nodes`."""
    placement = {node.name: tuple(range(workers)) for node in executor.inventory()[:nodes]}
    return LaunchRequest(
        job_id=uuid.uuid4().hex, job_number=1, run_id=uuid.uuid4().hex, epoch=1, project_key="bench",
        argv=("python", str(place / "program.py")), shell=False, workdir=None,
        placement=placement, env={}, total_steps=10_000_000, batch_size=64,
        checkpoint_every_steps=0, checkpoint_keep=2, max_duration_s=None, memory_mib=None, cpus=None,
        api_url="http://127.0.0.1:9", token="none", report_interval_s=5.0, pace_steps_per_s=20.0,
    )  # fmt: skip


def one_launch(executor: Executor, place: Path, workers: int, nodes: int = 1) -> tuple[float, float]:
    wanted = request(executor, place, workers, nodes)
    return course(executor, wanted, place / "data" / "jobs" / wanted.job_id / "runs" / wanted.run_id / "1")


def course(executor: Executor, wanted: LaunchRequest, epoch_dir: Path) -> tuple[float, float]:
    """Seconds from the call of `launch` to the first step, and from the request to stop until it is seen that nothing
    of it is left: its GPUs are free."""
    said = epoch_dir / "sdk" / "rank0.jsonl"
    begun_at = time.time()
    executor.launch(wanted)
    while not (said.exists() and '"step"' in said.read_text()):
        time.sleep(0.01)
        assert time.time() - begun_at < 300, "the program does not begin"
    ready_at = float(json.loads(said.read_text().splitlines()[0])["t"])
    asked_at = time.time()
    executor.checkpoint_and_stop(wanted.run_id, 1)
    while (fact := executor.observe([(wanted.run_id, 1)])[0]).kind == "alive":
        time.sleep(0.01)
    assert fact.exit, fact
    assert fact.exit.reason == "stopped", fact
    return ready_at - begun_at, time.time() - asked_at


def bench_launch(place: Path, workers: list[int], repeat: int) -> None:
    (place / "program.py").write_text(PROGRAM)
    print("| start | workers | launch to first step, s | stop to processes gone, s |")
    print("|---|---|---|---|")
    for warm in (False, True):
        executor = LocalExecutor(place / "data", "titan_xp:8", warm_start=warm, warm_idle_s=60)
        if warm:
            first_s, _ = one_launch(executor, place, workers[0])
            print(f"| warm, first of a project | {workers[0]} | {first_s:.2f} | |")
        for count in workers:
            measured = [one_launch(executor, place, count) for _ in range(repeat)]
            launch, stop = zip(*measured, strict=True)
            print(f"| {'warm' if warm else 'cold'} | {count} | {spread(launch)} | {spread(stop)} |", flush=True)
        executor.stop_warm_start(["bench"])


def bench_slurm(place: Path, workers: list[int], repeat: int) -> None:
    if reason := install():
        print(f"SKIPPED: no Slurm here: {reason}")
        return
    root = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    with running(SlurmCluster(root, nodes=2, gpus=8)) as cluster:
        slurm = SlurmExecutor(place / "slurm" / "data", conf=str(cluster.conf), emulated=True)
        beside_local(slurm, place, workers, repeat)
    shutil.rmtree(root, ignore_errors=True)


def bench_ray(place: Path, workers: list[int], repeat: int) -> None:
    if importlib.util.find_spec("ray") is None:
        print("SKIPPED: Ray is not installed: pip install -r requirements-ray.lock")
        return
    cluster = RayCluster([NodePlan("ray-1", "127.0.0.11", 8), NodePlan("ray-2", "127.0.0.12", 8)])
    try:
        cluster.up()
        with cluster.network.inside():
            to = cluster.connection
            data = place / "ray" / "data"
            ray = RayExecutor(data, to.address, to.namespace, node_address=to.node_address, emulated=True)
            beside_local(ray, place, workers, repeat)
            ray.disconnect()
    finally:
        cluster.down()


def beside_local(engine: Executor, place: Path, workers: list[int], repeat: int) -> None:
    """The engine beside the local executor's cold start, in turn."""
    print("| executor | workers | launch to first step, s | stop to seen free, s |")
    print("|---|---|---|---|")
    local = LocalExecutor(place / "local" / "data", "a=titan_xp:8,b=titan_xp:8", warm_start=False)
    for count, nodes in [*((count, 1) for count in workers), (1, 2)]:
        places: list[tuple[str, Executor, Path]] = [
            ("local, cold", local, place / "local"),
            (engine.name, engine, place / engine.name),
        ]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in places}
        for _, _, where in places:
            where.mkdir(exist_ok=True)
            (where / "program.py").write_text(PROGRAM)
        for _ in range(repeat):
            for name, executor, where in places:
                found[name].append(one_launch(executor, where, count, nodes))
        for name, measured in found.items():
            launch, stop = zip(*measured, strict=True)
            print(f"| {name} | {count if nodes == 1 else '1 + 1'} | {spread(launch)} | {spread(stop)} |", flush=True)


def bench_checkpoints(place: Path, sizes_mib: list[int], repeat: int) -> None:
    import torch

    print("\n| state, MiB | pause of training (copy), ms | save in the background, ms | load, ms |")
    print("|---|---|---|---|")
    for size in sizes_mib:
        state = {"state": None, "objects": {"model": {"weight": torch.rand(size << 18)}}}
        store = CheckpointStore(place / f"checkpoints-{size}", keep=2)
        store.save(0, state)  # the first of a process is read back
        columns = [
            timed([partial(copy_state, state)] * repeat),
            timed([partial(store.save, step, state) for step in range(1, repeat + 1)]),
            timed([partial(store.load_latest, print)] * repeat),
        ]
        print(f"| {size} | " + " | ".join(spread(values, 0) for values in columns) + " |", flush=True)


def timed(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Milliseconds of each."""
    times = []
    for call in calls:
        begun = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begun))
    return times


def spread(values: tuple[float, ...] | list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description="Launch and checkpoint times")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--executor", choices=["local", "ray", "slurm"], default="local")
    parser.add_argument("--sizes", type=numbers, default=[1, 64, 256], help="MiB")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}; median (least to most) of {options.repeat}\n")
    with workplace() as place:
        if options.executor != "local":
            bench = bench_slurm if options.executor == "slurm" else bench_ray
            bench(place, options.workers, options.repeat)
            return
        bench_launch(place, options.workers, options.repeat)
        bench_checkpoints(place, options.sizes, options.repeat)


if __name__ == "__main__":
    main()
