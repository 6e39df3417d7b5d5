"""Slurm's commands, each with a timeout, never through a shell; what they print becomes typed values.

`squeue` is asked for lines: with `--json` 22.05 ignores filters, so that the controller would send the jobs of the
whole cluster at each look; `--me` has it send ours alone. The JSON of `sacct` differs between versions: a state is a
word (22.05) or a list of them (23.11), a number is itself or {"set", "infinite", "number"}.
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

#: Commands try for minutes to reach a controller that is gone.
TIMEOUT_S = 20.0
MAX_WORDS = 300
#: Number, state, nodes, start, end, time limit, reason, and last the name, which may hold anything.
_QUEUE_FORMAT = "%A|%T|%N|%S|%e|%l|%r|%j"
_QUEUED = re.compile(r"([0-9]+)\|([A-Z_+ ]+)\|" + r"([^|]*)\|" * 5 + r"(.*)")
_LIMIT = re.compile(r"(?:(?:(?P<days>[0-9]+)-)?(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)")
#: Slurm looks now and then: it may ask a job to end so much earlier than it was told.
_EARLY_S = 60.0
#: What Slurm says of requests that it will refuse again.
LASTING = (
    "invalid account", "invalid partition", "invalid qos", "invalid generic resource", "invalid node name",
    "requested node configuration is not available", "requested partition configuration not available",
    "permission denied", "access/permission", "invalid job id specified", "unrecognized option", "invalid option",
    "time limit specification", "user's group not permitted", "requested reservation is invalid",
)  # fmt: skip
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
    #: Why it waits, in Slurm's word, as far as it does.
    reason: str = ""
    started_at: float | None = None
    limit_s: float | None = None

    def ended_by_limit(self, end_signal_s: float) -> bool:
        """It ended at its time limit, or when it was asked to, so long before."""
        if self.ended("TIMEOUT") or self.ended("DEADLINE"):
            return True
        if self.limit_s is None or self.started_at is None or self.ended_at is None:
            return False
        return self.ended_at - self.started_at >= self.limit_s - end_signal_s - _EARLY_S

    @property
    def over(self) -> bool:
        """Nothing of it runs any more: it has ended, and its nodes have said so (not COMPLETING)."""
        return bool(self.states & FINAL) and "COMPLETING" not in self.states

    @property
    def pending(self) -> bool:
        return "PENDING" in self.states

    def ended(self, state: str) -> bool:
        return state in self.states


class Commands:
    def __init__(self, conf: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._conf, self._timeout_s = conf, timeout_s

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        """What the command printed; ExecutorError where it failed or did not answer in time."""
        timeout_s = timeout_s or self._timeout_s
        try:
            result = subprocess.run(
                command, env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=timeout_s, cwd="/", text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            text = f"{command[0]} had no answer from Slurm within {timeout_s:g} s"
            raise ExecutorError(text, permanent=False) from None
        except OSError as error:
            raise ExecutorError(f"{command[0]} cannot be run: {error}", permanent=True) from error
        if result.returncode != 0:
            words = " ".join((result.stderr or result.stdout).split())[-MAX_WORDS:]
            lasting = any(phrase in words.lower() for phrase in LASTING)
            raise ExecutorError(f"{command[0]}: {words or f'code {result.returncode}'}", permanent=lasting)
        return result.stdout

    def _environment(self) -> dict[str, str]:
        """Ours without what would change the commands' options or the form of what they print."""
        prefixes = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SRUN_", "EVENKEEL_", "DJANGO_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
        conf = self._conf or os.environ.get("SLURM_CONF", "")
        return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"} | ({"SLURM_CONF": conf} if conf else {})

    def jobs(self, prefix: str) -> dict[str, list[SlurmJob]]:
        """Our jobs whose name begins so, by name, those included that ended within Slurm's MinJobAge."""
        text = self.run("squeue", "--noheader", "--states=all", "--me", f"--format={_QUEUE_FORMAT}")
        lines = [_QUEUED.fullmatch(line) for line in text.splitlines()]
        if lines and not any(lines):
            raise ExecutorError(f"squeue printed no jobs: {text[:100]!r}", permanent=False)
        found: dict[str, list[SlurmJob]] = {}
        for line in lines:  # others of the same user may have a line end in their name
            if line and line[8].startswith(prefix):
                found.setdefault(line[8], []).append(_queued(line))
        return found

    def past_jobs(self, name: str) -> list[SlurmJob] | None:
        """Jobs of that name in accounting; None where Slurm keeps none."""
        try:
            text = self.run("sacct", "--json", "--allocations", f"--name={name}", "--starttime=now-30days")
        except ExecutorError as error:
            if "accounting storage is disabled" in str(error):
                return None
            raise
        if not text.lstrip().startswith("{"):
            return None
        jobs = (_accounted(entry) for entry in _object(text, "sacct").get("jobs", ()))
        return [job for job in jobs if job.name == name]

    def submit(self, arguments: Sequence[str]) -> int:
        printed = self.run("sbatch", "--parsable", *arguments).strip().splitlines()
        try:
            return int(printed[-1].partition(";")[0])
        except (IndexError, ValueError):
            raise ExecutorError(f"sbatch named no job: {printed[-1:]}", permanent=False) from None

    def cancel(self, jobs: Sequence[int], *options: str) -> None:
        """What has ended meanwhile is no error."""
        if not jobs:
            return
        try:
            self.run("scancel", *options, *map(str, jobs))
        except ExecutorError as error:
            if "invalid job id" not in str(error).lower() and "already" not in str(error).lower():
                raise

    def nodes(self) -> str:
        return self.run("scontrol", "--details", "--oneliner", "show", "node")

    def running_on(self, nodes: Sequence[str], states: str, columns: str) -> str:
        """Everybody's jobs that have something of these nodes."""
        return self.run(
            "squeue", "--noheader", f"--states={states}", f"--nodelist={','.join(nodes)}", f"--Format={columns}"
        )


def _object(text: str, command: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ExecutorError(f"{command} printed no JSON: {text[:100]!r}", permanent=False)
    return content


def number(value: Any) -> int | None:
    """Of either form; None where it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _states(value: Any) -> frozenset[str]:
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(part for word in words for part in str(word).upper().replace("+", " ").split())


def _queued(line: re.Match[str]) -> SlurmJob:
    job_id, state, nodes, start, end, limit, reason, name = line.groups()
    return SlurmJob(
        job_id=int(job_id),
        name=name,
        states=_states(state),
        nodes=nodes,
        ended_at=float(end) if end.isdecimal() else None,
        started_at=float(start) if start.isdecimal() else None,
        limit_s=limit_seconds(limit),
        reason="" if reason == "None" else reason[:60],
    )


def limit_seconds(text: str) -> float | None:
    """Of `1-02:03:04`, `2:03:04` or `3:04`; None where there is no limit."""
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
    )
