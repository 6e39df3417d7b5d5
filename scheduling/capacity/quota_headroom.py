"""Quota headroom while a plan is made, and trimming of plans to quotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduling.capacity.cluster_view import RoundView, limited, name_of, spent_reason
from scheduling.domain import Gang, Job, Reason
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import counted

_NO_LIMIT = 2**40


class QuotaHeadroom:
    """GPUs and jobs that each limit still allows. GPUs that a job holds must be booked like all others."""

    def __init__(self, field: RoundView) -> None:
        self.limits, self.left = field.limits, dict(field.allowance)

    def book(self, job: Job, gang: Gang, sign: int = 1) -> None:
        for key in job.limits:
            if key in self.left:
                self.left[key] -= sign * limited(self.limits[key], gang)

    def over(self, job: Job, gang: Gang) -> str | None:
        """The first limit, outermost level first, without room for the gang."""
        return next(self.all_over(job, gang), None) if job.limits else None

    def all_over(self, job: Job, gang: Gang) -> Iterator[str]:
        keys = (key for key in job.limits if key in self.left)
        return (key for key in keys if 0 < limited(self.limits[key], gang) > self.left[key])

    def reason(self, job: Job, gangs: Iterable[Gang]) -> Reason | None:
        """Why the job may have none of the gangs; None if it may have one of them, or if there are none."""
        found: tuple[str, Gang] | None = None
        for gang in sorted(gangs, key=lambda gang: (gang.count, gang.type)):
            key = self.over(job, gang)
            if key is None:
                return None
            found = found or (key, gang)
        return self._reason(*found) if found else None

    def _reason(self, key: str, gang: Gang) -> Reason:
        limit = self.limits[key]
        used, who = limit.most - self.left[key], f"{limit.level[:1].upper()}{limit.level[1:]}"
        detail = {
            "level": limit.level,
            "limit": name_of(limit),
            "quota": limit.most,
            "holds": used,
            "needs": gang.count,
        } | ({"slurm": limit.word} if limit.word else {})
        if limit.kind == "spent":
            return spent_reason(limit)
        if limit.kind == "running_jobs":
            if limit.text:
                there = f", {used + limit.beside} {'is' if used + limit.beside == 1 else 'are'} there"
                return Reason(ReasonCode.QUOTA_JOBS, f"{limit.text}{there}; this one starts when one ends.", detail)
            ahead = f"{used} {'goes' if used == 1 else 'go'} before"
            text = f"{who} may have {counted(limit.most, 'job')} running, and {ahead}; this one starts when one ends."
            return Reason(ReasonCode.QUOTA_JOBS, text, detail)
        if limit.text:
            held = used + limit.beside
            there = f", {held} {'is' if held == 1 else 'are'} used" if held else ""
            return Reason(ReasonCode.QUOTA, f"{limit.text}{there}; this job needs at least {gang.count}.", detail)
        name = f"{limit.type} GPU" if limit.type else "GPU"
        most = counted(limit.most, name)
        text = f"{who} may hold {most}, and other jobs have {used}; this job needs at least {gang.count}."
        return Reason(ReasonCode.QUOTA, text, detail)

    def most(self, job: Job, kind: str) -> int:
        """The most GPUs of a type that the job may have."""
        keys = [key for key in job.limits if key in self.left and limited(self.limits[key], Gang(kind, 1))]
        jobs = any(self.limits[key].kind == "running_jobs" and self.left[key] < 1 for key in keys)
        gpus = [self.left[key] for key in keys if self.limits[key].kind != "running_jobs"]
        return 0 if jobs else min(gpus, default=_NO_LIMIT)


def exceeds_quota(field: RoundView, counts: Mapping[str, Gang]) -> bool:
    """Whether a limit is exceeded, and by more than present use exceeds it already."""
    after, before = QuotaHeadroom(field), QuotaHeadroom(field)
    for job in field.candidates:
        if job.id in counts:
            after.book(job, counts[job.id])
        if job.gang is not None and job.gpu_ids:
            before.book(job, job.gang)
    return any(left < min(0, before.left[key]) for key, left in after.left.items())


def trim_to_quota(field: RoundView, counts: Mapping[str, Gang]) -> tuple[dict[str, Gang], dict[str, Reason]]:
    """Trim the answer of a policy that ignores limits. Running jobs keep what they would have kept; then growth and
    starts are allowed in queue order. Also returns the reasons of jobs that do not start."""
    headroom, kept, reasons = QuotaHeadroom(field), dict(counts), dict[str, Reason]()
    part = {job.id for job in field.candidates}
    for key in part:
        kept.pop(key, None)
    for job in field.running:
        planned, present = counts.get(job.id), job.gang
        if planned is not None and present is not None:
            shrinks = planned.type == present.type and planned.count < present.count
            kept[job.id] = planned if shrinks else present
            headroom.book(job, kept[job.id])
    for job in field.candidates:
        planned, have = counts.get(job.id), kept.get(job.id)
        if planned is None or planned == have:
            continue
        if have is not None:
            headroom.book(job, have, -1)
        count = min(planned.count, headroom.most(job, planned.type))
        if count >= _least(field, job, planned, have):
            kept[job.id] = Gang(planned.type, count)
        elif have is None and (why := headroom.reason(job, [Gang(planned.type, _least(field, job, planned, None))])):
            reasons[job.id] = why
        if job.id in kept:
            headroom.book(job, kept[job.id])
    return kept, reasons


def _least(field: RoundView, job: Job, planned: Gang, have: Gang | None) -> int:
    span = field.spans(job).get(planned.type)
    low = span.low if span else job.min_gpus
    return max(low, have.count) if have is not None and have.type == planned.type else low
