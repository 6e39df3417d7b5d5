"""Jobs and hardware of a simulation: one stored document, from which every trial can be repeated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from django.utils import timezone

from accounts.ledger import current_prices
from accounts.pricing import from_micro
from portal.core.packed_json import unpack
from portal.jobs.models import Cluster, Hold, Job, Run
from portal.lab.models import Simulation, Trace
from portal.lab.spec import Edited, HistoryWorkload, Spec, SyntheticWorkload, TraceWorkload
from portal.lab.traces import gpu_hours
from portal.readmodels.jobs.trace_export import export_jobs
from portal.snapshot.rows import nodes_of
from portal.throughput.restart_times import restart_times
from scheduling.errors import InvalidInput
from scheduling.simulator.inputs import trace
from scheduling.simulator.inputs.generate import Recipe, generate
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers import own
from scheduling.simulator.readers.jobs import Context
from scheduling.throughput.curves import catalogue
from scheduling.throughput.published import published_curves


@dataclass
class Inputs:
    document: dict[str, Any]
    _jobs: dict[str, list[TraceJob]] = field(default_factory=dict)

    @cached_property
    def cluster(self) -> trace.Cluster:
        return trace.parse_cluster(self.document["cluster"], Path("cluster"))

    @cached_property
    def own_cluster(self) -> trace.Cluster:
        """The portal's nodes, without any edits."""
        return trace.parse_cluster(self.document["own_cluster"], Path("cluster"))

    def jobs(self, seed: int) -> list[TraceJob]:
        """The same list for all trials with the same jobs."""
        workloads = self.document["workloads"]
        key = str(seed) if str(seed) in workloads else ""
        if key not in self._jobs:
            self._jobs[key] = own.parse({"jobs": workloads[key]}, "trace", Context())
        return self._jobs[key]


def build(row: Simulation) -> tuple[Inputs, dict[str, Any]]:
    """With a summary of the workload. Raises InvalidInput if there is nothing to simulate."""
    spec = Spec.model_validate(row.spec)
    hardware = own_cluster = _hardware_as_it_is(row.cluster)
    if isinstance(spec.hardware, Edited):
        hardware = {**own_cluster, "nodes": [_edited(node.model_dump()) for node in spec.hardware.nodes]}
    elif not hardware["nodes"]:
        raise InvalidInput("The cluster has no nodes to simulate; edit the hardware.")
    workloads, recorded, left_out = _workloads(row, spec, hardware)
    some = next(iter(workloads.values()))
    if not some:
        raise InvalidInput("There are no finished jobs between these times.")
    inputs = Inputs({"cluster": hardware, "own_cluster": own_cluster, "workloads": workloads, "recorded": recorded})
    history = isinstance(spec.workload, HistoryWorkload)
    summary = {
        "jobs": len(some),
        "left_out": left_out,
        "from_at": row.spec["workload"]["from_at"] if history else None,
        "to_at": row.spec["workload"]["to_at"] if history else None,
        "gpu_hours": gpu_hours(inputs.jobs(spec.seed)),
    }
    return inputs, summary


def _workloads(
    row: Simulation, spec: Spec, hardware: dict[str, Any]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any], int]:
    workload = spec.workload
    if isinstance(workload, HistoryWorkload):
        between = {"submitted_at__gte": workload.from_at, "submitted_at__lt": workload.to_at}
        entries = list(export_jobs(cluster=row.cluster, start=workload.from_at, end=workload.to_at, named=True))
        left_out = Job.objects.filter(cluster=row.cluster, **between).count() - len(entries)
        runnable = [entry for entry in entries if entry["throughputs"]]
        left_out += len(entries) - len(runnable)
        return {"": runnable}, _recorded(row.cluster, spec), left_out
    if isinstance(workload, TraceWorkload):
        found = Trace.objects.filter(pk=workload.trace_id, owner=row.created_by).first()
        if found is None:
            raise InvalidInput("The trace has been removed.")
        return {"": unpack(found.packed)["jobs"]}, {}, int(found.summary["left_out"])
    seeds = range(spec.seed, spec.seed + spec.repetitions)
    return {str(seed): _synthetic(workload, seed, hardware) for seed in seeds}, {}, 0


def _synthetic(workload: SyntheticWorkload, seed: int, hardware: dict[str, Any]) -> list[dict[str, Any]]:
    known = {**published_curves(), **catalogue()}
    chosen = {name: known[name] for name in workload.models or known if name in known}
    kinds = [node["type"] for node in hardware["nodes"]]
    # the first type of the hardware on which a model runs determines the length of its jobs
    kind = next((kind for kind in kinds if any(kind in curves for curves in chosen.values())), kinds[0])
    recipe = Recipe(workload.jobs, workload.jobs_per_hour, workload.multi_gpu, kind, seed)
    return generate(recipe, chosen)


def _edited(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "price_per_gpu_hour": float(node["price_per_gpu_hour"] or 0.0)}


def _hardware_as_it_is(cluster: Cluster) -> dict[str, Any]:
    """A cluster file of the present nodes that are not drained, in their order, with the measured times of restarts."""
    prices = {kind: float(from_micro(price)) for kind, price in current_prices(timezone.now(), cluster.name).items()}
    nodes = [
        {
            "name": node.name,
            "type": node.type,
            "count": 1,
            "gpus": len(node.gpu_ids),
            "price_per_gpu_hour": prices.get(node.type, 0.0),
            "cpus": node.cpu_milli // 1_000 if node.cpu_milli else None,
            "memory_mib": node.memory_mib,
            "gpu_memory_mib": node.gpu_memory_mib,
        }
        for node in nodes_of(cluster)
        if node.schedulable and not node.lost
    ]
    measured = restart_times(cluster)  # the simulator's defaults if nothing was launched yet
    times = {"launch_s": measured.launch_s, "checkpoint_s": measured.checkpoint_s} if measured else {}
    return {"nodes": nodes, **times}


def _recorded(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    """The recorded outcome: job's number -> [seconds waited, end, GPU seconds trained]; times from `from_at`."""
    workload = spec.workload
    assert isinstance(workload, HistoryWorkload)
    runs = Run.objects.filter(
        job__cluster=cluster, job__submitted_at__gte=workload.from_at, job__submitted_at__lt=workload.to_at
    ).select_related("job")
    held: defaultdict[Any, float] = defaultdict(float)
    holds = Hold.objects.filter(run__in=runs.values("pk"), during__upper_inf=False)
    for run_id, during, share in holds.values_list("run_id", "during", "share_percent"):
        assert during.lower is not None
        assert during.upper is not None
        held[run_id] += (during.upper - during.lower).total_seconds() * share / 100
    found: dict[str, list[float]] = {}
    for run in runs.order_by("job_id", "attempt"):
        kept = found.setdefault(str(run.job.number), [0.0, 0.0, 0.0])
        kept[0] += run.queueing_s
        kept[1] = (run.ended_at - workload.from_at).total_seconds() if run.ended_at else 0.0
        busy = run.running_s + run.launching_s
        kept[2] += held[run.pk] * (run.running_s / busy if busy else 1.0)
    return found
