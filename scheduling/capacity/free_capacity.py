"""Free capacity if no job is resized: free GPUs per type, and quota headroom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scheduling.capacity.cluster_view import RoundView, pinned_gangs
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words


class FreeCapacity:
    """Every job that holds GPUs keeps them."""

    def __init__(self, snapshot: Snapshot, field: RoundView) -> None:
        self.field, self.free, self.headroom = field, dict(field.free), QuotaHeadroom(field)
        self.counts: dict[str, Gang] = pinned_gangs(snapshot, field)
        self._type_of = cluster_index(snapshot.nodes).type_of
        for job in field.running:
            assert job.gang is not None  # a running job without a gang is not a candidate
            self.give(job, job.gang)

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        self._book(job, gang)

    def _book(self, job: Job, gang: Gang) -> None:
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        self.headroom.book(job, gang)

    def held(self, job: Job) -> Mapping[str, int]:
        """GPUs that would be free if the job left, by type; several types if its gang spans pools."""
        if job.resizable:
            return {job.gang.type: job.gang.count} if job.gang else {}
        return Counter(kind for gpu in job.gpu_ids if (kind := self._type_of.get(gpu)) is not None)

    def allows(self, job: Job, gang: Gang) -> bool:
        return self.headroom.over(job, gang) is None

    def over_limit(self, job: Job, needs: Mapping[str, int]) -> Reason | None:
        """A reason if limits allow none of the gangs that the job needs, by type."""
        return self.headroom.reason(job, [Gang(name, count) for name, count in needs.items()])

    def no_room(self, job: Job, needs: Mapping[str, int]) -> Reason:
        """Why nothing fits: cause, number, what would change it. `needs`: GPUs per type that can run the job."""
        if not needs:
            return no_type(job)
        name = min(needs, key=lambda kind: (needs[kind] - self.free[kind], kind))
        have = self.free[name]
        text = (
            f"{have} {name} {'is' if have == 1 else 'are'} free and it needs {words(Gang(name, needs[name]))}; "
            "it starts when enough are."
        )
        return Reason(ReasonCode.NO_ROOM, text, {"type": name, "needs": needs[name], "free": have})


def no_type(job: Job) -> Reason:
    limit = ", ".join(job.types) or "any type here"
    text = f"No gang of {limit} in this cluster can run the job; change its types or its GPU limits."
    return Reason(ReasonCode.NO_TYPE, text)


def size(mib: int) -> str:
    return f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{max(mib, 0)} MiB"


def processors(milli: int) -> str:
    return f"{max(milli, 0) / 1000:g} processor{'' if milli == 1000 else 's'}"


def host_memory(mib: int) -> str:
    return f"{size(mib)} of host memory"


def gpu_memory(mib: int) -> str:
    return f"{size(mib)} of GPU memory"
