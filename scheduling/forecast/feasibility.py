"""Which GPUs a pending job can get at all, and from when on: unschedulable jobs, and windows that delay others."""

from __future__ import annotations

from collections import Counter

from scheduling.capacity.cluster_view import view
from scheduling.capacity.node_pools import Pool, divide, latest_end
from scheduling.domain import Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.explain.unschedulable import UnschedulableDiagnosis, could_hold_gang

_NEVER = Reason(ReasonCode.NEVER, "")


class Reach:
    """For one snapshot, whose nodes do not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now, self._nodes = snapshot.now, snapshot.nodes
        self._field, self._pools = view(snapshot), divide(snapshot).pools
        self._unable = UnschedulableDiagnosis(snapshot, self._pools)
        self._size: Counter[Pool] = Counter()
        if self._pools is not None:
            for node in snapshot.nodes:
                if node.schedulable:
                    self._size[self._pools.of_node[node.name]] += len(node.gpu_ids)

    def why_not(self, job: Job) -> str:
        """Why the start of a pending job cannot be predicted, as a reason of the rounds; empty if it may start."""
        if job.held:
            return "held"
        if job.waits_for:
            return ReasonCode.DEPENDENCY
        spans = self._field.spans(job)
        nodes = (node for node in self._nodes if node.schedulable and not node.lost and node.type in spans)
        large = could_hold_gang(job, nodes, multi_node=self._field.multi_node)
        if large and (self._pools is None or self._has_room(job)):
            return ""
        token = self._unable.reason(job.id, _NEVER).token
        return token if token in (ReasonCode.NO_PROFILE, ReasonCode.NODE_UNAVAILABLE) else ReasonCode.NEVER

    def _usable(self, job: Job) -> list[Pool]:
        mine = self._pools.usable(job) if self._pools is not None else []
        return [pool for pool in mine if not job.curves or pool.type in job.curves]

    def _has_room(self, job: Job) -> bool:
        """Whether its partition is large enough, on one of the job's types."""
        sizes: Counter[str] = Counter()
        for pool in self._usable(job):
            sizes[pool.type] += self._size[pool]
        return max(sizes.values(), default=0) >= job.min_gpus

    def least_s(self, job: Job) -> float:
        """Seconds until windows that exclude the job leave it enough GPUs of one type."""
        if self._pools is None:
            return 0.0
        opening = sorted((self._opens(pool, job), pool.type, self._size[pool]) for pool in self._usable(job))
        sizes: Counter[str] = Counter()
        for at, kind, gpus in opening:
            sizes[kind] += gpus
            if sizes[kind] >= job.min_gpus:
                return at - self.now
        return 0.0

    def _opens(self, pool: Pool, job: Job) -> float:
        at = self.now
        for window in pool.windows:  # by their starts
            if window.end > at and not window.admits(job) and window.start < latest_end(job, pool.type, at):
                at = window.end
        return at
