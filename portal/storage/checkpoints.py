"""The portal's use of the checkpoint store: options for launches, listing, removing and moving checkpoints.

Every call runs in a separate process that is killed if it takes too long (evenkeel.store.carrier).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from evenkeel.store import STORE_SECRET, StoreError
from evenkeel.store.carrier import Address, ask_once

from portal.config.stores import StoreSettings
from portal.jobs.clusters import NoEngine, engine_of
from portal.jobs.models import Job, Run
from scheduling.executors.base import CheckpointStore, Secret

ASK_S = 15.0  # for a person who looks at a page
REMOVE_S = 120.0
REMOVE_AT_ONCE = 200
MOVE_S = 240.0  # copies within the store; less than a task's time limit
PROBE_BYTES = 8 << 20
PROBE_S = 60.0
MOST = 100


def configured(cluster_id: int) -> StoreSettings | None:
    """None for a retired cluster: its checkpoints stay where they are."""
    try:
        return engine_of(cluster_id).checkpoint_store
    except NoEngine:
        return None


def prefix_of(project_key: str, job_id: UUID) -> str:
    return f"{project_key}/{job_id}"


def of_run(run: Run) -> CheckpointStore | None:
    store, job = configured(run.job.cluster_id), run.job
    if store is None:
        return None
    return CheckpointStore(
        url=store.url,
        prefix=prefix_of(job.project.key, job.pk),
        keep=int(job.spec.get("checkpoint", {}).get("keep", 3)),
        cache_dir=store.cache_dir,
        cache_bytes=store.cache_bytes,
        end_s=store.end_s,
        fetch_s=store.fetch_s,
        expected_step=run.checkpoint_step,
        resume_prefix=prefix_of(job.project.key, job.resume_job_id) if job.resume_job_id else None,
        resume_step=job.resume_step,
    )


def secrets(cluster_id: int) -> tuple[Secret, ...]:
    """The driver's options, which reach the runner like all secrets."""
    store = configured(cluster_id)
    if store is None:
        return ()
    value = json.dumps({"options": store.options, "credentials": store.credentials})
    return (Secret(STORE_SECRET, value=value),)


def steps_of(job: Job) -> Sequence[int]:
    """Steps of the newest complete checkpoints in the store, newest first. Raises StoreError."""
    return list(_ask(job.cluster_id, prefix_of(job.project.key, job.pk), ASK_S, "list", most=MOST)["steps"])


def remove(cluster_id: int, checkpoints: Iterable[tuple[str, UUID, int]]) -> None:
    """Each as project, job and step, at most REMOVE_AT_ONCE of them. Raises StoreError; some may be gone then. A
    missing one is not an error."""
    named = [(prefix_of(project_key, job_id), step) for project_key, job_id, step in checkpoints]
    _ask(cluster_id, "", REMOVE_S, "remove", checkpoints=named)


def hand_over(cluster_id: int, project_key: str, job_id: UUID) -> None:
    """Move the job's checkpoints from other projects' prefixes to this one's. Raises StoreError."""
    _ask(cluster_id, prefix_of(project_key, job_id), MOVE_S, "bring_here", name=str(job_id))


def probe(cluster_id: int) -> dict[str, float]:
    """Bytes per second of writing and reading a small object. Raises StoreError."""
    answer = _ask(cluster_id, "", PROBE_S, "probe", size=PROBE_BYTES)
    return {name: float(answer[name]) for name in ("write", "read")}


def _ask(cluster_id: int, prefix: str, timeout_s: float, what: str, **more: Any) -> dict[str, Any]:
    store = configured(cluster_id)
    if store is None:
        raise StoreError("no checkpoint store is set")
    address = Address(store.url, prefix, {**store.options, **store.credentials})
    return ask_once(address, timeout_s, what, **more)
