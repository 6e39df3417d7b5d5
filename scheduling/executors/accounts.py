"""Who jobs run as: where the portal is root, each project has a numeric account of its own.

The accounts need no entry in /etc/passwd. What a project owns may be full of traps (links, pipes,
huge files), so root touches it only with the file permissions of its owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import evenkeel
from evenkeel.runner.processes import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl
from evenkeel.runner.trees import Bounds, OutOfBounds, walk

from scheduling.errors import ExecutorError
from scheduling.executors.account_blocks import PROJECT_UIDS, REGISTRY, Block, claim, places_of, read_block

#: Of one job's files, when it changes hands.
MAX_GIVEN, MAX_GIVING_S = 5_000_000, 120.0
PR_GET_PDEATHSIG, PR_GET_DUMPABLE = 2, 3
_libc = ctypes.CDLL(None, use_errno=True)


class SpawnAs(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """`uid` None: everything runs as the portal's own account. `stop_lock`: held while the portal itself has stopped
    all of it for a moment (`Accounts.stopping`)."""

    uid: int | None
    stop_lock: Path | None = field(default=None, compare=False)

    def spawn_as(self) -> SpawnAs:
        return {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}

    def give(self, path: Path) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def take_over(self, path: Path) -> None:
        """Gives the directory to the account; with all that is in it where it was another's: of the account whose
        project the job has left, or root's, where a backup was copied back without its owners. Only what that one
        owned changes hands, and no link is followed. What was interrupted is begun again: the top comes last."""
        if self.uid is None:
            return
        before = path.stat(follow_symlinks=False).st_uid
        if before != self.uid:
            top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _give_below(top, before, self.uid)
            finally:
                os.close(top)
        self.give(path)

    def adopt(self, path: Path) -> None:
        """Takes over what is the portal's own: new, or copied back from a backup without its owners. Nothing is done
        where there is nothing; what is another project's stays that one's."""
        with contextlib.suppress(FileNotFoundError):
            if path.stat(follow_symlinks=False).st_uid == os.geteuid():
                self.take_over(path)

    @contextlib.contextmanager
    def files(self) -> Iterator[None]:
        """This thread reaches the file system as the account and makes files that belong to it."""
        if self.uid is None:
            yield
            return
        before = _process_flags()
        _set_file_ids(self.uid, self.uid)
        try:
            yield
        finally:
            _set_file_ids(0, 0)
            _restore_process_flags(*before)


def _give_below(top: int, before: int, uid: int) -> None:
    """Each directory after all that is in it. Processes of the one before may still exchange names: what was looked at
    is what changes hands. A file with several names may be one from elsewhere, and stays whose it is."""

    def visit(directory: int, name: str) -> bool:
        try:
            entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(entry)
            if stat.S_ISDIR(found.st_mode):
                return True
            if found.st_uid == before and found.st_nlink == 1:
                os.chown(f"/proc/self/fd/{entry}", uid, uid)
            return False
        finally:
            os.close(entry)

    def leave(directory: int) -> None:
        if os.fstat(directory).st_uid == before:
            os.chown(directory, uid, uid)

    try:
        walk(top, Bounds(MAX_GIVEN, MAX_GIVING_S), visit, leave)
    except OutOfBounds:
        text = f"more than {MAX_GIVEN:,} files, or more than can be given within {MAX_GIVING_S:g} s"
        raise OSError(errno.E2BIG, text) from None


def _set_file_ids(uid: int, gid: int) -> None:
    """Linux keeps these two per thread, unlike the ids that setuid changes. The calls cannot fail
    visibly, so each is asked a second time what it set."""
    if uid == 0:  # back to root before the group, which needs its rights
        _libc.setfsuid(uid)
        _libc.setfsgid(gid)
    else:
        _libc.setfsgid(gid)
        _libc.setfsuid(uid)
    if _libc.setfsuid(-1) != uid or _libc.setfsgid(-1) != gid:
        raise PermissionError(f"cannot reach files as account {uid}")


def _process_flags() -> tuple[int, int]:
    """Parent-death signal and dumpability, which the kernel drops with any change of ids."""
    death_signal = ctypes.c_int(0)
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    return death_signal.value, _libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)


def _restore_process_flags(death_signal: int, dumpable: int) -> None:
    prctl(PR_SET_PDEATHSIG, death_signal)
    if dumpable == 1:
        prctl(PR_SET_DUMPABLE, 1)


class Accounts:
    """The map from projects to accounts, in DATA/run/accounts.json: a number once given stays."""

    def __init__(self, path: Path, *, place: Path, separate: bool, registry: Path = REGISTRY) -> None:
        self._path, self._registry, self.separate = path, registry, separate
        self._block: Block | None = None
        #: Why no account may be used, in one sentence.
        self.problem: str | None = None
        if separate and os.geteuid() == 0:
            try:
                self._block = claim(path, registry, place)
            except ExecutorError as error:
                self.problem = str(error)

    def check(self) -> None:
        """Raises ExecutorError where accounts may be another portal's: nothing is started, and nothing ended."""
        if self.problem:
            raise ExecutorError(self.problem, permanent=False)

    @property
    def first_uid(self) -> int | None:
        return self._block.first_uid if self._block else None

    @property
    def keepers_uid(self) -> int | None:
        """Of what keeps the networks of accounts: no project's, and in the ids of no process that signals one."""
        return self._block.first_uid + PROJECT_UIDS if self._block else None

    def places(self) -> tuple[Path, ...]:
        """The data directories whose runs use these accounts: a portal may have several local clusters."""
        return places_of(self._registry, self._block.first_uid) if self._block else ()

    def owns(self, account: Account) -> bool:
        """Whether all that runs under the account was started from this data directory."""
        return self._block is not None and self._block.contains(account.uid)

    @contextlib.contextmanager
    def beginning(self, account: Account) -> Iterator[None]:
        """Inside, something of the account is being started: nobody ends all that runs as it."""
        if account.uid is None:
            yield
            return
        with self._lock_path(account).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def nothing_begins(self, account: Account) -> Iterator[bool]:
        """True inside where nothing of the account is being started, and nothing will be until the end of the block."""
        with self._lock_path(account).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    @contextlib.contextmanager
    def stopping(self, account: Account) -> Iterator[None]:
        """Inside, the portal has stopped all processes of the account: a look that finds one stopped waits, and looks
        again."""
        with self._stop_lock_path(account.uid).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _lock_path(self, account: Account) -> Path:
        return self._path.with_name(f"account-{account.uid}.lock")

    def _stop_lock_path(self, uid: int | None) -> Path:
        return self._path.with_name(f"account-{uid}.stopping")

    def of_project(self, key: str) -> Account:
        if not self.separate:
            return Account(None)
        self.check()
        block = self._read()
        return self.of_uid(block.uid(block.projects[key] if key in block.projects else self._add(key)))

    def of_uid(self, uid: int | None) -> Account:
        return Account(None) if uid is None else Account(uid, self._stop_lock_path(uid))

    def _read(self) -> Block:
        block = read_block(self._path)
        if self._block is None or block is None or block.first_uid != self._block.first_uid:
            raise ExecutorError(f"{self._path} was replaced: restart the portal", permanent=False)
        return block

    def _add(self, key: str) -> int:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            block = self._read()
            number = block.projects.setdefault(key, max(block.projects.values(), default=0) + 1)
            block.write(self._path)
        return number


