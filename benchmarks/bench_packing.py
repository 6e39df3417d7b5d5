"""Parts of GPUs on OpenB's pods and nodes: what each policy fills, how long jobs take, what a decision costs.

    python -m benchmarks.bench_packing [--only day,load,window,small,coplacement,ahead,interference] [--policies NAMES]

Alibaba's OpenB (gpu-v2023) is read from EVENKEEL_SHARED (default ../shared); where it is absent that is printed. It
stands in for the two months of PAI that the paper used. OpenB brings some 20 GPU-days of work a day for 6,212 GPUs, so
that no policy would matter: `day` lays the arrivals of every second day over each other into one, on every 54th node.
Even days are for tuning, odd ones are shown (`--days`). `load` asks all nodes for pods drawn at random until more is
asked for than there is, as the FGD paper does. `window`: 200 pods at once. `small` compares with the integer program.
`coplacement`, `ahead`, `interference`: benchmarks/coplacement.py, without data. `--machines pai` takes PAI's machines
for nodes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.coplacement import ahead, coplacement, interference  # noqa: E402
from scheduling.capacity.cluster_view import view  # noqa: E402
from scheduling.capacity.node_capacity import Demand, NodeCapacity  # noqa: E402
from scheduling.domain import WHOLE, Gang, Job, Snapshot  # noqa: E402
from scheduling.engine.rounds import plan_round  # noqa: E402
from scheduling.lifecycle import State  # noqa: E402
from scheduling.policies import load_policy  # noqa: E402
from scheduling.policies.packing.base import MEMORY  # noqa: E402
from scheduling.policies.packing.fragmentation import Classes, fragmentation  # noqa: E402
from scheduling.simulator import parse_policy  # noqa: E402
from scheduling.simulator.engine import Engine  # noqa: E402
from scheduling.simulator.inputs.clusters import load_cluster  # noqa: E402
from scheduling.simulator.inputs.trace import Cluster, TraceJob  # noqa: E402
from scheduling.simulator.outcome import Options  # noqa: E402
from scheduling.simulator.output.report import label  # noqa: E402
from scheduling.simulator.readers import load_trace  # noqa: E402

DATA = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data" / "alibaba"
MACHINES = {"openb": "openb_node_list_gpu_node.csv", "pai": "pai_machine_spec.csv"}
DAY_S = 86_400.0
#: Before it OpenB has a few pods a day.
FIRST_DAY = 115
EVERY_NODE = 54
POLICIES = (
    "round_robin",
    "first_fit",
    "tetris:shortest_first=false",
    "tetris",
    "best_fit",
    "fgd",
    "genetic:mutation=usual",
    "genetic:mutation=paper",
    "fifo_gang",
    "multifactor",
)
WINDOW: tuple[tuple[str, dict[str, Any]], ...] = (
    ("first_fit", {}),
    ("best_fit", {}),
    ("fgd", {}),
    ("genetic", {}),
    ("genetic", {"window": 200, "time_limit_s": 2.0}),
    ("genetic", {"window": 200, "time_limit_s": 10.0, "generations": 10_000}),
)
Given = tuple[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="day,load,window,small,coplacement,ahead,interference", help="parts, separated by commas"
    )
    parser.add_argument("--policies", default=" ".join(POLICIES), help="NAME[:key=value,...], separated by spaces")
    parser.add_argument("--days", choices=["even", "odd"], default="odd", help="even ones are for tuning")
    parser.add_argument("--seeds", type=int, default=5, help="of `load` and `small`")
    parser.add_argument("--samples", type=int, default=3, help="of the nodes, for `day`; figures are means over them")
    parser.add_argument("--sets", type=int, default=10, help="job sets of each workload of `coplacement` and `ahead`")
    parser.add_argument("--machines", choices=sorted(MACHINES), default="openb")
    options = parser.parse_args()
    parts = options.only.split(",")
    if "interference" in parts:
        interference()
    if "coplacement" in parts:
        coplacement(options.sets)
    if "ahead" in parts:
        ahead(options.sets)
    if {"day", "load", "window", "small"} & set(parts):
        _on_traces(options, parts)


def _on_traces(options: argparse.Namespace, parts: Sequence[str]) -> None:
    pods, nodes = DATA / "openb_pod_list_default.csv", DATA / MACHINES[options.machines]
    if not (pods.is_file() and nodes.is_file()):
        sys.exit(f"SKIPPED: no {pods} and {nodes}")
    cluster = load_cluster(nodes)
    jobs = load_trace(pods, types=sorted({node.type for node in cluster.nodes})).jobs
    given = [parse_policy(text) for text in options.policies.split()]
    if "day" in parts:
        one_day(jobs, cluster, given, options.days, options.samples)
    if "load" in parts:
        load(jobs, cluster, given, options.seeds)
    if "window" in parts:
        window(jobs, cluster, options.seeds)
    if "small" in parts:
        small(jobs, cluster, given, options.seeds)


def _label(given: Given) -> str:
    name, parameters = given
    return label({"policy": name, "given": parameters})


# One day ---------------------------------------------------------------------------------------------


def one_day(jobs: Sequence[TraceJob], cluster: Cluster, given: Sequence[Given], days: str, samples: int) -> None:
    clusters = [replace(cluster, nodes=cluster.nodes[start::EVERY_NODE]) for start in range(samples)]
    cases = [(on, _one_day_of(jobs, on, days)) for on in clusters]
    print(f"== one day of OpenB's {days} days, on {samples} samples of the nodes")
    for on, day in cases:
        asked = sum(min(job.total_steps, DAY_S - job.arrival_s) * _gpus(job) for job in day) / DAY_S
        parts = sum(job.gpu_milli < WHOLE for job in day)
        print(f"   {len(day):,} jobs, {parts:,} of a part of a GPU, {asked:.0f} GPU-days within it; {on.gpus} GPUs")
    head = f"{'':34} util. points to RR ratio to RR  jct mean  from start  jct p99  wasted  ended  rounds  ms a round"
    print(head)
    base: float | None = None
    for one in given:
        found = _mean([_day(one, day, on) for on, day in cases])
        base = found.utilisation if base is None else base
        print(
            f"{_label(one):34} {found.utilisation:6.1%} {100 * (found.utilisation - base):+11.1f} "
            f"{found.utilisation / base - 1:+11.1%} {found.jct_s:9,.0f} {found.from_start_s:11,.0f} "
            f"{found.p99_s:8,.0f} {found.wasted:7.1%} {found.ended:6,.0f} {found.rounds:7,.0f} {found.round_ms:11.1f}",
            flush=True,
        )


def _one_day_of(jobs: Sequence[TraceJob], on: Cluster, days: str) -> list[TraceJob]:
    """Jobs that a node of the sample can run, by time of day."""
    node_capacity = NodeCapacity(Snapshot(0.0, on.nodes, ()), ())
    mine = [job for job in jobs if _is_of(job, days) and len(node_capacity.fitting(Demand.of(_job(job, 0))))]
    ordered = sorted(mine, key=lambda job: (job.arrival_s % DAY_S, job.number))
    return [replace(job, arrival_s=job.arrival_s % DAY_S, number=n) for n, job in enumerate(ordered, 1)]


def _gpus(job: TraceJob) -> float:
    return job.min_gpus * job.gpu_milli / WHOLE


def _is_of(job: TraceJob, days: str) -> bool:
    day = int(job.arrival_s // DAY_S)
    return day >= FIRST_DAY and day % 2 == (0 if days == "even" else 1)


@dataclass(frozen=True)
class Day:
    """`utilisation`: GPUs asked for and held until midnight, in parts, of all. `wasted`: of what is free on the
    hour, what is a fragment to the day's jobs. Completion times are of all jobs, to the end of the last."""

    utilisation: float
    jct_s: float
    from_start_s: float
    p99_s: float
    wasted: float
    ended: float
    rounds: float
    round_ms: float


