"""Alibaba's OpenB pod lists (gpu-v2023). Fractions of a GPU count as one whole GPU here."""

from __future__ import annotations

from pathlib import Path

from scheduling.simulator.readers._jobs import Context, Timed, make_jobs
from scheduling.simulator.readers._rows import Row, header, table
from scheduling.simulator.trace import TraceJob

_PRIORITY = {"LS": 2, "Guaranteed": 2, "Burstable": 1, "BE": 0}


def matches(path: Path, text: str) -> bool:
    return {"cpu_milli", "num_gpu", "gpu_milli"} <= header(text)


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs = [job for row in table(path) if (job := _job(row, context)) is not None]
    return make_jobs(jobs, context)


def _job(row: Row, context: Context) -> Timed | None:
    gpus, created, deleted = row.integer("num_gpu"), row.number("creation_time"), row.number("deletion_time")
    if gpus == 0:
        context.skip("pods without a GPU")
        return None
    if "scheduled_time" not in row:
        context.skip("pods that were never scheduled")
        return None
    if row.number("gpu_milli") < 1000:
        context.skip("pods with part of a GPU, given a whole one")
    return Timed(
        id=row.text("name"),
        arrival_s=created,
        duration_s=max(0.0, deleted - row.number("scheduled_time")),
        gpus=gpus,
        types=tuple(kind for kind in row.text("gpu_spec").split("|") if kind),
        priority=_PRIORITY.get(row.text("qos"), 0),
    )
