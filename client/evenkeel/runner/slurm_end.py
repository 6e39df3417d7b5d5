"""How a runner that is a Slurm job's batch script leaves it, so that Slurm's accounting tells ends apart."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0


def leave_slurm(exit_code: int, epoch_dir: Path, *, on_request: bool) -> int:
    """The exit code of this process: the program's. A job that ended at the portal's request is cancelled before, as
    nothing else makes its state CANCELLED; where that fails it is COMPLETED or FAILED, and has ended all the same."""
    if not on_request:
        return exit_code
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCANCEL_")}
    try:
        (epoch_dir / "stop").touch(mode=0o600)  # the portal reads from it that the stop was asked for
        subprocess.run(
            ["scancel", "--quiet", os.environ["SLURM_JOB_ID"]], env=kept, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("Slurm does not count the job as cancelled: %s", error)
    return exit_code
