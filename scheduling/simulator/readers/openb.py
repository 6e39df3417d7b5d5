"""Alibaba's OpenB pod lists (gpu-v2023), with fractional GPUs, CPUs and memory."""

from __future__ import annotations

from pathlib import Path

from scheduling.domain import WHOLE
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, make_jobs
from scheduling.simulator.readers.rows import Row, header, table

_PRIORITY = {"LS": 2, "Guaranteed": 2, "Burstable": 1, "BE": 0}


def matches(path: Path, text: str) -> bool:
    return {"cpu_milli", "num_gpu", "gpu_milli"} <= header(text)


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs = [job for row in table(path) if (job := _job(row, context)) is not None]
    return make_jobs(jobs, context)


def _job(row: Row, context: Context) -> Timed | None:
    gpus, created = row.gpus("num_gpu", least=0), row.number("creation_time")
    if gpus == 0:
        context.skip("pods without a GPU")
        return None
    if "scheduled_time" not in row:
        context.skip("pods that were never scheduled")
        return None
    if "deletion_time" not in row:
        context.skip("pods that had not ended", row)
        return None
    duration_s = row.number("deletion_time") - row.number("scheduled_time")
    if duration_s < 0:
        context.skip("pods that end before they start", row)
        return None
    milli = row.integer("gpu_milli", least=1)
    if milli > WHOLE or (milli < WHOLE and gpus > 1):
        raise row.error("gpu_milli", f"{milli} must be at most {WHOLE}, and {WHOLE} of several GPUs")
    return Timed(
        id=row.text("name"),
        arrival_s=created,
        duration_s=duration_s,
        gpus=gpus,
        types=tuple(kind for kind in row.text("gpu_spec").split("|") if kind),
        priority=_PRIORITY.get(row.text("qos"), 0),
        gpu_milli=milli,
        cpu_milli=row.integer("cpu_milli") if "cpu_milli" in row else 0,
        memory_mib=row.integer("memory_mib") if "memory_mib" in row else 0,
    )
