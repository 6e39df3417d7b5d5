"""Keeps jobs of Slurm and Ray from gaining the portal's rights: checks for the start, workers and `manage.py
doctor`."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings

from portal.config.engines import Engine
from scheduling.executors.base import Finding

#: Their nodes see the shared directory, and their jobs have the portal's own account.
ENGINES = frozenset({"ray", "slurm"})
KEYS = ("secret_key", "encryption_keys", "postgres_password", "postgres_app_password", "valkey_password")
_APART = (
    "name a directory under the same path on this machine and all nodes, such as /nfs/evenkeel-jobs; where jobs' files "
    "lie in the data directory so far, leave them and move the data directory (docs/executors.md#apart-from-the-data)"
)
_NOT_ROOT = (
    "start it as an ordinary account, to which EVENKEEL_DATA and the shared directory belong "
    "(docs/executors.md#never-as-root)"
)


def refusals(engine: Engine) -> list[str]:
    """Why no job may run on this engine as configured; one sentence each, with advice."""
    if engine.executor not in ENGINES:
        return []
    found = (jobs_account(engine), shared_directory(engine))
    return [f"{one.seen}: {one.fix}." for one in found if not one.ok]


def runs_jobs_as_root(engine: Engine) -> bool:
    """Jobs of Slurm and Ray have the portal's account, or one that it may switch to: as root, any."""
    return engine.executor in ENGINES and os.geteuid() == 0


def jobs_account(engine: Engine) -> Finding:
    if runs_jobs_as_root(engine):
        seen = f"The portal runs as root, and so would every job on {engine.executor.capitalize()}"
        return Finding("jobs' account", False, seen, _NOT_ROOT)
    if engine.runs_as_person:
        return Finding("jobs' account", True, "each job runs as the UNIX account of the person who submitted it")
    seen = f"every job runs as {own_account()}, as the portal does: jobs can read each other's files and run tokens"
    fix = "let only people use this cluster who trust each other (docs/executors.md#what-jobs-can-reach)"
    return Finding("jobs' account", True, seen, fix, warning=True)


def shared_directory(engine: Engine) -> Finding:
    """Nodes see it, so it must never be the data directory, inside it or around it, by any path."""
    variable = "EVENKEEL_SHARED_DIR"
    data, shared = (Path(os.path.realpath(path)) for path in (settings.EVENKEEL_DATA, engine.job_files))
    if how := _relation(shared, data):
        seen = (
            f"{variable} must be a directory apart from EVENKEEL_DATA ({data}), and {shared} {how}: jobs could read "
            "the portal's keys and database password there"
        )
        return Finding("shared directory", False, seen, _APART)
    if held := [name for name in KEYS if os.path.lexists(shared / name)]:
        seen = f"{variable}: {shared} holds {', '.join(held)} of a portal, which jobs could read"
        return Finding(
            "shared directory", False, seen, "move what is the portal's to EVENKEEL_DATA; rename keys in use"
        )
    return Finding("shared directory", True, f"{shared} is apart from the data directory")


def _relation(shared: Path, data: Path) -> str:
    """Also detects a bind mount that shows one directory under two paths. Empty: separate."""
    if shared == data or _is_same(shared, data):
        return "is that directory"
    if shared.is_relative_to(data) or any(_is_same(above, data) for above in shared.parents):
        return "lies in it"
    if data.is_relative_to(shared) or any(_is_same(above, shared) for above in data.parents):
        return "holds it"
    return ""


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist yet
        return False


def own_account() -> str:
    uid = os.geteuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name} (account {uid})"
    except KeyError:
        return f"account {uid}"


def job_accounts(engines: Iterable[Engine]) -> Iterator[str]:
    """For the start: one line for each kind of executor in use."""
    own = f"as {own_account()}, as the portal does: they can read each other's files"
    engines = list(engines)
    if any(engine.runs_as_person for engine in engines):
        yield "Jobs on Slurm run as the UNIX account of the person who submitted them."
    for executor in sorted({engine.executor for engine in engines if not engine.runs_as_person}):
        if executor == "ray":
            yield f"Jobs on Ray run {own} and run tokens, and start Ray tasks wherever Ray runs, here too."
        elif executor == "slurm":
            yield f"Jobs on Slurm run {own} and run tokens."
        elif executor == "local" and os.geteuid() == 0:
            yield "Jobs on this machine run as an account of their project's."
        elif executor == "local":
            yield f"Jobs on this machine run {own} and the portal's keys."
