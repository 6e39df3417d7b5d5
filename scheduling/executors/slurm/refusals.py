"""Error messages of Slurm's commands: whether they are temporary, and what to do if they are not. The messages are
those of 22.05 to 25.11 (slurm_errno.c), in lower case."""

from __future__ import annotations

from dataclasses import dataclass

_ACCOUNTS = (
    "Have an administrator give the portal's account (or the person's) an association with it (`sacctmgr`), or name "
    "another account, QOS or partition in the project's settings (`evenkeel projects set-slurm`), and submit it again"
)
_SITE = "Have an administrator look at the project's settings in Slurm (`evenkeel projects set-slurm`)"
_FILE = "Change `slurm` in the job file, and submit it again"
_LIMITS = "Ask for fewer GPUs or less time, or have an administrator raise the limit, and submit it again"

#: Of sbatch: every later launch of the job fails until the site or the job changes.
LASTING: tuple[tuple[str, str], ...] = (
    ("invalid account", _ACCOUNTS),
    ("not permitted to use this partition", _ACCOUNTS),  # user's group, job's account, job's qos
    ("invalid qos", _ACCOUNTS),
    ("invalid partition", _SITE),
    ("user does not belong to specified account", _ACCOUNTS),
    ("invalid wckey", _ACCOUNTS),
    ("requested reservation is invalid", _SITE),
    ("access denied to requested reservation", _SITE),
    ("requested partition configuration not available", _LIMITS),
    ("job violates accounting", _LIMITS),
    ("job exceeds a limit", _LIMITS),
    ("requested time limit is invalid", _LIMITS),
    ("time limit specification", _LIMITS),
    ("invalid feature", _FILE),
    ("invalid constraint", _FILE),
    ("invalid license", _FILE),
    ("invalid generic resource", _FILE),
    ("invalid gres", _FILE),
    ("invalid trackable resource", _FILE),
    ("unrecognized option", _FILE),
    ("invalid option", _FILE),
    ("access/permission denied", _ACCOUNTS),
    ("invalid user id", _ACCOUNTS),
)
#: Of all commands: temporary.
PASSING = (
    "socket timed out", "unable to contact slurm controller", "temporarily unable", "temporarily unavailable",
    "zero bytes were transmitted", "communication connection failure", "communication shutdown failure",
    "message receive failure", "message send failure", "unexpected message received", "connection refused",
    "connection reset", "connection timed out", "transport endpoint is not connected", "standby mode",
    "rate limit exceeded", "is busy", "queue full", "required partition not available", "not yet in service",
    "had no answer from slurm", "slurmctld is currently", "try again", "protocol authentication error",
    "submitjob", "please retry",
)  # fmt: skip
#: Requests that would be refused again, though another launch of the job may succeed.
_AGAIN = (
    "invalid node name", "requested node configuration is not available", "permission denied",
    "invalid job id specified",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refusal:
    """`permanent`: the same request fails again. `by_engine`: with `permanent`, every later launch of the job fails,
    too; without, it is not counted against the job. `advice`: what to do."""

    permanent: bool
    by_engine: bool
    advice: str = ""


def judge(words: str, command: str) -> Refusal:
    said = words.lower()
    if any(phrase in said for phrase in PASSING):
        return Refusal(permanent=False, by_engine=True)
    for phrase, advice in LASTING:
        if phrase in said:
            return Refusal(permanent=True, by_engine=command == "sbatch", advice=advice)
    return Refusal(permanent=any(phrase in said for phrase in _AGAIN), by_engine=False)