def _mean(days: Sequence[Day]) -> Day:
    return Day(*(float(np.mean(values)) for values in zip(*(astuple(day) for day in days), strict=True)))


def _day(given: Given, day: Sequence[TraceJob], on: Cluster) -> Day:
    name, parameters = given
    engine = _Watched(day, on, load_policy(name, parameters))
    begun = time.process_time()
    outcome = engine.run()
    seconds = time.process_time() - begun - engine.watching_s
    asked = {job.number: _gpus(job) for job in day}
    used = sum(asked[number] * max(0.0, min(until, DAY_S) - since) for number, _, since, until in outcome.holds)
    done = [run for run in outcome.runs if run.finished_at is not None and run.started_at is not None]
    jct = np.array([(run.finished_at or 0.0) - run.job.arrival_s for run in done])
    ran = [(run.finished_at or 0.0) - (run.started_at or 0.0) for run in done]
    return Day(
        utilisation=used / (DAY_S * on.gpus),
        jct_s=float(jct.mean()),
        from_start_s=float(np.mean(ran)),
        p99_s=float(np.percentile(jct, 99)),
        wasted=float(np.mean(engine.wasted)),
        ended=len(done),
        rounds=outcome.rounds,
        round_ms=1e3 * seconds / max(1, outcome.rounds),
    )


