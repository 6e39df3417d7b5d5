"""Reclaims guaranteed GPUs from borrowers, for pending jobs that the policy does not start.

For each job that is pending within a guarantee, enough borrowers leave with a checkpoint: the least urgent and newest
first, and no more than needed. Protected borrowers stay until the guarantee's time is over. Jobs that cannot be
checkpointed, and jobs within a guarantee of their own, always stay. The policy then plans again; it may restart the
borrowers on fewer GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.capacity.guarantee_usage import GuaranteeUsage, urgency
from scheduling.capacity.memo import cluster_index
from scheduling.domain import WHOLE, Gang, Guarantee, Job, Reason, Snapshot
from scheduling.engine.placement.choose_gpus import Board, Request
from scheduling.engine.reclaim.reasons import (
    PendingClaim,
    ReclaimGrant,
    gpus_of,
    reason_pending,
    reason_reclaimee,
    reason_reclaimer,
)
from scheduling.lifecycle import State
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import OrdersQueue, SizesStarts

#: Borrowers are stopped this long before the guarantee's time is over, to write a checkpoint and exit.
LEAVE_S = 30.0
#: Key in a plan's memory: since when jobs have been pending within a guarantee.
CLAIMS = "guarantee_claims"


@dataclass
class ReclaimDecision:
    grants: list[ReclaimGrant] = field(default_factory=list)
    waiting: dict[str, Reason] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    wake_at: float | None = None

    @property
    def changed(self) -> dict[str, Job]:
        """Jobs as the policy sees them: owners with their GPUs, borrowers as queued."""
        seen: dict[str, Job] = {}
        for grant in self.grants:
            seen[grant.job.id] = replace(grant.job, state=State.STANDBY, gpu_ids=grant.gpus, gang=grant.gang)
            for job in grant.borrowers:
                seen[job.id] = replace(
                    job, state=State.WAITING_FOR_RESOURCE, gpu_ids=(), gang=None, protected_until=None
                )
        return seen

    def reasons(self, gangs: Mapping[str, Gang]) -> dict[str, Reason]:
        """`gangs`: what each job has after this round."""
        found = dict(self.waiting)
        for grant in self.grants:
            found[grant.job.id] = reason_reclaimer(grant)
            for job in grant.borrowers:
                found[job.id] = reason_reclaimee(grant, gangs.get(job.id))
        return found


def reclaim(snapshot: Snapshot, policy: Policy, given: Collection[str]) -> ReclaimDecision:
    """`given`: jobs to which the policy gives GPUs anyway. A shared GPU is never reclaimed, nor is any GPU under a
    policy that places fractional jobs itself: GPUs are counted whole here."""
    places_parts = policy.capabilities.places_gpu_parts and any(job.gpu_milli < WHOLE for job in snapshot.jobs)
    if policy.capabilities.shares_time or not snapshot.guarantees or places_parts:
        return ReclaimDecision()
    field = view(snapshot)
    if all(job.id in given for job in field.queued):
        return ReclaimDecision()
    return _VictimSearch(snapshot, field, policy).run(given)


class _VictimSearch:
    def __init__(self, snapshot: Snapshot, field: RoundView, policy: Policy) -> None:
        self.snapshot, self.field, self.policy = snapshot, field, policy
        self.book, self.free_capacity = GuaranteeUsage(snapshot), FreeCapacity(snapshot, field)
        self.found, self.taken = ReclaimDecision(), set[str]()
        self.since: Mapping[str, float] = snapshot.memory.get(CLAIMS, {})
        holding = [job for job in snapshot.jobs if job.gpu_ids]
        held = {gpu for job in holding for gpu in job.gpu_ids}
        self.board = Board(snapshot.nodes, held | snapshot.blocked_gpu_ids, holding)
        self.usable = cluster_index(snapshot.nodes).type_of
        self.users = Counter(gpu for job in snapshot.jobs for gpu in job.gpu_ids)
        self.coming = [self.usable.get(gpu) for gpu in snapshot.blocked_gpu_ids - snapshot.others.gpus.keys()]
        self.borrowers = sorted((job for job, _ in self.book.holders if self._may_go(job)), key=self._worth)
        self.shared = {key for job in self.borrowers for key in job.limits}
        self.failed = set[tuple[object, ...]]()

    def run(self, given: Collection[str]) -> ReclaimDecision:
        for job in in_order(self.policy, self.snapshot, self.field):
            gangs = [Gang(name, count) for name, count in _sizes(self.policy, self.field, job).items()]
            gangs = [gang for gang in gangs if self.book.has_room(job, gang)]
            if not gangs:
                continue
            if job.id in given:
                self.book.book(job, gangs[0])
                continue
            self.found.claims[job.id] = self.since.get(job.id, self.snapshot.now)
            self._serve(job, gangs)
        return self.found

    def _serve(self, job: Job, gangs: Sequence[Gang]) -> None:
        limits = () if all(self.free_capacity.allows(job, gang) for gang in gangs) else job.limits
        alike = (job.project, tuple(gangs), limits, job.excluded_gpus, self._expired_guarantee(job))
        if alike in self.failed:
            return
        plans = [plan for gang in gangs if (plan := self._plan(job, gang)) is not None]
        ready = [plan for plan in plans if isinstance(plan, ReclaimGrant)]
        for grant in sorted(ready, key=lambda plan: (gpus_of(plan.borrowers), -self._speed(plan))):
            if self._take(grant):
                return
        later = [plan for plan in plans if isinstance(plan, PendingClaim)]
        if later:
            first = min(later, key=lambda plan: plan.at)
            self.found.waiting[job.id] = reason_pending(first, self.snapshot.now)
            self.found.wake_at = min(first.at, self.found.wake_at or math.inf)
            self.book.book(job, first.gang)
        else:
            self.failed.add(alike)

    def _expired_guarantee(self, job: Job) -> frozenset[Guarantee]:
        """The guarantee for which the job has waited so long that protection no longer keeps borrowers."""
        waited_s = self.snapshot.now - self.found.claims[job.id]
        return frozenset(row for row in self.book.rows_of(job) if waited_s >= row.reclaim_within_s - LEAVE_S)

    def _speed(self, grant: ReclaimGrant) -> float:
        return self.field.steps_per_s(grant.job, grant.gang)

    def _plan(self, job: Job, gang: Gang) -> ReclaimGrant | PendingClaim | None:
        own = self.book.claim(job, gang)
        missing = gang.count - (self.free_capacity.free.get(gang.type, 0) if own else 0)
        if missing <= 0 and own:
            return ReclaimGrant(job, gang, (), own, ())
        overdue = self._expired_guarantee(job)
        leaving = self.coming.count(gang.type) if own and own not in overdue else 0
        if own and leaving >= missing:
            return None  # stopping processes free enough
        if not self._may_be_allowed(job, gang):
            return None
        gives, enough = partial(self._gives, kind=gang.type), missing
        pairs: list[tuple[Job, Guarantee]] = []
        ready: list[tuple[Job, Guarantee]] = []
        for each in self.borrowers:
            row = self._may_take(job, gang, each)
            if row is not None:
                pairs.append((each, row))
                if each.state is State.RUNNING or row in overdue:
                    ready.append((each, row))
                    enough -= gives(each)
            if enough <= 0:
                break
        chosen = _fewest(missing, ready, gives)
        if chosen:
            return ReclaimGrant(job, gang, (), chosen[0][1], tuple(each for each, _ in chosen))
        if _fewest(missing, pairs, gives):
            return PendingClaim(gang, pairs[0][1], self._from(job, pairs))
        return None

    def _may_be_allowed(self, job: Job, gang: Gang) -> bool:
        """Whether limits allow the gang, or would once borrowers under the same limits are gone."""
        return self.shared.issuperset(self.free_capacity.headroom.all_over(job, gang))

    def _from(self, job: Job, pairs: Sequence[tuple[Job, Guarantee]]) -> float:
        """The earliest time to reclaim: the end of protection, or the end of the guarantee's time."""
        since = self.found.claims[job.id]
        ends = [
            min(each.protected_until or math.inf, since + row.reclaim_within_s - LEAVE_S)
            for each, row in pairs
            if each.state is not State.RUNNING
        ]
        return max(self.snapshot.now, *ends)

    def _may_go(self, job: Job) -> bool:
        states = (State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING)
        movable = self.users[job.gpu_ids[0]] == 1 and job.restartable and not job.held  # else the GPU is shared
        return movable and job.state in states and self.usable.keys() >= set(job.gpu_ids)

    def _gives(self, job: Job, kind: str) -> int:
        """GPUs of a type that the job would free; it may span several node pools."""
        return sum(self.usable[gpu] == kind for gpu in job.gpu_ids)

    def _worth(self, job: Job) -> tuple[object, ...]:
        since = math.inf if job.held_since is None else job.held_since
        return (*urgency(self.snapshot, job), -since, job.restart_cost_s * len(job.gpu_ids), -job.number)

    def _may_take(self, job: Job, gang: Gang, borrower: Job) -> Guarantee | None:
        if borrower.id in self.taken or not self._gives(borrower, gang.type):
            return None
        if self.book.is_safe(borrower, job):
            return None
        return self.book.claim(job, gang, self.book.chain(borrower.project))

    def _take(self, grant: ReclaimGrant) -> bool:
        """Whether limits and nodes have room for the job once the borrowers are gone."""
        job, gang, gone = grant.job, grant.gang, grant.borrowers
        before = dict(self.free_capacity.headroom.left)
        for each in gone:
            self.free_capacity.headroom.book(each, Gang(gang.type, len(each.gpu_ids)), -1)
        self.board.vacate(gone)
        request = Request(job, gang)
        allowed = self.free_capacity.allows(job, gang)
        gpus = self.board.place(request, multi_node=self.field.multi_node) if allowed else None
        if gpus is None:
            self.free_capacity.headroom.left = before
            self.board.occupy(gone)
            return False
        for each in gone:
            for gpu in each.gpu_ids:
                self.free_capacity.free[self.usable[gpu]] += 1
            self.book.book(each, Gang(gang.type, len(each.gpu_ids)), -1)
        self.free_capacity.give(job, gang)
        self.book.book(job, gang)
        self.taken.update(each.id for each in gone)
        self.found.grants.append(replace(grant, gpus=gpus))
        return True


def in_order(policy: Policy, snapshot: Snapshot, field: RoundView) -> Sequence[Job]:
    return policy.in_order(snapshot, field.queued) if isinstance(policy, OrdersQueue) else field.queued


def _sizes(policy: Policy, field: RoundView, job: Job) -> Mapping[str, int]:
    if isinstance(policy, SizesStarts):
        return policy.start_sizes(field, job)
    return {name: span.low for name, span in field.spans(job).items()}


def _fewest(
    missing: int, pairs: Sequence[tuple[Job, Guarantee]], gives: Callable[[Job], int]
) -> list[tuple[Job, Guarantee]]:
    """The first borrowers that suffice, without those that turn out not to be needed."""
    chosen: list[tuple[Job, Guarantee]] = []
    for pair in pairs:
        if missing > 0:
            chosen.append(pair)
            missing -= gives(pair[0])
    if missing > 0:
        return []
    for pair in reversed(chosen.copy()):
        if missing + gives(pair[0]) <= 0:
            chosen.remove(pair)
            missing += gives(pair[0])
    return chosen
