"""A snapshot as the integer-count policies see it: candidates, pinned jobs, and free capacity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

from scheduling.capacity.memo import CurveCache, Newest, Seen, cluster_index
from scheduling.domain import WHOLE, Curve, Gang, Job, Limit, Reason, Snapshot, plain_type
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import LOCKED, QUEUED, State
from scheduling.throughput.curves import effective, trial_curve


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The counts of one type that a job may hold, and their throughput: `steps_per_s[n]`, constant beyond its end."""

    low: int
    high: int
    steps_per_s: tuple[float, ...]

    def at(self, count: int) -> float:
        return self.steps_per_s[min(count, len(self.steps_per_s) - 1)]


class Spans(dict[str, SizeRange]):
    """Size ranges by type, in name order. `least`: GPUs of the smallest gang of any type; 0 if no type can run the job.
    `row`: its throughputs as time sharing compares them, made on demand. `smallest`, `largest`: the ends of each range
    as gangs. `alone`: throughput of the best gang. `memo`: values that policies derive from them."""

    least = 0
    alone = 0.0
    memo: dict[Hashable, Any]
    row: str | None = None
    smallest: tuple[Gang, ...] = ()
    largest: tuple[Gang, ...] = ()


class Known:
    """What rounds found out about jobs, for clusters of one shape."""

    def __init__(self, most: int = 16384) -> None:
        self.spans = CurveCache[Spans](most)
        self.takes_part = Seen(most)  # independent of the time
        self.trains_on_least = Seen(most)  # some type runs on its `min_gpus`, or none on any count


@dataclass(frozen=True, slots=True)
class RoundView:
    types: tuple[str, ...]
    total: Mapping[str, int]  # schedulable GPUs: U
    largest: Mapping[str, int]  # the largest node
    free: dict[str, int]  # what candidates may share, including what they hold now
    running: tuple[Job, ...]  # may be resized, never dropped; in queue order
    queued: tuple[Job, ...]  # may start; in queue order
    candidates: tuple[Job, ...]  # both, in queue order
    pinned: tuple[Job, ...]  # keep their GPUs: protected, moving, rigid, on hold
    reasons: dict[str, Reason]  # of jobs that are not candidates
    multi_node: bool
    limits: Mapping[str, Limit]
    allowance: dict[str, int]  # what each limit leaves to the candidates: GPUs, or jobs
    shape: tuple[object, ...] = ()  # everything except the job that size ranges depend on
    known: Known = field(default_factory=lambda: Known(0), compare=False, repr=False)

    def spans(self, job: Job) -> Spans:
        """The types that can run the job, in name order. An unmeasured job has a trial curve."""
        return self.known.spans.get(job, self._spans)

    def _spans(self, job: Job) -> Spans:
        spans = Spans()
        for name in self.types:
            if not job.types or name in job.types:
                curve = job.curves.get(name) if job.curves else trial_curve(job.min_gpus)
                span = self._span(job, name, curve) if curve else None
                if span:
                    spans[name] = span
        spans.least = min((span.low for span in spans.values()), default=0)
        spans.smallest = tuple(Gang(name, span.low) for name, span in spans.items())
        spans.largest = tuple(Gang(name, span.high) for name, span in spans.items())
        spans.alone = max((span.at(span.high) for span in spans.values()), default=0.0)
        spans.memo = {}
        return spans

    def _span(self, job: Job, name: str, curve: Curve) -> SizeRange | None:
        reach = self.total[name] if self.multi_node else self.largest[name]
        high = min(reach, job.max_gpus or reach)
        values = effective(curve, high, self.largest[name])
        useful = next((count for count, value in enumerate(values) if value > 0), None)
        if useful is None:
            return None
        low = max(job.min_gpus, useful)
        return SizeRange(low, high, values) if low <= high else None

    def alone(self, job: Job) -> float:
        """f_M(U): the best gang of one type that the whole cluster could give to the job."""
        return self.spans(job).alone

    def steps_per_s(self, job: Job, gang: Gang | None) -> float:
        if gang is None:
            return 0.0
        span = self.spans(job).get(gang.type)
        if span is not None and gang.count <= span.high:
            return span.at(gang.count)
        curve = job.curves.get(gang.type) if job.curves else trial_curve(job.min_gpus)
        return effective(curve, gang.count, self.largest.get(gang.type, gang.count))[-1] if curve else 0.0

    def relative(self, job: Job, gang: Gang | None) -> float:
        """S_M of a gang; at most 1 even if a drained node makes U smaller than the gang."""
        alone = self.alone(job)
        return min(1.0, self.steps_per_s(job, gang) / alone) if alone > 0 else 0.0


@lru_cache(16)
def _known_of(shape: tuple[object, ...]) -> Known:
    return Known()


def queue_key(job: Job) -> tuple[int, float, int, str]:
    """Priority, then submission time, then id (which sorts like the short number that people see)."""
    return (-job.priority, job.submitted_at, job.number, job.id)


