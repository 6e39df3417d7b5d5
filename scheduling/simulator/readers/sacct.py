"""Slurm's `sacct`, with `--parsable2` or commas between columns.

Needed: JobID, Submit, one of ElapsedRaw, Elapsed or Start and End, and AllocTRES or ReqTRES for the GPUs (`gres/gpu=4`,
`gres/gpu:v100=4`). Job steps, jobs without GPUs and jobs that had not ended (by State, or with an unknown End) are
skipped. With `--duplicates` a job that was requeued has a row for each time it ran: further rows are separate jobs,
101#2 after 101. `sacct` prints local times without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from scheduling.errors import InvalidInput
from scheduling.input_files import check_header, lines
from scheduling.simulator.inputs.hardware import MOST_GPUS
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers.jobs import Context, Timed, apart, make_jobs
from scheduling.simulator.readers.rows import Row, comma_separated, header, make_row

_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_GPU = re.compile(r"gres/gpu(?::([\w.-]+))?=(\d+)", re.ASCII)
_TRES = ("AllocTRES", "ReqTRES", "AllocTres", "ReqTres")


_NEEDED = ("JobID", "Submit")
_UNKNOWN = ("Unknown", "None", "")
#: Job states (sacct(1), short forms too) in which a job's elapsed time still runs or has not begun.
_GOES_ON = {
    *("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "STOPPED", "SIGNALING"),
    *("RESV_DEL_HOLD", "REQUEUE_HOLD", "REQUEUE_FED", "PD", "R", "S", "RS", "CF", "ST", "SI", "RD", "RH", "RF"),
}
#: States after a time that a job ran: complete if the end of that time is known.
_MAY_GO_ON = {"COMPLETING", "REQUEUED", "SPECIAL_EXIT", "STAGE_OUT", "CG", "RQ", "SE", "SO"}
#: With JobID one of these columns suffices to recognise the format; missing columns are then named.
_OTHERS = {"Submit", "ElapsedRaw", "Elapsed", "Start", "State", *_TRES}


def matches(path: Path, text: str) -> bool:
    return any("JobID" in names and names & _OTHERS for names in (header(text, "|"), header(text, ",")))


def read(path: Path, context: Context) -> list[TraceJob]:
    jobs = [job for row in _rows(path) if (job := _job(row, context)) is not None]
    return make_jobs(apart(jobs, context), context)


def _rows(path: Path) -> Iterator[Row]:
    names: list[str] = []
    mark = ","
    for number, text in lines(path):
        if not text.strip():
            continue
        if not names:
            mark = "|" if "|" in text else ","
            names = [name.strip().strip('"') for name in text.removesuffix("|").split(mark)]
            check_header(path, number, names)
            if mark == "|" and "" in names:
                raise InvalidInput(f"{path}, line {number}, column {names.index('') + 1}: it has no name")
            if missing := [name for name in _NEEDED if name not in names]:
                raise InvalidInput(f"{path}, line {number}: the column {missing[0]} is missing")
            continue
        fields = _by_pipes(text, names) if mark == "|" else _by_commas(path, number, text, names)
        yield make_row(path, number, names, fields)


def _by_pipes(text: str, names: list[str]) -> list[str]:
    """`--parsable` ends every line with a `|`; any other extra field shifts those after it, so it is an error."""
    fields = text.split("|")
    return fields[:-1] if len(fields) == len(names) + 1 and not fields[-1].strip() else fields


def _by_commas(path: Path, number: int, text: str, names: list[str]) -> list[str]:
    """TRES lists contain commas; if they are not quoted, each of their parts has a new key."""
    parts = comma_separated(path, number, text)
    if len(parts) <= len(names):
        return parts
    fields: list[str] = []
    for name in names:
        part = parts.pop(0) if parts else ""
        keys = {part.partition("=")[0]}
        while name in _TRES and "=" in part and parts and "=" in parts[0] and parts[0].partition("=")[0] not in keys:
            keys.add(parts[0].partition("=")[0])
            part += "," + parts.pop(0)
        fields.append(part)
    return fields + parts


def _job(row: Row, context: Context) -> Timed | None:
    if "." in row.text("JobID"):
        context.skip("steps of jobs")
        return None
    tres = next((row.text(name) for name in _TRES if name in row and "gpu" in row.text(name)), "")
    found = _GPU.findall(tres)
    gpus = max((_count(row, count) for _, count in found), default=0)
    if gpus == 0:
        context.skip("jobs without GPUs")
        return None
    if _goes_on(row):
        context.skip("jobs that had not ended", row)
        return None
    seconds = _seconds(row, context)
    if seconds <= 0:
        context.skip("jobs that end before they start" if seconds < 0 else "jobs that never ran", row)
        return None
    kinds = tuple(sorted({kind for kind, _ in found if kind}))
    project = row.text("Account") if "Account" in row else "default"
    user = row.text("User") if "User" in row else ""
    return Timed(row.text("JobID"), context.seconds(row, "Submit"), seconds, gpus, kinds, project, user=user)


def _count(row: Row, digits: str) -> int:
    if len(digits) > 9 or int(digits) > MOST_GPUS:
        column = next(name for name in _TRES if name in row and "gpu" in row.text(name))
        raise row.error(column, f"{digits[:60]} GPUs must be at most {MOST_GPUS:,}")
    return int(digits)


def _goes_on(row: Row) -> bool:
    state = row.text("State").split(" ", 1)[0].rstrip("+").upper() if "State" in row else ""
    ended = "End" in row and row.text("End") not in _UNKNOWN
    if state in _GOES_ON:
        return True
    if not row.has_column("End"):
        return state in _MAY_GO_ON
    began = "Start" in row and row.text("Start") not in _UNKNOWN
    return not ended and (state in _MAY_GO_ON or began)


def _seconds(row: Row, context: Context) -> float:
    """Duration of the run; below 0 if its end is before its start."""
    if "ElapsedRaw" in row:
        return row.number("ElapsedRaw")
    if "Elapsed" in row:
        found = _ELAPSED.fullmatch(row.text("Elapsed"))
        if found is None:
            raise row.error("Elapsed", f"{row.text('Elapsed')[:60]!r} is not a time as 1-02:03:04")
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    if not row.has_column("Start") or not row.has_column("End"):
        column = next((name for name in ("ElapsedRaw", "Elapsed") if row.has_column(name)), "Elapsed")
        raise row.error(column, "it is empty or missing, and so is Start or End, so how long the job ran is unknown")
    if row.text("Start") in _UNKNOWN or row.text("End") in _UNKNOWN:
        return 0.0
    start = context.seconds(row, "Start")
    span_s = context.seconds(row, "End") - start
    # of an ambiguous local time the end is the second if it cannot be the first
    return context.seconds(row, "End", fold=1) - start if span_s < 0 else span_s
