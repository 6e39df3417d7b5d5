"""Tasks of rounds: the order of the steps, without rules of their own. Only this module knows executors."""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import datetime

from celery import current_app, shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from portal.accounting import budgets
from portal.cluster import engine_contact, node_checks
from portal.core import wake
from portal.core.locks import cluster_lock, planning_lock
from portal.execution import executors
from portal.execution.commands import dispatch_commands, has_others
from portal.execution.observe import accept, observation_loop, observe
from portal.forecasts import cluster_figures
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import step
from portal.jobs.models import Cluster
from portal.lifecycle import commit_plan, engine_waits, job_limits, launch_queue, report_interval
from portal.lifecycle.cancel import cancel_unsatisfiable
from portal.reporting import timeouts
from portal.rounds.committed import round_committed
from portal.rounds.plan import plan_cluster
from portal.snapshot import decisions
from portal.snapshot.take import ClusterView
from scheduling.domain import Plan
from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor

logger = logging.getLogger(__name__)


@shared_task(name="evenkeel.run_round", ignore_result=True)
def run_round(cluster_id: int | None = None) -> int:
    """Observe, snapshot, plan, commit, dispatch; one at a time per cluster. Returns for how many clusters this call did
    it.

    With several clusters each has its own task: an engine that does not answer does not delay other clusters.
    """
    wake.clear(wake.round_key(cluster_id))
    clusters = active_clusters() if cluster_id is None else active_clusters().filter(pk=cluster_id)
    wanted = list(clusters.values_list("pk", flat=True))
    if len(wanted) > 1:
        for pk in wanted:
            wake.schedule_round(cluster_id=pk)
        return 0
    return sum(_locked_round(pk) for pk in wanted)


def _locked_round(cluster_id: int) -> int:
    """1 if no other process was running it."""
    if left_s := wake.rest_left_s(cluster_id):
        wake.schedule_round(left_s, cluster_id)
        return 0
    with cluster_lock(cluster_id) as mine:
        if not mine:
            # The round in progress may have taken its snapshot already.
            wake.schedule_round(0.3, cluster_id)
            return 0
        began_s = time.thread_time()
        _round(Cluster.objects.get(pk=cluster_id))
        wake.rest(time.thread_time() - began_s, cluster_id)
    return 1


def _round(cluster: Cluster) -> None:
    try:
        executor = executors.executor_for(cluster)
    except ExecutorError as error:
        logger.warning("cluster %s has no executor: %s", cluster, error)
        engine_contact.note_unreachable(cluster, str(error), timezone.now())
        return
    pk, steps = cluster.pk, observation_loop(cluster)
    answered = steps.run(step("observe", pk), observe, cluster, executor)
    now = timezone.now()
    if answered is False:
        steps.run(step("give notice of budgets", pk), budgets.give_notices, now)
        steps.run(step("count runs", pk), report_interval.note_runs)
        return
    steps.run(step("ask for node checks", pk), _request_checks, pk, now)
    steps.run(step("accept", pk), accept, cluster, executor, now)
    steps.run(step("end overdue states", pk), timeouts.advance_clock, cluster_id=pk, now=now)
    steps.run(step("end waits in the engine", pk), engine_waits.end_long_waits, cluster_id=pk, now=now)
    steps.run(step("place anew where others are", pk), engine_waits.replace_blocked_launches, cluster_id=pk, now=now)
    steps.run(step("enforce limits", pk), job_limits.enforce, cluster_id=pk, now=now)
    if answered:  # otherwise they may have ended successfully long ago
        steps.run(step("enforce max_duration", pk), job_limits.end_overdue, cluster_id=pk, now=now)
    steps.run(step("give notice of budgets", pk), budgets.give_notices, now)
    steps.run(step("cancel unschedulable jobs", pk), cancel_unsatisfiable, cluster_id=pk)
    steps.run(step("plan", pk), plan_and_commit, cluster, timezone.now(), executor)
    steps.run(step("launch", pk), launch_queue.launch_ready, cluster_id=pk, now=timezone.now())
    steps.run(step("count runs", pk), report_interval.note_runs)
    steps.run(step("dispatch commands", pk), dispatch_commands, cluster)


def _request_checks(cluster_id: int, now: datetime) -> None:
    node_checks.request_due_checks(cluster_id=cluster_id, now=now)
    if node_checks.is_due(cluster_id, now):  # the next round repeats an offer that found no taker
        current_app.send_task("evenkeel.check_nodes", (cluster_id,), expires=settings.EVENKEEL_ROUND_INTERVAL_S)


def plan_and_commit(cluster: Cluster, now: datetime, executor: Executor | None = None) -> Plan | None:
    """One decision, stored when it moves something, and otherwise now and then; None if another round was faster, or
    the engine does not answer. Before a move the engine has just been asked."""
    others = has_others(cluster)
    with _planning_lock(others):
        started = time.monotonic()
        view, plan = plan_cluster(cluster, now)
        if not (plan.moves and executor is not None and executor.refresh()):
            return _commit(cluster, view, plan, time.monotonic() - started, now, others)
    # Without the lock: the engine may be slow, and other clusters plan meanwhile.
    if not observe(cluster, executor):
        return None
    with _planning_lock(others):
        started = time.monotonic()
        view, plan = plan_cluster(cluster, now)
        return _commit(cluster, view, plan, time.monotonic() - started, now, others)


def _planning_lock(others: bool) -> contextlib.AbstractContextManager[object]:
    return planning_lock() if others else contextlib.nullcontext()


def _commit(
    cluster: Cluster, view: ClusterView, plan: Plan, seconds: float, now: datetime, others: bool
) -> Plan | None:
    try:
        with transaction.atomic():
            applied = commit_plan.commit_plan(
                cluster_id=cluster.pk, round_epoch=cluster.round_epoch, plan=plan, seen=view.seen, now=now
            )
            steps = observation_loop(cluster)
            steps.run(step("note jobs left out", cluster.pk), commit_plan.note_skipped, cluster.pk, view.seen)
            note, keep = commit_plan.note_round, decisions.store
            item = step("note the round", cluster.pk)
            steps.run(item, note, cluster=cluster, plan=plan, applied=applied, seconds=seconds, now=now)
            if applied or decisions.sampling_is_due(cluster, now):
                item = step("keep the decision", cluster.pk)
                steps.run(item, keep, view=view, plan=plan, seconds=seconds, now=now)
    except commit_plan.StaleRound as stale:
        logger.info("%s", stale)
        return None
    _wake_at(cluster, plan, now)
    if others:
        item = step("keep figures for the choice of a cluster", cluster.pk)
        steps.run(item, cluster_figures.note_round, view, plan)
    round_committed.send_robust(sender=Cluster, view=view, plan=plan, now=now)
    return plan


def _wake_at(cluster: Cluster, plan: Plan, now: datetime) -> None:
    """The timer may be seconds away; a plan that names its next moment gets a wake-up."""
    if plan.next_wake_at is not None:
        wait_s = plan.next_wake_at - now.timestamp()
        if wait_s < settings.EVENKEEL_ROUND_INTERVAL_S:
            wake.schedule_round(max(0.1, wait_s), cluster.pk)