class _Watched(Engine):
    """Looks once an hour at how much of what is free is of use to the day's jobs."""

    def __init__(self, day: Sequence[TraceJob], on: Cluster, policy: Any) -> None:
        super().__init__(day, on, policy, options=Options(keep_holds=True))
        self.wasted: list[float] = []
        self.watching_s = 0.0
        kinds = tuple(sorted({node.type for node in on.nodes}))
        counted: dict[Demand, float] = {}
        for job in day:
            milli = job.gpu_milli if policy.capabilities.places_gpu_parts else WHOLE
            demand = Demand(job.min_gpus, milli, 0, job.cpu_milli, job.memory_mib, tuple(sorted(job.types or kinds)))
            counted[demand] = counted.get(demand, 0.0) + 1.0
        self.classes = Classes.of(counted, kinds)
        for hour in range(1, 25):
            self.clock.after(hour * 3600.0, self._look)

    def _look(self) -> None:
        begun = time.process_time()
        node_capacity = NodeCapacity(
            snapshot := self.sight.snapshot(self.live.values()), [job for job in snapshot.jobs if job.gpu_ids]
        )
        free = int(node_capacity.gpu.sum())
        self.wasted.append(fragmentation(node_capacity, self.classes) / free if free else 0.0)
        self.watching_s += time.process_time() - begun


# All nodes filled ------------------------------------------------------------------------------------


def load(jobs: Sequence[TraceJob], cluster: Cluster, given: Sequence[Given], seeds: int) -> None:
    """Pods come one at a time and stay; at the end one round as the live engine has it, with everybody on the nodes."""
    print(
        f"== pods drawn at random on {len(cluster.nodes):,} nodes with {cluster.gpus:,} GPUs until 102 % is asked for"
    )
    print(
        f"{'':34}  used of all GPUs (min to max)   pods  ms to choose: p50    p95    max   ms a whole round when full"
    )
    for one in given:
        if not load_policy(*one).capabilities.places_gpu_parts or one[0] in ("genetic", "packing_exact"):
            continue
        found = [_fill(one, jobs, cluster, seed) for seed in range(seeds)]
        used, ms = [fill.used for fill in found], np.concatenate([fill.ms for fill in found])
        rounds = np.median([fill.round_ms for fill in found])
        print(
            f"{_label(one):34} {np.mean(used):7.2%} ({min(used):.2%} to {max(used):.2%}) {found[0].pods:12,} "
            f"{np.median(ms):20.2f} {np.percentile(ms, 95):6.2f} {ms.max():6.1f} {rounds:28.0f}",
            flush=True,
        )


