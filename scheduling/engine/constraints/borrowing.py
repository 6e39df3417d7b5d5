"""Jobs that cannot be checkpointed, or that share a GPU, cannot be preempted, so they may not borrow guaranteed
GPUs."""

from __future__ import annotations

from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.guarantee_usage import GuaranteeUsage
from scheduling.domain import WHOLE, Gang, Guarantee, Job, Reason, Snapshot, plain_type
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import counted
from scheduling.engine.state import Effect
from scheduling.policies.base import Policy


def block_nonpreemptible_borrowers(snapshot: Snapshot, policy: Policy) -> Effect:
    changed, reasons = dict[str, Job | None](), dict[str, Reason]()
    if policy.capabilities.shares_time or not snapshot.guarantees:
        return Effect()
    field = view(snapshot)
    waiting = [job for job in field.queued if _is_rigid(job)]
    if not waiting:
        return Effect()
    book = GuaranteeUsage(snapshot)
    spare = _spare(field, book)
    for job in waiting:
        spans = field.spans(job)
        gang = next((Gang(name, span.low) for name, span in spans.items()), None)
        if gang is None or book.claim(job, gang):
            if gang is not None:
                book.book(job, gang)
                changed[job.id] = replace(job, max_gpus=gang.count)
            continue
        room = min(spare["", ""], max(spare.get(("", plain_type(name)), 0) for name in spans))
        if room < spans.least:
            changed[job.id], reasons[job.id] = None, _reason(job, max(0, room), spans.least)
            continue
        types = tuple(name for name, span in spans.items() if span.low <= spare["", plain_type(name)])
        most = min(room, job.max_gpus or room)
        changed[job.id] = replace(job, types=types, max_gpus=most)
        spare["", ""] -= most
        for name in {plain_type(name) for name in types}:
            spare["", name] -= most
    return Effect(changed, reasons)


def _is_rigid(job: Job) -> bool:
    return not job.restartable or job.gpu_milli < WHOLE


def _spare(field: RoundView, book: GuaranteeUsage) -> dict[tuple[str, str], int]:
    """GPUs that are neither guaranteed nor used by another non-preemptible job: in total, and by type."""
    rows = book.outermost()
    whole: dict[str, int] = {}
    for row in rows:
        whole.setdefault(row.project, 0)
    for project in whole:
        mine = [row for row in rows if row.project == project]
        whole[project] = max(_sum(mine, typed=False), _sum(mine, typed=True))
    spare = {("", ""): sum(field.total.values()) - sum(whole.values())}
    for name in field.types:
        kind = plain_type(name)
        if ("", kind) not in spare:
            spare["", kind] = -sum(row.gpus for row in rows if row.type == kind)
        spare["", kind] += field.total[name]
    shared = set[tuple[int, ...]]()
    for job, gang in book.holders:
        if _is_rigid(job) and not book.within.get(job.id) and job.gpu_ids not in shared:
            shared |= {job.gpu_ids} if job.gpu_milli < WHOLE else set()  # one GPU, however many jobs share it
            spare["", ""] -= gang.count
            kind = plain_type(gang.type)
            spare["", kind] = spare.get(("", kind), 0) - gang.count
    return spare


def _sum(rows: list[Guarantee], *, typed: bool) -> int:
    return sum(row.gpus for row in rows if bool(row.type) is typed)


def _reason(job: Job, room: int, needs: int) -> Reason:
    why = "It cannot be checkpointed" if not job.restartable else "It shares a GPU and cannot be preempted"
    text = (
        f"{why}, so it may not use GPUs guaranteed to other projects: {counted(room, 'GPU')} "
        f"{'is' if room == 1 else 'are'} left beside those and it needs {needs}."
    )
    return Reason(ReasonCode.MAY_NOT_BORROW, text, {"needs": needs, "free": room})
