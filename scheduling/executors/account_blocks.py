"""Separates the accounts of data directories on one machine: each has its own block of numeric user ids.

The blocks of a machine are in one registry that only root can read. `accounts.json` of a data directory names its block
and has a mark; the registry names the file. So a moved directory keeps its block, and a copy beside the original is
refused: jobs of both would run under the same accounts, and each portal would end the other's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError

FIRST_UID = 2_100_000
BLOCK_UIDS = 10_000
#: Size of a block for projects; as many ids above them are for processes that signal a whole account.
PROJECT_UIDS = BLOCK_UIDS // 2
#: The last one ends below 2**31, beyond which some programs take user ids for negative.
BLOCKS = 10_000
REGISTRY = Path("/var/lib/evenkeel/accounts")
FILE = "blocks.json"


@dataclass(frozen=True, slots=True)
class Block:
    """The accounts of one data directory: `first_uid` itself is unused, projects are numbered from 1."""

    first_uid: int
    mark: str
    projects: dict[str, int] = field(default_factory=dict)

    def uid(self, number: int) -> int:
        if not 0 < number < PROJECT_UIDS:
            raise ExecutorError(f"this data directory has used all {PROJECT_UIDS - 1:,} accounts", permanent=True)
        return self.first_uid + number

    def contains(self, uid: int | None) -> bool:
        return uid is not None and self.first_uid < uid < self.first_uid + PROJECT_UIDS

    def write(self, path: Path) -> None:
        content = {"first_uid": self.first_uid, "mark": self.mark, "projects": self.projects}
        write_atomically(path, content)


def read_block(path: Path) -> Block | None:
    """The block in the file; without a mark if it was written before blocks existed. None if there is no file."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    if "first_uid" not in content:
        return Block(FIRST_UID, "", content)
    return Block(int(content["first_uid"]), str(content["mark"]), dict(content["projects"]))


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered block. `places`: the data directories whose executors start runs under it."""

    file: str
    mark: str
    places: tuple[str, ...] = ()


Entries = dict[int, Entry]


def claim(path: Path, registry: Path, place: Path, subuids: Path = Path("/etc/subuid")) -> Block:
    """The block of the `accounts.json` at `path`, registered for it. Raises ExecutorError if it belongs to another."""
    with _registered(registry) as entries:
        file = path.resolve()
        found = read_block(file)
        if found is None:
            found = Block(_free(entries, _ranges(subuids)), secrets.token_hex(16))
        else:
            _refuse_foreign(found, file, entries)
        if not found.mark:
            found = Block(found.first_uid, secrets.token_hex(16), found.projects)
        _enter(entries, file, found, (str(place),))
        if found != read_block(file):
            found.write(file)
    return found


def _enter(entries: Entries, file: Path, block: Block, places: tuple[str, ...]) -> None:
    before = entries.get(block.first_uid)
    if before and (before.file, before.mark) == (str(file), block.mark):
        places = tuple(sorted({*before.places, *places}))
    entries[block.first_uid] = Entry(str(file), block.mark, places)


def places_of(registry: Path, first_uid: int) -> tuple[Path, ...]:
    entry = _read(registry / FILE).get(first_uid)
    return tuple(map(Path, entry.places)) if entry else ()


def move(path: Path, registry: Path, places: Iterable[Path], trees: Iterable[Path]) -> tuple[int, int]:
    """Give the data directory its own block, with everything that projects own below `trees`; returns the first account
    before and after. Nothing of this data directory may run. An interrupted move is started again."""
    with _registered(registry) as entries:
        file = path.resolve()
        before = read_block(file)
        if before is None:
            raise ExecutorError(f"{file} is not there: this data directory has no accounts yet", permanent=True)
        begun = [first for first, entry in entries.items() if entry.file == str(file) and first != before.first_uid]
        first = begun[0] if begun else _free(entries, _ranges(Path("/etc/subuid")))
        after = Block(first, secrets.token_hex(16), before.projects)
        entries[first] = Entry(str(file), after.mark, tuple(map(str, places)))
        _write(registry, entries)
        for number in before.projects.values():
            _give(trees, before.uid(number), after.uid(number))
        for place in places:
            _renumber_runs(place, before, after)
        if entries.get(before.first_uid, Entry("", "")).file == str(file):
            del entries[before.first_uid]
        after.write(file)
    return before.first_uid, first


def _give(trees: Iterable[Path], before: int, after: int) -> None:
    """With coreutils, which follow no link and recurse to any depth."""
    there = [str(tree) for tree in trees if tree.exists()]
    if there:
        command = ["chown", "-R", "-P", "-h", f"--from={before}", f"{after}:{after}", "--", *there]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExecutorError(
                f"files of account {before} cannot be given away: {done.stderr[-500:]}", permanent=False
            )


def _renumber_runs(place: Path, before: Block, after: Block) -> None:
    for path in (place / "run" / "local").glob("*.json"):
        content = json.loads(path.read_bytes())
        if before.contains(content["uid"]):
            write_atomically(path, content | {"uid": content["uid"] - before.first_uid + after.first_uid})


@contextlib.contextmanager
def _registered(registry: Path) -> Iterator[Entries]:
    """Changes of the entries inside the block are written at its end."""
    try:
        registry.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (registry / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = _read(registry / FILE)
            entries = dict(before)
            yield entries
            if entries != before:
                _write(registry, entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = (
            f"The accounts of this data directory cannot be registered in {registry}: {error}. Make it writable for"
            " root, or set EVENKEEL_ACCOUNTS_REGISTRY to a directory that all portals of this machine share."
        )
        raise ExecutorError(text, permanent=False) from error


def _read(file: Path) -> Entries:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    return {int(first): Entry(e["file"], e["mark"], tuple(e["places"])) for first, e in content.items()}


def _write(registry: Path, entries: Entries) -> None:
    write_atomically(registry / FILE, {str(first): asdict(entry) for first, entry in entries.items()})


def _refuse_foreign(found: Block, path: Path, entries: Entries) -> None:
    entry = entries.get(found.first_uid)
    if entry is None or not _in_use(entry, found.first_uid) or _same(Path(entry.file), path):
        return
    raise ExecutorError(
        f"Accounts {found.first_uid + 1} to {found.first_uid + BLOCK_UIDS - 1}, which {path} names, are in use by"
        f" {entry.file} on this machine: jobs of both portals would run under the same accounts. If the other one is"
        f" no longer used, remove {entry.file}; if both stay, `manage.py move_accounts` gives this data directory"
        " accounts of its own.",
        permanent=True,
    )


def _in_use(entry: Entry, first_uid: int) -> bool:
    """Whether the registered file still exists and names this very block. An unreadable one may."""
    try:
        block = read_block(Path(entry.file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True
    return block is not None and (block.first_uid, block.mark) == (first_uid, entry.mark)


def _same(one: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return one == other or one.samefile(other)
    return False


def _free(entries: Entries, taken: list[range]) -> int:
    """A block that was never assigned, or else one whose data directory is gone, although its disk may only be
    unmounted. The first block is reserved for data directories from before blocks existed."""
    every = [FIRST_UID + number * BLOCK_UIDS for number in range(1, BLOCKS)]
    usable = [first for first in every if not any(_overlaps(first, used) for used in taken)]
    for first in usable:
        if first not in entries:
            return first
    for first in usable:
        if not _in_use(entries[first], first):
            return first
    raise ValueError(f"all {len(usable):,} blocks of accounts are in use")


def _overlaps(first: int, used: range) -> bool:
    return used.start < first + BLOCK_UIDS and first < used.stop


def _ranges(subuids: Path) -> list[range]:
    """Id ranges that the machine assigns to users' own containers."""
    found = []
    with contextlib.suppress(OSError):
        for line in subuids.read_text(errors="replace").splitlines():
            _, _, rest = line.partition(":")
            start, _, count = rest.partition(":")
            if start.isdecimal() and count.isdecimal():
                found.append(range(int(start), int(start) + int(count)))
    return found
