"""The same snapshot with one change: a job of another size or type, or one more node."""

from __future__ import annotations

from dataclasses import replace

from scheduling.domain import Gang, Job, Node, Partition, Snapshot
from scheduling.lifecycle import QUEUED, State

#: Name of the added node; no other node has it.
NEW_NODE = "one more"


def sized(job: Job, gang: Gang) -> Job:
    """Queued with exactly these GPUs; a running job would leave its GPUs and start on these."""
    state = job.state if job.state in QUEUED else State.WAITING_FOR_RESOURCE
    return replace(
        job,
        state=state,
        gpu_ids=(),
        gang=None,
        held_since=None,
        protected_until=None,
        min_gpus=gang.count,
        max_gpus=gang.count,
        types=(gang.type,),
        resizable=True,
        restartable=True,
    )


def with_job(snapshot: Snapshot, job: Job) -> Snapshot:
    """Replaces the job with its id, or is added."""
    others = tuple(other for other in snapshot.jobs if other.id != job.id)
    return replace(snapshot, jobs=(*others, job))


def with_node(snapshot: Snapshot, kind: str) -> Snapshot | None:
    """With one more node of a type, like the largest one of that type and in its partitions; None: there is none. No
    window covers it."""
    alike = [node for node in snapshot.nodes if node.type == kind and not node.lost]
    model = max(alike, key=lambda node: len(node.gpu_ids), default=None)
    if model is None:
        return None
    first = max(gpu for node in snapshot.nodes for gpu in node.gpu_ids) + 1
    node = replace(
        model,
        name=NEW_NODE,
        gpu_ids=tuple(range(first, first + len(model.gpu_ids))),
        schedulable=True,
        drain=None,
    )
    partitions = {name: _joined(partition, model, node) for name, partition in snapshot.partitions.items()}
    return replace(snapshot, nodes=(*snapshot.nodes, node), partitions=partitions)


def _joined(partition: Partition, model: Node, node: Node) -> Partition:
    if model.name not in partition.nodes:
        return partition
    return replace(partition, nodes=partition.nodes | {node.name})


def run_time_s(job: Job, gang: Gang | None) -> float | None:
    """Remaining time on a gang; None if its speed there is unknown."""
    curve = job.curves.get(gang.type) if gang else None
    if gang is None or curve is None or curve.source == "trial" or curve.at(gang.count) <= 0:
        return None
    return job.remaining_steps / curve.at(gang.count)
