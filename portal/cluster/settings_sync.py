"""Rows of clusters follow the settings: created, changed, retired."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.utils import timezone

from portal.cluster.policy import set_policy
from portal.config.engines import Engine
from portal.jobs.clusters import environment_engine
from portal.jobs.models import Assignment, Cluster, Hold, Run
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import WAITING


class CannotFollow(Exception):
    """A cluster cannot change to what the settings say; the sentence includes advice."""


def follow_settings(default_name: str) -> Iterator[str]:
    """At each start, within a transaction: lines about what was changed. Raises CannotFollow."""
    rows = {row.name: row for row in Cluster.objects.select_for_update()}
    wanted = dict(settings.EVENKEEL_CLUSTERS)
    if not wanted:  # the first one may have any name: administrators may name it
        first = next((row for row in rows.values() if row.retired_at is None), None) or next(iter(rows.values()), None)
        wanted = {first.name if first else default_name: environment_engine()}
    for position, (name, engine) in enumerate(wanted.items()):
        if name in rows:
            yield from _update(rows[name], engine, position)
        else:
            _make(name, engine, position)
            yield f"Cluster {name} is new."
    for name, row in rows.items():
        if name not in wanted and row.retired_at is None:
            yield _retire(row)


def _make(name: str, engine: Engine, position: int) -> None:
    cluster = Cluster.objects.create(
        name=name, executor=engine.executor, position=position, job_files=str(engine.job_files)
    )
    set_policy(actor=None, cluster=cluster, name=cluster.policy_name, parameters={})


def _update(row: Cluster, engine: Engine, position: int) -> Iterator[str]:
    if row.executor != engine.executor and _holds_gpus(row):
        raise CannotFollow(
            f"EVENKEEL_EXECUTOR of cluster {row.name} is {engine.executor}, but runs of {row.executor} still hold "
            f"GPUs: start once more with {row.executor} and let them end."
        )
    before = row.job_files or str(environment_engine().job_files)
    if settings.EVENKEEL_CLUSTERS and before != str(engine.job_files) and row.jobs.exists():
        raise CannotFollow(
            f"EVENKEEL_CLUSTERS: cluster {row.name} kept the files of its jobs in {before}, and now would in "
            f"{engine.job_files}: name that folder in its settings (EVENKEEL_LOCAL_DIR or EVENKEEL_SHARED_DIR), "
            "or give the cluster another name."
        )
    back = row.retired_at is not None
    Cluster.objects.filter(pk=row.pk).update(
        executor=engine.executor, position=position, job_files=str(engine.job_files), retired_at=None
    )
    if back:
        yield f"Cluster {row.name} is back."


def _retire(row: Cluster) -> str:
    planned = Assignment.objects.filter(run__job__cluster=row, during__upper_inf=True)
    if _holds_gpus(row) or planned.exists():
        raise CannotFollow(
            f"Cluster {row.name} is to be retired, but its jobs still hold GPUs: start once more with it in "
            "EVENKEEL_CLUSTERS, drain its nodes or cancel its jobs, and let them end."
        )
    Cluster.objects.filter(pk=row.pk).update(retired_at=timezone.now())
    text = f"Cluster {row.name} is retired: cancel the job, and submit it to another cluster."
    waiting = Run.objects.filter(job__cluster=row, state__in=[state.value for state in WAITING])
    count = waiting.update(reason_token=ReasonCode.CLUSTER_RETIRED, reason_text=text, reason_detail={})
    left = f"; {count} of its jobs wait, and can only be cancelled" if count else ""
    return f"Cluster {row.name} is retired: the settings no longer name it{left}."


def _holds_gpus(cluster: Cluster) -> bool:
    return Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True).exists()
