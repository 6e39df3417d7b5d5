"""Explains jobs that wait because the engine's other jobs use GPUs, CPUs or memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from scheduling.domain import Job, Node, Reason, Snapshot, plain_type
from scheduling.domain.reason_codes import SHORT_OF_GPUS, ReasonCode
from scheduling.domain.wording import counted

_MOST_NODES = 3


class EngineJobsExplanation:
    """How much of the nodes that a pending job could use other jobs occupy, and until when. Nodes are searched once for
    all jobs that may use the same types."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_gpus: dict[frozenset[str], str] = {}
        self._of_hosts: dict[frozenset[str], str] = {}

    def added_to(self, reason: Reason, job: Job) -> Reason:
        if reason.token not in SHORT_OF_GPUS and reason.token != ReasonCode.NO_HOST:
            return reason
        kinds = frozenset(plain_type(kind) for kind in job.types or job.curves)
        if kinds not in self._of_gpus:
            self._of_gpus[kinds] = _of_gpus(kinds, self._snapshot)
            self._of_hosts[kinds] = _of_hosts(kinds, self._snapshot)
        said = self._of_gpus[kinds] or (self._of_hosts[kinds] if reason.token == ReasonCode.NO_HOST else "")
        return Reason(reason.token, f"{reason.text} {said}", reason.detail) if said else reason


def _may_use(kinds: frozenset[str], node: Node) -> bool:
    return node.schedulable and (not kinds or plain_type(node.type) in kinds)


def _of_gpus(kinds: frozenset[str], snapshot: Snapshot) -> str:
    others = snapshot.others
    nodes_of = ((gpu, node) for node in snapshot.nodes for gpu in node.gpu_ids if gpu in others.gpus)
    gpus = {gpu: node.name for gpu, node in nodes_of if _may_use(kinds, node)}
    if not gpus:
        return ""
    nodes, are = Counter(gpus.values()), "is" if len(gpus) == 1 else "are"
    until = _until((others.gpus[gpu] for gpu in gpus), snapshot.now)
    return f"{counted(len(gpus), 'GPU')} of {_names(nodes)} {are} used by {_jobs(snapshot)}{until}."


def _of_hosts(kinds: frozenset[str], snapshot: Snapshot) -> str:
    nodes = [node for node in snapshot.nodes if node.others and _may_use(kinds, node)]
    if not nodes:
        return ""
    until = _until((one.until for node in nodes for one in node.others), snapshot.now)
    names = _names([node.name for node in nodes])
    return f"Processors and memory of {names} are used by {_jobs(snapshot)}{until}."


def _jobs(snapshot: Snapshot) -> str:
    return f"other {snapshot.others.engine} jobs" if snapshot.others.engine else "jobs of others"


def _names(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    if len(names) > _MOST_NODES:
        return f"{len(names)} nodes"
    return ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1]


def _until(ends: Iterable[float | None], now: float) -> str:
    """Empty if no end is known, or if all ends have passed."""
    known = set(ends)
    first = min((end for end in known if end is not None), default=now)
    if first <= now:
        return ""
    at, today = datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(now, UTC).date()
    words = f"{at:%H:%M} UTC" if at.date() == today else f"{at:%F %H:%M} UTC"
    return f" until {words}" if len(known) == 1 else f", the first until {words}"
