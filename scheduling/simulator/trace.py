"""Traces, cluster files and throughput files: what a simulation is fed. Formats: docs/simulator.md."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scheduling.domain import WHOLE, Curve, Guarantee, Node
from scheduling.errors import InvalidInput
from scheduling.histories import ResourceHistory
from scheduling.published import published_curves
from scheduling.simulator.limits import ProjectLimit, read_guarantees, read_limits
from scheduling.throughput import catalogue, effective, factors_by_count, make_curve

#: {model type: {accelerator type: curve}}
Throughputs = Mapping[str, Mapping[str, Curve]]
LARGEST_JSON = 1 << 29


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
    checkpoint_every_s: float | None = None  # None: as the cluster says
    #: Thousandths of each GPU; its curves are of that part. Policies that do not share GPUs give it whole ones.
    gpu_milli: int = WHOLE
    gpu_memory_mib: int = 0  # on each GPU
    cpu_milli: int = 0  # of its node, with the memory
    memory_mib: int = 0
    history: ResourceHistory | None = None  # what it uses of a GPU alone; None: not known


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
    measure_s: float = 60.0  # with noise: training on a type after which its true speed is known
    #: accelerator type -> (mean time between failures of a node, time to repair it), seconds
    reliability: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    limits: tuple[ProjectLimit, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()

    @property
    def gpus(self) -> int:
        return sum(len(node.gpu_ids) for node in self.nodes)


_TIMES = ("launch_s", "checkpoint_s", "stop_s", "round_seconds", "checkpoint_every_s", "measure_s")


def read_cluster(path: Path) -> Cluster:
    return parse_cluster(read_json(path), path)


def parse_cluster(data: Any, path: Path) -> Cluster:
    """`path` is what complaints name."""
    nodes: list[Node] = []
    prices: dict[str, float] = {}
    reliability: dict[str, tuple[float, float]] = {}
    next_id = 0
    try:
        for entry in data["nodes"]:
            kind, size = str(entry["type"]), int(entry["gpus"])
            prices[kind] = float(entry.get("price_per_gpu_hour", 0.0))
            if "mtbf_s" in entry:
                reliability[kind] = (_positive(entry["mtbf_s"]), float(entry.get("repair_s", 3600.0)))
            room = _room(entry)
            for _ in range(int(entry.get("count", 1))):
                nodes.append(Node(f"{kind}-{len(nodes)}", kind, tuple(range(next_id, next_id + size)), **room))
                next_id += size
        times: dict[str, Any] = {key: float(data[key]) for key in _TIMES if data.get(key) is not None}
        several = bool(data.get("multi_node", True))
        limits = read_limits(path, data.get("limits") or [])
        whole = Cluster(tuple(nodes), prices, **times, multi_node=several, reliability=reliability, limits=limits)
        return replace(whole, guarantees=read_guarantees(path, data.get("guarantees") or [], whole.nodes))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: cluster file needs nodes with type, count and gpus ({error!r})") from None


def _room(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What jobs of a node share beside its GPUs; what the file leaves out is not known."""
    known = {"cpu_milli": ("cpus", 1_000), "memory_mib": ("memory_mib", 1), "gpu_memory_mib": ("gpu_memory_mib", 1)}
    return {name: int(_positive(entry[key]) * of) for name, (key, of) in known.items() if entry.get(key) is not None}


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"{value!r} must be above 0")
    return float(value)


#: accelerator type -> (GPUs, GPUs of the largest node)
Sizes = Mapping[str, tuple[int, int]]


def sizes(nodes: Iterable[Node]) -> Sizes:
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        total, largest = found.get(node.type, (0, 0))
        found[node.type] = (total + len(node.gpu_ids), max(largest, len(node.gpu_ids)))
    return found


def speed_alone(job: TraceJob, of: Sizes, multi_node: bool) -> float:
    """f_M(U): the best that the cluster could give the job if it were empty; 0 where nothing can run it."""
    best = 0.0
    for kind, curve in job.curves.items():
        if kind in of and (not job.types or kind in job.types):
            reach = of[kind][0] if multi_node else of[kind][1]
            high = min(reach, job.max_gpus or reach)
            best = max(best, effective(curve, high, of[kind][1])[-1])
    return best


def read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise InvalidInput(f"{path}: it is larger than {LARGEST_JSON} bytes")
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path}: {error}") from None


# Throughputs -------------------------------------------------------------------------------------


def look_up(model: str, known: Throughputs) -> Mapping[str, Curve]:
    """What the throughput file says, else the catalogue, else the published table."""
    return known.get(model) or catalogue().get(model) or published_curves().get(model) or {}


def read_curve(value: Any) -> Curve:
    """[f(1), f(2), ...], {"1": f(1), "4": f(4)}, or either under "steps_per_s" beside a "spread_factor" or several."""
    if isinstance(value, Mapping) and "steps_per_s" in value:
        curve = read_curve(value["steps_per_s"])
        factors = tuple(float(factor) for factor in value.get("spread_factors", ()))
        return Curve(curve.steps_per_s, "user", float(value.get("spread_factor", 1.0)), factors)
    points = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
    return make_curve({int(count): float(speed) for count, speed in points}, "user")


def read_throughputs(path: Path) -> Throughputs:
    """{model: {type: curve}}, or the reference form {type: {"('<model>', <gang>)": {"null": steps/s}}}."""
    data = read_json(path)
    try:
        if any(key.startswith("('") for entries in data.values() for key in entries):
            return _reference_throughputs(data)
        return {model: {kind: read_curve(value) for kind, value in kinds.items()} for model, kinds in data.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: {error!r}") from None


def _reference_throughputs(data: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Throughputs:
    points: dict[str, dict[str, dict[int, float]]] = {}
    for kind, entries in data.items():
        if kind.endswith("_unconsolidated"):
            continue
        for key, values in entries.items():
            model, gang = literal_eval(key)
            points.setdefault(model, {}).setdefault(kind, {})[int(gang)] = float(values["null"])
    spread = _spread_factors(data)
    return {
        model: {
            kind: replace(make_curve(known, "user"), spread_factors=factors_by_count(spread.get((kind, model), {})))
            for kind, known in kinds.items()
        }
        for model, kinds in points.items()
    }


def _spread_factors(data: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[tuple[str, str], dict[int, float]]:
    """Unconsolidated by consolidated throughput, by gang."""
    ratios: dict[tuple[str, str], dict[int, float]] = {}
    for kind, entries in data.items():
        for key, values in data.get(f"{kind}_unconsolidated", {}).items():
            model, gang = literal_eval(key)
            together = entries.get(key, {}).get("null", 0.0)
            if gang > 1 and together > 0 and values["null"] > 0:
                ratios.setdefault((kind, model), {})[int(gang)] = values["null"] / together
    return ratios
