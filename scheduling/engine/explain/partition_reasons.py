"""Rewrites reasons where nodes are divided into pools: plain type names, and the effect of a partition or window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.free_capacity import no_type
from scheduling.capacity.node_pools import Pool, Pools, latest_end
from scheduling.domain import POOL_MARK, Gang, Job, Plan, Reason, Window, plain_type
from scheduling.domain.reason_codes import NOT_OF_POOLS, SHORT_OF_GPUS, ReasonCode
from scheduling.domain.wording import counted, span, words
from scheduling.engine.constraints.unavailable_nodes import window_detail
from scheduling.engine.placement.cross_pool import by_type, is_wide

_KEY = re.compile(f"{POOL_MARK}[^{POOL_MARK}]*{POOL_MARK}")


def without_pools(value: Any) -> Any:
    """The same reason with plain types in its texts."""
    if isinstance(value, str):
        return _KEY.sub("", value) if POOL_MARK in value else value
    if isinstance(value, Mapping):
        return {without_pools(key): without_pools(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_pools(item) for item in value]
    return value


def plan_in_plain_types(plan: Plan) -> Plan:
    moves = tuple(replace(move, gang=_plain(move.gang), before=_plain(move.before)) for move in plan.moves)
    return replace(plan, moves=moves, figures=without_pools(plan.figures))


def _plain(gang: Gang | None) -> Gang | None:
    return gang and Gang(plain_type(gang.type), gang.count)


def _starts_across(gang: Gang) -> Reason:
    text = (
        f"It starts on {words(gang)} on nodes that differ in their partitions or in the windows ahead of them, so it "
        "is not resized."
    )
    return Reason(ReasonCode.STARTS_ACROSS_POOLS, text)


class PartitionReasons:
    """`field` and `gangs` name pools; the pools' snapshot names plain types."""

    def __init__(self, pools: Pools, field: RoundView, gangs: Mapping[str, Gang]) -> None:
        self.snapshot, self.pools, self.field = pools.snapshot, pools, field
        self.jobs = {job.id: job for job in pools.snapshot.jobs}
        self.waiting = {job.id for job in field.queued if job.id not in gangs}
        starts = {job.id: gangs[job.id] for job in field.queued if job.id in gangs}
        self.across = {key: gang for key, gang in starts.items() if POOL_MARK not in gang.type}
        self.free = dict(field.free)
        for job in field.candidates:
            if job.id in gangs and gangs[job.id].type in self.free:
                self.free[gangs[job.id].type] -= gangs[job.id].count

    def tell(self, key: str, reason: Reason) -> Reason:
        job = self.jobs[key]
        plain = Reason(reason.token, without_pools(reason.text), without_pools(reason.detail))
        if reason.token == ReasonCode.NO_TYPE:
            plain = no_type(job)
        if key in self.across and (reason.token in SHORT_OF_GPUS or reason.token == ReasonCode.NO_TYPE):
            return _starts_across(self.across[key])
        if key not in self.waiting:
            fixed = job.gpu_ids and job.restartable and reason.token in (ReasonCode.RIGID, ReasonCode.NOT_RESIZABLE)
            return self._kept(job) if fixed and self.pools.stays_in(job) is None else plain
        if reason.token in NOT_OF_POOLS:
            return plain
        known = self._too_small(job) or self._runs_into(job, reason.token)
        return known or self._in_no_pool_alone(job) or self._full(job, plain) or plain

    def _kept(self, job: Job) -> Reason:
        text = (
            f"It keeps its {counted(len(job.gpu_ids), 'GPU')} and is not resized, because some are on nodes where it "
            "may not start any more."
        )
        return Reason(ReasonCode.OUTSIDE_PARTITION, text, {"partition": job.partition})

    def _too_small(self, job: Job) -> Reason | None:
        """The partition has too few GPUs that can run the job, even if all are free."""
        usable = self.pools.usable(job)
        most = max(self._gpus(usable).values(), default=0)
        detail = {"partition": job.partition, "needs": job.min_gpus, "gpus": most}
        if most >= job.min_gpus:
            known = not job.curves or any(pool.type in job.curves for pool in usable)
            return None if known else no_type(job)
        if job.constraint:
            there = f"Nodes with {job.constraint} (its constraint) have at most {counted(most, 'GPU')} of a type"
            text = f"{there} that it may use, and it needs {job.min_gpus}, so it cannot run here."
            return Reason(ReasonCode.NEVER, text, detail)
        if not self.snapshot.partitions or max(self._gpus(self.pools.every).values(), default=0) < job.min_gpus:
            return no_type(job)
        where = f"Partition {job.partition} has" if job.partition else "Nodes outside the partitions have"
        there = f"{where} at most {counted(most, 'GPU')} of a type that it may use"
        text = f"{there} and it needs {job.min_gpus}, so it cannot run here."
        return Reason(ReasonCode.PARTITION_TOO_SMALL, text, detail)

    def _gpus(self, pools: Iterable[Pool]) -> dict[str, int]:
        sums: dict[str, int] = {}
        for pool in pools:
            sums[pool.type] = sums.get(pool.type, 0) + self.pools.size[pool]
        return sums

    def _runs_into(self, job: Job, token: str) -> Reason | None:
        """A window closes all nodes that the job may use, or all free ones."""
        barred = {pool: pool.barred_by(job, self.snapshot.now) for pool in self.pools.usable(job)}
        rest = self._gpus(pool for pool, window in barred.items() if window is None)
        all_barred = any(barred.values()) and max(rest.values(), default=0) < job.min_gpus
        if not all_barred and token not in SHORT_OF_GPUS:
            return None
        windows = [
            (window, pool) for pool, window in barred.items() if window and (all_barred or self._fits(job, pool))
        ]
        if not windows:
            return None
        window, pool = min(windows, key=lambda found: (found[0].end, found[0].id))
        return self._window(job, window, pool, elsewhere=not all_barred)

    def _fits(self, job: Job, pool: Pool) -> bool:
        return self.free.get(pool.name, 0) >= job.min_gpus

    def _window(self, job: Job, window: Window, pool: Pool, *, elsewhere: bool) -> Reason:
        now = self.snapshot.now
        what = f"{window.kind} window{f' ({window.text})' if window.text else ''}"
        detail = window_detail(window) | ({"elsewhere": True} if elsewhere else {})
        after = "it starts after it, or where other nodes are free" if elsewhere else "it starts after it"
        if window.start <= now:
            text = f"A {what} holds nodes that it could use for another {span(window.end - now)}; {after}."
            return Reason(window.kind, text, detail)
        end = latest_end(job, pool.type, now)
        takes = "how long it runs is not known" if end == float("inf") else f"it may take {span(end - now)}"
        text = (
            f"A {what} begins in {span(window.start - now)} on nodes that it could use and {takes}, so it would run "
            f"into it; {after}."
        )
        return Reason(window.kind, text, detail)

    def _in_no_pool_alone(self, job: Job) -> Reason | None:
        """Policies plan each pool alone, so none explains a job that fits in no single pool."""
        kinds = by_type(self.pools, job) if self.field.multi_node else {}
        if not kinds or not all(is_wide(self.pools, job, mine) for mine in kinds.values()):
            return None
        kind, free = max(((kind, self._free(mine)) for kind, mine in kinds.items()), key=lambda one: (one[1], one[0]))
        most = sum(self.pools.size[pool] for pool in kinds[kind])
        text = (
            f"No nodes that are in the same partitions and have the same windows ahead have the {job.min_gpus} "
            f"{kind} that it needs. Of all that it may use, {free} of {most} are free; it starts when {job.min_gpus} "
            "are free, and none are reserved for it until then."
        )
        return Reason(ReasonCode.ACROSS_POOLS, text, {"needs": job.min_gpus, "type": kind, "free": free, "gpus": most})

    def _free(self, mine: Iterable[Pool]) -> int:
        return sum(max(0, self.free.get(pool.name, 0)) for pool in mine)

    def _full(self, job: Job, reason: Reason) -> Reason | None:
        if (
            not (job.partition or job.constraint)
            or reason.token not in SHORT_OF_GPUS
            or len(self.pools.usable(job)) == len(self.pools.every)
        ):
            return None
        mine = self.pools.usable(job)
        if any(self._fits(job, pool) for pool in mine):
            return None
        free, most = sum(self.free.get(pool.name, 0) for pool in mine), sum(self._gpus(mine).values())
        there = f"Partition {job.partition} has {free} of its {counted(most, 'GPU')} free"
        if job.constraint:
            there = f"Nodes with {job.constraint} (its constraint) have {free} of their {counted(most, 'GPU')} free"
        text = f"{there} and it needs {job.min_gpus}. {reason.text}"
        detail = {"needs": job.min_gpus, **reason.detail, "partition": job.partition, "free": free}
        return Reason(ReasonCode.PARTITION_FULL, text, detail)
