"""What is said of jobs that wait where GPUs, processors or memory are used by the engine's jobs that are not ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from scheduling._hosts import NO_HOST
from scheduling.domain import Job, Node, Reason, Snapshot, plain_type
from scheduling.policies._view import counted

#: Tokens of reasons that say that too little is free.
_FULL = frozenset(
    {
        "no_room", "resources", "no_slot", "no_layout", "next_round", "waits", "waits_to_share", "others_end_sooner",
        "partition_full", "across_pools", NO_HOST,
    }
)  # fmt: skip
_MOST_NODES = 3


def with_others(reason: Reason, job: Job, snapshot: Snapshot) -> Reason:
    """Of a job that waits: and how much of the nodes that it could use is others', until when."""
    if reason.token not in _FULL:
        return reason
    said = _of_gpus(job, snapshot) or (_of_hosts(job, snapshot) if reason.token == NO_HOST else "")
    return Reason(reason.token, f"{reason.text} {said}", reason.detail) if said else reason


def _may_use(job: Job, node: Node) -> bool:
    kinds = {plain_type(kind) for kind in job.types or job.curves}
    return node.schedulable and (not kinds or plain_type(node.type) in kinds)


def _of_gpus(job: Job, snapshot: Snapshot) -> str:
    others = snapshot.others
    nodes_of = ((gpu, node) for node in snapshot.nodes for gpu in node.gpu_ids if gpu in others.gpus)
    gpus = {gpu: node.name for gpu, node in nodes_of if _may_use(job, node)}
    if not gpus:
        return ""
    nodes, are = Counter(gpus.values()), "is" if len(gpus) == 1 else "are"
    until = _until((others.gpus[gpu] for gpu in gpus), snapshot.now)
    return f"{counted(len(gpus), 'GPU')} of {_names(nodes)} {are} used by {_jobs(snapshot)}{until}."


def _of_hosts(job: Job, snapshot: Snapshot) -> str:
    nodes = [node for node in snapshot.nodes if node.others and _may_use(job, node)]
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
    """Empty where it is not known of any, or they are to have ended already."""
    known = set(ends)
    first = min((end for end in known if end is not None), default=now)
    if first <= now:
        return ""
    at, today = datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(now, UTC).date()
    words = f"{at:%H:%M} UTC" if at.date() == today else f"{at:%F %H:%M} UTC"
    return f" until {words}" if len(known) == 1 else f", the first until {words}"
