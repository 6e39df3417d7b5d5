"""Microsoft's Philly jobs: with arrivals (timestamp, duration, num_gpus, gpu_time, cluster), or durations alone."""

from __future__ import annotations

from pathlib import Path

from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, make_jobs
from scheduling.simulator.readers.rows import header, table

_DURATION = ("duration", "duration_s", "runtime")


def matches(path: Path, text: str) -> bool:
    names = header(text)
    return {"timestamp", "duration", "num_gpus"} <= names or names in ({"duration_s", "num_gpus"}, {"runtime"})


def read(path: Path, context: Context) -> list[TraceJob]:
    """Lists without arrivals are static: everything arrives at once. Without `num_gpus` a job has one GPU."""
    jobs = []
    for number, row in enumerate(table(path), 1):
        column = next((name for name in _DURATION if row.has_column(name)), "duration")
        jobs.append(
            Timed(
                id=str(number),
                arrival_s=context.seconds(row, "timestamp") if row.has_column("timestamp") else 0.0,
                duration_s=row.number(column),
                gpus=row.gpus("num_gpus") if row.has_column("num_gpus") else 1,
                project=row.text("cluster") if "cluster" in row else "default",
            )
        )
    return make_jobs(jobs, context)
