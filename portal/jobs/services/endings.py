"""How a run ended, in a sentence for people. What it advises is what the portal then accepts."""

from __future__ import annotations

from portal.jobs.models import Run
from scheduling.executors.base import ExitInfo

#: PyTorch says so where its allocator was limited, as the SDK does; other jobs may fill the device, too.
_BY_ITS_LIMIT = "allowed; "
#: So the runner says that the job was over its `memory`.
_OF_THE_NODE = "used more than its"


def and_then(why: str, text: str) -> str:
    """Both as sentences; what a program said ends as it likes."""
    return f"{why}{'' if why.endswith(('.', '!', '?')) else '.'} {text}"


_AT_ENGINES_LIMIT = (
    "The engine's time limit ended it (in Slurm the partition's, or EVENKEEL_SLURM_TIME), and its program cannot go on "
    "from a checkpoint, so it is not started again. Let it write checkpoints (docs/training.md), say restartable: true "
    "where it continues by itself, make it shorter, or ask for a longer limit. What it saved in EVENKEEL_ARTIFACT_DIR "
    "can be downloaded."
)


def explain_exit(info: ExitInfo, run: Run | None = None) -> str:
    said = f" It said: {info.message}" if info.message else ""
    match info.reason:
        case "user_error":
            return f"The program ended with exit code {info.exit_code}.{said}"
        case "signal":
            return f"A process was ended by signal {info.signal}.{said}"
        case "out_of_memory":
            return f"{_out_of_memory(info, run)}{said}"
        case "time_limit" if info.engine_limit:
            return f"{_AT_ENGINES_LIMIT}{said}"
        case "time_limit":
            return f"It trained for as long as its max_duration allows. {_after_time_limit(info, run)}{said}"
        case "not_prepared":
            return info.message or "Its code or environment cannot be had."
        case "data_unavailable":
            return f"Its data cannot be had: {info.message}"
        case "launch_failed":
            return info.message if info.permanent and info.message else f"It could not be started.{said}"
        case "runner_lost":
            return info.message or "Its processes are gone and left no word."
        case _:
            return f"It ended ({info.reason}).{said}"


def _out_of_memory(info: ExitInfo, run: Run | None) -> str:
    gpu_memory_mib = run.job.gpu_memory_mib if run else 0
    if gpu_memory_mib and _BY_ITS_LIMIT in info.message:
        limit = f"the {gpu_memory_mib:,} MiB that it may use of a GPU"
        return f"It ran out of {limit}. More of it (gpus.memory) or a smaller batch may help."
    if _OF_THE_NODE in info.message:
        return "It ran out of memory. More of it (memory) may help."
    more = "" if run and run.job.max_gpus == run.job.min_gpus else " or more GPUs"
    return f"It ran out of memory. A smaller batch{more} may help."


def _after_time_limit(info: ExitInfo, run: Run | None) -> str:
    if run and 0 < run.checkpoint_step < run.job.total_steps:
        return "Resubmit it with resume_from: latest to go on."
    longer = "Resubmit it with a larger max_duration to let it run for longer."
    if run and run.uses_sdk is False:
        return f"What it saved in EVENKEEL_ARTIFACT_DIR can be downloaded. {longer}"
    return f"It wrote no checkpoint. {longer}"
