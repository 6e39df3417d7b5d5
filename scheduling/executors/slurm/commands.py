"""Slurm's commands, each with a timeout, never through a shell; their output becomes typed values.

`squeue` prints lines: with `--json` 22.05 ignores filters, so the controller would send the jobs of the whole cluster
each time; `--me` limits them to ours. The JSON of `sacct` differs between versions: a state is a word (22.05) or a list
of them (23.11), a number is itself or {"set", "infinite", "number"}.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduling.errors import ExecutorError
from scheduling.executors.slurm.names import PREFIX, launch_of
from scheduling.executors.slurm.refusals import judge

#: Commands try for minutes to reach an unreachable controller.
TIMEOUT_S = 20.0
MAX_WORDS = 300
#: Id (of a heterogeneous job as `22+1`), state, nodes, start, end, time limit, reason, comment, and last the name,
#: which may contain anything.
QUEUE_FORMAT = "%A|%i|%T|%N|%S|%e|%l|%r|%k|%j"
PARTITIONS, CONFIG = ("scontrol", "--oneliner", "show", "partition"), ("scontrol", "show", "config")
#: A comment that was changed may contain a line end, and swallow the name.
_QUEUED = re.compile(r"([0-9]+)\|([^|]*)\|([A-Z_+ ]+)\|" + r"([^|]*)\|" * 5 + r"(?:([^|]*)\|)?(.*)")
_LIMIT = re.compile(r"(?:(?:(?P<days>[0-9]+)-)?(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)")
#: Slurm checks periodically: it may ask a job to end this much earlier than configured.
_EARLY_S = 60.0
#: States in which a job has processes, or is about to have; a flag beside a state counts too.
FINAL = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "TIMEOUT", "REVOKED",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmJob:
    job_id: int
    name: str
    states: frozenset[str]
    nodes: str
    ended_at: float | None
    #: Slurm's reason for waiting, if it waits.
    reason: str = ""
    started_at: float | None = None
    limit_s: float | None = None
    #: For a heterogeneous job's components the id of the first; otherwise its own.
    leading_id: int = 0
    #: Its launch, if it names one.
    launch: str = ""

    def ended_by_limit(self, end_signal_s: float) -> bool:
        """It ended at its time limit, or when it was asked to, some time before."""
        if self.ended("TIMEOUT") or self.ended("DEADLINE"):
            return True
        if self.limit_s is None or self.started_at is None or self.ended_at is None:
            return False
        return self.ended_at - self.started_at >= self.limit_s - end_signal_s - _EARLY_S

    @property
    def over(self) -> bool:
        """Nothing of it runs any more: it has ended, and its nodes have confirmed it (not COMPLETING)."""
        return bool(self.states & FINAL) and "COMPLETING" not in self.states

    @property
    def pending(self) -> bool:
        return "PENDING" in self.states

    def ended(self, state: str) -> bool:
        return state in self.states


def plain_message(text: str, command: str) -> str:
    """A command's message in one line, without the prefix of each line."""
    lines = (line.removeprefix(f"{command}: ").removeprefix("error: ").strip() for line in text.splitlines())
    plain = (line.removeprefix("Batch job submission failed: ") for line in lines)
    return "; ".join(dict.fromkeys(" ".join(line.split()) for line in plain if line))[-MAX_WORDS:]


def _refused(command: str, words: str) -> ExecutorError:
    refusal = judge(words, command)
    text = f"{'Slurm refused the launch' if command == 'sbatch' else command}: {words}"
    if refusal.advice and command == "sbatch":
        text += f". {refusal.advice}."
    return ExecutorError(text, permanent=refusal.permanent, by_engine=refusal.by_engine)


