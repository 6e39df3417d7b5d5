"""Finds unschedulable jobs of a trace, before a simulation in which they never finish."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.simulator.inputs.trace import Cluster, TraceJob, sizes, speed_alone


def stranded(jobs: Iterable[TraceJob], cluster: Cluster) -> list[TraceJob]:
    """Checked as if all nodes were empty and in service."""
    of = sizes(cluster.nodes)
    return [job for job in jobs if speed_alone(job, of, cluster.multi_node) <= 0.0]


def complaint(job: TraceJob, cluster: Cluster) -> str:
    """The message about one of them."""
    of = sizes(cluster.nodes)
    usable = {
        kind: of[kind][0] if cluster.multi_node else of[kind][1]
        for kind in sorted(job.curves)
        if kind in of and (not job.types or kind in job.types)
    }
    if not usable:
        has = ", ".join(f"{total} {kind}" for kind, (total, _) in sorted(of.items())) or "no GPUs"
        return f"job {job.id} {_request(job)}, and the cluster has {has} (types are spelled alike in both files)"
    if job.min_gpus > max(usable.values()):
        have = ", ".join(f"{count} {kind}" for kind, count in usable.items())
        where = "type" if cluster.multi_node else "node"
        return f"job {job.id} needs {job.min_gpus} GPUs of one {where}, and there are {have} at most"
    return f"job {job.id} makes no step on any gang of {', '.join(usable)} that it may have here"


def _request(job: TraceJob) -> str:
    """The request as in the trace, so that a misspelt type is visible."""
    known = ", ".join(sorted(job.curves)) or "no type"
    return f"asks for {', '.join(job.types)} and is known on {known}" if job.types else f"can run on {known}"
