"""The current directory as an archive: what git would not ignore, always the same bytes for the same files."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evenkeel.client import ClientError

IGNORE = ".evenkeelignore"
LARGEST_BYTES = 1024**3
GIT_S = 60


def pack(folder: Path) -> bytes:
    """A gzipped tar of the plain files below `folder`."""
    if not folder.is_dir():
        raise ClientError(f"{folder} is no directory")
    folder = folder.resolve()  # git is told of it from within
    packed, total = io.BytesIO(), 0
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name in sorted(_files(folder)):
            file = folder / name
            total += file.stat().st_size
            if total > LARGEST_BYTES:
                raise ClientError(f"{folder} has more than {LARGEST_BYTES:,} bytes: list what is not code in {IGNORE}")
            _add(archive, file, name)
    return packed.getvalue()


def _files(folder: Path) -> Iterator[str]:
    """As git sees it: .gitignore at every level, and .evenkeelignore at the top. Links are left out."""
    with tempfile.TemporaryDirectory() as scratch:
        git = ["git", f"--git-dir={scratch}", f"--work-tree={folder}"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        listing = ["ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
        listing += [f"--exclude-from={folder / IGNORE}"] if (folder / IGNORE).is_file() else []
        try:
            subprocess.run(["git", "init", "--quiet", "--bare", scratch], env=env, check=True, timeout=GIT_S)
            said = subprocess.run(
                [*git, *listing], cwd=folder, env=env, check=True, capture_output=True, timeout=GIT_S
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ClientError(f"cannot list {folder} with git, which knows what is ignored: {error}") from None
    for name in said.decode(errors="surrogateescape").split("\0"):
        if name and (folder / name).is_file() and not (folder / name).is_symlink():
            yield name


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    """Without times and owners, so that the same code is the same bundle."""
    entry = tarfile.TarInfo(name)
    entry.size = file.stat().st_size
    entry.mode = 0o755 if os.access(file, os.X_OK) else 0o644
    with file.open("rb") as source:
        archive.addfile(entry, source)
