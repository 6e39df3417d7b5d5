"""Slurm's variables as a program finds them that `srun` has started once per GPU."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

#: Of the job as a whole. What is of the runner's own step, or changes what another srun does by itself, stays away.
_JOBS = re.compile(
    r"SLURM_(CONF|CLUSTER_NAME|JOB_(ID|NAME|ACCOUNT|PARTITION|QOS|RESERVATION|UID|GID|USER|GROUP|GPUS|NODELIST|NUM_NODES"
    r"|CPUS_PER_NODE|LICENSES|START_TIME|END_TIME|CONSTRAINTS)|JOBID|NODELIST|NNODES|CPUS_ON_NODE|GPUS_ON_NODE"
    r"|MEM_PER_NODE|MEM_PER_CPU|SUBMIT_HOST|TOPOLOGY_ADDR|TOPOLOGY_ADDR_PATTERN|RESTART_COUNT|WCKEY|HET_SIZE)"
    r"(_HET_GROUP_[0-9]+)?|SLURMD_NODENAME"
)


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What Slurm told the runner of its job; nothing where it was not started by Slurm."""
    if "SLURM_JOB_ID" not in environment:
        return {}
    return {name: value for name, value in environment.items() if _JOBS.fullmatch(name)}


def task_variables(
    environment: Mapping[str, str], *, rank: int, local_rank: int, node: int, world_size: int, workers: Sequence[int]
) -> dict[str, str]:
    """Of one worker, as one of so many tasks; `workers`: of each node, the leading one first."""
    if "SLURM_JOB_ID" not in environment:
        return {}
    here = workers[node] if node < len(workers) else 1
    found = {
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local_rank), "SLURM_NODEID": str(node),
        "SLURM_NTASKS": str(world_size), "SLURM_NPROCS": str(world_size), "SLURM_TASKS_PER_NODE": _counted(workers),
    }  # fmt: skip
    if (cpus := environment.get("SLURM_CPUS_PER_TASK", "")).isdecimal():
        found["SLURM_CPUS_PER_TASK"] = str(max(1, int(cpus) // max(1, here)))
    return found


def _counted(workers: Sequence[int]) -> str:
    """`2(x2),1`, as Slurm writes it."""
    runs = [(count, len(list(same))) for count, same in groupby(workers)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def with_slurms_commands(path: str, environment: Mapping[str, str] = os.environ) -> str:
    """The search path with the folder of srun at its end, wherever the site has it."""
    srun = shutil.which("srun", path=environment.get("PATH")) if "SLURM_JOB_ID" in environment else None
    folder = str(Path(srun).parent) if srun else ""
    return path if not folder or folder in path.split(":") else f"{path}:{folder}"
