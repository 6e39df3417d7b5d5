"""Reads pins (`name==version`) from standard input and prints them with the SHA-256 of every file that the configured
indexes have of them: for all systems and interpreters, so that one lock serves all. No addresses are printed.

pip knows the indexes, their credentials and certificates, and parses their pages; so its own parts are used. They are
internal: the version of pip is pinned by the lock itself.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.commands.download import DownloadCommand
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link


@contextmanager
def collector() -> Iterator[LinkCollector]:
    """Of the indexes that pip is configured for on this machine."""
    command = DownloadCommand("download", "")
    options, _ = command.parse_args([])
    with command.main_context():
        yield LinkCollector.create(command.get_default_session(options), options=options)


def files_of(found: LinkCollector, name: str) -> Iterator[Link]:
    """Every file that the indexes and folders of wheels have under the name."""
    sources = found.collect_sources(name, candidates_from_page=lambda link: ())
    for source in (*sources.index_urls, *sources.find_links):
        if source is None:
            continue
        yield from source.file_links()
        page = found.fetch_response(source.link) if source.link else None
        yield from parse_links(page) if page else ()


def version_of(filename: str) -> tuple[str, Version] | None:
    """Canonical name and public version; a local label as in `2.13.0+cpu` is another build of the same release."""
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        else:
            name, version = parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return name, Version(version.public)


def sha256_of(link: Link) -> str | None:
    if link.hash_name == "sha256":
        return link.hash
    if link.scheme != "file":
        return None
    with Path(link.file_path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes_of(found: LinkCollector, pin: str) -> list[str]:
    name, _, version = pin.partition("==")
    wanted = canonicalize_name(name), Version(version)
    links = (link for link in files_of(found, name) if version_of(link.filename) == wanted)
    return sorted({digest for link in links if (digest := sha256_of(link))})


def locked(pins: Iterable[str]) -> Iterator[str]:
    """The lines of the lock file. Raises SystemExit where an index has no file of a pin, or no hash of it."""
    wanted = list(pins)
    with collector() as found, ThreadPoolExecutor(8) as pool:
        results = dict(zip(wanted, pool.map(lambda pin: hashes_of(found, pin), wanted), strict=True))
    missing = [pin for pin, hashes in results.items() if not hashes]
    if missing:
        raise SystemExit(f"No index has a file with a SHA-256 of: {', '.join(missing)}")
    for pin, hashes in results.items():
        yield " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in hashes)])


if __name__ == "__main__":
    sys.stdout.writelines(f"{entry}\n" for entry in locked(line.strip() for line in sys.stdin if "==" in line))
