"""Reads input files of simulations and cases: UTF-8 or UTF-16 text, plain or compressed, and strict JSON.

gzip, bzip2, xz and Zstandard are recognised by their first bytes, not by the name. Archives and binary tables are
refused by name. Every error is an InvalidInput that names the file, the place and what to do.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from scheduling.errors import InvalidInput

LARGEST_JSON_BYTES = 1 << 29
#: A file with a longer line is not a table.
LONGEST_LINE = 1 << 20
_CHUNK_BYTES = 1 << 20


class _Zstandard(io.RawIOBase):
    """Frames one after the other; unlike the library's reader it detects a truncated last frame."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._frame, self._ready = file, zstandard.ZstdDecompressor().decompressobj(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._frame.eof:
                rest = self._frame.unused_data or self._file.read(_CHUNK_BYTES)
                if not rest:
                    return 0
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            else:
                rest = self._file.read(_CHUNK_BYTES)
                if not rest:
                    raise EOFError("its last frame does not end")
            self._ready = self._frame.decompress(rest)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _zstd(file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Zstandard(file))


#: All have `peek`, like BufferedReader.
_Opener = Callable[[IO[bytes]], io.BufferedReader]
#: First bytes, suffix and open function.
_COMPRESSED: tuple[tuple[bytes, str, _Opener], ...] = (
    (b"\x1f\x8b", ".gz", cast("_Opener", gzip.open)),
    (b"BZh", ".bz2", cast("_Opener", bz2.open)),
    (b"\xfd7zXZ\x00", ".xz", cast("_Opener", lzma.open)),
    (b"\x28\xb5\x2f\xfd", ".zst", _zstd),
)
_REFUSED: tuple[tuple[bytes, str], ...] = (
    *(
        (magic, "a ZIP archive or an Excel workbook; unpack it, or export it as CSV")
        for magic in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
    ),
    *((magic, f"compressed more than once ({suffix} within); unpack it") for magic, suffix, _ in _COMPRESSED),
    (b"\x5d\x00\x00", "compressed with LZMA alone (.lzma); unpack it with xz --format=lzma -d"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4; unpack it with lz4 -d"),
    (b"LZIP", "compressed with lzip; unpack it with lzip -d"),
    *(
        (bytes((low,)) + b"\x2a\x4d\x18", "Zstandard with a frame that is skipped; unpack it with zstd -d")
        for low in range(0x50, 0x60)
    ),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook or another Office document; export it as CSV"),
    (b"%PDF", "a PDF; export the table as CSV"),
    (b"ARROW1", "an Arrow file; export it as CSV"),
    (b"Obj\x01", "an Avro file; export it as CSV"),
    (b"\x89HDF", "an HDF5 file; export it as CSV"),
    (b"\x93NUMPY", "a NumPy array; export it as CSV"),
    *((magic, "a web page; download the file itself") for magic in (b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML")),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (b"Rar!", "a RAR archive; unpack it"),
    (b"PAR1", "a Parquet file; export it as CSV"),
    (b"ORC", "an ORC file; export it as CSV"),
    (b"SQLite format 3", "an SQLite database; export it as CSV"),
    (b"\x1f\x9d", "compressed with compress (.Z); unpack it with uncompress"),
    (b"\xff\xfe\x00\x00", "UTF-32 text; convert it to UTF-8, as with iconv -f UTF-32 -t UTF-8"),
    (b"\x00\x00\xfe\xff", "UTF-32 text; convert it to UTF-8, as with iconv -f UTF-32 -t UTF-8"),
)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Errors of damaged or truncated compressed data, besides the OSError of gzip and bzip2.
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def plain_name(path: Path) -> Path:
    """The path without its compression suffix: jobs.swf for jobs.swf.gz."""
    return path.with_suffix("") if path.suffix in {suffix for _, suffix, _ in _COMPRESSED} else path


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes, decompressed."""
    try:
        with path.open("rb") as file:
            magic = file.read(8)
            file.seek(0)
            for prefix, _, opener in _COMPRESSED:
                if magic.startswith(prefix):
                    with opener(file) as plain:
                        yield plain
                    return
            yield file
    except OSError as error:
        # For compressed files: gzip and bzip2 raise OSError without errno if the data is damaged.
        raise InvalidInput(f"{path}: {error.strerror or f'its compressed data is damaged ({error})'}") from None
    except _DAMAGED as error:
        raise InvalidInput(f"{path}: its compressed data is damaged or cut off ({error})") from None


def _refuse_binary(path: Path, start: bytes) -> None:
    for prefix, what in _REFUSED:
        if start.startswith(prefix):
            raise InvalidInput(f"{path}: it is {what}")
    if start[257:262] == b"ustar":
        raise InvalidInput(f"{path}: it is a tar archive; unpack it and name one file of it")
    for zeros, name in ((start[1:8:2], "UTF-16LE"), (start[0:8:2], "UTF-16BE")):
        if len(start) >= 8 and zeros == bytes(4) and start[:8].count(0) == 4:
            raise InvalidInput(
                f"{path}: it is {name} text without a byte order mark; convert it: iconv -f {name} -t UTF-8"
            )


def opening(path: Path, size: int = 8192) -> str:
    """The first few thousand characters, to detect the format."""
    with _opened(path) as file:
        start = _read_up_to(file, size)
    _refuse_binary(path, start)
    if start.startswith(_UTF16):
        return start.decode("utf-16", errors="replace")
    return start.decode("utf-8-sig", errors="replace")


def _read_up_to(file: IO[bytes], size: int) -> bytes:
    """At most `size` bytes, fewer only at the end: one read of decompressed data may return less."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(min(size, _CHUNK_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without line ends; a line ends at a line feed."""
    with _opened(path) as file:
        start = file.peek(512)
        _refuse_binary(path, start)
        decoded = _utf16_lines if start.startswith(_UTF16) else _utf8_lines
        for number, text in decoded(path, file):
            if "\0" in text:
                raise InvalidInput(f"{path}, line {number}: it has a NUL byte, so it is binary or damaged")
            line = text.rstrip("\r\n")
            if "\r" in line:
                _refuse_lone_returns(path, number, line)
            yield number, line


def _utf8_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise InvalidInput(f"{path}, line {number}: it is longer than {LONGEST_LINE} bytes")
        yield number, _decoded(path, number, raw)


def _utf16_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    text = io.TextIOWrapper(file, encoding="utf-16", newline="\n")
    try:
        while line := text.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise InvalidInput(f"{path}, line {number}: it is longer than {LONGEST_LINE} characters")
            yield number, line
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}, after line {number}: it is not UTF-16 ({error.reason})") from None
    finally:
        text.detach()


def _decoded(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        place = f"{path}, line {number}, column {error.start + 1}"
        raise InvalidInput(f"{place}: it is not UTF-8 (byte 0x{raw[error.start]:02X}){_CONVERT}") from None


_CONVERT = "; convert the file, for example with iconv -f WINDOWS-1252 -t UTF-8"


def _refuse_lone_returns(path: Path, number: int, text: str) -> None:
    column = text.index("\r") + 1
    what = "a carriage return that ends no line; write line feeds, for example with tr '\\r' '\\n'"
    raise InvalidInput(f"{path}, line {number}, column {column}: {what}")


def check_header(path: Path, line: int, names: Sequence[str]) -> None:
    """Duplicate names are refused: all but the last of the columns would be lost."""
    for name in names:
        if name and names.count(name) > 1:
            raise InvalidInput(f"{path}, line {line}: the column {name} stands there twice")


def read_text(path: Path, most_bytes: int = LARGEST_JSON_BYTES) -> str:
    with _opened(path) as file:
        raw = _read_up_to(file, most_bytes + 1)
    if len(raw) > most_bytes:
        raise InvalidInput(f"{path}: it is larger than {most_bytes} bytes")
    _refuse_binary(path, raw)
    utf16 = raw.startswith(_UTF16)
    try:
        return raw.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = "UTF-16" if utf16 else f"UTF-8{_CONVERT}"
        raise InvalidInput(f"{path}, line {line}: it is not {what}") from None


def read_json(path: Path, most_bytes: int = LARGEST_JSON_BYTES) -> Any:
    """A JSON document without duplicate keys or infinite numbers. Raises InvalidInput."""
    text = read_text(path, most_bytes)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidInput(f"{path}: it is nested too deeply") from None
    except ValueError as error:  # for example a number of too many digits
        raise InvalidInput(f"{path}: {error}") from None


def parse_json(text: str) -> Any:
    """Like `json.loads`; ValueError also for duplicate keys, NaN and Infinity."""
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:60]!r} is given twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def unpack(source: Path, target: Path, most_bytes: int) -> None:
    """Copy `source` decompressed, at most this many bytes; a larger one is refused."""
    copied = 0
    with _opened(source) as file, target.open("wb") as copy:
        while part := file.read(_CHUNK_BYTES):
            copied += len(part)
            if copied > most_bytes:
                raise InvalidInput(f"{source}: it is larger than {most_bytes // 1024**2} MiB when decompressed")
            copy.write(part)
