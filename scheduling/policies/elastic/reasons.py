"""Reasons of elastic plans: the cause, the number, then what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.free_capacity import no_type
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Gang, Job, Reason
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words


def explain(
    field: RoundView,
    jobs: Iterable[Job],
    planned: Mapping[str, Gang],
    left_out: Iterable[Job],
    bound: float,
    variance: float,
) -> Mapping[str, Reason]:
    """Each reason is formatted when it is read."""
    free = dict(field.free)
    for gang in planned.values():
        free[gang.type] -= gang.count
    ahead, behind = {job.id: job for job in jobs}, {job.id: job for job in left_out}
    headroom = QuotaHeadroom(field)
    for job in ahead.values() if field.limits else ():
        headroom.book(job, planned[job.id])

    def tell(key: str) -> Reason:
        if key in behind:
            return _not_planned(field, behind[key], len(ahead), headroom)
        return _planned(field, ahead[key], planned[key], free, bound, variance)

    return LazyReasons((*ahead, *behind), tell)


def _planned(field: RoundView, job: Job, gang: Gang, free: Mapping[str, int], bound: float, variance: float) -> Reason:
    share = field.relative(job, gang)
    holds = f"{words(gang)}, relative throughput {share:.2f}"
    detail = {"relative_throughput": share, "steps_per_s": field.steps_per_s(job, gang)}
    limit = _limit(field, job, gang, free, bound, variance)
    if job.gang is None:
        return Reason(ReasonCode.STARTED, f"Its minimum fits, so it starts on {holds}; {limit}.", detail)
    if job.gang.type != gang.type:
        text = f"{gang.type} is faster for it by more than a restart costs, so it moves to {holds}; {limit}."
        return Reason(ReasonCode.CHANGED_TYPE, text, detail)
    if gang.count > job.gang.count:
        return Reason(
            ReasonCode.GROWN, f"GPUs were free, so it grows from {job.gang.count} to {holds}; {limit}.", detail
        )
    if gang.count < job.gang.count:
        text = f"Others gain more from {job.gang.count - gang.count} of its GPUs, so it shrinks to {holds}; {limit}."
        return Reason(ReasonCode.SHRUNK, text, detail)
    return Reason(ReasonCode.KEEPS, f"It keeps {holds}; {limit}.", detail)


def _limit(field: RoundView, job: Job, gang: Gang, free: Mapping[str, int], bound: float, variance: float) -> str:
    """What prevents the job from getting more GPUs."""
    span = field.spans(job).get(gang.type)
    if job.max_gpus is not None and gang.count >= job.max_gpus:
        return f"its maximum is {job.max_gpus}"
    if span is None or span.at(gang.count) >= span.at(span.high):
        return "more would not make it faster"
    if free.get(gang.type, 0) > 0:
        return "one more would not make it faster"
    if variance >= bound:
        where = "above" if variance > bound else "at"
        return f"the variance {variance:.3f} is {where} its bound {bound:.3f}, so the worst off go first"
    return "it grows when a job ends or gains less than this one"


def _not_planned(field: RoundView, job: Job, ahead: int, headroom: QuotaHeadroom) -> Reason:
    spans = field.spans(job)
    if not spans:
        return no_type(job)
    name, span = min(spans.items(), key=lambda item: (item[1].low, item[0]))
    over = headroom.reason(job, [Gang(kind, each.low) for kind, each in spans.items()])
    if over is not None:
        return over
    before = (
        "The job before it, even at its minimum, leaves"
        if ahead == 1
        else f"The {ahead} jobs before it, even at their minimums, leave"
    )
    cause = f"{before} too few GPUs" if ahead else "Too few GPUs are free"
    text = f"{cause}; this one needs at least {words(Gang(name, span.low))} and starts when they are free."
    return Reason(ReasonCode.NO_ROOM, text, {"type": name, "needs": span.low})
