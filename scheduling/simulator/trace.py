"""Traces, cluster files and throughput files: what a simulation is fed. Formats: docs/simulator.md."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduling.domain import Curve, Node
from scheduling.errors import InvalidInput
from scheduling.throughput import catalogue, effective, make_curve

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
    priority: int = 0
    min_gpus: int = 1
    max_gpus: int | None = None
    types: tuple[str, ...] = ()
    restartable: bool = True


@dataclass(frozen=True, slots=True)
class Cluster:
    nodes: tuple[Node, ...]
    price_per_gpu_hour: Mapping[str, float]
    launch_s: float = 20.0
    checkpoint_s: float = 5.0
    stop_s: float = 2.0
    round_seconds: float = 360.0
    multi_node: bool = True

    @property
    def gpus(self) -> int:
        return sum(len(node.gpu_ids) for node in self.nodes)


_TIMES = ("launch_s", "checkpoint_s", "stop_s", "round_seconds")


def read_cluster(path: Path) -> Cluster:
    data = _json(path)
    nodes: list[Node] = []
    prices: dict[str, float] = {}
    next_id = 0
    try:
        for entry in data["nodes"]:
            kind, size = str(entry["type"]), int(entry["gpus"])
            prices[kind] = float(entry.get("price_per_gpu_hour", 0.0))
            for _ in range(int(entry.get("count", 1))):
                nodes.append(Node(f"{kind}-{len(nodes)}", kind, tuple(range(next_id, next_id + size))))
                next_id += size
        times: dict[str, Any] = {key: float(data[key]) for key in _TIMES if key in data}
        return Cluster(tuple(nodes), prices, **times, multi_node=bool(data.get("multi_node", True)))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: cluster file needs nodes with type, count and gpus ({error!r})") from None


def speeds_alone(job: TraceJob, cluster: Cluster) -> dict[str, float]:
    """f_M(U) for each type that the job may use."""
    speeds = {}
    for kind in {node.type for node in cluster.nodes}:
        sizes = [len(node.gpu_ids) for node in cluster.nodes if node.type == kind]
        curve = job.curves.get(kind)
        if curve is not None and (not job.types or kind in job.types):
            reach = sum(sizes) if cluster.multi_node else max(sizes)
            speeds[kind] = effective(curve, min(reach, job.max_gpus or reach), max(sizes))[-1]
    return speeds


def read_trace(path: Path, throughputs: Throughputs | None = None) -> list[TraceJob]:
    """Jobs by arrival. `.trace` is the reference format, everything else JSON."""
    known = throughputs or {}
    jobs = _reference(path, known) if path.suffix == ".trace" else _from_json(path, known)
    if not jobs:
        raise InvalidInput(f"{path}: the trace has no jobs")
    return sorted(jobs, key=lambda job: (job.arrival_s, job.number))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}: {error.msg}") from None


# Our own trace, and the reference system's `.jobs.json` -------------------------------------------


def _from_json(path: Path, known: Throughputs) -> list[TraceJob]:
    data = _json(path)
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
        raise InvalidInput(f"{path}: a trace is an object with a list of jobs")
    jobs = []
    for index, entry in enumerate(data["jobs"]):
        try:
            jobs.append(_gang_job(entry, index) if "scale_factor" in entry else _own_job(entry, index, known))
        except (KeyError, TypeError, ValueError, InvalidInput) as error:
            raise InvalidInput(f"{path}, job {index}: {error}") from None
    return jobs


def _own_job(entry: Mapping[str, Any], index: int, known: Throughputs) -> TraceJob:
    model = str(entry.get("model_type", ""))
    given = entry.get("throughputs")
    curves = {kind: read_curve(value) for kind, value in given.items()} if given else _lookup(model, known)
    if not curves:
        raise InvalidInput(f"model_type {model!r} is neither in the throughput file nor in the catalogue")
    maximum = entry.get("max_gpus")
    return TraceJob(
        id=str(entry.get("id", index)),
        number=index + 1,
        arrival_s=float(entry.get("arrival_s", 0.0)),
        total_steps=float(entry["total_steps"]),
        curves=curves,
        model_type=model,
        project=str(entry.get("project", "default")),
        priority=int(entry.get("priority", 0)),
        min_gpus=int(entry.get("min_gpus", 1)),
        max_gpus=int(maximum) if maximum is not None else None,
        types=tuple(entry.get("types", ())),
        restartable=bool(entry.get("restartable", True)),
    )


def _gang_job(entry: Mapping[str, Any], index: int) -> TraceJob:
    """A job of the reference system: a gang of one size, its throughput known for that size."""
    size = int(entry["scale_factor"])
    curves = {kind: make_curve({size: float(value)}) for kind, value in entry["throughputs"].items() if value > 0}
    return TraceJob(
        id=str(entry.get("job_id", index)),
        number=index + 1,
        arrival_s=float(entry["arrival_s"]),
        total_steps=float(entry["total_steps"]),
        curves=curves,
        model_type=str(entry.get("job_type", "")),
        min_gpus=size,
        max_gpus=size,
    )


def _lookup(model: str, known: Throughputs) -> Mapping[str, Curve]:
    return known.get(model) or catalogue().get(model) or {}


def read_curve(value: Any) -> Curve:
    """[f(1), f(2), ...], {"1": f(1), "4": f(4)}, or either under "steps_per_s" beside a "spread_factor"."""
    if isinstance(value, Mapping) and "steps_per_s" in value:
        curve = read_curve(value["steps_per_s"])
        return Curve(curve.steps_per_s, "user", float(value.get("spread_factor", 1.0)))
    points = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
    return make_curve({int(count): float(speed) for count, speed in points}, "user")


# The reference system's own files ------------------------------------------------------------------


def _reference(path: Path, known: Throughputs) -> list[TraceJob]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    jobs = []
    for index, line in enumerate(line for line in lines if line.strip()):
        fields = line.split("\t")
        try:
            jobs.append(_reference_job(fields, index, known))
        except (IndexError, ValueError, InvalidInput) as error:
            raise InvalidInput(f"{path}, line {index + 1}: {error}") from None
    return jobs


def _reference_job(fields: list[str], index: int, known: Throughputs) -> TraceJob:
    """Ten fields, or the six of msr_* traces; `data/README.md` names them."""
    short = len(fields) < 10
    steps, size, arrival = (fields[3], fields[5], fields[4]) if short else (fields[5], fields[6], fields[9])
    model, gang = fields[0], int(size)
    curves = {kind: curve for kind, curve in _lookup(model, known).items() if curve.at(gang) > 0}
    if not curves:
        raise InvalidInput(f"no throughput is known for {model!r} on {gang} GPUs; give a file with --throughputs")
    return TraceJob(
        id=str(index),
        number=index + 1,
        arrival_s=float(arrival),
        total_steps=float(steps),
        curves=curves,
        model_type=model,
        min_gpus=gang,
        max_gpus=gang,
    )


def read_throughputs(path: Path) -> Throughputs:
    """{model: {type: curve}}, or the reference form {type: {"('<model>', <gang>)": {"null": steps/s}}}."""
    data = _json(path)
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
        model: {kind: make_curve(known, "user", spread.get((kind, model), 1.0)) for kind, known in kinds.items()}
        for model, kinds in points.items()
    }


def _spread_factors(data: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[tuple[str, str], float]:
    """The mean ratio of unconsolidated to consolidated throughput, at most 1."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for kind, entries in data.items():
        for key, values in data.get(f"{kind}_unconsolidated", {}).items():
            model, gang = literal_eval(key)
            together = entries.get(key, {}).get("null", 0.0)
            if gang > 1 and together > 0 and values["null"] > 0:
                ratios.setdefault((kind, model), []).append(values["null"] / together)
    return {key: min(1.0, sum(found) / len(found)) for key, found in ratios.items()}
