"""The reference system's `.trace` files: tab-separated, ten fields, or the six of its msr_* traces."""

from __future__ import annotations

from pathlib import Path

from scheduling.input_files import lines
from scheduling.simulator.inputs.trace import TraceJob, look_up
from scheduling.simulator.readers.jobs import Context
from scheduling.simulator.readers.rows import Row, make_row

LONG = (
    "job_type", "command", "directory", "steps_argument", "needs_data_dir", "total_steps", "scale_factor",
    "priority_weight", "SLO", "arrival_time_s",
)  # fmt: skip
SHORT = ("job_type", "command", "steps_argument", "total_steps", "arrival_time_s", "scale_factor")


def matches(path: Path, text: str) -> bool:
    return path.suffix == ".trace" or text.split("\n", 1)[0].count("\t") + 1 in (len(LONG), len(SHORT))


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs: list[TraceJob] = []
    for number, text in lines(path):
        if text.strip():
            fields = text.split("\t")
            # the msr_* files have a column between the steps argument and the steps
            row = make_row(path, number, SHORT if len(fields) < 9 else LONG, _short(fields))
            jobs.append(_job(row, len(jobs), context))
    return jobs


def _short(fields: list[str]) -> list[str]:
    return fields[:3] + fields[4:] if len(fields) == len(SHORT) + 1 else fields


def _job(row: Row, index: int, context: Context) -> TraceJob:
    model, gang = row.text("job_type"), row.gpus("scale_factor")
    curves = {kind: curve for kind, curve in look_up(model, context.known).items() if curve.at(gang) > 0}
    if not curves:
        raise row.error("job_type", f"no throughput is known for {model!r} on {gang} GPUs; give one with --throughputs")
    weight = row.number("priority_weight") if "priority_weight" in row else 1.0
    if not weight > 0:
        raise row.error("priority_weight", f"{weight:g} must be above 0")
    return TraceJob(
        id=str(index),
        number=index + 1,
        arrival_s=row.number("arrival_time_s"),
        total_steps=row.number("total_steps"),
        curves=curves,
        model_type=model,
        min_gpus=gang,
        max_gpus=gang,
        weight=weight,
    )
