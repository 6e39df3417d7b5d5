"""Hands over files of moved jobs to their new projects."""

from __future__ import annotations

import logging
from uuid import UUID

from celery import shared_task
from django.utils import timezone
from evenkeel.store import StoreError

from portal.core import job_log
from portal.execution import executors
from portal.jobs.loops import Loop, LoopName, in_a_sentence, of_job, savepoint
from portal.jobs.models import Handover, Job
from portal.storage import checkpoints, handovers
from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor

logger = logging.getLogger(__name__)


@shared_task(name="evenkeel.hand_over", ignore_result=True)
def hand_over(job_id: str) -> None:
    """Hand over the files of a job that was moved."""
    handover = handovers.claim_handover(UUID(job_id), timezone.now())
    if handover is None:
        return
    try:
        with savepoint():
            give_files(executors.executor_for(handover.job.cluster), handover.job.pk)
    except ExecutorError as error:
        about = job_log.of_job(handover.job)
        logger.warning("files of job %s, attempt %s: %s", job_id, handover.attempts + 1, error, extra=about)
        handovers.note_failed_handover(handover, str(error), timezone.now())
    except Exception as error:
        Loop(LoopName.HANDOVERS).failed(of_job(handover.job), error)
        handovers.note_failed_handover(handover, in_a_sentence(error), timezone.now())
    else:
        handovers.finish_handover(handover)
        Loop(LoopName.HANDOVERS).succeeded(of_job(handover.job))


def give_files(executor: Executor, job_id: UUID) -> None:
    """To the job's present project, even if the job is moved at this moment."""
    keys = Job.objects.filter(pk=job_id).values_list("project__key", flat=True)
    given = ""
    for _ in range(5):
        if (key := keys.first() or "") == given:
            return
        executor.hand_over(key, str(job_id))
        give_stored(job_id)
        given = key
    raise ExecutorError(f"job {job_id} keeps being moved", permanent=False)


def give_stored(job_id: UUID) -> None:
    """Checkpoints of a moved job stay under the former project's prefix until they are copied."""
    handover = Handover.objects.select_related("job__project").filter(job_id=job_id).first()
    if handover is None or checkpoints.configured(handover.job.cluster_id) is None:
        return
    try:
        checkpoints.hand_over(handover.job.cluster_id, handover.job.project.key, job_id)
    except StoreError as error:
        raise ExecutorError(f"its checkpoints have not followed it in the store: {error}", permanent=False) from error


@shared_task(name="evenkeel.hand_over_all", ignore_result=True)
def hand_over_all() -> None:
    """All moved jobs whose files have not been handed over, even if the message was lost."""
    for job_id in handovers.due_handovers(timezone.now()):
        hand_over.delay(str(job_id))
