"""What is left to give where nobody is resized: free GPUs per type, and what quotas still allow."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.policies._view import View, present_gang, words


class Stock:
    """Starts with every job that holds GPUs keeping them."""

    def __init__(self, snapshot: Snapshot, field: View) -> None:
        self.field, self.free, self.room = field, dict(field.free), dict(field.allowance)
        type_of = {gpu: node.type for node in snapshot.nodes for gpu in node.gpu_ids}
        self.counts: dict[str, Gang] = {}
        for job in (*field.fixed, *field.running):
            gang = present_gang(job, type_of)
            if gang is not None:
                self.counts[job.id] = gang
        for job in field.running:
            self._book(job, self.counts[job.id])

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        self._book(job, gang)

    def _book(self, job: Job, gang: Gang) -> None:
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        if job.project in self.room:
            self.room[job.project] -= gang.count

    def over_quota(self, job: Job, needs: int) -> Reason | None:
        """A reason where the job's project may not hold `needs` more GPUs."""
        room = self.room.get(job.project)
        return quota_reason(self.field, job, needs, room) if room is not None and needs > room else None

    def no_room(self, job: Job, needs: Mapping[str, int]) -> Reason:
        """Why nothing fits: cause, number, way out. `needs`: GPUs per type that can run the job."""
        if not needs:
            return no_type(job)
        name = min(needs, key=lambda kind: (needs[kind] - self.free[kind], kind))
        have = self.free[name]
        text = (
            f"{have} {name} {'is' if have == 1 else 'are'} free and it needs {words(Gang(name, needs[name]))}; "
            "it starts when enough are."
        )
        return Reason("no_room", text, {"type": name, "needs": needs[name], "free": have})


def no_type(job: Job) -> Reason:
    limit = ", ".join(job.types) or "any type here"
    text = f"No gang of {limit} in this cluster can run the job; change its types or its GPU limits."
    return Reason("no_type", text)


def quota_reason(field: View, job: Job, needs: int, room: int) -> Reason:
    quota = field.quotas[job.project]
    text = f"{job.project} may hold {quota} GPUs and would hold {quota - room}; this job needs at least {needs}."
    return Reason("quota", text, {"quota": quota, "holds": quota - room, "needs": needs})
