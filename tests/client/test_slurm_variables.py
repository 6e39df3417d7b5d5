"""Slurm's variables, as a program finds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from evenkeel.runner.slurm_variables import job_variables, task_variables, with_slurms_commands

OF_A_STEP = {
    "SLURM_JOB_ID": "22", "SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_NODELIST_HET_GROUP_1": "gpu2",
    "SLURMD_NODENAME": "gpu2", "SLURM_CONF": "/etc/slurm.conf", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
    "SLURM_EXPORT_ENV": "NONE", "SLURM_CPU_BIND": "quiet", "SLURM_TASK_PID": "7", "SLURM_NTASKS": "2",
    "SLURM_CPUS_PER_TASK": "9", "HOME": "/root",
}  # fmt: skip


def test_a_program_finds_what_is_of_its_job_and_nothing_of_the_runners_step() -> None:
    kept = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST_HET_GROUP_1", "SLURMD_NODENAME", "SLURM_CONF"}
    assert job_variables(OF_A_STEP).keys() == kept
    assert job_variables({"SLURM_CONF": "/etc/slurm.conf"}) == {}  # not started by Slurm


def test_each_worker_is_a_task() -> None:
    found = task_variables(OF_A_STEP, rank=3, local_rank=1, node=1, world_size=5, workers=[2, 2, 1])
    assert found == {
        "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "5", "SLURM_NPROCS": "5",
        "SLURM_TASKS_PER_NODE": "2(x2),1", "SLURM_CPUS_PER_TASK": "4",
    }  # fmt: skip
    assert task_variables({}, rank=0, local_rank=0, node=0, world_size=1, workers=[1]) == {}


def test_srun_is_found_wherever_the_site_has_it(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    there = {"SLURM_JOB_ID": "1", "PATH": str(tmp_path)}
    assert with_slurms_commands("/bin", there) == f"/bin:{tmp_path}"
    assert with_slurms_commands(f"{tmp_path}:/bin", there) == f"{tmp_path}:/bin"
    assert with_slurms_commands("/bin", {"PATH": str(tmp_path)}) == "/bin"


@pytest.mark.parametrize("name", ["SLURM_JOB_IDX", "XSLURM_JOB_ID", "SLURM_JOB_GPUS_HET_GROUP_"])
def test_other_names_stay_away(name: str) -> None:
    assert name not in job_variables({"SLURM_JOB_ID": "1", name: "x"})
