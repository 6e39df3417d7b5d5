"""The account of the embedded servers.

PostgreSQL refuses to run as root. If we are root, the servers get a separate numeric account, which needs no entry in
/etc/passwd. Only `initdb` requires a name, so it runs as `nobody` and its result is handed over.
"""

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from portal.config.setup_errors import SetupError

# below 65536, so that containers with a mapped range have it; outside the ranges of Debian and systemd
SERVICE_ID = 60_999


class SpawnAs(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]
    umask: int


@dataclass(frozen=True)
class Account:
    """`uid` None: the servers run under our own account."""

    uid: int | None

    def spawn_as(self) -> SpawnAs:
        if self.uid is None:
            return {"umask": 0o077}
        return {"user": self.uid, "group": self.uid, "extra_groups": [], "umask": 0o077}

    def private_dir(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)
        self.take(path)
        path.chmod(0o700)

    def take(self, path: Path) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def take_tree(self, root: Path) -> None:
        for path in (root, *root.rglob("*")):
            self.take(path)

    def reaches(self, path: Path) -> bool:
        """Whether every directory on the path is accessible to other accounts."""
        if self.uid is None:
            return True
        return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents if parent.exists())

    def program(self, path: Path, copies: Path) -> Path:
        """The program itself, or a copy of its installation if the account cannot access it."""
        if self.reaches(path):
            return path
        installation = path.parent.parent
        copy = copies / installation.name
        if not copy.exists():
            partial = copies / f"{installation.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            copies.mkdir(parents=True, exist_ok=True)
            shutil.copytree(installation, partial, symlinks=True)
            partial.rename(copy)
        return copy / path.parent.name / path.name


def service_account() -> Account:
    return Account(SERVICE_ID if os.geteuid() == 0 else None)


def named_account() -> Account:
    """An unprivileged account with a name, for the one program that requires it."""
    if os.geteuid() != 0:
        return Account(None)
    entries = sorted(pwd.getpwall(), key=lambda entry: entry.pw_name != "nobody")
    for entry in entries:
        if entry.pw_uid != 0:
            return Account(entry.pw_uid)
    raise SetupError("PostgreSQL does not run as root and this machine has no other account; start as another user.")
