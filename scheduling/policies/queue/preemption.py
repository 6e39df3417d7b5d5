"""Preempts jobs for a higher QoS: they queue again or end. Protected jobs are never preempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.capacity.guarantee_usage import GuaranteeUsage
from scheduling.domain import Gang, Job, Qos, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words
from scheduling.lifecycle import State

#: (rank by priority, priority)
Rank = Mapping[str, tuple[int, int]]
#: Reasons of the victims.


def preempt_for_qos(
    snapshot: Snapshot, field: RoundView, queue: Sequence[Job], sizes: Callable[[Job], list[Gang]], rank: Rank
) -> tuple[RoundView, dict[str, Reason]]:
    """The view without the victims, with their reasons; the other jobs are planned on the freed GPUs.

    For each pending job whose QoS may preempt others and whose gang is not free, as few GPUs as possible are taken from
    jobs of the QoS below it, lowest priority first. Victims that cannot be resized get a reason, too, but keep their
    GPUs in the view: the round asks again without them.
    """
    levels = {key: set(qos.preempts) for key, qos in snapshot.qos.items() if qos.preempts}
    if not levels or not any(job.qos in levels for job in queue):
        return field, {}
    free_capacity, book, out = FreeCapacity(snapshot, field), GuaranteeUsage(snapshot), dict[str, Reason]()
    # A job that shares a GPU leaves it to the others, so its preemption frees nothing.
    users = Counter(gpu for job in snapshot.jobs for gpu in job.gpu_ids)
    whole = (job for job in field.pinned if _only_as_a_whole(job) and users[job.gpu_ids[0]] == 1)
    candidates = [*field.running, *whole]
    for job in queue:
        gangs = [gang for gang in sizes(job) if free_capacity.allows(job, gang)]
        fits = [gang for gang in gangs if gang.count <= free_capacity.free[gang.type]]
        if fits:
            free_capacity.give(job, max(fits, key=lambda gang: field.steps_per_s(job, gang)))
        elif job.qos in levels:
            victims = [
                each
                for each in candidates
                if each.qos in levels[job.qos] and each.id not in out and not book.is_safe(each, job)
            ]
            plans = [(gang, chosen) for gang in gangs if (chosen := _fewest(free_capacity, gang, victims, rank))]
            if plans:
                gang, chosen = min(plans, key=lambda plan: (_gpus(plan[1]), -field.steps_per_s(job, plan[0])))
                for victim in chosen:
                    assert victim.gang is not None
                    for kind, count in free_capacity.held(victim).items():
                        free_capacity.free[kind] = free_capacity.free.get(kind, 0) + count
                    free_capacity.headroom.book(victim, victim.gang, -1)
                    out[victim.id] = _preempted_reason(victim, job, gang, snapshot.qos)
                free_capacity.give(job, gang)
    if not out:
        return field, {}
    return replace(field, running=tuple(job for job in field.running if job.id not in out)), out


def _only_as_a_whole(job: Job) -> bool:
    return job.state is State.RUNNING and job.restartable and not (job.resizable or job.held)


def _gpus(jobs: Sequence[Job]) -> int:
    return sum(job.gang.count for job in jobs if job.gang)


def _fewest(free_capacity: FreeCapacity, gang: Gang, victims: Sequence[Job], rank: Rank) -> list[Job]:
    """Enough victims for the gang, lowest priority first, without those that turn out not to be needed."""
    missing = gang.count - free_capacity.free[gang.type]
    chosen: list[Job] = []
    for job in sorted(victims, key=lambda job: rank[job.id], reverse=True):
        if missing > 0 and (gives := free_capacity.held(job).get(gang.type, 0)):
            chosen.append(job)
            missing -= gives
    if missing > 0:
        return []
    for job in sorted(chosen, key=lambda job: rank[job.id]):
        gives = free_capacity.held(job)[gang.type]
        if missing + gives <= 0:
            chosen.remove(job)
            missing += gives
    return chosen


def _preempted_reason(victim: Job, job: Job, gang: Gang, levels: Mapping[str, Qos]) -> Reason:
    ends = levels[victim.qos].cancelled_when_put_out
    then = f"jobs of level {victim.qos} are then cancelled" if ends else "this job is checkpointed and queued again"
    text = f"#{job.number} of level {job.qos} needs {words(gang)}; {then}."
    return Reason(ReasonCode.PREEMPTED, text, {"by": job.id, "qos": job.qos} | ({"mode": "cancel"} if ends else {}))