_BY_TIME, _BY_PRIORITY = attrgetter("submitted_at"), attrgetter("priority")
_BY_ARRIVAL = attrgetter("submitted_at", "number", "id")


def in_queue_order(jobs: Iterable[Job]) -> list[Job]:
    """Same order as `queue_key`, several times as fast."""
    queue = sorted(jobs, key=_BY_TIME)
    if len({job.submitted_at for job in queue}) < len(queue):
        queue.sort(key=_BY_ARRIVAL)
    queue.sort(key=_BY_PRIORITY, reverse=True)
    return queue


def queue_of(snapshot: Snapshot) -> tuple[Job, ...]:
    """All jobs of the snapshot in queue order."""
    return _queues.of(snapshot)


def is_pinned(job: Job) -> bool:
    """Its GPUs cannot be rescheduled and it may get no others (spec, application states)."""
    if job.state in LOCKED:
        return True
    return job.state is State.RUNNING and (job.held or not (job.restartable and job.resizable))


def present_gang(job: Job, type_of: Mapping[int, str]) -> Gang | None:
    """The job's gang; derived from its GPUs where the snapshot names only those."""
    if job.gang is not None or not job.gpu_ids:
        return job.gang
    return Gang(type_of.get(job.gpu_ids[0], ""), len(job.gpu_ids))


def pinned_gangs(snapshot: Snapshot, field: RoundView) -> dict[str, Gang]:
    """The gangs of the pinned jobs."""
    type_of = cluster_index(snapshot.nodes).every_type
    return {job.id: gang for job in field.pinned if (gang := present_gang(job, type_of))}


def view(snapshot: Snapshot) -> RoundView:
    """The view of a snapshot, computed once."""
    return _views.of(snapshot)


def _view(snapshot: Snapshot) -> RoundView:
    nodes = cluster_index(snapshot.nodes)
    total, largest, types = nodes.total, nodes.largest, nodes.types
    multi_node = snapshot.multi_node
    shape = (types, tuple(total[name] for name in types), tuple(largest[name] for name in types), multi_node)
    none = (), (), (), ()
    base = RoundView(types, total, largest, {}, *none, {}, multi_node, snapshot.limits, {}, shape, _known_of(shape))
    jobs = queue_of(snapshot)
    reasons = _not_candidates(base, jobs, snapshot.now)
    if snapshot.limits:
        queue = [job for job in jobs if job.state in QUEUED and job.id not in reasons]
        reasons |= _over_queue_limits(snapshot.limits, queue)
    fixed = tuple([job for job in jobs if job.id in reasons and (job.gpu_ids or job.gang)])
    part: Sequence[Job] = [job for job in jobs if job.id not in reasons] if reasons else jobs
    running = tuple([job for job in part if job.state is State.RUNNING])
    queued = tuple([job for job in part if job.state in QUEUED]) if len(running) < len(part) else ()
    whole = len(running) + len(queued) == len(part)
    free = dict(total)
    for gpu in {gpu for job in fixed for gpu in job.gpu_ids} | snapshot.blocked_gpu_ids:
        kind = nodes.type_of.get(gpu)
        if kind is not None:
            free[kind] -= 1
    part = part if whole else [job for job in part if job.state is State.RUNNING or job.state in QUEUED]
    remaining = tuple(part), fixed, reasons, multi_node, snapshot.limits, _allowance(snapshot, fixed, running), shape
    return RoundView(types, total, largest, free, running, queued, *remaining, base.known)


_queues = Newest[Snapshot, tuple[Job, ...]](lambda snapshot: tuple(in_queue_order(snapshot.jobs)))
_views = Newest(_view)


def limited(limit: Limit, gang: Gang) -> int:
    """How much of a limit a gang uses: GPUs, or one job."""
    if limit.kind == "running_jobs":
        return 1
    return gang.count if limit.type in (None, plain_type(gang.type)) else 0


def _allowance(snapshot: Snapshot, fixed: tuple[Job, ...], running: tuple[Job, ...]) -> dict[str, int]:
    """What each limit leaves beside the pinned jobs. A spent limit leaves what is held now."""
    left = {key: limit.most for key, limit in snapshot.limits.items() if limit.kind in ("gpus", "running_jobs")}
    left |= {key: 0 for key, limit in snapshot.limits.items() if limit.kind == "spent"}
    if not left:
        return left
    types = cluster_index(snapshot.nodes).every_type
    for jobs, sign in ((fixed, -1), (running, 1)):
        for job in jobs:
            gang = present_gang(job, types)
            for key in job.limits if gang else ():
                limit = snapshot.limits[key]
                if key in left and gang and (limit.kind == "spent") == (sign > 0):
                    left[key] += sign * limited(limit, gang)
    return left


