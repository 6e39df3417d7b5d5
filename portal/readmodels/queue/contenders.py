"""Contenders: jobs that only wait for GPUs, and the nodes on which each could have some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from portal.jobs.models import Cluster, Job
from portal.snapshot.rows import nodes_of, partitions_of
from portal.snapshot.shares import user_key
from portal.snapshot.windows import windows_of
from scheduling.domain.reason_codes import NO_CONTENDER
from scheduling.lifecycle import WAITING, State


def could_start(job: Job, now: datetime) -> bool:
    """Queued, and not waiting for its next attempt."""
    run = job.run
    return (
        run is not None
        and not job.hold_kind
        and State(run.state) in WAITING
        and (run.not_before is None or run.not_before <= now)
    )


def waits_for_gpus(job: Job, now: datetime) -> bool:
    """Only GPUs are missing, by the latest round."""
    run = job.run
    if run is None or not could_start(job, now):
        return False
    return run.reason_token not in NO_CONTENDER or bool(run.reason_detail.get("elsewhere"))


class OpenNodes:
    """The nodes in service that each job may use: by partition, types with enough GPUs for it, known throughput and
    active windows."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        nodes = nodes_of(cluster)
        self._parts, self._name_of = partitions_of(cluster, nodes)
        self._types = {node.name: node.type for node in nodes if node.schedulable}
        self._gpus = {node.name: len(node.gpu_ids) for node in nodes}
        self._in_parts = frozenset[str]().union(*(part.nodes for part in self._parts.values()))
        self._windows = [window for window in windows_of(cluster.pk, nodes, now) if window.start <= now.timestamp()]
        self._known: dict[tuple[Any, ...], frozenset[str]] = {}

    def of(self, job: Job, curves: Iterable[str]) -> frozenset[str]:
        """`curves`: types with a known throughput; none: it may be tried on all."""
        part = self._name_of.get(job.partition_id, "")
        project, user = job.project.key, user_key(job.owner_id)
        others = (n for n, one in enumerate(self._windows) if project not in one.projects and user not in one.users)
        key = part, job.min_gpus, frozenset(job.accelerator_types), frozenset(curves), tuple(others)
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def _find(
        self, part: str, gpus: int, types: frozenset[str], curves: frozenset[str], closed: tuple[int, ...]
    ) -> frozenset[str]:
        barred = frozenset[str]().union(*(self._windows[n].nodes for n in closed))
        inside = self._parts[part].nodes if part in self._parts else self._types.keys() - self._in_parts
        found = {
            name: kind
            for name, kind in self._types.items()
            if name in inside and name not in barred and (not types or kind in types) and (not curves or kind in curves)
        }
        there = Counter[str]()
        for name, kind in found.items():
            there[kind] += self._gpus[name]
        return frozenset(name for name, kind in found.items() if there[kind] >= gpus)


def first_by_node(
    jobs: Iterable[Job], places: OpenNodes, profiles: Mapping[Any, Mapping[str, Any]], now: datetime
) -> dict[str, int]:
    """{node: number of the first of these jobs (in queue order) that waits for GPUs and could have some there}."""
    first: dict[str, int] = {}
    seen: set[frozenset[str]] = set()
    for job in jobs:
        if not waits_for_gpus(job, now):
            continue
        nodes = places.of(job, profiles.get(job.pk, ()))
        if nodes not in seen:
            seen.add(nodes)
            for name in nodes:
                first.setdefault(name, job.number)
    return first