@dataclass(frozen=True)
class Fill:
    used: float
    pods: int
    ms: Any
    round_ms: float


def _fill(given: Given, jobs: Sequence[TraceJob], cluster: Cluster, seed: int) -> Fill:
    rng = np.random.default_rng(seed)
    drawn = list(_drawn(jobs, cluster, rng))
    policy: Any = load_policy(*given)
    empty = Snapshot(now=0.0, nodes=cluster.nodes, jobs=tuple(drawn))  # what usually comes is known from the start
    node_capacity = NodeCapacity(empty, ())
    memory, used, ms = policy.begin(empty, view(empty), node_capacity), 0, []
    running: list[Job] = []
    for job in drawn:
        demand = Demand.of(job)
        begun = time.perf_counter()
        rows = node_capacity.fitting(demand)
        if len(rows):
            gpus = policy.choose(node_capacity, demand, rows, memory)
            node_capacity.book(demand, gpus)
            used += demand.count * demand.milli
            running.append(_running(job, gpus, node_capacity))
        ms.append(1e3 * (time.perf_counter() - begun))
    one_more = _job(jobs[int(rng.integers(len(jobs)))], len(drawn) + 1)
    known = {MEMORY: policy.end(memory)}
    snapshot = Snapshot(now=0.0, nodes=cluster.nodes, jobs=(*running, one_more), memory=known)
    begun = time.perf_counter()
    plan_round(snapshot, policy)
    round_ms = 1e3 * (time.perf_counter() - begun)
    return Fill(used / (cluster.gpus * WHOLE), len(drawn), np.array(ms), round_ms)


def _drawn(jobs: Sequence[TraceJob], cluster: Cluster, rng: Any) -> Iterator[Job]:
    asked = 0
    for number in range(1, 1_000_000):
        if asked >= 1.02 * cluster.gpus * WHOLE:
            return
        pod = jobs[rng.integers(len(jobs))]
        asked += pod.min_gpus * pod.gpu_milli
        yield _job(pod, number)


def _job(pod: TraceJob, number: int) -> Job:
    return Job(
        id=f"pod-{number:06d}",
        number=number,
        project="openb",
        state=State.WAITING_FOR_INITIAL_RESOURCE,
        submitted_at=float(number),
        curves=pod.curves,
        min_gpus=pod.min_gpus,
        max_gpus=pod.max_gpus,
        types=pod.types,
        remaining_steps=pod.total_steps,
        gpu_milli=pod.gpu_milli,
        cpu_milli=pod.cpu_milli,
        memory_mib=pod.memory_mib,
    )


def _running(job: Job, gpus: tuple[int, ...], node_capacity: NodeCapacity) -> Job:
    gang = Gang(node_capacity.nodes[node_capacity.place[gpus[0]][0]].type, len(gpus))
    return replace(job, state=State.RUNNING, gpu_ids=gpus, gang=gang, has_trained=True)


def window(jobs: Sequence[TraceJob], cluster: Cluster, seeds: int) -> None:
    """Some hundred pods wait at once for all nodes, on which pods come first fit until 92 % was asked for."""
    print("== 200 pods wait for all nodes, nearly full: GPUs that they are given, and CPU ms of the round")
    cases = [_crowded(jobs, cluster, np.random.default_rng(seed)) for seed in range(seeds)]
    for name, parameters in WINDOW:
        taken, ms = [], []
        for snapshot in cases:
            begun = time.process_time()
            plan = plan_round(snapshot, load_policy(name, dict(parameters)))
            ms.append(1e3 * (time.process_time() - begun))
            part = {job.id: job.min_gpus * job.gpu_milli / WHOLE for job in snapshot.jobs}
            taken.append(sum(part[move.job_id] for move in plan.moves))
        print(
            f"{_label((name, dict(parameters))):44} {np.mean(taken):7.1f} GPUs {np.max(ms):8.0f} ms at most", flush=True
        )


