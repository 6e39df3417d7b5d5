"""Use of our nodes by other Slurm jobs, and until when: from one `squeue` of those that run there.

squeue prints a job's request, not its use of each node. If that is ambiguous (`--gpus` over several nodes;
`--exclusive`, where Slurm does not account for GPUs), it is the node's allocation minus all unambiguous ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path

from evenkeel.runner.files import read_object
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.base import Taken
from scheduling.executors.slurm.cluster.inventory import SlurmNode, Used
from scheduling.executors.slurm.commands import Commands

#: Only jobs with an allocation: a queue may be long.
STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STAGE_OUT,SIGNALING,RESIZING,STOPPED"
_COLUMNS = {
    "jobid": 20, "state": 20, "endtime": 24, "numcpus": 12, "tres-alloc": 300, "tres-per-node": 100,
    "tres-per-job": 100, "tres-per-task": 100, "nodelist": 2_000,
}  # fmt: skip
#: Each column right-justified, followed by a mark: longer values are cut, and then rejected.
FORMAT = ",".join(f"{name}:.{size}|" for name, size in _COLUMNS.items())
MAX_LINES, MAX_NODES, MAX_BYTES = 20_000, 10_000, 64 << 20
#: While the use of nodes is unchanged, the result is reused for this long: a job's limit may be changed.
KEPT_S = 60.0
#: Jobs of one node; further ones count as if they ended with the last of them.
MOST_ENDS = 32
#: Slurm prints an end a year after its start for a job without a limit.
_ENDLESS_S = 300 * 86_400.0
#: Beside others a job can run with this fraction of the CPUs and memory that belong to its GPUs.
LEAST_PART = 0.5
_GPU = re.compile(r"(?:gres[:/])?gpu(?::[A-Za-z][\w.-]*)?(?::([0-9]{1,6}))?(?:\([^)]*\))?")
_ALLOCATED = re.compile(r"gres/gpu(?P<type>:[^=,]*)?=(?P<count>[0-9]{1,6})")
_MEMORY = re.compile(r"(?:^|,)mem=([0-9]{1,12}(?:\.[0-9]{1,6})?)([KMGTP]?)(?:,|$)")
_MIB = {"": 1.0, "K": 1 / 1_024, "M": 1.0, "G": 1_024.0, "T": 1_024.0**2, "P": 1_024.0**3}
_PART = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with an allocation; its figures are for each of its nodes. `gpus`: None if ambiguous. `names_gpus`: it
    asked for some, or got some."""

    job_id: int
    nodes: tuple[str, ...]
    gpus: int | None
    names_gpus: bool
    cpus: int
    memory_mib: int
    until: float | None


def parse_jobs(text: str, now: float) -> list[RunningJob]:
    """Unreadable lines are skipped; ExecutorError if there is no other."""
    lines, accounted = text.splitlines(), _ALLOCATED.search(text) is not None
    found = [job for line in islice(lines, MAX_LINES) if (job := _job(line, now, accounted)) is not None]
    if lines and not found:
        raise ExecutorError(f"squeue printed no jobs: {' '.join(text.split())[:100]!r}", permanent=False)
    return found


