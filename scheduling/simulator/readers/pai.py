"""Alibaba PAI tables (gpu-v2020): jobs, tasks and instances, one file each, with the columns of its `.header` files.

The path is that of the task table (`..task_table.csv`); the job table beside it (`..job_table.csv`) has users and
arrivals, and an instance table, if there is one, has the durations of instances. A table may begin with its header or
be next to `NAME.header`. A task's instances are separate jobs, as in the packing paper: `plan_gpu` is percent of a GPU,
`plan_cpu` percent of a CPU, `plan_mem` GB, each for one instance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scheduling.domain import WHOLE
from scheduling.errors import InvalidInput
from scheduling.input_files import check_header, lines, opening, plain_name
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, make_jobs
from scheduling.simulator.readers.rows import Row, comma_separated, make_row

JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
INSTANCE = (
    "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine",
)  # fmt: skip
_TASKS, _JOBS, _INSTANCES = "task_table", "job_table", "instance_table"
#: The trace's name for every type that it does not disclose.
_UNNAMED = ("", "MISC")
_RAN, _FAILED = "Terminated", "Failed"
_MOST_INSTANCES = 100_000


def matches(path: Path, text: str) -> bool:
    return _TASKS in path.name and path.suffix == ".csv"


def read(path: Path, context: Context) -> list[TraceJob]:
    if _TASKS not in path.name:
        raise InvalidInput(f"{path}: the task table of PAI has {_TASKS} in its name")
    jobs = _owners(_beside(path, _JOBS))
    times = _times(_beside(path, _INSTANCES))
    found: list[Timed] = []
    for row in _table(path, TASK):
        found += _instances(row, jobs, times, context)
    return make_jobs(found, context)


def _beside(path: Path, table: str) -> Path:
    """The neighbouring table, compressed or not."""
    found = path.with_name(path.name.replace(_TASKS, table))
    return found if found.is_file() else plain_name(found)


def _owners(path: Path) -> dict[str, tuple[str, float | None]]:
    """(user, start) by job; empty without the table."""
    if not path.is_file():
        return {}
    return {
        row.text("job_name"): (row.text("user"), row.number("start_time") if "start_time" in row else None)
        for row in _table(path, JOB)
    }


def _times(path: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(start, end) of the instances that ended, by job and task."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    if path.is_file():
        for row in _table(path, INSTANCE):
            if row.text("status") == _RAN and "start_time" in row and "end_time" in row:
                key = row.text("job_name"), row.text("task_name")
                found.setdefault(key, []).append((row.number("start_time"), row.number("end_time")))
    return found


def _instances(
    row: Row,
    jobs: dict[str, tuple[str, float | None]],
    times: dict[tuple[str, str], list[tuple[float, float]]],
    context: Context,
) -> Iterator[Timed]:
    name, task = row.text("job_name"), row.text("task_name")
    percent = row.number("plan_gpu") if "plan_gpu" in row else 0.0
    if percent <= 0:
        context.skip("tasks without a GPU")
        return
    if row.text("status") != _RAN or "start_time" not in row or "end_time" not in row:
        context.skip("tasks that failed" if row.text("status") == _FAILED else "tasks that had not ended", row)
        return
    gpus, milli = _gang(row, percent)
    user, arrival = jobs.get(name, ("", None))
    begin, end = row.number("start_time"), row.number("end_time")
    arrival = begin if arrival is None else min(arrival, begin)
    ran = times.get((name, task), [])
    count = int(row.number("inst_num", 1.0)) if "inst_num" in row else 1
    if count > _MOST_INSTANCES:
        raise row.error("inst_num", f"{count} must be at most {_MOST_INSTANCES}")
    kind = row.text("gpu_type")
    for number in range(count):
        since, until = ran[number] if number < len(ran) else (begin, end)
        if until < since:
            context.skip("instances that end before they start", row)
            continue
        yield Timed(
            id=f"{name}/{task}/{number}",
            arrival_s=arrival,
            duration_s=until - since,
            gpus=gpus,
            types=() if kind in _UNNAMED else (kind,),
            user=user,
            gpu_milli=milli,
            cpu_milli=round(row.number("plan_cpu") * 10) if "plan_cpu" in row else 0,
            memory_mib=round(row.number("plan_mem") * 1_024) if "plan_mem" in row else 0,
        )


def _gang(row: Row, percent: float) -> tuple[int, int]:
    """GPUs and thousandths of each; fractions of several GPUs are rounded up to whole ones."""
    if percent > 100 * 1_000:
        raise row.error("plan_gpu", f"{percent:g} percent is more than a thousand GPUs")
    if percent < 100:
        return 1, max(1, round(percent * 10))
    return -(-round(percent) // 100), WHOLE


def _table(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Rows of a table with or without its header."""
    names = list(columns)
    beside = plain_name(path).with_suffix(".header")
    if beside.is_file():
        names = [name.strip() for name in opening(beside).split("\n", 1)[0].split(",")]
    if not set(columns) <= set(names):
        raise InvalidInput(f"{beside}: {', '.join(sorted(set(columns) - set(names)))} is missing")
    first = True
    for number, text in lines(path):
        if not text.strip():
            continue
        fields = comma_separated(path, number, text) if '"' in text else text.split(",")
        if first and {name.strip() for name in fields} >= {columns[0], columns[-1]}:
            names = [name.strip() for name in fields]
            check_header(path, number, names)
        else:
            yield make_row(path, number, names, fields)
        first = False
