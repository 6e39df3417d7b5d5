"""A real Slurm for the tests: Debian's packages, started once per session, on loopback, ended by process id.

TEST_SLURM names another release of Debian, as `trixie`: its Slurm then runs in a root file system of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.slurm_chroot import commands_of
from scripts.slurm_cluster import SlurmCluster, install, running


@contextmanager
def slurm_or_skipped(**options: Any) -> Iterator[SlurmCluster]:
    """Skips, and says why, where it cannot be installed or does not come up. `options`: SlurmCluster's."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: a Slurm of our own needs root")
    if reason := install(options.get("accounting", False)):
        pytest.skip(f"SKIPPED: no Slurm here: {reason}")
    root = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        if (commands := commands_to_test()) is not None:
            patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        try:
            with running(SlurmCluster(root, commands=commands, **options)) as cluster:
                yield cluster
        except PermissionError as error:
            pytest.skip(f"SKIPPED: device files cannot be made here: {error}")
        finally:
            shutil.rmtree(root, ignore_errors=True)


def commands_to_test() -> Path | None:
    """Of the release in TEST_SLURM; None: this machine's own."""
    if not (suite := os.environ.get("TEST_SLURM")):
        return None
    found = commands_of(suite)
    if isinstance(found, str):
        pytest.skip(f"SKIPPED: {found}")
    return found


def portal_settings(cluster: SlurmCluster) -> dict[str, str]:
    """Of a portal whose jobs run there, on emulated GPUs."""
    return {
        "EVENKEEL_EXECUTOR": "slurm",
        "EVENKEEL_SLURM_CONF": str(cluster.conf),
        "EVENKEEL_EMULATED": "1",
        "EVENKEEL_VIRTUAL_ACCELERATORS": "",
    }


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=3, gpus=4) as cluster:
        yield cluster
