"""How an epoch under Slurm ended, if its runner left no exit record."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel.program_output import shown_lines
from evenkeel.runner.files import exists, open_plain

from scheduling.executors.base import ExitInfo
from scheduling.executors.local.facts import MAX_MESSAGE
from scheduling.executors.slurm.commands import SlurmJob

MAX_WORDS = 400


@dataclass(frozen=True, slots=True)
class Ending:
    reason: str
    message: str
    signal: int | None = None
    nodes_fault: bool | None = None
    alleged: bool = False


#: States, reason, text, and whether it is the node's fault (None: as the reason implies); the first match counts.
_ENDINGS: Sequence[tuple[frozenset[str], str, str, bool | None]] = (
    (frozenset({"OUT_OF_MEMORY"}), "out_of_memory", "{where} used more memory than it was given", None),
    (frozenset({"TIMEOUT", "DEADLINE"}), "time_limit", "{where} reached its time limit in Slurm", None),
    (frozenset({"NODE_FAIL", "BOOT_FAIL"}), "runner_lost", "a node of {where} failed ({nodes})", None),
    (frozenset({"PREEMPTED"}), "runner_lost", "{where} was preempted by Slurm", False),
    (frozenset({"CANCELLED"}), "runner_lost", "{where} was cancelled in Slurm", False),
)


def ending_of(job: SlurmJob | None, epoch_dir: Path, *, killed: bool, requeued: bool = False) -> Ending:
    """`job` None: Slurm no longer has it. `requeued`: Slurm ended it and queued it again."""
    started = exists(epoch_dir / "claim" / "job")
    if job is None:
        text = "Slurm does not know the job any more, and its runner left no record"
        return Ending("runner_lost", text, alleged=True)
    where = f"Slurm job {job.job_id}"
    if killed and job.ended("CANCELLED"):
        return Ending("signal", "killed on request", int(signal.SIGKILL))
    if requeued:
        return Ending("stopped", f"Slurm ended {where} and queued it again")
    if not started and exists(epoch_dir / "stop"):
        return Ending("stopped", "stopped before it started")
    for states, reason, text, nodes_fault in _ENDINGS:
        if job.states & states:
            return Ending(reason, text.format(where=where, nodes=job.nodes), nodes_fault=nodes_fault)
    if not exists(epoch_dir / "runner.json"):
        text = f"{where} ended before the runner began: {_last_words(epoch_dir)}"
        return Ending("launch_failed", text, nodes_fault=True, alleged=True)
    text = f"{where} ended ({', '.join(sorted(job.states)).lower()}) without a record of its runner"
    return Ending("runner_lost", text, alleged=True)


def outweighed(job: SlurmJob, left: ExitInfo) -> ExitInfo:
    """Slurm ended a job of several nodes where it still reached them: what a worker said then came of the peers that it
    lost. A job whose program fails first is FAILED in Slurm."""
    if left.reason not in ("user_error", "signal"):
        return left
    where = f"Slurm job {job.job_id}"
    for states, reason, text, nodes_fault in _ENDINGS:
        if reason == "runner_lost" and job.states & states:
            message = f"{text.format(where=where, nodes=job.nodes)}; {left.message}"
            return ExitInfo(reason, step=left.step, message=message[:MAX_MESSAGE], nodes_fault=nodes_fault)
    return left


def brought_about(job: SlurmJob, *, by_limit: bool) -> str:
    """What Slurm did to a job whose runner then stopped in an orderly way; empty if unknown."""
    where = f"Slurm job {job.job_id}"
    if by_limit:
        return f"{where} reached its time limit in Slurm"
    for states, _, text, _ in _ENDINGS:
        if job.states & states:
            return text.format(where=where, nodes=job.nodes)
    return ""


def _last_words(epoch_dir: Path) -> str:
    for name in ("runner.log", "slurm.log"):
        with contextlib.suppress(OSError), open_plain(epoch_dir / "logs" / name) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4_000))
            if lines := shown_lines(file.read(4_000).strip()):
                return lines[-1][:MAX_WORDS]
    return "it said nothing"
