"""What is known about launches: our records, and Slurm's state at one moment."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from evenkeel.runner.files import exists, read_object, read_plain
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.spec import ENDED_FILE

from scheduling.errors import ExecutorError
from scheduling.executors.local.layout import checked_name
from scheduling.executors.slurm.commands import Commands, SlurmJob
from scheduling.executors.slurm.names import PREFIX, launch_name

MAX_NODES = 5_000


class Notes:
    """`<run>.<epoch>.slurm`: its job id, and when it was sent; `<run>.<epoch>.named`: its name in Slurm, before it is
    sent; `<run>.<epoch>.killed`: that it must be killed; `<run>.<epoch>.requeued`: that Slurm has queued it again after
    its start; `<run>.<epoch>.unseen`: since when it may run unseen by Slurm."""

    def __init__(self, own: Path) -> None:
        self._own = own

    def file(self, run_id: str, epoch: int) -> Path:
        return self._own / f"{checked_name(run_id)}.{int(epoch)}.slurm"

    def kill_mark(self, run_id: str, epoch: int) -> Path:
        return self._own / f"{checked_name(run_id)}.{int(epoch)}.killed"

    def requeue_mark(self, run_id: str, epoch: int) -> Path:
        return self._own / f"{checked_name(run_id)}.{int(epoch)}.requeued"

    def name(self, run_id: str, epoch: int, name: str) -> None:
        write_atomically(self._own / f"{checked_name(run_id)}.{int(epoch)}.named", {"name": name})

    def named(self, run_id: str, epoch: int) -> str:
        name = (read_object(self._own / f"{checked_name(run_id)}.{int(epoch)}.named") or {}).get("name")
        return name if isinstance(name, str) else ""

    def write(self, run_id: str, epoch: int, job_id: int) -> None:
        write_atomically(self.file(run_id, epoch), {"job_id": job_id, "at": time.time()})

    def unseen_since(self, run_id: str, epoch: int, at: float) -> float:
        """`at`, if nothing was recorded before."""
        file = self._own / f"{checked_name(run_id)}.{int(epoch)}.unseen"
        noted = (read_object(file) or {}).get("at")
        if isinstance(noted, int | float):
            return float(noted)
        write_atomically(file, {"at": at})
        return at

    def forget(self, run_id: str, epoch: int) -> None:
        self.file(run_id, epoch).unlink(missing_ok=True)

    def job_id(self, run_id: str, epoch: int) -> int | None:
        job_id = (read_object(self.file(run_id, epoch)) or {}).get("job_id")
        return job_id if isinstance(job_id, int) else None

    def at(self, run_id: str, epoch: int) -> float:
        noted = (read_object(self.file(run_id, epoch)) or {}).get("at")
        return float(noted) if isinstance(noted, int | float) else float("-inf")


@dataclass(frozen=True, slots=True)
class Seen:
    """Jobs by launch, at one moment. A job that does not name its launch (its comment was changed) is identified by the
    recorded id."""

    at: float
    jobs: Mapping[str, Sequence[SlurmJob]]
    notes: Notes

    def of(self, run_id: str, epoch: int) -> Sequence[SlurmJob]:
        if (found := self.jobs.get(launch_name(run_id, epoch))) or not (unclear := self.jobs.get("")):
            return found or ()
        noted = self.notes.job_id(run_id, epoch)
        return [job for job in unclear if job.leading_id == noted]

    def live(self, run_id: str, epoch: int) -> list[SlurmJob]:
        return [job for job in self.of(run_id, epoch) if not job.over]


def past_jobs(commands: Commands, notes: Notes, run_id: str, epoch: int, epoch_dir: Path) -> Sequence[SlurmJob] | None:
    """Accounting's rows of a launch, by the recorded id, or by its name and directory; None if Slurm has no
    accounting."""
    numbers = [number] if (number := notes.job_id(run_id, epoch)) is not None else []
    if not numbers:
        if not (name := notes.named(run_id, epoch)):
            return commands.past_jobs(launch_name(run_id, epoch))
        numbers = commands.past_ids(name, os.fspath(epoch_dir))
    found = [job for number in numbers for job in commands.past_job(number) or ()]
    return [job for job in found if job.name.startswith(PREFIX)] or None


def decisive(jobs: Sequence[SlurmJob], epoch_dir: Path) -> SlurmJob | None:
    """The job that claimed the epoch, or the newest of them."""
    with contextlib.suppress(OSError, ValueError):
        claimed = int(read_plain(epoch_dir / "claim" / "job", 100))
        if found := [job for job in jobs if job.job_id == claimed]:
            return found[0]
    return max(jobs, key=lambda job: job.job_id, default=None)


def waits_in_words(live: Sequence[SlurmJob]) -> str:
    """Why the first component of a job has not started, or is suspended; empty if it runs or ends."""
    job = min(live, key=lambda one: one.job_id)
    reason = f" ({job.reason})" if job.reason else ""
    if job.states & {"SUSPENDED", "STOPPED"}:
        return "suspended in Slurm"
    if "CONFIGURING" in job.states:
        return "its nodes are being made ready by Slurm"
    if job.states & {"REQUEUE_HOLD", "SPECIAL_EXIT"} or (job.pending and "held" in job.reason.lower()):
        return f"held in Slurm{reason}"
    return f"waits in Slurm{reason}" if job.states & {"PENDING", "REQUEUED", "REQUEUE_FED", "RESV_DEL_HOLD"} else ""


def silent(epoch_dir: Path) -> set[str]:
    """Nodes other than the first whose runner has not reported that nothing of the run is left there."""
    return {name for name in node_names(epoch_dir) if not exists(epoch_dir / f"node-{name}" / ENDED_FILE)}


def node_names(epoch_dir: Path) -> list[str]:
    """Those other than the first that have a directory: a job has one for each node, unless it creates more."""
    try:
        with os.scandir(epoch_dir) as entries:
            names = [entry.name for entry in islice(entries, MAX_NODES)]
    except OSError:
        return []
    return [name.removeprefix("node-") for name in names if name.startswith("node-")]


def close(epoch_dir: Path) -> None:
    """Everything has ended, even if it could not be reported: later observations find that."""
    for node in silent(epoch_dir):
        with contextlib.suppress(OSError):
            (epoch_dir / f"node-{node}" / ENDED_FILE).touch(mode=0o600)


def refresh_directory(directory: Path) -> None:
    """Shared file systems cache that a file is missing, unless we change its directory."""
    with contextlib.suppress(OSError):
        draft = directory / ".looking"
        draft.touch(mode=0o600)
        draft.unlink()


@contextlib.contextmanager
def as_executor_error(verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        permanent = isinstance(error, PermissionError)
        raise ExecutorError(f"cannot {verb} the run: {error}", permanent=permanent) from error
