"""The batch script of a launch, run without Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from scheduling.executors.slurm.launch.launching import SCRIPT


def test_a_request_to_end_before_the_runner_can_take_it_does_not_fail_the_job(tmp_path: Path) -> None:
    """Slurm would call it FAILED 0:10: the request is made again until it is heard."""
    runner, epoch = tmp_path / "python", tmp_path / "epoch"
    begun = tmp_path / "begun"
    runner.write_text(f"#!/bin/sh\ntouch {begun}\nsleep 1\nexit 7\n")
    runner.chmod(0o755)
    epoch.mkdir()
    slurm = {"SLURM_JOB_ID": "22", "SLURMD_NODENAME": "gpu1", "SLURM_JOB_NUM_NODES": "1"}
    process = subprocess.Popen(["/bin/sh", SCRIPT, epoch, runner, "nodes"], env={**os.environ, **slurm})
    while not (epoch / "claim" / "job").exists():
        time.sleep(0.01)
    for _ in range(20):
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.01)
    assert process.wait(30) == 7
    assert begun.exists()
