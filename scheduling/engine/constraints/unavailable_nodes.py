"""Evicts jobs from lost, drained and reserved nodes by showing them to the policy as queued.

On a lost node the processes are gone whatever the state says, so protection does not apply. A drained node still
trains: its jobs leave with a checkpoint once there is room elsewhere, or in time for the deadline of the drain. Jobs on
nodes whose window excludes them leave with a checkpoint at once, and queue if there is no room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from scheduling.capacity import draining
from scheduling.capacity.draining import Leaving
from scheduling.capacity.memo import cluster_index
from scheduling.domain import Drain, Job, Reason, Snapshot, Window
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import State

_MOVABLE = frozenset({State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING})


@dataclass(frozen=True, slots=True)
class Unavailable:
    original: Snapshot
    snapshot: Snapshot  # what the policy sees
    must_leave: frozenset[str] = frozenset()  # on lost nodes
    may_stay: frozenset[str] = frozenset()  # on drained nodes; leave if there is room elsewhere
    staying: frozenset[str] = frozenset()
    give_back: frozenset[str] = frozenset()  # STANDBY: assigned GPUs that cannot be used
    cleared: Mapping[str, Window] = field(default_factory=dict)  # on nodes with a window that has begun
    drained: Leaving = field(default_factory=Leaving)
    #: Jobs that other constraints changed; None: hidden from the policy.
    changed: Mapping[str, Job | None] = field(default_factory=dict)
    #: Jobs preempted by a policy that cannot resize them; it plans without them.
    preempted: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def leaving(self) -> frozenset[str]:
        """Jobs that cannot keep their GPUs, whether or not they are placed elsewhere."""
        return self.must_leave | self.cleared.keys() | self.drained.due

    def keep(self, stay: Iterable[str]) -> Unavailable:
        """Keep the jobs in `stay`, which fit nowhere else, running unresized on their GPUs."""
        staying = self.staying | frozenset(stay)
        return _build(replace(self, may_stay=self.may_stay - staying, staying=staying))

    @property
    def all_staying(self) -> Unavailable:
        """The same, with all jobs on drained nodes keeping their GPUs until they leave."""
        return self.keep(self.may_stay) if self.may_stay else self

    def change(self, changed: Mapping[str, Job | None]) -> Unavailable:
        return _build(replace(self, changed={**self.changed, **changed})) if changed else self

    def without(self, preempted: Mapping[str, Reason]) -> Unavailable:
        return replace(self, preempted={**self.preempted, **preempted}).change(dict.fromkeys(preempted))

    def reasons(self, placed: Collection[str]) -> dict[str, Reason]:
        found = dict(self.preempted)
        for key in self.must_leave:
            waits = "it is queued again and starts when enough GPUs are free"
            where = "it moves to other GPUs" if key in placed else waits
            found[key] = Reason(ReasonCode.NODE_LOST, f"A node that it ran on was lost, so {where}.")
        found |= {key: draining.moves(self._drain(key)) for key in self.may_stay}
        found |= {key: draining.waits(self._drain(key)) for key in self.staying if key in self.drained.drains}
        found |= {key: draining.is_due(self._drain(key), placed=key in placed) for key in self.drained.due}
        found |= self.drained.kept
        for key in self.give_back:
            text = "A node that it was to start on is out of service, so it is queued again for other GPUs."
            found[key] = Reason(ReasonCode.ASSIGNMENT_WITHDRAWN, text)
        for key, window in self.cleared.items():
            waits = "queues again until there is room"
            text = f"{_begun(window)}, so it is checkpointed and {'moves' if key in placed else waits}."
            found[key] = Reason(window.kind, text, window_detail(window) | {"elsewhere": True})
        return found

    def _drain(self, key: str) -> Drain:
        return self.drained.drains[key]


def _begun(window: Window) -> str:
    what = f" ({window.text})" if window.text else ""
    return f"A {window.kind} window{what} has begun on its nodes"


def window_detail(window: Window) -> dict[str, object]:
    return {"window": window.id, "from": window.start, "until": window.end}


def find_unavailable(snapshot: Snapshot) -> Unavailable:
    known = cluster_index(snapshot.nodes)
    usable, closed = known.type_of, _closed(snapshot)
    if not closed:
        unseen = [job for job in snapshot.jobs if known.seated.jobs.get(job.id) is not job]
        if usable.keys() >= set[int]().union(*(job.gpu_ids for job in unseen)):
            for job in unseen:
                known.seated.add(job)
            return Unavailable(snapshot, snapshot)
    drained = {gpu for node in snapshot.nodes if not node.schedulable and not node.lost for gpu in node.gpu_ids}
    must, back, cleared, on_drained = set(), set(), dict[str, Window](), list[Job]()
    for job in snapshot.jobs:
        gone = {gpu for gpu in job.gpu_ids if gpu not in usable}
        if not gone and job.id not in closed:
            continue
        leaves = job.state is State.RUNNING and job.restartable and not job.held
        if job.state is State.STANDBY:
            back.add(job.id)
        elif not gone <= drained and job.state in _MOVABLE:
            must.add(job.id)
        elif job.id in closed and leaves:
            cleared[job.id] = closed[job.id]
        elif gone and gone <= drained:
            on_drained.append(job)
    left = draining.leave(on_drained, snapshot)
    found = Unavailable(
        snapshot,
        snapshot,
        frozenset(must),
        left.may,
        staying=left.staying,
        give_back=frozenset(back),
        cleared=cleared,
        drained=left,
    )
    return _build(found).without(left.stopped)


def _closed(snapshot: Snapshot) -> dict[str, Window]:
    """Jobs that hold GPUs on nodes with an active window that excludes them."""
    now = [window for window in snapshot.windows if window.start <= snapshot.now]
    if not now:
        return {}
    closed = {
        gpu: [window for window in now if node.name in window.nodes]
        for node in snapshot.nodes
        for gpu in node.gpu_ids
        if any(node.name in window.nodes for window in now)
    }
    found = {}
    for job in snapshot.jobs:
        windows = (window for gpu in job.gpu_ids for window in closed.get(gpu, ()) if not window.admits(job))
        first = next(windows, None)
        if first is not None:
            found[job.id] = first
    return found


def _build(found: Unavailable) -> Unavailable:
    waiting, changed = found.leaving | found.may_stay, found.changed
    seen = (
        changed[job.id] if job.id in changed else _as_seen(job, waiting, found.staying) for job in found.original.jobs
    )
    return replace(found, snapshot=replace(found.original, jobs=tuple(job for job in seen if job is not None)))


def _as_seen(job: Job, waiting: Collection[str], staying: Collection[str]) -> Job:
    if job.id in waiting:
        return replace(job, state=State.WAITING_FOR_RESOURCE, gpu_ids=(), gang=None, protected_until=None)
    return replace(job, restartable=False) if job.id in staying else job
