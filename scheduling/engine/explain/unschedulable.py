"""Explains why no node can run a job: it asks for too much, nodes are out of service, or its throughput is unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import gpu_memory, host_memory, processors
from scheduling.capacity.memo import ClusterIndex, cluster_index
from scheduling.capacity.node_pools import Pools
from scheduling.domain import Job, Node, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode

_TIMES = "\N{MULTIPLICATION SIGN}"


class UnschedulableDiagnosis:
    """Diagnoses jobs that no gang of the nodes in service can run. Jobs of a partition are compared with its nodes."""

    def __init__(self, snapshot: Snapshot, pools: Pools | None) -> None:
        self.snapshot = pools.snapshot if pools else snapshot
        self.pools = pools
        self._jobs = {job.id: job for job in self.snapshot.jobs}
        self._parts: dict[tuple[str, str], _Part] = {}

    def reason(self, key: str, otherwise: Reason) -> Reason:
        job = self._jobs[key]
        place = (job.partition, job.constraint)
        part = self._parts.get(place)
        if part is None:
            nodes = self.snapshot.nodes
            if self.pools is not None:
                nodes = tuple(node for node in nodes if self.pools.of_node[node.name].is_for(job))
            part = self._parts[place] = _Part(replace(self.snapshot, nodes=nodes))
        return part.reason(job) or otherwise


class _Part:
    """Diagnosis for the nodes that a job may use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def _there(self) -> ClusterIndex:
        """GPUs by type on all nodes, including those out of service."""
        return cluster_index(tuple(_back(node) for node in self.snapshot.nodes))

    @cached_property
    def _whole(self) -> RoundView:
        return view(replace(self.snapshot, nodes=self._there.usable, jobs=()))

    def reason(self, job: Job) -> Reason | None:
        there = self._there
        allowed = [name for name in there.types if not job.types or name in job.types]
        detail = {"needs": job.min_gpus, "types": list(job.types)}
        if not allowed:
            has = ", ".join(f"{there.total[name]} {name}" for name in there.types) or "no accelerators"
            wanted = " or ".join(job.types) or "accelerators"
            text = f"This cluster has no {wanted} (it has {has}), so the job cannot run here."
            return Reason(ReasonCode.NEVER, text, detail)
        if job.curves and not any(name in job.curves for name in allowed):
            text = (
                f"Its throughput is known only on {', '.join(sorted(job.curves))}, not on {' or '.join(allowed)}, "
                "so it does not start there."
            )
            return Reason(ReasonCode.NO_PROFILE, text, detail)
        spans = self._whole.spans(job)
        if not spans:
            return self._too_large(job, allowed) or self._too_many(job, allowed)
        types = list(spans)
        known = self._too_large(job, types) or self._too_few(job, types) or self._too_spread(job, types)
        return known or self._away(job, spans.least, types)

    def _too_spread(self, job: Job, types: list[str]) -> Reason | None:
        """The job's GPUs never fit on the number of nodes that its bounds allow."""
        bounds = job.on_nodes
        if bounds is None:
            return None
        sizes = Counter[str]()
        for kind in types:
            usable = (node for node in self._there.usable if node.type == kind)
            nodes = sorted((bounds.hold(len(node.gpu_ids)) for node in usable), reverse=True)
            sizes[kind] = sum(nodes[: bounds.most])
        most = max(sizes.values(), default=0)
        if most >= job.min_gpus and (job.max_gpus is None or job.max_gpus >= bounds.least):
            return None
        text = f"{bounds.says}, and it needs at least {job.min_gpus} GPUs"
        text += (
            f"; that many nodes have {most} GPUs at most, so it cannot run here."
            if most < job.min_gpus
            else ", so it cannot run here."
        )
        return Reason(ReasonCode.NEVER, text, {"needs": job.min_gpus, "types": list(job.types), "there": most})

    def _too_large(self, job: Job, types: list[str]) -> Reason | None:
        """The job asks for more of a node than any of these has."""
        nodes = [node for node in self._there.usable if node.type in types]
        if any(could_hold(job, node) for node in nodes):
            return None
        short = [
            f"{name(wanted)} and no node that it may use has more than {name(max(sizes))}"
            for name, wanted, sizes in (
                (processors, job.cpu_milli, [node.cpu_milli or 0 for node in nodes]),
                (host_memory, job.memory_mib, [node.memory_mib or 0 for node in nodes]),
                (gpu_memory, job.gpu_memory_mib, [node.gpu_memory_mib or 0 for node in nodes]),
            )
            if all(size < wanted for size in sizes)
        ]
        text = "; ".join(f"it asks for {one}" for one in short) or "no node that it may use has all that it asks for"
        detail = {"cpu_milli": job.cpu_milli, "memory_mib": job.memory_mib, "gpu_memory_mib": job.gpu_memory_mib}
        return Reason(ReasonCode.NEVER, f"{text[0].upper()}{text[1:]}, so it cannot run here.", detail)

    def _too_few(self, job: Job, types: list[str]) -> Reason | None:
        """Too few GPUs on nodes that meet the job's demands for each node."""
        nodes = [node for node in self._there.usable if node.type in types and could_hold(job, node)]
        large = cluster_index(tuple(nodes))
        most = max((large.total if self._whole.multi_node else large.largest).values())
        if most >= job.min_gpus:
            return None
        where = "" if self._whole.multi_node else " on one node"
        text = (
            f"It needs at least {job.min_gpus} {_TIMES} {' or '.join(types)}{where}, and nodes with what it asks for "
            f"of each have {most}{_of_one(types)}, drained and lost ones included, so it cannot run here."
        )
        return Reason(ReasonCode.NEVER, text, {"needs": job.min_gpus, "types": list(job.types), "there": most})

    def _too_many(self, job: Job, allowed: list[str]) -> Reason:
        reach = self._whole.total if self._whole.multi_node else self._whole.largest
        most = max(reach[name] for name in allowed)
        where = "" if self._whole.multi_node else " on one node"
        text = (
            f"It needs at least {job.min_gpus} {_TIMES} {' or '.join(allowed)}{where} and there are {most}"
            f"{_of_one(allowed)}, drained and lost nodes included, so it cannot run here."
        )
        return Reason(ReasonCode.NEVER, text, {"needs": job.min_gpus, "types": list(job.types), "there": most})

    def _away(self, job: Job, needs: int, types: list[str]) -> Reason | None:
        """The job would fit if drained, lost or withheld nodes were back."""
        nodes = [node for node in self.snapshot.nodes if node.type in types and could_hold(job, node)]
        away = [node for node in nodes if node.lost or not node.schedulable]
        if not away:
            return None
        shown = ", ".join(f"{node.name} ({_why(node)})" for node in away[:5])
        more = f" and {len(away) - 5} more" if len(away) > 5 else ""
        left = max(cluster_index(tuple(nodes)).total.get(name, 0) for name in types)
        text = (
            f"It needs at least {needs} {_TIMES} {' or '.join(types)} and {left}{_of_one(types)} are in service; "
            f"out of service: {shown}{more}. It starts when enough of them are back."
        )
        return Reason(ReasonCode.NODE_UNAVAILABLE, text, {"needs": needs, "nodes": [node.name for node in away[:20]]})


def _of_one(types: list[str]) -> str:
    return " of one type" if len(types) > 1 else ""


def could_hold(job: Job, node: Node) -> bool:
    """Whether the node, if empty, meets the job's demands for each node. Unknown capacities count as sufficient."""
    asked = (
        (node.cpu_milli, job.cpu_milli),
        (node.memory_mib, job.memory_mib),
        (node.gpu_memory_mib, job.gpu_memory_mib),
    )
    return all(there is None or wanted <= there for there, wanted in asked)


def could_hold_gang(job: Job, nodes: Iterable[Node], *, multi_node: bool) -> bool:
    """Whether these nodes, if empty, have enough GPUs of one type for the job's least gang."""
    found: Counter[str] = Counter()
    for node in nodes:
        if could_hold(job, node):
            found[node.type] = len(node.gpu_ids) + (found[node.type] if multi_node else 0)
            if found[node.type] >= job.min_gpus:
                return True
    return False


def _why(node: Node) -> str:
    return "lost" if node.lost else node.withheld if node.withheld and node.drain is None else "drained"


def _back(node: Node) -> Node:
    return node if node.schedulable and not node.lost else replace(node, schedulable=True, lost=False)
