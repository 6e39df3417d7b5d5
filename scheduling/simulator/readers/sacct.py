"""Slurm's `sacct`, with `--parsable2` or commas between columns.

Needed: JobID, Submit, one of ElapsedRaw, Elapsed or Start and End, and AllocTRES or ReqTRES for the
GPUs (`gres/gpu=4`, `gres/gpu:v100=4`). Steps of jobs, and jobs without GPUs, are skipped. With `--duplicates` a job
that was requeued has a row for each time it ran: further ones are jobs of their own, 101#2 after 101.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from scheduling.errors import InvalidInput
from scheduling.simulator.readers._jobs import Context, Timed, apart, make_jobs
from scheduling.simulator.readers._rows import Row, header, lines, make_row
from scheduling.simulator.trace import TraceJob

_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_GPU = re.compile(r"gres/gpu(?::([\w.-]+))?=(\d+)")
_TRES = ("AllocTRES", "ReqTRES", "AllocTres", "ReqTres")


_NEEDED = ("JobID", "Submit")
#: With JobID one of them is enough to know the format; what is missing is then said.
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
            names = [name.strip().strip('"') for name in text.rstrip("|").split(mark)]
            if missing := [name for name in _NEEDED if name not in names]:
                raise InvalidInput(f"{path}, line {number}: the column {missing[0]} is missing")
            continue
        fields = text.split("|")[: len(names)] if mark == "|" else _by_commas(text, names)
        yield make_row(path, number, names, fields)


def _by_commas(text: str, names: list[str]) -> list[str]:
    """TRES lists have commas of their own; where they are not quoted, each of their parts has a new key."""
    parts = next(csv.reader([text]))
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
    gpus = max((int(count) for _, count in found), default=0)
    seconds = _seconds(row)
    if gpus == 0 or seconds <= 0:
        context.skip("jobs without GPUs" if gpus == 0 else "jobs that never ran")
        return None
    kinds = tuple(sorted({kind for kind, _ in found if kind}))
    project = row.text("Account") if "Account" in row else "default"
    user = row.text("User") if "User" in row else ""
    return Timed(row.text("JobID"), row.moment("Submit"), seconds, gpus, kinds, project, user=user)


def _seconds(row: Row) -> float:
    if "ElapsedRaw" in row:
        return row.number("ElapsedRaw")
    if "Elapsed" in row:
        found = _ELAPSED.fullmatch(row.text("Elapsed"))
        if found is None:
            raise row.error("Elapsed", f"{row.text('Elapsed')[:60]!r} is not a time as 1-02:03:04")
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    if row.text("Start") in ("Unknown", "None", "") or row.text("End") in ("Unknown", "None", ""):
        return 0.0
    return row.moment("End") - row.moment("Start")
