"""Collects what runs left, and keeps all storage within its limits."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from celery import shared_task
from django.conf import settings
from django.core.cache import cache
from django.utils import timezone
from evenkeel.store import StoreError

from accounts.models import Project
from portal.execution import executors
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Item, Loop, LoopName, of_cluster, of_project, of_run, step
from portal.jobs.models import Cluster, Handover, Run
from portal.material import artifacts, bundles, checkpoints, environments
from portal.material.models import Artifact, Environment
from portal.storage import checkpoints as checkpoint_store
from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor

logger = logging.getLogger(__name__)

_BATCH = 1_000
#: A store that does not answer is not asked again for every project.
_AWAY, _AWAY_S = "checkpoint-store:away:{}", 300
#: Of items' keys.
_ARTIFACT, _PLACE = "artifact:", "checkpoint:"


@shared_task(name="evenkeel.collect_artifacts", ignore_result=True)
def collect_artifacts() -> None:
    """List files of ended runs; the next call looks at what is under way."""
    for cluster in active_clusters():
        Loop(LoopName.ARTIFACTS, cluster.pk).run(of_cluster(cluster), _collect_of, cluster)


def _collect_of(cluster: Cluster) -> None:
    executor, loop = executors.executor_for(cluster), Loop(LoopName.ARTIFACTS, cluster.pk)
    if not executor.supports_artifacts:
        return
    for run in artifacts.uncollected(cluster.pk, timezone.now()):
        loop.run(of_run(run), _collect, run, executor)


def _collect(run: Run, executor: Executor) -> None:
    try:
        progress = executor.prepare(artifacts.collection_of(run))
    except ExecutorError as error:
        logger.warning("artifacts of run %s: %s", run.pk, error)
        artifacts.put_off(run, str(error), timezone.now())
    else:
        artifacts.record(run=run, progress=progress, now=timezone.now())


@shared_task(name="evenkeel.clean_material", ignore_result=True)
def clean_material() -> None:
    """Remove what no rule keeps any longer."""
    now, loop = timezone.now(), Loop(LoopName.REMOVAL)
    loop.run(step("expired artifacts"), artifacts.expire, now)
    loop.run(step("removed artifacts"), remove_artifacts)
    loop.run(step("unused bundles"), bundles.remove_unused, now)
    for project in Project.objects.all():
        loop.run(of_project(project), _clean_project, project, now)
    loop.run(step("environments"), _clean_environments)


def _clean_project(project: Project, now: datetime) -> None:
    checkpoints.warn(project, now)
    remove_checkpoints(project, now)
    checkpoints.recount(project)


def _clean_environments() -> None:
    loop = Loop(LoopName.REMOVAL)
    for one in environments.over_budget(settings.EVENKEEL_KEEP.environments_bytes):
        loop.run(Item(f"environment:{one.pk}", f"environment {one.digest[:12]}"), forget_environment, one)


def remove_checkpoints(project: Project, now: datetime) -> None:
    """Retried if some cannot be removed."""
    loop = Loop(LoopName.REMOVAL)
    stuck = {key.removeprefix(_PLACE) for key in loop.postponed if key.startswith(_PLACE)}
    for _ in range(2):
        here = defaultdict[int, list[checkpoints.Kept]](list)
        for one in list(checkpoints.going(project, now, stuck)):
            item = Item(_PLACE + one.place, f"checkpoint {one.place}", one.job_id)
            if loop.run(item, _discard_or, stuck, one):
                here[one.cluster_id].append(one)
            else:
                stuck.add(one.place)
        for cluster_id, ones in here.items():
            for start in range(0, len(ones), checkpoint_store.REMOVE_AT_ONCE):
                some = ones[start : start + checkpoint_store.REMOVE_AT_ONCE]
                item = Item(f"forget:{project.pk}:{cluster_id}", f"checkpoints of {project.key}")
                if not loop.attempt(item, _forget_or, stuck, cluster_id, some)[0]:
                    stuck |= {one.place for one in some}
        if not stuck:
            return


def _forget_or(stuck: set[str], cluster_id: int, some: Sequence[checkpoints.Kept]) -> None:
    if not _remove_stored(cluster_id, some):
        stuck |= {one.place for one in some}
        return
    for one in some:
        checkpoints.forget(one)


def _discard_or(stuck: set[str], one: checkpoints.Kept) -> bool:
    stored = checkpoint_store.configured(one.cluster_id) is not None
    moving = stored and Handover.objects.filter(job_id=one.job_id).exists()
    if not moving and _discard(one.cluster_id, one.project_key, [one.place]):
        return True
    stuck.add(one.place)
    return False


def _remove_stored(cluster_id: int, some: Iterable[checkpoints.Kept]) -> bool:
    """True once none of them is in the cluster's checkpoint store, if it has one."""
    if checkpoint_store.configured(cluster_id) is None:
        return True
    away = _AWAY.format(cluster_id)
    if cache.get(away):
        return False
    try:
        checkpoint_store.remove(cluster_id, ((one.project_key, one.job_id, one.step) for one in some))
    except StoreError as error:
        logger.warning("checkpoints stay in the store: %s", error)
        cache.set(away, True, _AWAY_S)
        return False
    return True


def forget_environment(environment: Environment) -> None:
    owner = environments.owner_of(environment)
    try:
        paths = environments.forget(actor=None, environment=environment)
    except environments.InUse as error:
        logger.info("%s", error)
        return
    _discard(environment.cluster_id, owner, paths)


def remove_artifacts() -> None:
    """Files first: without its row a file would stay forever."""
    loop = Loop(LoopName.REMOVAL)
    for artifact in artifacts.to_remove().exclude(pk__in=loop.postponed_ids(_ARTIFACT))[:_BATCH]:
        item = Item(f"{_ARTIFACT}{artifact.pk}", f"artifact {artifact.path}", artifact.run.job_id)
        loop.run(item, _remove_artifact, artifact)


def _remove_artifact(artifact: Artifact) -> None:
    if _discard(artifact.run.job.cluster_id, artifact.run.job.project.key, [artifacts.place_of(artifact)]):
        Artifact.objects.filter(pk=artifact.pk).delete()
    else:
        artifacts.move_to_end(artifact)


@shared_task(name="evenkeel.remove_artifacts", ignore_result=True)
def remove_artifacts_now() -> None:
    remove_artifacts()


@shared_task(name="evenkeel.discard", ignore_result=True)
def discard_paths(cluster_id: int, owner: str, paths: list[str]) -> None:
    """Files of a project without any reference."""
    _discard(cluster_id, owner, paths)


def _discard(cluster_id: int, owner: str, paths: Iterable[str]) -> bool:
    """True once the files are gone."""
    try:
        executors.executor_for(Cluster.objects.get(pk=cluster_id)).discard(owner, list(paths))
    except ExecutorError as error:
        logger.warning("%s", error)
        return error.permanent
    return True