def claim_accounts(options: Mapping[str, Any]) -> None:
    """What LocalExecutor does first, given the same options; raises ExecutorError where it may start nothing."""
    data = Path(options["data_dir"]).resolve()
    file = options.get("accounts_file") or data / "run" / "accounts.json"
    if os.geteuid() == 0:
        file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        Accounts(file, place=data, separate=True, registry=options["accounts_registry"]).check()


def isolation_problem(jobs: Path, first_uid: int | None) -> str | None:
    """Why accounts of their own cannot work here, in one sentence; None when they can."""
    if first_uid is not None and not _mapped(first_uid):
        return f"This container does not map account {first_uid}: give it a larger range, or do not run as root."
    needed = (Path(sys.executable), Path(sys.executable).resolve(), Path(evenkeel.__file__), jobs)
    for path in needed:
        blocked = blocking(path)
        if blocked:
            return (
                f"Jobs run under accounts of their own, which cannot pass {blocked} on the way to {path}:"
                f" allow it with `chmod o+x {blocked}`, or install elsewhere."
            )
    return None


def blocking(path: Path) -> Path | None:
    """The directory (or file) on the way that keeps other accounts out."""
    for parent in reversed(path.absolute().parents):
        if parent.exists() and not parent.stat().st_mode & 0o001:
            return parent
    readable = 0o001 if path.is_dir() else 0o004
    return None if not path.exists() or path.stat().st_mode & readable else path


def _mapped(uid: int) -> bool:
    try:
        ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return True
    return any(start <= uid < start + length for start, _, length in ranges)
