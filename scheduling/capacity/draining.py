"""Which jobs leave a node that is drained by a deadline, and when.

A job that is expected to end by then stays. Any other job moves with a checkpoint once there is room elsewhere, or
returns to the queue just in time to write its checkpoint before the deadline. A job that cannot be checkpointed trains
until the deadline, and is stopped then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from scheduling.domain import Drain, Job, Node, Reason, Snapshot, plain_type
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import span
from scheduling.lifecycle import State

#: Time for a round to start and for processes to stop, added to the measured time of the job's checkpoints.
MARGIN_S = 30.0
Outlook = Literal["ends", "moves", "lost"]
_MOVABLE = frozenset({State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING})


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a round does with jobs that are only on drained nodes."""

    drains: Mapping[str, Drain] = field(default_factory=dict)
    may: frozenset[str] = frozenset()  # leave when there is room elsewhere
    due: frozenset[str] = frozenset()  # leave now
    staying: frozenset[str] = frozenset()
    stopped: Mapping[str, Reason] = field(default_factory=dict)  # stop for good
    kept: Mapping[str, Reason] = field(default_factory=dict)  # reasons of jobs that stay


class Drains:
    """The drains of a snapshot's nodes, by accelerator."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._of_gpu = {gpu: node for node in nodes if node.drain is not None for gpu in node.gpu_ids}

    @property
    def any(self) -> bool:
        return bool(self._of_gpu)

    def of(self, job: Job) -> Drain | None:
        """The drain of the job's nodes with the earliest deadline."""
        drains = [drain for gpu in job.gpu_ids if gpu in self._of_gpu and (drain := self._of_gpu[gpu].drain)]
        return min(drains, key=lambda one: math.inf if one.deadline is None else one.deadline, default=None)

    def spans(self, job: Job) -> bool:
        nodes = (self._of_gpu.get(gpu) for gpu in job.gpu_ids)
        return len({node.name if node else None for node in nodes}) > 1


def expected_end(job: Job, now: float, *, spans: bool = False) -> float:
    """When the job ends on its present GPUs; infinite if that is unknown."""
    speed = _steps_per_s(job, spans=spans)
    steps_s = job.remaining_steps / speed if speed > 0 else math.inf
    return now + min(steps_s, math.inf if job.time_limit_s is None else job.time_limit_s)


def _steps_per_s(job: Job, *, spans: bool) -> float:
    if job.gang is None:
        return 0.0
    kind, count = plain_type(job.gang.type), job.gang.count
    curve = next((curve for name, curve in job.curves.items() if plain_type(name) == kind), None)
    if curve is None or curve.source == "trial":
        return 0.0
    return curve.at(count) * (curve.spread_at(count) if spans else 1.0)


def leaves_by(job: Job, deadline: float) -> float:
    """When the job must begin its checkpoint."""
    return deadline - MARGIN_S - job.checkpoint_s


def outlook(job: Job, drain: Drain, now: float, end: float) -> Outlook:
    """What happens to a job that runs on a drained node and is expected to end at `end`."""
    if drain.deadline is None:
        return "moves" if job.restartable else "ends"
    if now < drain.deadline and end <= drain.deadline:
        return "ends"
    return "moves" if job.restartable else "lost"


def leave(jobs: Iterable[Job], snapshot: Snapshot) -> Leaving:
    """`jobs`: those that hold GPUs on drained or withheld nodes. Jobs whose nodes are only withheld stay."""
    drains, now = Drains(snapshot.nodes), snapshot.now
    withheld = {gpu: node for node in snapshot.nodes if node.withheld and node.drain is None for gpu in node.gpu_ids}
    of: dict[str, Drain] = {}
    may, due, staying = set[str](), set[str](), set[str]()
    stopped, kept = dict[str, Reason](), dict[str, Reason]()
    for job in jobs:
        leaves = job.state is State.RUNNING and job.restartable and not job.held
        closed = next((withheld[gpu] for gpu in job.gpu_ids if gpu in withheld), None)
        drain = drains.of(job)
        if closed is not None and drain is None:
            kept[job.id] = _stays(closed)
            staying |= {job.id} if leaves else set()
            continue
        drain = of[job.id] = drain or Drain()
        what = outlook(job, drain, now, expected_end(job, now, spans=drains.spans(job)))
        if drain.deadline is None:
            may |= {job.id} if leaves else set()
        elif what == "ends":
            kept[job.id] = _ends(drain)
            staying |= {job.id} if leaves else set()
        elif what == "lost":
            over = now >= drain.deadline and job.state in _MOVABLE
            (stopped if over else kept)[job.id] = _stopped(drain) if over else _is_lost(drain)
        elif now >= leaves_by(job, drain.deadline) and job.state in _MOVABLE:
            due.add(job.id)
        elif leaves:
            may.add(job.id)
    return Leaving(of, frozenset(may), frozenset(due), frozenset(staying), stopped, kept)


