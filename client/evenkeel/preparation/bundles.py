"""Uploaded code: an untrusted gzipped tar archive. Checked at upload, and once more when it is unpacked."""

from __future__ import annotations

import gzip
import os
import posixpath
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from evenkeel.preparation.errors import PreparationError
from evenkeel.runner.files import create_private

MAX_NAME_BYTES = 1_024
MAX_DEPTH = 40
MAX_HEADER_BYTES = 64 << 10
MAX_PADDING = 16 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    files: int
    bytes: int


def examine(file: BinaryIO, *, max_files: int, max_bytes: int) -> Contents:
    """What the archive holds; PreparationError names the first member that may not be in it."""
    return _through(file, None, max_files, max_bytes)


def unpack(file: BinaryIO, target: Path, *, max_files: int, max_bytes: int) -> Contents:
    """Into `target`, which must be empty, with the rights that an archive cannot choose."""
    return _through(file, target, max_files, max_bytes)


def _through(file: BinaryIO, target: Path | None, max_files: int, max_bytes: int) -> Contents:
    try:
        with gzip.GzipFile(fileobj=file) as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r|", tarinfo=_BoundedHeader) as archive:
                found = _members(archive, target, max_files, max_bytes)
            _read_rest(unzipped)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, OverflowError, RuntimeError) as error:
        raise PreparationError(f"this is not a readable gzipped tar archive: {error}") from None
    except OSError as error:
        raise PreparationError(f"the archive cannot be unpacked: {error.strerror or error}") from None
    if found.files == 0:
        raise PreparationError("the archive is empty")
    return found


def _members(archive: tarfile.TarFile, target: Path | None, max_files: int, max_bytes: int) -> Contents:
    links: list[tuple[Path, str]] = []
    count = size = 0
    for member in archive:
        _check(member)
        count, size = count + 1, size + max(0, member.size)
        if count > max_files:
            raise PreparationError(f"the archive has more than the {max_files:,} members that it may have")
        if size > max_bytes:
            raise PreparationError(f"unpacked, the archive is larger than {max_bytes:,} bytes")
        if target is not None and member.issym():
            links.append((target / member.name, member.linkname))
        elif target is not None:
            _extract(archive, member, target / member.name)
        archive.members = []  # type: ignore[attr-defined]  # a list of all would grow with the archive
    _make_links(links, target)
    return Contents(count, size)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    """Owner, mode and times are ours; no link exists yet that anything could be written through."""
    if member.isdir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None
    with os.fdopen(create_private(place), "wb") as file:
        shutil.copyfileobj(content, file, _BLOCK)
    if member.mode & 0o100:
        place.chmod(0o700)


def _make_links(links: list[tuple[Path, str]], target: Path | None) -> None:
    """Last of all; then it shows whether one leads out by way of another."""
    for place, linkname in links:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.symlink_to(linkname)
    for place, _ in links:
        assert target is not None
        if not place.resolve().is_relative_to(target.resolve()):
            raise PreparationError(f"{_shown(place.name)} is a link that leads out of the archive")


def _read_rest(unzipped: gzip.GzipFile) -> None:
    """To the end, where an archive that was cut off or damaged shows itself."""
    for _ in range(MAX_PADDING // _BLOCK):
        if not unzipped.read(_BLOCK):
            return
    raise PreparationError("the archive goes on after its end")


class _BoundedHeader(tarfile.TarInfo):
    """Long names and extended headers are read into memory whole: none may be larger than a name needs."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> Self:
        header = super().frombuf(buf, encoding or "utf-8", errors)
        if not header.isreg() and not header.isdir() and header.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header of the archive is too large")
        return header


def _check(member: tarfile.TarInfo) -> None:
    name = member.name
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise PreparationError(f"{_shown(name)} is a device, pipe or something else that is not a file")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name or "\\" in name:
        raise PreparationError(f"{_shown(name)} leads out of the archive")
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES or name.count("/") > MAX_DEPTH:
        raise PreparationError(f"{_shown(name)} is too long a name, or nested too deeply")
    if member.islnk():
        raise PreparationError(f"{_shown(name)} is a hard link: pack files as files")
    if member.issym():
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if member.linkname.startswith("/") or inside == ".." or inside.startswith("../"):
            raise PreparationError(f"{_shown(name)} is a link that leads out of the archive")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 120 else name[:117] + "...")
