"""Reasons for jobs that reclaim guaranteed GPUs and for the borrowers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scheduling.domain import Gang, Guarantee, Job, Reason
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words


@dataclass(frozen=True, slots=True)
class ReclaimGrant:
    """A job that starts within its guarantee, and the borrowers that leave for it."""

    job: Job
    gang: Gang
    gpus: tuple[int, ...]
    by: Guarantee
    borrowers: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """A claim on borrowed GPUs that waits until `at`, because some borrowers are protected."""

    gang: Gang
    by: Guarantee
    at: float


def gpus_of(jobs: Collection[Job]) -> int:
    return sum(len(job.gpu_ids) for job in jobs)


def owner(row: Guarantee) -> str:
    return row.level or f"project {row.project}"


def _is_guaranteed(row: Guarantee) -> str:
    """The beginning of a sentence."""
    who = owner(row)
    return f"{who[:1].upper()}{who[1:]} is guaranteed {row.gpus} {_unit(row)}"


def _unit(row: Guarantee) -> str:
    return f"{row.type} GPUs" if row.type else "GPUs"


def _detail(row: Guarantee, **more: object) -> dict[str, object]:
    return {"level": f"guarantee of {owner(row)}", "project": row.project, "guaranteed": row.gpus} | more


def reason_reclaimer(grant: ReclaimGrant) -> Reason:
    if not grant.borrowers:
        text = f"{_is_guaranteed(grant.by)}, so it starts on {words(grant.gang)}."
        return Reason(ReasonCode.GUARANTEED, text, _detail(grant.by))
    numbers = ", ".join(f"#{job.number}" for job in grant.borrowers)
    text = (
        f"{_is_guaranteed(grant.by)} and reclaims what {numbers} had borrowed, "
        f"so it starts on {words(grant.gang)} when they have left."
    )
    return Reason(ReasonCode.RECLAIMS, text, _detail(grant.by))


def reason_reclaimee(grant: ReclaimGrant, after: Gang | None) -> Reason:
    """For a borrower. `after`: its gang from now on, if any."""
    row, count, how = grant.by, min(grant.gang.count, gpus_of(grant.borrowers)), "Shrunk" if after else "Preempted"
    way = f"it goes on with {words(after)}" if after else "it is checkpointed and continues when enough GPUs are free"
    text = (
        f"{how}: {owner(row)} reclaimed {count} of its {row.gpus} guaranteed {_unit(row)}, "
        f"which this job had borrowed, for #{grant.job.number}; {way}."
    )
    return Reason(ReasonCode.RECLAIMED, text, _detail(row, by=grant.job.id, reclaimed=count))


def reason_pending(later: PendingClaim, now: float) -> Reason:
    text = (
        f"{_is_guaranteed(later.by)}; others have borrowed {words(later.gang)} that it needs and have just started. "
        f"They are reclaimed in {max(0.0, later.at - now):.0f} s at the latest."
    )
    more = {"reclaimed_at": later.at, "needs": later.gang.count, "type": later.gang.type}
    return Reason(ReasonCode.RECLAIMING, text, _detail(later.by, **more))