class Commands:
    #: When the oldest of their answers was requested; None: all are current.
    asked_at: float | None = None

    def __init__(self, conf: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._conf, self._timeout_s = conf, timeout_s

    def recalling(self, oldest_s: float | None = None) -> Commands:
        """The same commands; their answers may be this old (None: as old as in quiet times), if they are cached."""
        return self

    def recalling_settings(self) -> Commands:
        """The same, for configuration."""
        return self

    def forget(self) -> bool:
        """Discard answers older than a moment; returns whether there were any."""
        return False

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        """The command's output; ExecutorError if it failed or timed out."""
        timeout_s = timeout_s or self._timeout_s
        try:
            result = subprocess.run(
                command, env=self._environment(command[0]), stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=timeout_s, cwd="/", text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            text = f"{command[0]} had no answer from Slurm within {timeout_s:g} s"
            raise ExecutorError(text, permanent=False, by_engine=True) from None
        except OSError as error:
            raise ExecutorError(f"{command[0]} cannot be run: {error}", permanent=True) from error
        if result.returncode != 0:
            words = plain_message(result.stderr or result.stdout, command[0])
            raise _refused(command[0], words or f"code {result.returncode}")
        return result.stdout

    def _environment(self, command: str) -> dict[str, str]:
        """Ours without variables that would change the commands' options or output format. sacct cannot read its own
        times if they are printed as seconds."""
        prefixes = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SRUN_", "EVENKEEL_", "DJANGO_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
        conf = self._conf or os.environ.get("SLURM_CONF", "")
        times = {"SLURM_TIME_FORMAT": "%s"} if command == "squeue" else {}
        return kept | {"LC_ALL": "C"} | times | ({"SLURM_CONF": conf} if conf else {})

    def jobs(self, prefix: str) -> dict[str, list[SlurmJob]]:
        """Jobs of our account whose launch begins like this, by launch (see names.py; "" if unknown), including those
        that ended within Slurm's MinJobAge. `--local` saves a request for the state of a federation."""
        words = ("squeue", "--noheader", "--local", "--states=all", "--me", f"--format={QUEUE_FORMAT}")
        return jobs_in(self.run(*words), prefix)

    def past_jobs(self, name: str) -> list[SlurmJob] | None:
        """Jobs of that name in accounting; None if Slurm has no accounting."""
        found = self._accounted(f"--name={name}", "--starttime=now-30days")
        return found if found is None else [job for job in found if job.name == name]

    def past_job(self, job_id: int) -> list[SlurmJob] | None:
        """A job in accounting, with its components; None if Slurm has no accounting."""
        return self._accounted(f"--jobs={job_id}")

    def first_part(self, job_id: int) -> tuple[float | None, float | None]:
        """Start and end of a job before Slurm requeued it, from accounting; None if unknown. Later parts exit at once:
        the launch is claimed."""
        found = self._accounted("--duplicates", f"--jobs={job_id}") or ()
        parts = [job for job in found if job.job_id == job_id and job.started_at and job.ended_at]
        first = min(parts, key=lambda job: job.started_at or 0.0, default=None)
        return (first.started_at, first.ended_at) if first else (None, None)

    def past_ids(self, name: str, directory: str) -> list[int]:
        """Jobs of that name in accounting that were sent with that working directory."""
        words = ("--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,WorkDir")
        try:
            text = self.run("sacct", *words, f"--name={name}", "--starttime=now-30days")
        except ExecutorError as error:
            if "accounting storage is disabled" in str(error):
                return []
            raise
        rows = (line.partition("|") for line in text.splitlines())
        return [int(number) for number, _, place in rows if number.isdecimal() and place == directory]

    def _accounted(self, *which: str) -> list[SlurmJob] | None:
        try:
            text = self.run("sacct", "--json", "--allocations", *which)
        except ExecutorError as error:
            if "accounting storage is disabled" in str(error):
                return None
            raise
        if not text.lstrip().startswith("{"):
            return None
        return [_accounted(entry) for entry in _object(text, "sacct").get("jobs", ())]

    def submit(self, arguments: Sequence[str]) -> int:
        printed = self.run("sbatch", "--parsable", *arguments).strip().splitlines()
        try:
            return int(printed[-1].partition(";")[0])
        except (IndexError, ValueError):
            raise ExecutorError(f"sbatch named no job: {printed[-1:]}", permanent=False) from None

    def cancel(self, jobs: Sequence[int], *options: str) -> None:
        """An ended job is no error."""
        if not jobs:
            return
        try:
            self.run("scancel", *options, *map(str, jobs))
        except ExecutorError as error:
            if "invalid job id" not in str(error).lower() and "already" not in str(error).lower():
                raise

    def partitions(self) -> tuple[str, str]:
        """All of them, and the configuration, which contains some limits for each."""
        return self.run(*PARTITIONS), self.run(*CONFIG)

    def nodes(self) -> str:
        return self.run("scontrol", "--details", "--oneliner", "show", "node")

    def running_on(self, nodes: Sequence[str], states: str, columns: str) -> str:
        """All users' jobs on these nodes."""
        return self.run(
            "squeue", "--noheader", "--local", f"--states={states}", f"--nodelist={','.join(nodes)}",
            f"--Format={columns}",
        )  # fmt: skip


def jobs_in(text: str, prefix: str) -> dict[str, list[SlurmJob]]:
    """From squeue's output, the jobs whose launch begins like this, by launch, and those that name none under ""."""
    lines = [_QUEUED.fullmatch(line) for line in text.splitlines()]
    if lines and not any(lines):
        raise ExecutorError(f"squeue printed no jobs: {text[:100]!r}", permanent=False)
    found: dict[str, list[SlurmJob]] = {}
    for line in lines:  # others of the same user may have a line end in their name
        if line is None:
            continue
        launch = launch_of(line[9] or "", line[10])
        # A job that does not name its launch may be any of ours: its id identifies it.
        if launch.startswith(prefix) or (not launch and prefix == PREFIX):
            found.setdefault(launch, []).append(_queued(line))
    return found


def _object(text: str, command: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ExecutorError(f"{command} printed no JSON: {text[:100]!r}", permanent=False)
    return content


def number(value: Any) -> int | None:
    """Of either form; None if it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _states(value: Any) -> frozenset[str]:
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(part for word in words for part in str(word).upper().replace("+", " ").split())


def _queued(line: re.Match[str]) -> SlurmJob:
    job_id, shown_id, state, nodes, start, end, limit, reason, comment, name = line.groups()
    leads = shown_id.partition("+")[0]
    return SlurmJob(
        job_id=int(job_id),
        leading_id=int(leads) if leads.isdecimal() else int(job_id),
        launch=launch_of(comment or "", name),
        name=name,
        states=_states(state),
        nodes=nodes,
        ended_at=float(end) if end.isdecimal() else None,
        started_at=float(start) if start.isdecimal() else None,
        limit_s=limit_seconds(limit),
        reason="" if reason == "None" else reason[:60],
    )


def limit_seconds(text: str) -> float | None:
    """Of `1-02:03:04`, `2:03:04` or `3:04`; None if there is no limit."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    return 86_400.0 * days + 3_600 * hours + 60 * minutes + seconds


def _accounted(entry: Mapping[str, Any]) -> SlurmJob:
    state, times = entry.get("state") or {}, entry.get("time") or {}
    return SlurmJob(
        job_id=number(entry.get("job_id")) or 0,
        name=str(entry.get("name") or ""),
        states=_states(state.get("current")),
        nodes=str(entry.get("nodes") or ""),
        ended_at=number(times.get("end")) or None,
        started_at=number(times.get("start")) or None,
    )
