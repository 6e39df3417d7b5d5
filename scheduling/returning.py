"""When a job that lost GPUs can have them again, as far as the ends of those that hold GPUs are foreseen."""

from __future__ import annotations

import math

from scheduling.domain import Gang, Job, Snapshot
from scheduling.policies._known import fleet
from scheduling.policies._timetable import Timetable
from scheduling.policies._view import View, present_gang, view

#: Processes on their way out, and jobs past their expected end, are taken to be gone after so long.
_SOON_S = 30.0


def expected_return(snapshot: Snapshot, job: Job, before: Gang) -> float | None:
    """When enough GPUs are free for what it waits for, or for as many as it had. Who else waits is not counted."""
    field = view(snapshot)
    if job.gpu_ids:
        wanted = [Gang(before.type, before.count - len(job.gpu_ids))]
    else:
        wanted = [Gang(name, span.low) for name, span in field.spans(job).items()]
    ends = [_table(snapshot, field, job, gang.type).earliest(gang.count, 0.0) for gang in wanted if gang.count > 0]
    at = min(ends, default=math.inf)
    return None if math.isinf(at) else at


def _table(snapshot: Snapshot, field: View, job: Job, kind: str) -> Timetable:
    now, types = snapshot.now, fleet(snapshot.nodes).type_of
    planned = {gpu for each in snapshot.jobs for gpu in each.gpu_ids}
    stopping = sum(types.get(gpu) == kind for gpu in snapshot.blocked_gpu_ids - planned)
    ends = [(now + _SOON_S, stopping)]
    for each in snapshot.jobs:
        gang = present_gang(each, types) if each.gpu_ids and each.id != job.id else None
        if gang is not None and gang.type == kind:
            ends.append((now + _left_s(field, each, gang), gang.count))
    held = sum(count for _, count in ends)
    return Timetable(now, max(0, field.total.get(kind, 0) - held - _own(job, kind)), ends)


def _own(job: Job, kind: str) -> int:
    return len(job.gpu_ids) if job.gang is not None and job.gang.type == kind else 0


def _left_s(field: View, job: Job, gang: Gang) -> float:
    speed = field.steps_per_s(job, gang) if gang.type in job.curves else 0.0
    steps_s = job.remaining_steps / speed if speed > 0 else math.inf
    seconds = min(steps_s, math.inf if job.time_limit_s is None else job.time_limit_s)
    return max(seconds, 0.0) or _SOON_S
