"""Jobs of traces with durations instead of work: one step a second, on any allowed type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import lru_cache

from scheduling.domain import WHOLE, Curve
from scheduling.errors import InvalidInput
from scheduling.simulator.inputs.trace import Throughputs, TraceJob
from scheduling.simulator.readers.rows import Row

MOST_GPUS_OF_SIZES = 20_000_000


@dataclass(slots=True)
class Context:
    """Input of a reader besides the file, and its remarks besides the jobs."""

    types: tuple[str, ...] = ("gpu",)  # of the cluster
    known: Throughputs = field(default_factory=dict)
    zone: tzinfo = UTC  # of times without a zone
    skipped: dict[str, int] = field(default_factory=dict)
    first_lines: dict[str, int] = field(default_factory=dict)  # number of skipped entries, where a reader knows it
    left_out: int = 0  # of them, rows that are not jobs
    zoneless: bool = False  # some time had no zone
    path: str = "the trace"
    _sizes: set[int] = field(default_factory=set, repr=False)
    _gpus_of_sizes: int = 0
    _curves: dict[tuple[tuple[str, Curve], ...], Mapping[str, Curve]] = field(default_factory=dict, repr=False)

    def share(self, curves: Mapping[str, Curve]) -> Mapping[str, Curve]:
        """One mapping for all jobs with the same curves: memos of policies compare by identity."""
        return self._curves.setdefault(tuple(curves.items()), curves)

    def count_size(self, gpus: int) -> None:
        """Each gang size has curves of its own length; the total is limited."""
        if gpus not in self._sizes:
            self._sizes.add(gpus)
            self._gpus_of_sizes += gpus
            if self._gpus_of_sizes > MOST_GPUS_OF_SIZES:
                what = f"the different numbers of GPUs that its jobs have are more than {MOST_GPUS_OF_SIZES:,} in all"
                raise InvalidInput(f"{self.path}: {what}")

    def seconds(self, row: Row, column: str, fold: int = 0) -> float:
        """A time as POSIX seconds. `fold` is 1 for the second of two equal local times, when clocks are set back."""
        at = row.moment(column)
        if at.tzinfo is None:
            self.zoneless = True
            at = at.replace(tzinfo=self.zone, fold=fold)
        try:
            return at.timestamp()
        except (OverflowError, ValueError):
            raise row.error(column, f"{at.replace(tzinfo=None)} is out of range") from None

    def skip(self, why: str, row: Row | None = None) -> None:
        """Count a skipped row; the line of the first one is kept."""
        self.tell(why)
        if row is not None:
            self.first_lines.setdefault(why, row.line)
        self.left_out += 1

    def tell(self, what: str) -> None:
        """Count a conversion."""
        self.skipped[what] = self.skipped.get(what, 0) + 1


@dataclass(frozen=True, slots=True)
class Timed:
    """A job that ran for `duration_s` on a gang."""

    id: str
    arrival_s: float
    duration_s: float
    gpus: int
    types: tuple[str, ...] = ()
    project: str = "default"
    priority: int = 0
    model_type: str = ""
    user: str = ""
    gpu_milli: int = WHOLE
    cpu_milli: int = 0
    memory_mib: int = 0


@lru_cache(maxsize=4096)
def unit_curves(types: tuple[str, ...], gpus: int) -> Mapping[str, Curve]:
    curve = Curve((0.0,) * (gpus - 1) + (1.0,), "user")
    return dict.fromkeys(types, curve)


def apart(timed: list[Timed], context: Context) -> list[Timed]:
    """In formats whose rows may share an id, further rows are separate jobs: 101#2 after 101."""
    seen = Counter[str]()
    found = []
    for job in timed:
        seen[job.id] += 1
        if (times := seen[job.id]) > 1:
            context.tell("further rows of an id, which are jobs of their own here (ID#2)")
        found.append(replace(job, id=f"{job.id}#{times}") if times > 1 else job)
    return found


def make_jobs(timed: list[Timed], context: Context) -> list[TraceJob]:
    """Gangs of one size; arrivals are relative to the first."""
    for job in timed:
        context.count_size(job.gpus)
    start = min((job.arrival_s for job in timed), default=0.0)
    return [
        TraceJob(
            id=job.id,
            number=number,
            arrival_s=job.arrival_s - start,
            total_steps=job.duration_s,
            curves=unit_curves(job.types or context.types, job.gpus),
            model_type=job.model_type,
            project=job.project,
            user=job.user,
            priority=job.priority,
            min_gpus=job.gpus,
            max_gpus=job.gpus,
            types=job.types,
            gpu_milli=job.gpu_milli,
            cpu_milli=job.cpu_milli,
            memory_mib=job.memory_mib,
        )
        for number, job in enumerate(timed, 1)
    ]
