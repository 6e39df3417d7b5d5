"""Traces of the Tiresias simulator: job_id, num_gpu, submit_time, duration, model_name, iterations. Ids may repeat."""

from __future__ import annotations

from pathlib import Path

from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, apart, make_jobs
from scheduling.simulator.readers.rows import header, table


def matches(path: Path, text: str) -> bool:
    return {"job_id", "num_gpu", "submit_time", "duration"} <= header(text)


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs = [
        Timed(
            id=row.text("job_id"),
            arrival_s=row.number("submit_time"),
            duration_s=row.number("duration"),
            gpus=row.gpus("num_gpu"),
            model_type=row.text("model_name") if "model_name" in row else "",
        )
        for row in table(path)
    ]
    return make_jobs(apart(jobs, context), context)
