"""The account of portals over Slurm and Ray where tests are root: as root these are refused."""

from __future__ import annotations

import functools
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAME = "evenkeel-test"


@functools.cache
def ordinary_account() -> int | None:
    """Its id, which its group has too; None where we are ordinary ourselves. Made once for this machine: Slurm starts
    no job of an account without an entry and a shell."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(NAME).pw_uid
    except KeyError:
        options = ["--system", "--user-group", "--no-create-home", "--home-dir=/nonexistent", "--shell=/bin/sh"]
        done = subprocess.run(["useradd", *options, NAME], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"SKIPPED: there is no ordinary account for the portal: {done.stderr.strip()}")
    return pwd.getpwnam(NAME).pw_uid


def starts_as(account: int | str | None) -> dict[str, Any]:
    """For subprocess."""
    return {} if account is None else {"user": account, "group": account, "extra_groups": []}


def hand_over(tree: Path, account: int | str | None) -> None:
    if account is None:
        return
    if isinstance(account, str):
        account = pwd.getpwnam(account).pw_uid
    for folder, _, names in os.walk(tree):
        os.chown(folder, account, account)
        for name in names:
            os.chown(Path(folder) / name, account, account, follow_symlinks=False)