def _job(line: str, now: float, accounted: bool) -> RunningJob | None:
    values = line.split("|")
    if len(values) != len(_COLUMNS) + 1:
        return None
    given = {name: value.strip() for name, value in zip(_COLUMNS, values, strict=False)}
    nodes = expand(given["nodelist"]) if len(given["nodelist"]) < _COLUMNS["nodelist"] else ()
    job_id, cpus = _count(given["jobid"]), _count(given["numcpus"])
    if job_id is None or not nodes or cpus is None:
        return None
    end = _count(given["endtime"])
    known = end is not None and end - now < _ENDLESS_S and "SUSPENDED" not in given["state"]
    memory = _MEMORY.search(given["tres-alloc"])
    memory_mib = math.ceil(float(memory[1]) * _MIB[memory[2]]) if memory else 0
    gpus, names = _gpus(given, len(nodes), accounted)
    until = float(end) if known and end is not None else None
    return RunningJob(job_id, nodes, gpus, names, -(-cpus // len(nodes)), -(-memory_mib // len(nodes)), until)


def _gpus(given: Mapping[str, str], nodes: int, accounted: bool) -> tuple[int | None, bool]:
    """Of each node, and whether it names any. `accounted`: Slurm reports the GPUs of each job."""
    each = _asked(given["tres-per-node"])
    if each is not None:
        return each, True
    counts = {match["type"]: int(match["count"]) for match in _ALLOCATED.finditer(given["tres-alloc"])}
    if accounted and not counts:
        return 0, False
    total = counts[None] if None in counts else sum(counts.values()) if counts else _asked(given["tres-per-job"])
    if total is not None:
        return (total if nodes == 1 else None), True
    return None, _asked(given["tres-per-task"]) is not None


def asked_gpus(given: Mapping[str, str], nodes: int) -> int:
    """Of a waiting job, on all its nodes together; 0 if ambiguous."""
    each = _asked(given["tres-per-node"])
    if each is not None:
        return each * nodes
    counts = {match["type"]: int(match["count"]) for match in _ALLOCATED.finditer(given["tres-alloc"])}
    return counts[None] if None in counts else sum(counts.values()) or _asked(given["tres-per-job"]) or 0


def _asked(text: str) -> int | None:
    """None if GPUs are not named."""
    parts = [_GPU.fullmatch(part.strip()) for part in re.split(r",(?![^(]*\))", text)]
    counts = [int(part[1] or 1) for part in parts if part is not None]
    return sum(counts) if counts else None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else None


def expand(text: str) -> tuple[str, ...]:
    """Names of `gpu[1-2,05],x[1-2]n[1-2]`; none if it is unreadable or too long."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text) if text else ():
        pieces = [list(_piece(match)) for match in _PART.finditer(part) if match[0]]
        if not pieces or "".join(match[0] for match in _PART.finditer(part)) != part:
            return ()
        if len(names) + math.prod(len(piece) for piece in pieces) > MAX_NODES or not all(pieces):
            return ()
        names += ("".join(one) for one in product(*pieces))
    return tuple(names)


def _piece(match: re.Match[str]) -> Iterator[str]:
    if match[2] is None:
        yield match[1]
        return
    left = MAX_NODES + 1
    for one in match[2].split(","):
        span = _RANGE.fullmatch(one)
        if span is None:
            return
        for number in islice(range(int(span[1]), int(span[2] or span[1]) + 1), left):
            yield f"{match[1]}{number:0{len(span[1])}d}"
            left -= 1


# Per node ------------------------------------------------------------------------------------------


def beside(
    nodes: Mapping[str, SlurmNode], jobs: Sequence[RunningJob], ours: Collection[int]
) -> dict[str, tuple[Taken, ...]]:
    """Use of each node by other jobs, in order of their ends; unused nodes are left out."""
    there: dict[str, list[RunningJob]] = {}
    for job in jobs:
        for name in job.nodes:
            if name in nodes:
                there.setdefault(name, []).append(job)
    found = ((name, _on_node(nodes[name], some, ours)) for name, some in there.items())
    return {name: taken for name, taken in found if taken}


def _on_node(node: SlurmNode, jobs: Sequence[RunningJob], ours: Collection[int]) -> tuple[Taken, ...]:
    unclear = _unclear_gpus(node, jobs)
    taken = list[Taken]()
    gpus, cpus, memory = len(node.gpu_types), node.used.cpus, node.used.memory_mib
    for job in sorted(jobs, key=_end):
        if job.job_id in ours:
            continue
        # resources that a node does not count (memory, depending on its setup) are not used by anybody
        own = min(gpus, unclear.get(job.job_id, 0) if job.gpus is None else job.gpus)
        part = Taken(own, min(cpus, job.cpus), min(memory, job.memory_mib), job.until)
        gpus, cpus, memory = gpus - part.gpus, cpus - part.cpus, memory - part.memory_mib
        if part.gpus or part.cpus or part.memory_mib:
            _add(taken, part)
    return _with_blocks(node, taken)


def _unclear_gpus(node: SlurmNode, jobs: Sequence[RunningJob]) -> dict[int, int]:
    """The node's allocation beyond unambiguous ones, by job: it is assigned to the job that names GPUs and ends last,
    or else to one of the others."""
    left = node.used.gpus - sum(job.gpus or 0 for job in jobs)
    unclear = sorted((job for job in jobs if job.gpus is None), key=lambda job: (job.names_gpus, _end(job)))
    return {unclear[-1].job_id: max(0, left)} if unclear else {}


def _end(job: RunningJob) -> float:
    return math.inf if job.until is None else job.until


def _add(taken: list[Taken], part: Taken) -> None:
    """To those with the same end."""
    if taken and (taken[-1].until == part.until or len(taken) >= MOST_ENDS):
        last = taken.pop()
        sums = last.gpus + part.gpus, last.cpus + part.cpus, last.memory_mib + part.memory_mib
        part = Taken(*sums, part.until)
    taken.append(part)


def _with_blocks(node: SlurmNode, taken: Sequence[Taken]) -> tuple[Taken, ...]:
    """With the GPUs that cannot be assigned until their end: those that they hold, and those for which they leave too
    few CPUs or too little memory."""
    gpus, cpus, memory = _free(node)
    blocked = [len(node.gpu_types) - _usable(node, gpus, cpus, memory)]
    for one in taken:
        gpus, cpus, memory = gpus + one.gpus, cpus + one.cpus, memory + one.memory_mib
        blocked.append(len(node.gpu_types) - _usable(node, gpus, cpus, memory))
    steps = zip(taken, blocked, blocked[1:], strict=False)
    return tuple(replace(one, blocks=max(0, before - after)) for one, before, after in steps)


def _free(node: SlurmNode) -> tuple[int, int, int]:
    """Free GPUs, CPUs and memory, after all jobs including ours."""
    info, used = node.info, node.used
    free = len(node.gpu_types) - used.gpus, info.cpus - used.cpus, info.memory_mib - used.memory_mib
    return max(0, free[0]), max(0, free[1]), max(0, free[2])


def _usable(node: SlurmNode, gpus: int, cpus: int, memory_mib: int) -> int:
    each = len(node.gpu_types)
    least_cpus = max(1, math.floor(node.info.cpus * LEAST_PART / each))
    found = min(gpus, cpus // least_cpus)
    if node.used.memory_mib:
        found = min(found, memory_mib // max(1, math.floor(node.info.memory_mib * LEAST_PART / each)))
    return found


def as_left(nodes: Mapping[str, SlurmNode], names: Collection[str]) -> dict[str, SlurmNode]:
    """The nodes as a launch may use them: with the CPUs and memory that its GPUs get beside others. Nodes of one shape
    get the same, so that they stay one component."""
    found = dict(nodes)
    shapes: dict[tuple[int, int, int], list[SlurmNode]] = {}
    for node in (nodes[name] for name in names if name in nodes):
        shapes.setdefault((len(node.gpu_types), node.info.cpus, node.info.memory_mib), []).append(node)
    for (gpus, cpus, memory), some in shapes.items():
        beside_others = [node for node in some if node.info.taken]
        if not beside_others:
            continue
        parts = [_parts(node, gpus, cpus, memory) for node in beside_others]
        left = min(part for part, _ in parts), min(part for _, part in parts)
        for node in some:
            found[node.info.name] = replace(node, info=replace(node.info, cpus=left[0], memory_mib=left[1]))
    return found


def _parts(node: SlurmNode, gpus: int, cpus: int, memory_mib: int) -> tuple[int, int]:
    free_gpus, free_cpus, free_memory = _free(node)
    each = max(1, free_gpus)
    left = free_cpus * gpus // each, free_memory * gpus // each
    least = max(gpus, math.floor(cpus * LEAST_PART)), math.floor(memory_mib * LEAST_PART)
    return (
        min(cpus, max(least[0], left[0])),
        memory_mib if not node.used.memory_mib else min(memory_mib, max(least[1], left[1])),
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """Output of squeue for the nodes, and which of the jobs were ours."""

    at: float
    text: str
    ours: frozenset[int]


def _digest(usage: Mapping[str, Used]) -> str:
    return hashlib.sha256(repr(sorted(usage.items(), key=lambda item: item[0])).encode()).hexdigest()


class Watch:
    """Reads again if the use of nodes has changed, and now and then. `file`: holds the last answer for all processes of
    the portal, so that only one of them asks."""

    def __init__(self, commands: Commands, file: Path | None = None) -> None:
        self._commands, self._file = commands, file
        self._usage: Mapping[str, Used] = {}
        self._at = -math.inf
        self._taken: Mapping[str, tuple[Taken, ...]] = {}

    def with_taken(self, nodes: Mapping[str, SlurmNode], ours: Callable[[], Collection[int]]) -> dict[str, SlurmNode]:
        """`ours`: Slurm ids of our jobs, including those that have just ended; read last, so that none of them counts
        as another's."""
        usage = {name: node.used for name, node in nodes.items()}
        if not any(used != Used() for used in usage.values()):
            return dict(nodes)
        now = time.monotonic()
        if usage != self._usage or now - self._at >= KEPT_S:
            said = self._said_before(usage) or self._ask(nodes, usage, ours)
            jobs = parse_jobs(said.text, time.time())
            self._taken = beside(nodes, jobs, said.ours)
            if self._taken:
                self._taken = self._handed_on(self._taken, nodes, said.ours)
            self._usage, self._at = usage, now - (time.time() - said.at)
        return {name: _with(node, self._taken.get(name, ())) for name, node in nodes.items()}

    def _ask(self, nodes: Collection[str], usage: Mapping[str, Used], ours: Callable[[], Collection[int]]) -> _Said:
        at, text = time.time(), self._commands.running_on(sorted(nodes), STATES, FORMAT)
        said = _Said(at, text, frozenset(ours()) if text.strip() else frozenset())
        if self._file is not None:
            content = {"at": at, "usage": _digest(usage), "text": text, "ours": sorted(said.ours)}
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                write_atomically(self._file, content, durable=False)
        return said

    def _said_before(self, usage: Mapping[str, Used]) -> _Said | None:
        """The answer that a process of the portal got last, if the use of nodes has not changed since."""
        known = (read_object(self._file, MAX_BYTES) if self._file is not None else None) or {}
        at, text, ours = known.get("at"), known.get("text"), known.get("ours")
        if not (isinstance(at, int | float) and isinstance(text, str) and isinstance(ours, list)):
            return None
        if known.get("usage") != _digest(usage) or not 0 <= time.time() - at < KEPT_S:
            return None
        return _Said(at, text, frozenset(number for number in ours if isinstance(number, int)))

    def _handed_on(
        self, taken: Mapping[str, tuple[Taken, ...]], nodes: Mapping[str, SlurmNode], ours: Collection[int]
    ) -> Mapping[str, tuple[Taken, ...]]:
        """If others wait for GPUs of running other jobs."""
        return taken


def _with(node: SlurmNode, taken: tuple[Taken, ...]) -> SlurmNode:
    return replace(node, info=replace(node.info, taken=taken))
