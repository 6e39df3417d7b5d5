"""A directory as an archive of code: what git has or would take, always the same bytes for the same files."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.cli.code_files import IGNORE, CodeFiles, list_code, shown_name
from evenkeel.client import ClientError

LARGEST_BYTES = 1024**3
#: First bytes of what stands for content that is elsewhere: Git LFS, under its older names too, and git-annex.
_POINTERS = (
    b"version https://git-lfs.github.com/spec/v1",
    b"version https://hawser.github.com/spec/v1",
    b"version http://git-media.io/v/2",
    b"/annex/objects/",
)
_ANNEXED = ".git/annex/objects/"
_SHOWN = 10


@dataclass
class Packed:
    """The archive, and what people should know of it."""

    archive: bytes = b""
    notes: list[str] = field(default_factory=list)


def pack(folder: Path) -> Packed:
    """A gzipped tar of the code below `folder`: plain files, and links that stay inside."""
    if not folder.is_dir():
        raise ClientError(f"{folder} is not a directory")
    folder = folder.resolve()  # the path for git, which runs inside the folder
    files = list_code(folder)
    packed, sink, pointers, total = Packed(), io.BytesIO(), [], 0
    with gzip.GzipFile(fileobj=sink, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name in sorted(files.names):
            place = folder / name
            if place.is_symlink():
                _add_link(archive, files, place, name)
                pointers += [name] if _ANNEXED in files.links[name].packed else []
                continue
            size, is_pointer = _add_file(archive, place, name, LARGEST_BYTES - total)
            total += size
            pointers += [name] if is_pointer else []
    packed.archive = sink.getvalue()
    packed.notes = _notes(files, pointers)
    if not files.names:
        raise ClientError(" ".join([f"there is no code in {folder}.", *packed.notes]))
    return packed


def _add_file(archive: tarfile.TarFile, place: Path, name: str, room_bytes: int) -> tuple[int, bool]:
    """Its size, and whether it only points to its content. No times and owners: the same code is the same bundle."""
    try:
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as source:
            before = os.fstat(source.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise ClientError(_changed(name))
            if before.st_size > room_bytes:
                raise ClientError(f"the code has more than {LARGEST_BYTES:,} bytes: list what is not code in {IGNORE}")
            is_pointer = before.st_size < 1024 and source.read(64).startswith(_POINTERS)
            source.seek(0)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = before.st_size, 0o755 if before.st_mode & stat.S_IXUSR else 0o644
            archive.addfile(entry, source)
            after = os.fstat(source.fileno())
    except OSError as error:
        if error.strerror is None:  # tarfile's word for a file that ended early
            raise ClientError(_changed(name)) from None
        words = (
            f"cannot read {shown_name(name)}: {error.strerror}; nothing was uploaded. Make it readable, or list it in"
        )
        raise ClientError(f"{words} {IGNORE}") from None
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ClientError(_changed(name))
    return before.st_size, is_pointer


def _add_link(archive: tarfile.TarFile, files: CodeFiles, place: Path, name: str) -> None:
    target = files.links[name]
    try:
        if str(place.readlink()) != target.read:
            raise ClientError(_changed(name))
    except OSError:
        raise ClientError(_changed(name)) from None
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target.packed, 0o777
    archive.addfile(entry)


def _changed(name: str) -> str:
    return f"{shown_name(name)} changed while it was read; nothing was uploaded. Submit again when nothing writes to it"


def _notes(files: CodeFiles, pointers: list[str]) -> list[str]:
    notes = [f"Left out, {why}: {_listed(names)}" for why, names in files.left_out.items() if names]
    if pointers:
        one = len(pointers) == 1
        what = "1 file is a pointer" if one else f"{len(pointers):,} files are pointers"
        fetch = "`git lfs pull` (or `git annex get` and `git annex unlock`) fetches it."
        notes.append(
            f"Warning: {what} of Git LFS or git-annex, not the content: {_listed(pointers, count=False)}. {fetch}"
        )
    return notes


def _listed(names: Iterable[str], *, count: bool = True) -> str:
    """As `12 (a, b, c and 9 more)`."""
    found = sorted(names)
    text = ", ".join(map(shown_name, found[:_SHOWN])) + (f" and {len(found) - _SHOWN:,} more" if found[_SHOWN:] else "")
    return f"{len(found):,} ({text})" if count else text
