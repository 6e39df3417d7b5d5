"""Sends commands to executors, with retries."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta
from uuid import UUID

from celery import shared_task
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from evenkeel.runner.grace import KILL_AFTER_S

from portal.core import job_log, wake
from portal.core.locks import engine_slot, project_slot
from portal.execution import executors, launch_request
from portal.execution.handover import give_files, give_stored
from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.models import Cluster, Command, Run
from portal.lifecycle import end_run, engine_waits
from portal.reporting import observation
from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor, ExitInfo
from scheduling.lifecycle import LIVE, State

logger = logging.getLogger(__name__)

_RESEND_S, _LONGEST_RESEND_S = 2.0, 60.0
_PUT_OFF_S = 1.0
_MAX_ATTEMPTS = 30

#: After this many attempts, some eight minutes, a launch that the engine rejects for the moment is placed again.
_ANEW_AFTER = 12


def has_others(cluster: Cluster) -> bool:
    return active_clusters().exclude(pk=cluster.pk).exists()


def dispatch_commands(cluster: Cluster) -> None:
    """Pass every open command that is due to a worker: a slow launch does not delay the round."""
    due = Command.objects.filter(run__job__cluster=cluster, closed_at=None, next_attempt_at__lte=timezone.now())
    for pk in due.order_by("pk").values_list("pk", flat=True)[:5_000]:
        send_command.delay(pk)


@shared_task(name="evenkeel.send_command", ignore_result=True)
def send_command(pk: int) -> None:
    """Send the command to the executor, unless another worker is doing it; an observation closes the command."""
    commands = Command.objects.select_related("run__job__project", "run__job__model_type", "run__job__cluster")
    command = commands.filter(pk=pk, closed_at=None, next_attempt_at__lte=timezone.now()).first()
    if command is None:
        return
    cluster, project_id = command.run.job.cluster, command.run.job.project_id
    with contextlib.ExitStack() as slots:
        mine = slots.enter_context(project_slot(project_id, kill=command.verb == Command.Verb.KILL))
        if mine and _waits_for_engine(cluster):
            mine = slots.enter_context(engine_slot(cluster.pk))
        if mine:
            _claim_and_send(command, cluster)
        else:
            _put_off(command, cluster)


def _waits_for_engine(cluster: Cluster) -> bool:
    """It may not answer, and commands of other clusters would wait behind this one's."""
    return engine_of(cluster.pk).executor != "local" and has_others(cluster)


def _put_off(command: Command, cluster: Cluster) -> None:
    """A later round sends it again; the wait does not occupy a worker."""
    due_at = timezone.now() + timedelta(seconds=_PUT_OFF_S)
    Command.objects.filter(pk=command.pk, attempts=command.attempts, closed_at=None).update(next_attempt_at=due_at)
    wake.schedule_round(_PUT_OFF_S, cluster.pk)


def _claim_and_send(command: Command, cluster: Cluster) -> None:
    # A kill returns while the program has its grace period; the kill sent after that ends it for certain.
    longest_s = KILL_AFTER_S if command.verb == Command.Verb.KILL else _LONGEST_RESEND_S
    wait_s = min(longest_s, _RESEND_S * 2 ** min(command.attempts, 5))
    claimed = Command.objects.filter(pk=command.pk, attempts=command.attempts, closed_at=None).update(
        attempts=F("attempts") + 1, next_attempt_at=timezone.now() + timedelta(seconds=wait_s)
    )
    if claimed:
        with job_log.about({**job_log.of_run(command.run), "epoch": command.epoch}):
            _send(command, executors.executor_for(cluster))
        if command.verb == Command.Verb.KILL:
            wake.schedule_round(0.1, cluster.pk)


def _send(command: Command, executor: Executor) -> None:
    run, epoch = command.run, command.epoch
    try:
        match command.verb:
            case Command.Verb.LAUNCH:
                if run.epoch == epoch and State(run.state) in LIVE and State(run.state) is not State.LAUNCHING:
                    # it has launched since: this is the same command, sent again
                    Command.objects.filter(pk=command.pk).update(closed_at=timezone.now())
                elif State(run.state) is State.LAUNCHING and run.epoch == epoch:
                    request = launch_request.launch_request(run, epoch)
                    Run.objects.filter(pk=run.pk, epoch=epoch).update(pace_steps_per_s=request.pace_steps_per_s)
                    if request.resume_job_id is not None:
                        give_files(executor, UUID(request.resume_job_id))
                    give_stored(run.job.pk)
                    executor.launch(request)
                    if command.error:  # of an earlier attempt
                        Command.objects.filter(pk=command.pk).update(error="")
                else:
                    executor.kill(str(run.pk), epoch)
            case Command.Verb.CHECKPOINT_AND_STOP:
                executor.checkpoint_and_stop(str(run.pk), epoch)
            case _:
                executor.kill(str(run.pk), epoch)
    except ExecutorError as error:
        _send_failed(command, error)
    except Exception as error:
        logger.exception("command %s", command)
        _send_failed(command, ExecutorError(f"{type(error).__name__}: {error}", permanent=False))


def _send_failed(command: Command, error: ExecutorError) -> None:
    Command.objects.filter(pk=command.pk).update(error=str(error)[:2000])
    logger.warning("%s, attempt %s: %s", command, command.attempts + 1, error)
    if command.verb != Command.Verb.LAUNCH:
        return
    if error.by_engine and not error.permanent:
        observation.note_failed_launch(command, f"The launch is tried again: {error}")
        engine_waits.note_not_accepted(command, str(error), timezone.now(), anew=command.attempts >= _ANEW_AFTER)
        return
    if not (error.permanent or command.attempts >= _MAX_ATTEMPTS):
        text = f"Launch {command.attempts + 1} of at most {_MAX_ATTEMPTS + 1} failed: {error}"
        observation.note_failed_launch(command, text)
        return
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("job").get(pk=command.run_id)
        if State(run.state) in LIVE and run.epoch == command.epoch:
            fault = not error.permanent  # or the project's: it may stop its own launches
            info = ExitInfo(
                "launch_failed", message=str(error)[:800], nodes_fault=fault, alleged=True, permanent=error.by_engine
            )
            end_run.fail(run, info, timezone.now())
        Command.objects.filter(pk=command.pk).update(closed_at=timezone.now())
