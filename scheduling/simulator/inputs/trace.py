"""Traces, cluster files and throughput files: the input of a simulation. Formats: docs/simulator.md."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scheduling.domain import WHOLE, Curve, Guarantee, Node
from scheduling.domain.usage_history import ResourceHistory
from scheduling.errors import InvalidInput
from scheduling.input_files import read_json
from scheduling.simulator.inputs.hardware import MOST_GPUS, NodeEntry, read_hardware
from scheduling.simulator.inputs.limits import ProjectLimit, read_guarantees, read_limits
from scheduling.throughput.curves import catalogue, effective, factors_by_count, make_curve
from scheduling.throughput.published import published_curves
from scheduling.validation import is_number, shown

#: {model type: {accelerator type: curve}}
Throughputs = Mapping[str, Mapping[str, Curve]]


@dataclass(frozen=True, slots=True)
class TraceJob:
    id: str
    number: int
    arrival_s: float
    total_steps: float
    curves: Mapping[str, Curve]
    model_type: str = ""
    project: str = "default"
    user: str = ""
    priority: int = 0
    min_gpus: int = 1
    max_gpus: int | None = None
    types: tuple[str, ...] = ()
    restartable: bool = True
    weight: float = 1.0
    checkpoint_every_s: float | None = None  # None: as in the cluster file
    #: Thousandths of each GPU; its curves are for that share. Policies that do not share GPUs assign whole ones.
    gpu_milli: int = WHOLE
    gpu_memory_mib: int = 0  # on each GPU
    cpu_milli: int = 0  # on each node, like memory_mib
    memory_mib: int = 0
    history: ResourceHistory | None = None  # its use of a GPU alone; None: unknown


@dataclass(frozen=True, slots=True)
class Cluster:
    nodes: tuple[Node, ...]
    price_per_gpu_hour: Mapping[str, float]
    launch_s: float = 20.0
    checkpoint_s: float = 5.0
    stop_s: float = 2.0
    round_seconds: float = 360.0
    multi_node: bool = True
    checkpoint_every_s: float | None = None  # seconds of training between checkpoints; None: only when stopped
    measure_s: float = 60.0  # with noise: training time on a type after which its true speed is known
    #: accelerator type -> (mean time between failures of a node, time to repair it), seconds
    reliability: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    limits: tuple[ProjectLimit, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()

    @property
    def gpus(self) -> int:
        return sum(len(node.gpu_ids) for node in self.nodes)


def read_cluster(path: Path) -> Cluster:
    return parse_cluster(read_json(path), path)


def parse_cluster(data: Any, path: Path) -> Cluster:
    """`path` is used in error messages."""
    hardware = read_hardware(data, path)
    nodes: list[Node] = []
    next_id = 0
    for entry in hardware.nodes:
        room = _room(entry)
        for _ in range(entry.count):
            ids = tuple(range(next_id, next_id + entry.gpus))
            nodes.append(Node(f"{entry.type}-{len(nodes)}", entry.type, ids, **room))
            next_id += entry.gpus
    return Cluster(
        tuple(nodes),
        {entry.type: entry.price_per_gpu_hour for entry in hardware.nodes},
        **hardware.times,
        multi_node=hardware.multi_node,
        reliability={entry.type: (entry.mtbf_s, entry.repair_s) for entry in hardware.nodes if entry.mtbf_s},
        limits=read_limits(path, hardware.limits or [], nodes),
        guarantees=read_guarantees(path, hardware.guarantees or [], nodes),
    )


def _room(entry: NodeEntry) -> dict[str, Any]:
    """CPUs and memory of a node; unknown where the file has none."""
    known = {"cpu_milli": ("cpus", 1_000), "memory_mib": ("memory_mib", 1), "gpu_memory_mib": ("gpu_memory_mib", 1)}
    return {name: int(value * of) for name, (key, of) in known.items() if (value := getattr(entry, key)) is not None}


#: accelerator type -> (GPUs, GPUs of the largest node)
Sizes = Mapping[str, tuple[int, int]]


def sizes(nodes: Iterable[Node]) -> Sizes:
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        total, largest = found.get(node.type, (0, 0))
        found[node.type] = (total + len(node.gpu_ids), max(largest, len(node.gpu_ids)))
    return found


def speed_alone(job: TraceJob, of: Sizes, multi_node: bool) -> float:
    """f_M(U): the best speed that the empty cluster could give to the job; 0 if nothing can run it."""
    best = 0.0
    for kind, curve in job.curves.items():
        if kind in of and (not job.types or kind in job.types):
            reach = of[kind][0] if multi_node else of[kind][1]
            high = min(reach, job.max_gpus or reach)
            if high >= job.min_gpus:
                best = max(best, effective(curve, high, of[kind][1])[-1])
    return best


# Throughputs -------------------------------------------------------------------------------------


def look_up(model: str, known: Throughputs) -> Mapping[str, Curve]:
    """From the throughput file, else the catalogue, else the published table."""
    return known.get(model) or catalogue().get(model) or published_curves().get(model) or {}


def read_curve(value: Any) -> Curve:
    """[f(1), f(2), ...], {"1": f(1), "4": f(4)}, or either under "steps_per_s" together with one "spread_factor" or
    several."""
    if isinstance(value, Mapping) and "steps_per_s" in value:
        factors = value.get("spread_factors", ())
        if not isinstance(factors, list | tuple):
            raise InvalidInput(f"spread_factors: {shown(factors)} must be a list of numbers")
        curve = read_curve(value["steps_per_s"])
        factor = _number(value.get("spread_factor", 1.0), "spread_factor")
        return Curve(curve.steps_per_s, "user", factor, tuple(_number(each, "spread_factors") for each in factors))
    if not isinstance(value, Mapping | list | tuple):
        raise InvalidInput(f"{shown(value)} must be steps/s on 1, 2, ... GPUs, as [2.9, 4.5]")
    points = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
    return make_curve({_count(count): _number(speed, f"on {count} GPUs") for count, speed in points}, "user")


def _count(text: Any) -> int:
    try:
        count = int(text)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= MOST_GPUS:
        raise InvalidInput(f"{shown(text)} must be a number of GPUs, from 1 to {MOST_GPUS:,}")
    return count


def _number(value: Any, what: str) -> float:
    if not is_number(value) or value < 0:
        raise InvalidInput(f"{what}: {shown(value)} must be a number of at least 0")
    return float(value)


def read_throughputs(path: Path) -> Throughputs:
    """{model: {type: curve}}, or the reference form {type: {"('<model>', <gang>)": {"null": steps/s}}}."""
    data = read_json(path)
    if not isinstance(data, Mapping):
        raise InvalidInput(f'{path}: {shown(data)} must map models to steps/s, as {{"resnet50": {{"v100": [2.9]}}}}')
    if any(key.startswith("('") for entries in data.values() if isinstance(entries, Mapping) for key in entries):
        return _reference_throughputs(data, path)
    return {model: _curves(f"{path}, model {model!r}", kinds) for model, kinds in data.items()}


def _curves(place: str, kinds: Any) -> dict[str, Curve]:
    if not isinstance(kinds, Mapping):
        raise InvalidInput(f'{place}: {shown(kinds)} must map accelerator types to steps/s, as {{"v100": [2.9, 4.5]}}')
    found = {}
    for kind, value in kinds.items():
        try:
            found[kind] = read_curve(value)
        except InvalidInput as error:
            raise InvalidInput(f"{place}, type {kind!r}: {error}") from None
    return found


def _reference_throughputs(data: Mapping[str, Any], path: Path) -> Throughputs:
    speeds = {kind: _reference_speeds(f"{path}, type {kind!r}", entries) for kind, entries in data.items()}
    points: dict[str, dict[str, dict[int, float]]] = {}
    for kind, entries in speeds.items():
        if not kind.endswith("_unconsolidated"):
            for (model, gang), speed in entries.items():
                points.setdefault(model, {}).setdefault(kind, {})[gang] = speed
    spread = _spread_factors(speeds)
    return {
        model: {
            kind: replace(make_curve(known, "user"), spread_factors=factors_by_count(spread.get((kind, model), {})))
            for kind, known in kinds.items()
        }
        for model, kinds in points.items()
    }


def _reference_speeds(place: str, entries: Any) -> dict[tuple[str, int], float]:
    """Steps/s by model and gang."""
    if not isinstance(entries, Mapping):
        raise InvalidInput(f"{place}: {shown(entries)} must map ('<model>', <gang>) to steps/s")
    found = {}
    for key, values in entries.items():
        if not isinstance(values, Mapping) or "null" not in values:
            raise InvalidInput(f'{place}, {key}: {shown(values)} must have its steps/s alone under "null"')
        found[_reference_key(place, key)] = _number(values["null"], f"{place}, {key}, null")
    return found


def _reference_key(place: str, key: str) -> tuple[str, int]:
    try:
        model, gang = literal_eval(key)
        return str(model), _count(gang)
    except (SyntaxError, TypeError, ValueError, InvalidInput):
        raise InvalidInput(f"{place}: the key {shown(key)} must read ('<model>', <gang>)") from None


def _spread_factors(speeds: Mapping[str, Mapping[tuple[str, int], float]]) -> dict[tuple[str, str], dict[int, float]]:
    """Throughput on several nodes over throughput on one, by gang."""
    ratios: dict[tuple[str, str], dict[int, float]] = {}
    for kind, entries in speeds.items():
        for (model, gang), apart in speeds.get(f"{kind}_unconsolidated", {}).items():
            together = entries.get((model, gang), 0.0)
            if gang > 1 and together > 0 and apart > 0:
                ratios.setdefault((kind, model), {})[gang] = apart / together
    return ratios
