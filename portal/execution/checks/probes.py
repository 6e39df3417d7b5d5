"""Checks of `manage.py doctor` on where checkpoints and data are: a shared directory, a store, and nodes' caches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Q
from evenkeel.store import StoreError

from portal.execution import datasets
from portal.jobs.clusters import engine_of
from portal.jobs.loops import failing_now, task_of
from portal.storage import checkpoints
from scheduling.executors.base import Finding

MIB = 1 << 20
_MOST_FAILING = 10
#: Part of a driver's message that identifies the problem, and what to do.
_FIXES = (
    ("bucket does not exist", "make the bucket, or name another in EVENKEEL_CHECKPOINT_URL"),
    ("AccessDenied", "the key needs to list, read, write and delete below the prefix"),
    ("PermissionError", "the account needs to list, read, write and delete there"),
    ("Forbidden", "the key needs to list, read, write and delete below the prefix"),
    ("InvalidAccessKeyId", "set EVENKEEL_CHECKPOINT_KEY and _SECRET, or the credentials file"),
    ("SignatureDoesNotMatch", "the secret is not that of the key: EVENKEEL_CHECKPOINT_SECRET, or the credentials file"),
    ("NoCredentials", "set EVENKEEL_CHECKPOINT_KEY and _SECRET, or the credentials file"),
    ("Could not connect", "is EVENKEEL_CHECKPOINT_ENDPOINT right, and may this machine reach it?"),
)


def examine_stores(cluster_id: int) -> Iterator[Finding]:
    """From this machine; nodes use the same URL and key."""
    engine = engine_of(cluster_id)
    files = "on this machine" if engine.executor == "local" else f"{engine.job_files} (shared by all nodes)"
    yield Finding("job files", True, files)
    store = engine.checkpoint_store
    if store is None:
        yield Finding("checkpoints", True, "with the job files; EVENKEEL_CHECKPOINT_URL sends them to a store as well")
        return
    try:
        speed = checkpoints.probe(cluster_id)
    except StoreError as error:
        yield Finding("checkpoints", False, f"{store.url}: {error}", _fix(str(error)))
        return
    words = f"written at {speed['write'] / MIB:,.0f} MiB/s, read at {speed['read'] / MIB:,.0f} MiB/s, listed, removed"
    yield Finding("checkpoints", True, f"{store.url}: {checkpoints.PROBE_BYTES // MIB} MiB {words}")
    if store.cache_dir:
        bound = f"at most {store.cache_bytes // MIB:,} MiB" if store.cache_bytes else "without a bound"
        yield Finding("cache", True, f"{store.cache_dir} of each node, {bound}")


def examine_material(executor: object) -> Iterator[Finding]:
    """How a job's code and packages reach its nodes; the executor checks modules and images, for each node."""
    ways = {"supports_git": "from git", "supports_bundles": "uploaded bundles"}
    given = ["by path", *(words for flag, words in ways.items() if getattr(executor, flag, False))]
    yield Finding("code", True, ", ".join(given))
    built = getattr(executor, "supports_environments", False)
    yield Finding("environments", True, "from requirements, kept by hash" if built else "the nodes' own only")


def examine_data(cluster_id: int) -> Iterator[Finding]:
    """Which data jobs may name; the executor checks URLs, for each node."""
    engine, where = engine_of(cluster_id), datasets.configured(cluster_id)
    shared = f"any that nodes have; {engine.job_files} is shared by all of them"
    if engine.executor == "local":
        shared = "any of this machine"
    yield Finding("data by path", True, f"{shared}, as far as the job's account may read")
    bound = f"at most {where.cache_bytes // MIB:,} MiB" if where.cache_bytes else "as much as the disk has"
    yield Finding("data of a project", True, f"{bound} on each node")


def examine_loops(cluster_id: int, now: datetime) -> Iterator[Finding]:
    """Items that the portal fails to process: of this cluster, and of none in particular."""
    mine = Q(cluster=cluster_id) | Q(cluster=None)
    failing = list(failing_now(now).filter(mine).order_by("-failures", "since")[: _MOST_FAILING + 1])
    if not failing:
        yield Finding("failing items", True, "none")
    for row in failing[:_MOST_FAILING]:
        seen = f"{row.name}: fails to {task_of(row.loop)} since {row.since:%Y-%m-%d %H:%M} UTC, {row.failures} times"
        yield Finding("failing items", False, f"{seen}; {row.error}", "the worker's log has the traceback")
    if len(failing) > _MOST_FAILING:
        yield Finding("failing items", False, "and more", "GET /api/v1/failing-items lists all")


def _fix(error: str) -> str:
    found = (fix for word, fix in _FIXES if word in error)
    return next(found, "check EVENKEEL_CHECKPOINT_URL, its endpoint and credentials, and that the store is up")