def _crowded(jobs: Sequence[TraceJob], cluster: Cluster, rng: Any) -> Snapshot:
    node_capacity, running, asked = NodeCapacity(Snapshot(0.0, cluster.nodes, ()), ()), list[Job](), 0
    for number in range(1, 1_000_000):
        if asked >= 0.92 * cluster.gpus * WHOLE:
            break
        pod = jobs[rng.integers(len(jobs))]
        asked += pod.min_gpus * pod.gpu_milli
        job = _job(pod, number)
        demand = Demand.of(job)
        rows = node_capacity.fitting(demand)
        if len(rows):
            gpus = node_capacity.first(int(rows[0]), demand)
            node_capacity.book(demand, gpus)
            running.append(_running(job, gpus, node_capacity))
    waiting = [_job(jobs[rng.integers(len(jobs))], number) for number in range(900_000, 900_200)]
    return Snapshot(0.0, cluster.nodes, (*running, *waiting))


# Against the integer program -------------------------------------------------------------------------


def small(jobs: Sequence[TraceJob], cluster: Cluster, given: Sequence[Given], seeds: int) -> None:
    """A few nodes, half taken by pods at random, and 24 pods that wait."""
    print("== 24 waiting pods on 4 nodes that pods have half filled: GPUs taken, against the integer program")
    rows: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(4 * seeds):
        snapshot = _half_full(jobs, cluster, np.random.default_rng(seed))
        best = _taken(snapshot, ("packing_exact", {"time_limit_s": 60.0}), seconds)
        if not best:
            continue
        for one in given:
            if load_policy(*one).capabilities.places_gpu_parts:
                rows.setdefault(_label(one), []).append(_taken(snapshot, one, seconds) / best)
    for named, ratios in rows.items():
        print(
            f"{named:34} {np.mean(ratios):7.2%} of the best on average, {min(ratios):.1%} at worst, "
            f"best in {np.mean(np.array(ratios) > 1 - 1e-9):4.0%}; {1e3 * float(np.median(seconds[named])):.1f} ms"
        )
    print(f"{'packing_exact':34} {1e3 * float(np.median(seconds['packing_exact (time_limit_s=60.0)'])):.1f} ms")


def _half_full(jobs: Sequence[TraceJob], cluster: Cluster, rng: Any) -> Snapshot:
    nodes = tuple(cluster.nodes[n] for n in sorted(rng.choice(len(cluster.nodes), 4, replace=False).tolist()))
    types = {node.type for node in nodes}
    able = [pod for pod in jobs if not pod.types or types & set(pod.types)]
    node_capacity, running = NodeCapacity(Snapshot(0.0, nodes, ()), ()), list[Job]()
    half, used = sum(len(node.gpu_ids) for node in nodes) * WHOLE // 2, 0
    for number in range(1, 200):
        job = _job(able[rng.integers(len(able))], number)
        demand = Demand.of(job)
        fitting = node_capacity.fitting(demand)
        if used >= half or not len(fitting):
            continue
        gpus = node_capacity.first(int(rng.choice(fitting)), demand)
        node_capacity.book(demand, gpus)
        used += demand.count * demand.milli
        running.append(_running(job, gpus, node_capacity))
    waiting = [_job(able[rng.integers(len(able))], number) for number in range(200, 224)]
    return Snapshot(0.0, nodes, (*running, *waiting))


def _taken(snapshot: Snapshot, given: Given, seconds: dict[str, list[float]]) -> int:
    policy, jobs = load_policy(*given), {job.id: job for job in snapshot.jobs}
    begun = time.perf_counter()
    placements: Mapping[str, tuple[int, ...]] = policy.allocate(snapshot).placements or {}
    seconds.setdefault(_label(given), []).append(time.perf_counter() - begun)
    return sum(len(gpus) * jobs[key].gpu_milli for key, gpus in placements.items() if not jobs[key].gpu_ids)


if __name__ == "__main__":
    main()
