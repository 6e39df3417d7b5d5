"""The accounts of jobs: if the portal is root, each project has its own numeric account.

The accounts need no entry in /etc/passwd. A project's files are untrusted (links, pipes, huge files), so root accesses
them only with the file permissions of their owner.
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

#: Time limit for one job's files when it changes project.
MAX_GIVEN, MAX_GIVING_S = 5_000_000, 120.0
PR_GET_PDEATHSIG, PR_GET_DUMPABLE = 2, 3
_libc = ctypes.CDLL(None, use_errno=True)


class SpawnAs(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """`uid` None: everything runs under the portal's account. `stop_lock`: held while the portal itself has stopped all
    of its processes for a moment (`Accounts.stopping`)."""

    uid: int | None
    stop_lock: Path | None = field(default=None, compare=False)

    def spawn_as(self) -> SpawnAs:
        return {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}

    def give(self, path: Path) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def take_over(self, path: Path) -> None:
        """Give the directory to the account; with its contents if another account owned it: the one of the job's former
        project, or root, after a restored backup without owners. Only files of that one owner change hands, and no link
        is followed. An interrupted change is started again: the top directory comes last."""
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
        """Take over a directory of the portal: a new one, or one restored from a backup without owners. A missing one
        is ignored; another project's stays with that project."""
        with contextlib.suppress(FileNotFoundError):
            if path.stat(follow_symlinks=False).st_uid == os.geteuid():
                self.take_over(path)

    @contextlib.contextmanager
    def files(self) -> Iterator[None]:
        """This thread accesses the file system as the account and creates files that belong to it."""
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
    """Each directory after its contents. Processes of the previous owner may still rename files: the inspected file is
    the one that changes hands. A file with several names may come from elsewhere, and keeps its owner."""

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
    """Linux keeps these two per thread, unlike the ids that setuid changes. The calls do not report failure, so each is
    called a second time to read the value."""
    if uid == 0:  # back to root before the group, which needs its rights
        _libc.setfsuid(uid)
        _libc.setfsgid(gid)
    else:
        _libc.setfsgid(gid)
        _libc.setfsuid(uid)
    if _libc.setfsuid(-1) != uid or _libc.setfsgid(-1) != gid:
        raise PermissionError(f"cannot reach files as account {uid}")


def _process_flags() -> tuple[int, int]:
    """Parent-death signal and dumpability, which the kernel resets with any change of ids."""
    death_signal = ctypes.c_int(0)
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    return death_signal.value, _libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)


def _restore_process_flags(death_signal: int, dumpable: int) -> None:
    prctl(PR_SET_PDEATHSIG, death_signal)
    if dumpable == 1:
        prctl(PR_SET_DUMPABLE, 1)


class Accounts:
    """The mapping from projects to accounts, in DATA/run/accounts.json: an assigned number stays."""

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
        """Raises ExecutorError if the accounts may belong to another portal: then nothing is started or ended."""
        if self.problem:
            raise ExecutorError(self.problem, permanent=False)

    @property
    def first_uid(self) -> int | None:
        return self._block.first_uid if self._block else None

    @property
    def keepers_uid(self) -> int | None:
        """Account of the keepers of networks: no project's, and not among the ids of any process that signals one."""
        return self._block.first_uid + PROJECT_UIDS if self._block else None

    def places(self) -> tuple[Path, ...]:
        """The data directories whose runs use these accounts: a portal may have several local clusters."""
        return places_of(self._registry, self._block.first_uid) if self._block else ()

    def owns(self, account: Account) -> bool:
        """Whether all processes of the account were started from this data directory."""
        return self._block is not None and self._block.contains(account.uid)

    @contextlib.contextmanager
    def beginning(self, account: Account) -> Iterator[None]:
        """Inside, a process of the account is being started: its processes are not all ended meanwhile."""
        if account.uid is None:
            yield
            return
        with self._lock_path(account).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def nothing_begins(self, account: Account) -> Iterator[bool]:
        """True if no process of the account is being started, and none will be until the end of the block."""
        with self._lock_path(account).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    @contextlib.contextmanager
    def stopping(self, account: Account) -> Iterator[None]:
        """Inside, the portal has stopped all processes of the account: a check that finds a stopped one waits, and
        checks again."""
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
    """The first thing LocalExecutor does, with the same options; raises ExecutorError if it may start nothing."""
    data = Path(options["data_dir"]).resolve()
    file = options.get("accounts_file") or data / "run" / "accounts.json"
    if os.geteuid() == 0:
        file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        Accounts(file, place=data, separate=True, registry=options["accounts_registry"]).check()


def isolation_problem(jobs: Path, first_uid: int | None) -> str | None:
    """Why separate accounts cannot work here, in one sentence; None if they can."""
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
    """The directory (or file) on the path that other accounts cannot access."""
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
