"""Prepares runs: code, data and environments before the launch."""

from __future__ import annotations

import logging
from uuid import UUID

from celery import shared_task
from django.utils import timezone

from accounts.models import Project
from portal.core import wake
from portal.core.locks import project_slot
from portal.execution import executors, preparation
from portal.jobs.loops import Loop, LoopName, of_run
from portal.jobs.models import Cluster, Run
from scheduling.errors import ExecutorError

logger = logging.getLogger(__name__)


@shared_task(name="evenkeel.warm_up", ignore_result=True)
def warm_up(cluster_id: int, project_id: int) -> None:
    """Prepare the project's next launch; not needed if others of its project are running."""
    with project_slot(project_id) as mine:
        if mine:
            cluster, project = Cluster.objects.get(pk=cluster_id), Project.objects.get(pk=project_id)
            try:
                executors.executor_for(cluster).warm_up({project.key})
            except ExecutorError as error:
                logger.warning("warm start of project %s: %s", project.key, error)


@shared_task(name="evenkeel.prepare_run", ignore_result=True)
def prepare_run(run_id: str) -> None:
    """Start or poll what a run needs before it can queue; again a second later while it is under way."""
    project_id = Run.objects.filter(pk=run_id).values_list("job__project_id", flat=True).first()
    if project_id is None:
        return
    with project_slot(project_id) as mine:
        # otherwise a later round sends it again
        run = preparation.claim(UUID(run_id), timezone.now()) if mine else None
        if run is not None:
            Loop(LoopName.PREPARE, run.job.cluster_id).run(of_run(run), _prepare, run)


def _prepare(run: Run) -> None:
    executor, working = executors.executor_for(run.job.cluster), False
    try:
        for wish in preparation.wishes(run):
            progress = executor.prepare(wish.preparation)
            preparation.record(run=run, wish=wish, progress=progress, now=timezone.now())
            working |= progress.state == "working"
            if progress.state == "failed":
                break
    except ExecutorError as error:
        logger.warning("preparing run %s: %s", run.pk, error)
        if error.permanent:
            preparation.fail(run=run, message=str(error), now=timezone.now())
        working = not error.permanent
    if working:
        prepare_run.apply_async((str(run.pk),), countdown=preparation.LOOK_AGAIN_S + 0.05)
    else:
        wake.schedule_round(cluster_id=run.job.cluster_id)
