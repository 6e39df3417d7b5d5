"""CPUs and memory of nodes under policies that only count GPUs.

Such a policy sees counts only. A pending job for which no usable node has enough CPUs and memory is therefore hidden
from it, and gangs are placed on nodes with enough of both. A job's `cpu_milli` and `memory_mib` apply to each of its
nodes. Without such requests nothing is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import host_memory, processors
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.node_capacity import UNBOUNDED
from scheduling.domain import Job, Node, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.state import Effect
from scheduling.policies.base import Policy

#: The reason of a pending job for which no node has enough CPUs and memory.


def requests_host_resources(job: Job) -> bool:
    return bool(job.cpu_milli or job.memory_mib)


class FreeHostResources:
    """Free CPUs and memory of nodes beside the jobs that stay; by index of the node."""

    def __init__(self, nodes: Sequence[Node], node_of: Mapping[int, int], staying: Iterable[Job]) -> None:
        self._nodes, self._node_of = nodes, node_of
        self._at: dict[str, set[int]] = {}
        for job in filter(requests_host_resources, staying):  # usually no node
            self.move(job, job.gpu_ids)

    @cached_property
    def cpu(self) -> list[int]:
        return [UNBOUNDED if (free := node.free_cpu_milli) is None else free for node in self._nodes]

    @cached_property
    def memory(self) -> list[int]:
        return [UNBOUNDED if (free := node.free_memory_mib) is None else free for node in self._nodes]

    def move(self, job: Job, gpus: Iterable[int]) -> None:
        """The job now occupies the nodes of these GPUs and no others."""
        if not requests_host_resources(job):
            return
        nodes = {self._node_of[gpu] for gpu in gpus if gpu in self._node_of}
        before = self._at.get(job.id, set())
        for sign, changed in ((1, before - nodes), (-1, nodes - before)):
            for index in changed:
                self.cpu[index] += sign * job.cpu_milli
                self.memory[index] += sign * job.memory_mib
        self._at[job.id] = nodes

    def has_room(self, job: Job, index: int) -> bool:
        """Whether the node has room for the job, or the job is on it already."""
        if index in self._at.get(job.id, ()):
            return True
        return self.cpu[index] >= job.cpu_milli and self.memory[index] >= job.memory_mib


def hide_short_of_host_resources(snapshot: Snapshot, policy: Policy, may_stay: Collection[str] = ()) -> Effect:
    """Hide pending jobs that fit on no node beside the jobs that keep their GPUs. Jobs that it may preempt, and jobs
    that take turns, are ignored: the policy decides about those. `may_stay`: jobs that keep their GPUs unless they are
    moved."""
    if policy.capabilities.places_gpu_parts or not any(
        requests_host_resources(job) and not job.gpu_ids for job in snapshot.jobs
    ):
        return Effect()
    seen, known = view(snapshot), cluster_index(snapshot.nodes)
    found: dict[tuple[object, ...], Reason | None] = {}
    hosts: dict[str, FreeHostResources] = {}  # by QoS
    reasons: dict[str, Reason] = {}
    for job in seen.queued:
        if not requests_host_resources(job) or job.id in may_stay:
            continue
        kinds = tuple(seen.spans(job))
        key = (job.cpu_milli, job.memory_mib, kinds, job.qos)
        if key not in found:
            if job.qos not in hosts:
                hosts[job.qos] = FreeHostResources(
                    known.usable, known.node_of, _blocking_jobs(seen, snapshot, job, policy)
                )
            found[key] = _too_little(job, kinds, known.usable, hosts[job.qos])
        if (reason := found[key]) is not None:
            reasons[job.id] = reason
    return Effect(dict.fromkeys(reasons), reasons)


def _blocking_jobs(seen: RoundView, snapshot: Snapshot, job: Job, policy: Policy) -> Iterable[Job]:
    if policy.capabilities.shares_time:
        return seen.pinned
    level = snapshot.qos.get(job.qos)
    lower = level.preempts if level else ()
    return [one for one in snapshot.jobs if one.gpu_ids and one.qos not in lower]


def _too_little(job: Job, kinds: Collection[str], nodes: Sequence[Node], hosts: FreeHostResources) -> Reason | None:
    there = [index for index, node in enumerate(nodes) if node.type in kinds]
    if not there or any(hosts.has_room(job, index) for index in there):
        return None  # a job that nothing can run gets another reason
    large = any(
        (nodes[index].cpu_milli is None or job.cpu_milli <= (nodes[index].cpu_milli or 0))
        and (nodes[index].memory_mib is None or job.memory_mib <= (nodes[index].memory_mib or 0))
        for index in there
    )
    wants = " and ".join(_wants(job))
    detail = {"cpu_milli": job.cpu_milli, "memory_mib": job.memory_mib}
    if not large:
        # nodes that are out of service are explained elsewhere
        text = f"It asks for {wants} on each node, and no node with GPUs for it that it may use now is as large."
        return Reason(ReasonCode.TOO_LARGE, text, detail)
    return Reason(
        ReasonCode.NO_HOST,
        f"It asks for {wants} on each node, and no node with GPUs for it now has as much free.",
        detail,
    )


def _wants(job: Job) -> Iterable[str]:
    if job.cpu_milli:
        yield processors(job.cpu_milli)
    if job.memory_mib:
        yield host_memory(job.memory_mib)
