"""Evenkeel's traces (`evenkeel-trace/1`, docs/simulator.md), and the `.jobs.json` files of the reference's traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scheduling.domain import WHOLE, Curve
from scheduling.domain.usage_history import history_json, parse_history
from scheduling.errors import InvalidInput
from scheduling.input_files import read_json
from scheduling.simulator.inputs.hardware import MOST_GPUS
from scheduling.simulator.inputs.trace import TraceJob, look_up, read_curve
from scheduling.simulator.readers.jobs import Context
from scheduling.throughput.curves import make_curve
from scheduling.validation import is_number, shown

SCHEMA = "evenkeel-trace/1"
#: Keys of a job that are read, or (`observed` of exports, and `note`) meant for others.
KEYS = frozenset({
    "id", "arrival_s", "total_steps", "model_type", "project", "user", "priority", "min_gpus", "max_gpus", "types",
    "restartable", "weight", "checkpoint_every_s", "gpu_milli", "gpu_memory_mib", "cpu_milli", "memory_mib", "history",
    "throughputs", "observed", "note",
})  # fmt: skip
_MOST_UNKNOWN = 20  # reported one by one


def matches(path: Path, text: str) -> bool:
    return text.lstrip().startswith("{")


def read(path: Path, context: Context) -> list[TraceJob]:
    return parse(read_json(path), str(path), context)


def parse(data: Any, path: str, context: Context) -> list[TraceJob]:
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
        raise InvalidInput(f"{path}: a trace is an object with a list of jobs")
    if data.get("schema", SCHEMA) != SCHEMA:
        raise InvalidInput(f"{path}: schema {data['schema']!r} is not {SCHEMA!r}")
    jobs = []
    for index, values in enumerate(data["jobs"]):
        entry = Entry(f"{path}, job {index}", values)
        jobs.append(
            _gang_job(entry, index, context) if "scale_factor" in entry.values else _own_job(entry, index, context)
        )
    return jobs


class Entry:
    """One job of a JSON file; errors name it and the key."""

    def __init__(self, place: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise InvalidInput(f"{place}: it is no object")
        self.place, self.values = place, values

    def error(self, key: str, what: str) -> InvalidInput:
        return InvalidInput(f"{self.place}, {key}: {what}")

    def number(self, key: str, default: float | None = None, least: float = 0.0) -> float:
        value = self.values.get(key, default)
        if not is_number(value) or value < least:
            raise self.error(key, f"{shown(value)} must be a number of at least {least:g}")
        return float(value)

    def integer(self, key: str, default: int | None = None, least: int = -(10**9), most: int = 10**15) -> int:
        value = self.number(key, default, least)
        if value != int(value) or value > most:
            raise self.error(key, f"{shown(self.values.get(key))} must be a whole number of at most {most:,}")
        return int(value)

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if not value > 0:
            raise self.error(key, f"{value:g} must be a number above 0")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"{shown(value)} must be true or false")
        return value

    def curves(self, key: str = "throughputs") -> Mapping[str, Any]:
        value = self.values.get(key) or {}
        if not isinstance(value, Mapping):
            raise self.error(key, "it must map accelerator types to steps/s")
        return value


def _report_unknown_keys(values: Mapping[str, Any], context: Context) -> None:
    """Newer exports may have more keys, and a misspelt key must not go unnoticed."""
    for key in values:
        if key not in KEYS:
            what = f"jobs with the unknown key {shown(key)}, which is ignored"
            room = what in context.skipped or len(context.skipped) < _MOST_UNKNOWN
            context.tell(what if room else "jobs with further unknown keys, which are ignored")


def _curves(entry: Entry) -> Mapping[str, Curve]:
    found = {}
    for kind, value in entry.curves().items():
        try:
            found[str(kind)] = read_curve(value)
        except InvalidInput as error:
            raise entry.error(f"throughputs, {kind}", str(error)) from None
    return found


def _size(entry: Entry) -> tuple[int, int | None, int]:
    """(min_gpus, max_gpus, gpu_milli); a fractional job has one GPU."""
    least, milli = entry.integer("min_gpus", 1, least=1, most=MOST_GPUS), entry.integer("gpu_milli", WHOLE, least=1)
    given = entry.values.get("max_gpus") is not None
    most = entry.integer("max_gpus", least=least) if given else None
    if milli > WHOLE or (milli < WHOLE and (least > 1 or most not in (None, 1))):
        raise entry.error("gpu_milli", f"{milli} must be at most {WHOLE}, and below that min_gpus and max_gpus are 1")
    return least, 1 if milli < WHOLE else most, milli


def _own_job(entry: Entry, index: int, context: Context) -> TraceJob:
    values, model = entry.values, str(entry.values.get("model_type") or "")
    _report_unknown_keys(values, context)
    curves = _curves(entry) or look_up(model, context.known)
    if not curves:
        raise entry.error("model_type", f"{model!r} is neither in the throughput file nor in the catalogue")
    types = values.get("types") or ()
    if not isinstance(types, list | tuple):
        raise entry.error("types", "it must be a list of accelerator types")
    least, most, milli = _size(entry)
    return TraceJob(
        id=str(index if values.get("id") is None else values["id"]),
        number=index + 1,
        arrival_s=entry.number("arrival_s", 0.0),
        total_steps=entry.number("total_steps"),
        curves=context.share(curves),
        model_type=model,
        project=str(values.get("project") or "default"),
        user=str(values.get("user") or ""),
        priority=entry.integer("priority", 0),
        min_gpus=least,
        max_gpus=most,
        types=tuple(str(kind) for kind in types),
        restartable=entry.boolean("restartable", True),
        weight=entry.positive("weight", 1.0),
        checkpoint_every_s=_optional(entry, "checkpoint_every_s"),
        gpu_milli=milli,
        gpu_memory_mib=entry.integer("gpu_memory_mib", 0, least=0),
        cpu_milli=entry.integer("cpu_milli", 0, least=0),
        memory_mib=entry.integer("memory_mib", 0, least=0),
        history=None if values.get("history") is None else parse_history(values["history"], f"{entry.place}, history"),
    )


def _optional(entry: Entry, key: str) -> float | None:
    return entry.number(key) if entry.values.get(key) is not None else None


def _gang_job(entry: Entry, index: int, context: Context) -> TraceJob:
    """A job of the reference system: a gang of one size with a known throughput."""
    size = entry.integer("scale_factor", least=1, most=MOST_GPUS)
    context.count_size(size)
    given = Entry(f"{entry.place}, throughputs", entry.curves())
    speeds = {str(kind): given.number(kind) for kind in given.values}
    return TraceJob(
        id=str(entry.values.get("job_id", index)),
        number=index + 1,
        arrival_s=entry.number("arrival_s"),
        total_steps=entry.number("total_steps"),
        curves=context.share({kind: make_curve({size: speed}) for kind, speed in speeds.items() if speed > 0}),
        model_type=str(entry.values.get("job_type", "")),
        min_gpus=size,
        max_gpus=size,
        weight=entry.positive("priority_weight", 1.0),
    )


def entry_of(job: TraceJob) -> dict[str, Any]:
    """A job of any format in Evenkeel's format; read again it is the same except for its number, which is its index."""
    return {
        "id": job.id,
        "arrival_s": job.arrival_s,
        "total_steps": job.total_steps,
        "model_type": job.model_type,
        "project": job.project,
        "user": job.user,
        "priority": job.priority,
        "min_gpus": job.min_gpus,
        "max_gpus": job.max_gpus,
        "types": list(job.types),
        "restartable": job.restartable,
        "weight": job.weight,
        "checkpoint_every_s": job.checkpoint_every_s,
        "gpu_milli": job.gpu_milli,
        "gpu_memory_mib": job.gpu_memory_mib,
        "cpu_milli": job.cpu_milli,
        "memory_mib": job.memory_mib,
        **({"history": history_json(job.history)} if job.history else {}),
        "throughputs": {
            kind: {
                "steps_per_s": list(curve.steps_per_s),
                "spread_factor": curve.spread_factor,
                "spread_factors": list(curve.spread_factors),
            }
            for kind, curve in job.curves.items()
        },
    }


def write(jobs: list[dict[str, Any]], path: Path) -> None:
    path.write_text(json.dumps({"schema": SCHEMA, "jobs": jobs}, indent=1) + "\n")
