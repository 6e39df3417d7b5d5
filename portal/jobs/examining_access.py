"""What `doctor` and the start say of who else can reach what the portal keeps: cookies, back-ups and keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from portal.engines import Engine
from portal.jobs.clusters import engine_of
from portal.own_address import has_name_of_its_own
from scheduling.executors.base import Finding

#: What a dump of pg_dump begins with.
_DUMP = b"PGDMP"
_KEYS = ("secret_key", "encryption_keys", "postgres_password", "postgres_app_password", "valkey_password")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
NAME_ADVICE = (
    "serve it under a host name of its own by HTTPS (EVENKEEL_HTTPS=1, docs/operations.md), and open nothing that a "
    "job serves in a browser that is signed in here"
)


def shares_its_host(executor: str) -> bool:
    """Jobs run on this machine, and browsers send them the portal's cookies: these know no ports."""
    return executor == "local" and not has_name_of_its_own()


def examine_access(cluster_id: int) -> Iterator[Finding]:
    """What jobs could reach of the portal."""
    engine = engine_of(cluster_id)
    if engine.executor != "local":
        yield from _examine_account(engine)
    if shares_its_host(engine_of(cluster_id).executor):
        seen = f"{settings.EVENKEEL_API_URL}: no HTTPS name of its own, and jobs on this machine can listen beside it"
        yield Finding("portal's name", True, seen, NAME_ADVICE, warning=True)
    else:
        yield Finding("portal's name", True, "its cookies go to no job")
    open_to_others = sorted(str(path) for path in _private_files() if _is_open(path))
    if open_to_others:
        seen = f"other accounts can read {', '.join(open_to_others[:5])}"
        yield Finding("private files", True, seen, f"chmod 600 {' '.join(open_to_others[:5])}", warning=True)


def _examine_account(engine: Engine) -> Iterator[Finding]:
    """Jobs of Slurm and Ray run as the portal's own user, and read what that user can read on their nodes."""
    if os.geteuid() == 0:
        seen = "the portal runs as root, and so does every job"
        yield Finding("jobs' account", True, seen, "start it as an ordinary user (docs/executors.md)", warning=True)
    data, shared = Path(settings.EVENKEEL_DATA).resolve(), Path(engine.job_files).resolve()
    apart = not data.is_relative_to(shared)
    seen = f"{shared} does not hold the portal's keys" if apart else f"{shared} holds the portal's keys: jobs read them"
    variable = f"EVENKEEL_{engine.executor.upper()}_SHARED_DIR"
    fix = f"{variable}: another directory than {data}, not above it, and move {data / 'jobs'} there (docs/executors.md)"
    yield Finding("shared directory", True, seen, fix, warning=not apart)


def _private_files() -> Iterator[Path]:
    """Keys of the data directory, and back-ups where they are usually made."""
    data: Path = settings.EVENKEEL_DATA
    yield from (path for path in _files(data) if path.name in _KEYS)
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
