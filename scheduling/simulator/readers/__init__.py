"""Readers of traces, by format: detected by content, or named. One module per format; docs/simulator.md describes
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from scheduling.errors import InvalidInput
from scheduling.input_files import opening, plain_name
from scheduling.simulator.inputs.trace import Throughputs, TraceJob
from scheduling.simulator.readers.jobs import Context
from scheduling.simulator.readers.rows import MOST_JOBS
from scheduling.validation import shown

#: In the order of detection; imported on first use.
FORMATS = {
    "json": "scheduling.simulator.readers.own",
    "gavel": "scheduling.simulator.readers.gavel",
    "openb": "scheduling.simulator.readers.openb",
    "pai": "scheduling.simulator.readers.pai",
    "sia": "scheduling.simulator.readers.sia",
    "tiresias": "scheduling.simulator.readers.tiresias",
    "sacct": "scheduling.simulator.readers.sacct",
    "philly": "scheduling.simulator.readers.philly",
    "swf": "scheduling.simulator.readers.swf",
}


class Reader(Protocol):
    matches: Callable[[Path, str], bool]
    read: Callable[[Path, Context], list[TraceJob]]


@dataclass(frozen=True, slots=True)
class Trace:
    jobs: list[TraceJob]
    format: str
    skipped: dict[str, int]  # what was left out or converted, and how often
    left_out: int = 0
    first_lines: Mapping[str, int] = field(default_factory=dict)  # number of entries left out, where known
    zone: tzinfo | None = None  # the zone assumed for times without one, if there were any

    def remarks(self) -> list[str]:
        """Sentences on what was left out or converted."""
        found = [
            f"{count} {what}" + (f" (first in line {self.first_lines[what]})" if what in self.first_lines else "")
            for what, count in self.skipped.items()
        ]
        return [*found, f"times name no zone and are read as {self.zone}"] if self.zone else found


def load_trace(
    path: Path,
    throughputs: Throughputs | None = None,
    types: Sequence[str] = (),
    format: str | None = None,
    zone: tzinfo = UTC,
) -> Trace:
    """Jobs by arrival. `types` are the cluster's: jobs with a duration run on any of them. Times without a zone are
    read in `zone`."""
    name = format or detect(path)
    if name not in FORMATS:
        raise InvalidInput(f"{name!r} is no trace format; there are {', '.join(FORMATS)}")
    context = Context(tuple(sorted(types)) or ("gpu",), throughputs or {}, zone, path=str(path))
    jobs = cast("Reader", import_module(FORMATS[name])).read(path, context)
    if not jobs:
        left = "".join(f"; {count} {what}" for what, count in context.skipped.items())
        raise InvalidInput(f"{path}: the trace has no jobs{left}")
    if len(jobs) > MOST_JOBS:
        raise InvalidInput(f"{path}: it has more than {MOST_JOBS} jobs")
    _refuse_unprintable(path, jobs)
    _refuse_twins(path, jobs)
    jobs.sort(key=lambda job: (job.arrival_s, job.number))
    return Trace(jobs, name, context.skipped, context.left_out, context.first_lines, zone if context.zoneless else None)


def _refuse_unprintable(path: Path, jobs: Sequence[TraceJob]) -> None:
    """Names are shown in tables, one line each: no line ends, control characters or lone surrogates."""
    for job in jobs:
        for what, name in (("id", job.id), ("project", job.project), ("user", job.user), ("model", job.model_type)):
            if not name.isprintable():
                raise InvalidInput(f"{path}: a job has the {what} {name[:60]!a}, with characters that are not shown")
        for kind in {*job.types, *job.curves}:
            if not kind.isprintable():
                raise InvalidInput(f"{path}: a job has the type {kind[:60]!a}, with characters that are not shown")


def _refuse_twins(path: Path, jobs: Sequence[TraceJob]) -> None:
    """Job ids are keys everywhere; of two jobs with the same id one would be lost."""
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            raise InvalidInput(f"{path}: two jobs have the id {shown(job.id)}; ids must differ")
        seen.add(job.id)


def read_trace(
    path: Path, throughputs: Throughputs | None = None, types: Sequence[str] = (), format: str | None = None
) -> list[TraceJob]:
    return load_trace(path, throughputs, types, format).jobs


def detect(path: Path) -> str:
    """The format that these first lines belong to."""
    text = opening(path)
    if not text.strip():
        raise InvalidInput(f"{path}: it is empty")
    for name, module in FORMATS.items():
        if cast("Reader", import_module(module)).matches(plain_name(path), text):
            return name
    if "\0" in text:
        raise InvalidInput(f"{path}: it has NUL bytes, so it is binary or damaged; export it as CSV")
    for mark, what in (("\t", "tabs"), (";", "semicolons")):
        if any(
            cast("Reader", import_module(module)).matches(path, text.replace(mark, ",")) for module in FORMATS.values()
        ):
            raise InvalidInput(f"{path}: its columns are separated by {what}; separate them by commas")
    first = shown(text.lstrip().split("\n", 1)[0])
    known = f"none of the known formats ({', '.join(FORMATS)})"
    raise InvalidInput(f"{path}: it begins with {first}, which is {known}; name one with --format")
