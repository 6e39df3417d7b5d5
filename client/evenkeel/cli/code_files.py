"""Which files of a directory are its code: those that git tracks there, and those that it would take."""

from __future__ import annotations

import os
import posixpath
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.client import ClientError

IGNORE = ".evenkeelignore"
GIT_S = 120
_NO_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # an index entry needs a name of some content
_GITLINK = "160000"
_UNREAD = ("warning: could not open", "warning: unable to access")
IGNORED, OUTSIDE, SPECIAL, NOT_HERE, SPARSE, GONE = (
    f"ignored by .gitignore or {IGNORE}",
    "links that lead out of the directory, or in circles",
    "neither file nor link",
    "submodules that are not checked out (`git submodule update --init` fetches them)",
    "outside of the sparse checkout (`git sparse-checkout disable` fetches all)",
    "tracked by git but deleted",
)
_NO_REPOSITORY = b"not a git repository"


@dataclass(frozen=True)
class Target:
    """Where a link leads: as it was read, and as it stands in the archive."""

    read: str
    packed: str


@dataclass
class CodeFiles:
    """Names relative to the directory, and by reason those that are left out."""

    names: set[str] = field(default_factory=set)
    links: dict[str, Target] = field(default_factory=dict)
    sparse: set[str] = field(default_factory=set)  # what git does not check out on purpose
    left_out: dict[str, set[str]] = field(
        default_factory=lambda: {why: set() for why in (IGNORED, OUTSIDE, SPECIAL, NOT_HERE, SPARSE, GONE)}
    )

    def leave_out(self, why: str, name: str) -> None:
        self.names.discard(name)
        self.left_out[why].add(name)


def list_code(folder: Path) -> CodeFiles:
    """Nested repositories and submodules are listed by their own rules; IGNORE at the top rules everything."""
    found = CodeFiles()
    with tempfile.TemporaryDirectory() as scratch:
        _git(folder, "init", "--quiet", "--bare", scratch)
        _add_repository(found, folder, "", scratch)
        for name in _listed_in_ignore(folder, found.names, scratch):
            found.leave_out(IGNORED, name)
    for name in sorted(found.names):
        _judge(found, folder, name)
    found.left_out[SPECIAL] |= set(_special_files(folder, found.names))
    return found


def _add_repository(found: CodeFiles, folder: Path, prefix: str, scratch: str) -> None:
    """`prefix`: where below the top this repository is, with a slash at its end."""
    here = folder / prefix
    alone = (f"--git-dir={scratch}", f"--work-tree={here}")
    is_repository, is_ignored = _standing(here)
    nested: list[str] = []
    if is_repository:
        found.sparse |= {prefix + entry[2:] for entry in _git(here, "ls-files", "-z", "-t") if entry.startswith("S ")}
        for entry in _git(here, "ls-files", "-z", "--cached", "--stage"):
            about, _, name = entry.partition("\t")
            (nested.append if about.startswith(_GITLINK) else found.names.add)(prefix + name)
    others = (*(() if is_repository and not is_ignored else alone), "ls-files", "-z", "--others", "--exclude-standard")
    for name in _git(here, *others):
        (nested.append if name.endswith("/") else found.names.add)(prefix + name.rstrip("/"))
    found.left_out[IGNORED] |= {prefix + name for name in _git(here, *others, "--ignored", "--directory")} - found.names
    for name in dict.fromkeys(nested):
        place = folder / name
        if place.is_symlink() or not place.is_dir() or not any(place.iterdir()):
            found.leave_out(NOT_HERE, name)
        else:
            _add_repository(found, folder, f"{name}/", scratch)


def _standing(here: Path) -> tuple[bool, bool]:
    """Whether a repository has this directory, and whether it ignores it: then the directory stands for itself."""
    inside = _run(here, ("rev-parse", "--is-inside-work-tree", "--is-bare-repository"))
    if inside.returncode and _NO_REPOSITORY not in inside.stderr:
        words = " ".join(inside.stderr.decode(errors="replace").split())[:500]
        raise ClientError(f"git cannot read the repository of {here}: {words}; nothing was uploaded")
    answers = inside.stdout.split()
    if answers == [b"false", b"true"]:
        raise ClientError(
            f"{here} is a bare repository of git, which has no files of its own: clone it and name the clone"
        )
    if inside.returncode or answers[0] != b"true":
        return False, False
    return True, _run(here, ("check-ignore", "--quiet", ".")).returncode == 0


