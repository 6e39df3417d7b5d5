"""The clusters of this portal, and the engine of each: the only place that looks up settings by cluster."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from portal.config.engines import Engine
from portal.core.own_address import has_name_of_its_own
from portal.jobs.models import Cluster
from scheduling.errors import ExecutorError


class NoEngine(ExecutorError):
    """The cluster is retired; work that needs it waits until it is back."""

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name} is retired: EVENKEEL_CLUSTERS no longer names it", permanent=False)


def active_clusters() -> QuerySet[Cluster]:
    """In the file's order."""
    return Cluster.objects.filter(retired_at=None)


def default_cluster() -> Cluster:
    """The first; Cluster.DoesNotExist before the first start."""
    found = active_clusters().first()
    if found is None:
        raise Cluster.DoesNotExist("there is no cluster yet")
    return found


def engine_of(cluster_id: int | None) -> Engine:
    """Raises NoEngine if the cluster is retired. None, for jobs that are not stored yet: the default cluster."""
    if not settings.EVENKEEL_CLUSTERS:
        return environment_engine()
    name = _name(cluster_id) if cluster_id is not None else next(iter(settings.EVENKEEL_CLUSTERS))
    engine: Engine | None = settings.EVENKEEL_CLUSTERS.get(name)
    if engine is None:
        raise NoEngine(name)
    return engine


@cache
def _name(cluster_id: int) -> str:
    """With a file of clusters the name is the key and never changes."""
    return Cluster.objects.values_list("name", flat=True).get(pk=cluster_id)


def environment_engine() -> Engine:
    options: dict[str, Any] = settings.EVENKEEL_EXECUTOR_OPTIONS.get(settings.EVENKEEL_EXECUTOR, {})
    return Engine(
        settings.EVENKEEL_EXECUTOR,
        options,
        Path(settings.EVENKEEL_JOB_FILES or settings.EVENKEEL_DATA),
        settings.EVENKEEL_CHECKPOINT_STORE,
        settings.EVENKEEL_DATASETS,
        bool(options.get("emulated", settings.EVENKEEL_VIRTUAL_ACCELERATORS)),
    )


def files_of(cluster_id: int) -> Path:
    """The folder that contains its jobs' files; of a retired cluster the last one."""
    try:
        return engine_of(cluster_id).job_files
    except NoEngine:
        return Path(Cluster.objects.values_list("job_files", flat=True).get(pk=cluster_id))


def is_emulated(cluster_id: int | None) -> bool:
    try:
        return engine_of(cluster_id).emulated
    except NoEngine:
        return False


def speedup(cluster_id: int | None) -> float:
    """How much faster emulated devices run than in the catalogue; 1 on real ones."""
    return float(settings.EVENKEEL_SPEEDUP) if is_emulated(cluster_id) else 1.0


def shares_its_host(executor: str) -> bool:
    """Jobs run on this machine, so browsers send them the portal's cookies, which ignore ports."""
    return executor == "local" and not has_name_of_its_own()
