"""UNIX accounts for tests, and evenkeel-run-as installed for them; both are removed afterwards. Needs root."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from scheduling.executors.slurm import run_as_helper

SOURCE = Path(run_as_helper.__file__)
TREE = SOURCE.parents[3]
ALICE, BOB, CAROL, PORTAL, GROUP = "ek-alice", "ek-bob", "ek-carol", "ek-portal", "ek-people"


@dataclass(frozen=True)
class People:
    """`root`: a directory that is root's alone. carol is not in the group."""

    root: Path

    @property
    def configuration(self) -> Path:
        return self.root / "run-as.conf"

    @property
    def helper(self) -> Path:
        return self.root / "evenkeel-run-as"

    def configure(self, shared: Path, **settings: str) -> None:
        state = self.root / "state"
        state.mkdir(mode=0o711, exist_ok=True)
        state.chmod(0o711)
        known = {
            "portal": PORTAL, "group": GROUP, "shared_dir": str(shared), "state_dir": str(state),
            "python": sys.executable, "tree": str(TREE),
        }  # fmt: skip
        lines = [f"{name} = {value}" for name, value in (known | settings).items() if value]
        self.configuration.write_text("\n".join(["[default]", *lines, ""]))
        self.configuration.chmod(0o644)

    @contextmanager
    def sudo(self) -> Iterator[None]:
        """The rule of the documents."""
        if shutil.which("sudo") is None:
            pytest.skip("SKIPPED: there is no sudo here")
        rule = Path("/etc/sudoers.d") / self.root.name
        rule.write_text(f"{PORTAL} ALL=(root) NOPASSWD: {self.helper}\n")
        rule.chmod(0o440)
        try:
            yield
        finally:
            rule.unlink()

    def install(self) -> None:
        """As the documents say, but for the place of its configuration."""
        before = f'CONFIGURATION = "{run_as_helper.CONFIGURATION}"'
        text = SOURCE.read_text()
        assert before in text
        self.helper.write_text(text.replace(before, f'CONFIGURATION = "{self.configuration}"'))
        self.helper.chmod(0o755)


@contextmanager
def people() -> Iterator[People]:
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("SKIPPED: accounts are made by root, with useradd")
    root = Path(tempfile.mkdtemp(prefix="ek-", dir="/opt"))  # nobody else's, on the way there neither
    try:
        root.chmod(0o755)
        with (Path(tempfile.gettempdir()) / "ek-accounts.lock").open("a") as lock, _accounts_for(lock):
            made = People(root)
            made.install()
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _accounts_for(lock: IO[str]) -> Iterator[None]:
    """The names are the machine's: one test at a time has them."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_accounts()
    _run("groupadd", GROUP)
    try:
        for name in (ALICE, BOB, CAROL, PORTAL):
            more = ("--groups", GROUP) if name in (ALICE, BOB) else ()
            _run("useradd", "--create-home", "--user-group", "--shell", "/bin/sh", *more, name)
            Path(pwd.getpwnam(name).pw_dir).chmod(0o700)
        yield
    finally:
        remove_accounts()


def remove_accounts() -> None:
    for name in (ALICE, BOB, CAROL, PORTAL):
        if name in {one.pw_name for one in pwd.getpwall()}:
            subprocess.run(["userdel", "--remove", "--force", name], check=False, capture_output=True)
    if GROUP in {one.gr_name for one in grp.getgrall()}:
        subprocess.run(["groupdel", GROUP], check=False, capture_output=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
