"""How an epoch under Slurm ended, where its runner left no word of its own."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path

from evenkeel.program_output import shown_lines
from evenkeel.runner.files import exists, open_plain

from scheduling.executors.slurm.commands import SlurmJob

MAX_WORDS = 400


@dataclass(frozen=True, slots=True)
class Ending:
    reason: str
    message: str
    signal: int | None = None
    nodes_fault: bool | None = None
    alleged: bool = False


def ending_of(job: SlurmJob | None, epoch_dir: Path, *, killed: bool) -> Ending:
    """`job` None: Slurm does not remember it any more."""
    started = exists(epoch_dir / "claim" / "job")
    if job is None:
        text = "Slurm does not know the job any more, and its runner left no record"
        return Ending("runner_lost", text, alleged=True)
    where = f"Slurm job {job.job_id}"
    if killed and job.ended("CANCELLED"):
        return Ending("signal", "killed on request", int(signal.SIGKILL))
    if not started and exists(epoch_dir / "stop"):
        return Ending("stopped", "stopped before it started")
    if job.ended("OUT_OF_MEMORY"):
        return Ending("out_of_memory", f"{where} used more memory than it was given")
    if job.ended("TIMEOUT") or job.ended("DEADLINE"):
        return Ending("time_limit", f"{where} reached its time limit in Slurm")
    if job.ended("NODE_FAIL") or job.ended("BOOT_FAIL"):
        return Ending("runner_lost", f"a node of {where} failed ({job.nodes})")
    if job.ended("PREEMPTED"):
        return Ending("runner_lost", f"Slurm preempted {where}", nodes_fault=False)
    if job.ended("CANCELLED"):
        return Ending("runner_lost", f"{where} was cancelled in Slurm", nodes_fault=False)
    if not exists(epoch_dir / "runner.json"):
        text = f"{where} ended before the runner began: {_last_words(epoch_dir)}"
        return Ending("launch_failed", text, nodes_fault=True, alleged=True)
    text = f"{where} ended ({', '.join(sorted(job.states)).lower()}) without a record of its runner"
    return Ending("runner_lost", text, alleged=True)


def _last_words(epoch_dir: Path) -> str:
    for name in ("runner.log", "slurm.log"):
        with contextlib.suppress(OSError), open_plain(epoch_dir / "logs" / name) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4_000))
            if lines := shown_lines(file.read(4_000).strip()):
                return lines[-1][:MAX_WORDS]
    return "it said nothing"
