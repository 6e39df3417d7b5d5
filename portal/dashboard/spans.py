"""Turns events and occupancy into intervals: the states of a run, and what its GPUs were used for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from portal.jobs.models import Hold, Job, JobEvent
from scheduling.lifecycle import Event

MAX_HOLDS = 20_000
#: From this event on, occupancy has that kind; before the first one it is launching.
_KINDS = {
    Event.FIRST_STEP_READY.value: "protected",
    Event.PROTECTION_ENDED.value: "running",
    Event.REALLOCATED.value: "moving",
}
Changes = Mapping[tuple[UUID, int], list[tuple[datetime, str]]]


@dataclass(frozen=True, slots=True)
class GangSpan:
    """All GPUs of one launch."""

    run_id: UUID
    epoch: int
    type: str
    gpus: tuple[tuple[str, int], ...]
    from_at: datetime
    to_at: datetime | None

    @property
    def count(self) -> int:
        return len(self.gpus)


def gangs_of(job: Job) -> list[GangSpan]:
    """The job's GPUs by launch: one query."""
    holds = Hold.objects.filter(run__job=job).select_related("accelerator__node").order_by("id")
    groups: dict[tuple[UUID, int], list[Hold]] = defaultdict(list)
    for hold in holds[:MAX_HOLDS]:
        groups[hold.run_id, hold.epoch].append(hold)
    spans = []
    for (run_id, epoch), group in groups.items():
        ends = [hold.during.upper for hold in group]
        gpus = sorted((hold.accelerator.node.name, hold.accelerator.index) for hold in group)
        spans.append(
            GangSpan(
                run_id,
                epoch,
                group[0].accelerator.node.accelerator_type,
                tuple(gpus),
                min(hold.started_at for hold in group),
                None if None in ends else max(end for end in ends if end),
            )
        )
    return sorted(spans, key=lambda span: span.from_at)


def changes_of(run_ids: Iterable[UUID]) -> Changes:
    """(run, epoch) -> when the use of its GPUs changed: one query."""
    changes: dict[tuple[UUID, int], list[tuple[datetime, str]]] = defaultdict(list)
    rows = JobEvent.objects.filter(run__in=list(run_ids), kind__in=list(_KINDS)).order_by("id")
    for run_id, kind, at, epoch in rows.values_list("run_id", "kind", "at", "detail__epoch"):
        if run_id is not None and epoch is not None:
            changes[run_id, int(epoch)].append((at, _KINDS[kind]))
    return changes


def split(from_at: datetime, to_at: datetime | None, changes: list[tuple[datetime, str]]) -> list[dict[str, Any]]:
    """One occupancy as intervals of one kind each: {"from_at", "to_at", "kind"}; adjacent, and never overlapping."""
    stretches = []
    start, kind = from_at, "launching"
    for at, following in changes:
        at = max(at, start)
        if to_at is not None and at >= to_at:
            break
        if at > start:
            stretches.append({"from_at": start, "to_at": at, "kind": kind})
        start, kind = at, following
    return [*stretches, {"from_at": start, "to_at": to_at, "kind": kind}]
