"""Checks at the start and in `doctor` of who else can read the portal's files: cookies, backups and keys."""

from __future__ import annotations

import stat
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from portal.cluster.engine_isolation import ENGINES, KEYS, jobs_account, shared_directory
from portal.config.layout import Layout
from portal.jobs.clusters import engine_of, shares_its_host
from scheduling.executors.base import Finding, Kept

#: First bytes of a dump by pg_dump.
_DUMP = b"PGDMP"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
NAME_ADVICE = (
    "serve it under a host name of its own by HTTPS (EVENKEEL_HTTPS=1, docs/operations.md), and open nothing that a "
    "job serves in a browser that is signed in here"
)


def examine_access(cluster_id: int) -> Iterator[Finding]:
    """What jobs could access of the portal."""
    engine = engine_of(cluster_id)
    if engine.executor in ENGINES:
        yield jobs_account(engine)
        yield shared_directory(engine)
    if shares_its_host(engine.executor):
        seen = f"{settings.EVENKEEL_API_URL}: no HTTPS name of its own, and jobs on this machine can listen beside it"
        yield Finding("portal's name", True, seen, NAME_ADVICE, warning=True)
    else:
        yield Finding("portal's name", True, "its cookies go to no job")
    open_to_others = sorted(str(path) for path in _private_files() if _is_open(path))
    if open_to_others:
        seen = f"other accounts can read {', '.join(open_to_others[:5])}"
        yield Finding("private files", True, seen, f"chmod 600 {' '.join(open_to_others[:5])}", warning=True)


def kept_from_jobs() -> Kept:
    """What no job may access, wherever it runs: keys and passwords, the embedded databases, and the portal's
    program."""
    layout = Layout(settings.EVENKEEL_DATA)
    files = [path for name in KEYS if (path := layout.data / name).exists()]
    sockets = [layout.postgres_sockets / ".s.PGSQL.5432", layout.valkey_socket]
    packages = Path(sysconfig.get_path("purelib"))
    programs = [settings.BASE_DIR, settings.BASE_DIR / "manage.py", settings.BASE_DIR / "portal", packages]
    return Kept(
        tuple(str(path) for path in files),
        tuple(str(path) for path in sockets if path.exists()),
        tuple((str(path), found.st_ino, found.st_mtime_ns) for path in programs if (found := path.stat())),
    )


def _private_files() -> Iterator[Path]:
    """Keys of the data directory, and backups in their usual places."""
    data: Path = settings.EVENKEEL_DATA
    yield from (path for path in _files(data) if path.name in KEYS)
    for folder in {data.resolve(), Path.cwd()}:
        yield from (path for path in _files(folder) if _is_dump(path))


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except OSError:
        return []


def _is_dump(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_DUMP)) == _DUMP
    except OSError:
        return False


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:  # removed meanwhile
        return False