def moments(snapshot: Snapshot) -> Iterator[float]:
    """When jobs have to leave drained nodes."""
    drains = Drains(snapshot.nodes)
    for job in snapshot.jobs if drains.any else ():
        drain = drains.of(job)
        if drain is not None and drain.deadline is not None:
            yield leaves_by(job, drain.deadline)
            yield drain.deadline


# Sentences -----------------------------------------------------------------------------------------


def moves(drain: Drain) -> Reason:
    text = f"{_drained(drain)}, so it moves with a checkpoint to other GPUs."
    return Reason(ReasonCode.NODE_DRAINED, text, _detail(drain))


def waits(drain: Drain) -> Reason:
    last = ", or to queue again in time before the deadline" if drain.deadline is not None else ""
    text = f"{_drained(drain)}; it moves with a checkpoint when enough GPUs elsewhere are free{last}."
    return Reason(ReasonCode.NODE_DRAINED_WAITS, text, _detail(drain))


def is_due(drain: Drain, *, placed: bool) -> Reason:
    where = "moves" if placed else "queues again until there is room"
    return Reason(ReasonCode.NODE_DRAINED, f"{_drained(drain)}, so it is checkpointed and {where}.", _detail(drain))


def sentence(number: int, drain: Drain, what: Outlook, end: float) -> str:
    """What to show for a job that runs on a node that is about to be drained, or being drained."""
    if drain.deadline is None:
        if what == "moves":
            return f"#{number} moves with a checkpoint when enough GPUs elsewhere are free."
        return f"#{number} cannot be checkpointed, so it will run to completion."
    known = not math.isinf(end)
    apart = f"{span(abs(end - drain.deadline))} {'after' if end > drain.deadline else 'before'} the deadline"
    ends = f"is expected to end {apart}" if known else "may run past the deadline, as its end is unknown"
    if what == "ends":
        return f"#{number} {ends}."
    if what == "moves":
        return f"#{number} {ends}: it moves with a checkpoint, or queues again if there is no room."
    return f"#{number} cannot be restarted and {ends}: it will be lost{'' if known else ' then'}."


def _ends(drain: Drain) -> Reason:
    text = f"{_drained(drain)}; it is expected to end before that, so it keeps its GPUs."
    return Reason(ReasonCode.NODE_DRAINED_ENDS, text, _detail(drain))


def _stays(node: Node) -> Reason:
    text = f"No job starts on {node.name} ({node.withheld}), so it keeps its GPUs and is not resized."
    return Reason(ReasonCode.NODE_WITHHELD, text, {"node": node.name})


def _is_lost(drain: Drain) -> Reason:
    text = f"{_drained(drain)}; it cannot be checkpointed and is stopped then, unless it ends before."
    return Reason(ReasonCode.NODE_DRAINED_LOST, text, _detail(drain))


def _stopped(drain: Drain) -> Reason:
    text = f"Its node was drained{_by(drain)}, and it could not write a checkpoint."
    return Reason(ReasonCode.NODE_DRAINED_STOPPED, text, {**_detail(drain), "mode": "cancel"})


def _drained(drain: Drain) -> str:
    return f"Its node is being drained{_by(drain)}"


def _by(drain: Drain) -> str:
    until = "" if drain.deadline is None else f" by {datetime.fromtimestamp(drain.deadline, UTC):%F %H:%M} UTC"
    return until + (f" ({drain.text})" if drain.text else "")


def _detail(drain: Drain) -> dict[str, object]:
    return {} if drain.deadline is None else {"deadline": drain.deadline}