def _over_queue_limits(limits: Mapping[str, Limit], queue: list[Job]) -> dict[str, Reason]:
    """Queued jobs whose budget is used up, and those beyond the number that their queue limits let a round consider."""
    left = {key: limit.most for key, limit in limits.items() if limit.kind == "queued_jobs"}
    reasons: dict[str, Reason] = {}
    for job in queue:
        spent = next((limits[key] for key in job.limits if limits[key].kind == "spent"), None)
        mine = [key for key in job.limits if key in left]
        full = next((key for key in mine if left[key] <= 0), None)
        if spent is not None:
            reasons[job.id] = spent_reason(spent)
        elif full is not None:
            limit = limits[full]
            text = (
                f"{limit.level[:1].upper()}{limit.level[1:]} may have {limit.most} jobs in the queue at a time; "
                "this job is considered when one of those before it has started."
            )
            detail = {"level": limit.level, "limit": name_of(limit), "quota": limit.most}
            reasons[job.id] = Reason(ReasonCode.QUOTA_QUEUE, text, detail)
        else:
            for key in mine:
                left[key] -= 1
    return reasons


def name_of(limit: Limit) -> str:
    """The level of the limit as people know it."""
    names = {"gpus": "GPUs at once", "running_jobs": "running jobs", "queued_jobs": "queued jobs", "spent": "budget"}
    return f"{limit.type} {names[limit.kind]}" if limit.type else names[limit.kind]


def spent_reason(limit: Limit) -> Reason:
    detail = {"level": limit.level, "limit": name_of(limit), "expected_start_at": limit.until}
    return Reason(ReasonCode.QUOTA_PERIOD, limit.text, detail)


def _limited_reason(field: RoundView, job: Job) -> bool:
    """A running job that its own limits or curves no longer allow its GPUs; it keeps them."""
    gang = job.gang
    if gang is None:
        return True
    span = field.spans(job).get(gang.type)
    return span is None or gang.count < span.low


def _not_candidates(field: RoundView, jobs: Iterable[Job], now: float) -> dict[str, Reason]:
    reasons: dict[str, Reason] = {}
    known = field.known.takes_part
    for job in jobs:
        if known.jobs.get(job.id) is not job:
            reason = _not_candidate(field, job, now)
            if reason is not None:
                reasons[job.id] = reason
            elif job.not_before is None:
                known.add(job)
    return reasons


def _not_candidate(field: RoundView, job: Job, now: float) -> Reason | None:
    """Why a job is not a candidate in this round, if it is not."""
    if job.state in QUEUED:
        return _hold_reason(job, now)
    if is_pinned(job):
        return _pinned_reason(job, now)
    if job.state is State.RUNNING and _limited_reason(field, job):
        text = "Its throughput with other numbers of GPUs is unknown, so it keeps its GPUs until that is measured."
        return Reason(ReasonCode.NOT_RESIZABLE, text)
    if job.state is State.WAITING_FOR_INITIAL_CONTACT:
        return Reason(ReasonCode.WAITS_FOR_CONTACT, "The executor has not accepted the job yet; it queues once it has.")
    return None


def _hold_reason(job: Job, now: float) -> Reason | None:
    if job.held:
        return Reason(ReasonCode.ON_HOLD, "The job is on hold; it queues again when it is released.")
    if job.waits_for:
        return Reason(ReasonCode.DEPENDENCY, job.waits_for)
    if job.not_before is not None and job.not_before > now:
        wait = job.not_before - now
        return Reason(
            ReasonCode.BACK_OFF,
            f"The last attempt failed; the job is retried in {wait:.0f} s.",
            {"not_before": job.not_before},
        )
    return None


def _pinned_reason(job: Job, now: float) -> Reason:
    gpus = f"{len(job.gpu_ids)} GPU{'' if len(job.gpu_ids) == 1 else 's'}"
    if job.state is State.RUNNING_PROTECTED:
        left = max(0.0, (job.protected_until or now) - now)
        return Reason(
            ReasonCode.PROTECTED,
            f"It has just launched, so it keeps its {gpus} for another {left:.0f} s; then it may be resized.",
            {"protected_until": job.protected_until},
        )
    if job.state is State.RUNNING and job.held:
        return Reason(
            ReasonCode.HELD_RUNNING, f"Its owner has put the job on hold; it keeps its {gpus} and is not resized."
        )
    if job.state is State.RUNNING and job.gpu_milli < WHOLE:
        return Reason(
            ReasonCode.KEEPS_ITS_PART, f"It has {job.gpu_milli / 10:g} % of a GPU and keeps it until it ends."
        )
    if job.state is State.RUNNING and job.restartable:
        return Reason(
            ReasonCode.NOT_RESIZABLE,
            f"It keeps its {gpus} and is not resized: some are on nodes where it may not start any more.",
        )
    if job.state is State.RUNNING:
        return Reason(ReasonCode.RIGID, f"The job cannot be checkpointed, so it keeps its {gpus} until it ends.")
    if job.state is State.STANDBY:
        return Reason(
            ReasonCode.STANDBY, f"Its {gpus} are assigned and some are still in use; it launches when they are free."
        )
    if job.state is State.LAUNCHING:
        return Reason(ReasonCode.LAUNCHING, f"It is launching on {gpus}; nothing changes until it trains.")
    return Reason(
        ReasonCode.MOVING, "It is writing a checkpoint and leaving its GPUs; nothing changes until it has left."
    )
