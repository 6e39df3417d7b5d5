"""A job's data as its launch request contains it."""

from __future__ import annotations

import json
from typing import Any

from evenkeel.store import DATA_SECRET

from portal.config.datasets import DataSettings
from portal.jobs.clusters import engine_of
from portal.jobs.models import Job
from portal.material.secrets import value_of
from scheduling.errors import ExecutorError
from scheduling.executors.base import Data, DataEntry, Secret


def configured(cluster_id: int) -> DataSettings:
    """Raises NoEngine."""
    return engine_of(cluster_id).datasets


def of_job(job: Job) -> Data | None:
    named = job.spec.get("data")
    if not named:
        return None
    where = configured(job.cluster_id)
    entries = tuple(
        DataEntry(use["name"], use.get("path"), use.get("url"), bool(use.get("read_only", True))) for use in named
    )
    return Data(entries, job.project.key, where.cache_dir, where.cache_bytes, where.fetch_s)


def secrets(job: Job) -> tuple[Secret, ...]:
    """Options of the stores' drivers, which reach the runner like all secrets."""
    options = {use["name"]: _options(job, use) for use in job.spec.get("data", []) if use.get("url")}
    given = {name: found for name, found in options.items() if found}
    return (Secret(DATA_SECRET, value=json.dumps(given)),) if given else ()


def _options(job: Job, use: dict[str, Any]) -> dict[str, Any]:
    if not use.get("secret"):
        return configured(job.cluster_id).options_for(use["url"])
    name = use["secret"]
    try:
        options = json.loads(value_of(job.project, name))
    except ValueError:
        options = None
    if not isinstance(options, dict):
        text = f"Secret {name!r} of data {use['name']} must hold a JSON object of the store's options."
        raise ExecutorError(text, permanent=True)
    return options
