"""The Standard Workload Format: eighteen numbers a line, `;` before comments, -1 for unknown.

Processors are read as GPUs. A job that was swapped out has one line for itself and one (status 2, 3 or 4) for each
part; the parts are skipped. Format: Chapin et al., JSSPP 1999, and the Parallel Workloads Archive.
"""

from __future__ import annotations

from pathlib import Path

from scheduling.input_files import lines
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, make_jobs
from scheduling.simulator.readers.rows import make_row

COLUMNS = (
    "job", "submit_time", "wait_time", "run_time", "allocated_processors", "average_cpu_time", "used_memory",
    "requested_processors", "requested_time", "requested_memory", "status", "user", "group", "application", "queue",
    "partition", "preceding_job", "think_time",
)  # fmt: skip

#: Statuses of parts of a job: to be continued, completed and failed.
_PARTS = ("2", "3", "4")


def matches(path: Path, text: str) -> bool:
    rows = [line.split() for line in text.split("\n") if line.strip() and not line.lstrip().startswith(";")]
    return path.suffix == ".swf" or (bool(rows) and len(rows[0]) == len(COLUMNS) and rows[0][0].lstrip("-").isdigit())


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs: list[Timed] = []
    seen: set[str] = set()
    for number, text in lines(path):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        row = make_row(path, number, COLUMNS, text.split())
        if row.text("job") in seen and row.text("status") in _PARTS:
            context.skip("parts of jobs that were swapped out")
            continue
        allocated, requested = (row.gpus(f"{which}_processors", least=-1) for which in ("allocated", "requested"))
        gpus = allocated if allocated > 0 else max(allocated, requested)
        if row.number("run_time", -1) < 0 or gpus < 1:
            context.skip("jobs without run time or processors")
            continue
        seen.add(row.text("job"))
        project, user = row.text("group"), row.text("user")
        jobs.append(
            Timed(row.text("job"), row.number("submit_time"), row.number("run_time"), gpus,
                  project=project if project != "-1" else "default", user=user if user != "-1" else "")
        )  # fmt: skip
    return make_jobs(jobs, context)
