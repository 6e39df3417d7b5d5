"""Links between a launch and its job in Slurm, whatever the job's name there."""

from __future__ import annotations

import re
import unicodedata

PREFIX = "evenkeel-"
MOST_CHARACTERS = 60
_SPOILS = re.compile(r"[^A-Za-z0-9_.@=-]+")
_COMMENT = re.compile(r"evenkeel job [0-9]+ run ([A-Za-z0-9][\w-]{0,63}) epoch ([0-9]{1,9})(?:;.*)?", re.ASCII)
#: Prefix of jobs' names before they had readable ones; some of them still run.
_FORMER = re.compile(r"evenkeel-[A-Za-z0-9][\w-]{0,63}-[0-9]{1,9}", re.ASCII)


def launch_name(run_id: str, epoch: int) -> str:
    return f"{PREFIX}{run_id}-{int(epoch)}"


def parse_launch(launch: str) -> tuple[str, int] | None:
    """The run and epoch of `launch_name`."""
    run_id, _, epoch = launch.removeprefix(PREFIX).rpartition("-")
    return (run_id, int(epoch)) if _FORMER.fullmatch(launch) else None


def job_name(number: int, name: str) -> str:
    """`evenkeel-2534 resnet50`: in ASCII, which all tools can show, and not a list for sacct's --name."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return f"{PREFIX}{int(number)} {_SPOILS.sub('-', plain).strip('-')}"[:MOST_CHARACTERS].strip("- ")


def job_comment(number: int, run_id: str, epoch: int, own: str = "") -> str:
    """`own`: the comment of the job's owner."""
    return f"evenkeel job {int(number)} run {run_id} epoch {int(epoch)}" + (f"; {own}" if own else "")


def launch_of(comment: str, name: str) -> str:
    """The launch of a job; empty if it names none."""
    if found := _COMMENT.fullmatch(comment):
        return launch_name(found[1], int(found[2]))
    return name if _FORMER.fullmatch(name) else ""