def _listed_in_ignore(folder: Path, names: Iterable[str], scratch: str) -> list[str]:
    """Those that a pattern of IGNORE fits, tracked or not: git matches them in an index of their names."""
    if not (folder / IGNORE).is_file():
        return []
    try:
        is_text = b"\0" not in (folder / IGNORE).read_bytes()
    except OSError as error:
        raise ClientError(f"cannot read {IGNORE}: {error.strerror}; nothing was uploaded") from None
    if not is_text:  # git would find no pattern in it
        raise ClientError(f"{IGNORE} is not UTF-8 text, perhaps UTF-16: write it as UTF-8; nothing was uploaded")
    here = (f"--git-dir={scratch}", f"--work-tree={folder}")
    entries = "".join(f"100644 {_NO_BLOB}\t{name}\0" for name in sorted(names))
    _git(folder, *here, "update-index", "-z", "--index-info", given=entries)
    return _git(folder, *here, "ls-files", "-z", "--cached", "--ignored", f"--exclude-from={folder / IGNORE}")


def _judge(found: CodeFiles, folder: Path, name: str) -> None:
    """Leaves out what is not there any more, and links that the portal would refuse."""
    place = folder / name
    try:
        mode = place.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        found.leave_out(SPARSE if name in found.sparse else GONE, name)
        return
    except OSError as error:
        raise ClientError(f"cannot read {shown_name(name)}: {error.strerror}; nothing was uploaded") from None
    if os.path.realpath(place.parent) != str(place.parent):  # the folder that git knows has become a link
        found.leave_out(GONE, name)
    elif stat.S_ISLNK(mode):
        target = _target(folder, name)
        if target is None:
            found.leave_out(OUTSIDE, name)
        else:
            found.links[name] = target
    elif not stat.S_ISREG(mode):
        found.leave_out(SPECIAL, name)


def _target(folder: Path, name: str) -> Target | None:
    """Where a link leads, if that is inside; an absolute one becomes relative."""
    place = folder / name
    read = str(place.readlink())
    try:
        place.stat()
    except FileNotFoundError:
        pass  # it leads to nothing, as git would have it
    except OSError:
        return None  # it leads round in circles
    packed = read
    if read.startswith("/"):  # perhaps by way of links
        leads_to = Path(read)
        packed = os.path.relpath(Path(os.path.realpath(leads_to.parent)) / leads_to.name, place.parent)
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), packed))
    leads_out = inside == ".." or inside.startswith("../")
    if leads_out or not Path(os.path.realpath(place)).is_relative_to(folder):
        return None
    return Target(read, packed)


def shown_name(name: str) -> str:
    """In one line, whatever it is made of."""
    plain = name.encode(errors="surrogateescape").decode(errors="replace")
    return plain if plain.isprintable() else repr(plain)


def _special_files(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Pipes, sockets and devices beside the code, of which git does not speak."""
    for parent in sorted({posixpath.dirname(name) for name in names} | {""}):
        with os.scandir(folder / parent) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                    yield posixpath.join(parent, entry.name)


def _git(here: Path, *arguments: str, given: str | None = None) -> list[str]:
    """The records that git prints; what it could not read is an error, as code would be missing."""
    done = _run(here, arguments, given)
    words = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise ClientError(f"git cannot list {here}: {words[:500] or f'it ended with {done.returncode}'}")
    if unread := next((line for line in words.splitlines() if line.startswith(_UNREAD)), None):
        what = unread.removeprefix("warning: ")
        raise ClientError(f"{what}; nothing was uploaded. Make it readable, or list it in {IGNORE} or .gitignore")
    return [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]


def _run(here: Path, arguments: Iterable[str], given: str | None = None) -> subprocess.CompletedProcess[bytes]:
    """Only what lists files is ever run, so that the owner of the directory does not matter."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *arguments]
    data = None if given is None else given.encode(errors="surrogateescape")
    try:
        return subprocess.run(command, cwd=here, env=env, input=data, capture_output=True, timeout=GIT_S, check=False)
    except FileNotFoundError:
        raise ClientError("git is not installed; it is needed to see which files are code") from None
    except subprocess.TimeoutExpired:
        raise ClientError(f"git took more than {GIT_S} s to list {here}") from None
    except OSError as error:
        raise ClientError(f"git cannot be run in {here}: {error.strerror or error}") from None
