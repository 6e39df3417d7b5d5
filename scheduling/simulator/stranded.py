"""Jobs of a trace that nothing of the cluster can run, before they are simulated and never finish."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.simulator.trace import Cluster, Sizes, TraceJob, sizes
from scheduling.throughput import effective


def stranded(jobs: Iterable[TraceJob], cluster: Cluster) -> list[TraceJob]:
    """As if all nodes were empty and in service."""
    of = sizes(cluster.nodes)
    return [job for job in jobs if not any(_runs(job, kind, of, cluster.multi_node) for kind in _known(job))]


def complaint(job: TraceJob, cluster: Cluster) -> str:
    """Of one of them."""
    of = sizes(cluster.nodes)
    has = ", ".join(f"{total} {kind}" for kind, (total, _) in sorted(of.items())) or "no GPUs"
    if not set(_known(job)) & set(of):
        known = ", ".join(sorted(_known(job))) or "no type"
        return f"job {job.id} can run on {known}, and the cluster has {has}"
    where = "of one type" if cluster.multi_node else "of one node"
    return f"job {job.id} needs {job.min_gpus} GPUs {where}, and the cluster has {has}"


def _known(job: TraceJob) -> list[str]:
    return [kind for kind in job.curves if not job.types or kind in job.types]


def _runs(job: TraceJob, kind: str, of: Sizes, multi_node: bool) -> bool:
    total, node = of.get(kind, (0, 0))
    reach = total if multi_node else node
    high = min(reach, job.max_gpus or reach)
    return high >= job.min_gpus and effective(job.curves[kind], high, node)[-1] > 0.0
