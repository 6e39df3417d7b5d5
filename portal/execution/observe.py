"""Observes runs through their executors and records the findings."""

from __future__ import annotations

import itertools
import logging
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from celery import current_app, shared_task
from django.conf import settings
from django.utils import timezone

from portal.cluster import engine_contact, inventory
from portal.core import job_log
from portal.execution import executors, preparation
from portal.execution.prepare import prepare_run, warm_up
from portal.jobs import spooled_runs
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Item, Loop, LoopName, of_cluster, of_run_id, reraise_unless_item, savepoint, step
from portal.jobs.models import Cluster, Hold
from portal.lifecycle import engine_waits
from portal.reporting import acceptance, observation, timeouts
from portal.snapshot.engine_limits import note_limits
from scheduling.errors import ExecutorError
from scheduling.executors.base import EngineLimits, Executor, ExitInfo, Fact

logger = logging.getLogger(__name__)


def accept(cluster: Cluster, executor: Executor, now: datetime) -> None:
    """Accept new runs once their code and environment are ready, and have the executor prepare for them."""
    accepted = acceptance.accept_waiting(
        cluster_id=cluster.pk, problem_of=lambda run: preparation.why_not(run, executor), now=now
    )
    if executor.supports_warm_start:
        for project_id in {run.job.project_id for run in accepted}:
            warm_up.delay(cluster.pk, project_id)
    for run_id in preparation.due(cluster.pk, now):
        prepare_run.delay(str(run_id))


def observe(cluster: Cluster, executor: Executor) -> bool:
    """Record what the executor observes. If it cannot answer (False), everything stays as it is."""
    answered = False
    try:
        _take_inventory(cluster, executor)
        held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
        known = {(str(run_id), epoch) for run_id, epoch in held.values_list("run_id", "epoch").distinct()}
        facts = executor.observe(sorted(known), timeouts.renewals(cluster.pk))
        observation.record_alive([fact for fact in facts if _is_unremarkable(fact)], cluster.pk)
        engine_waits.note_waits(facts, cluster.pk)
        loop = Loop(LoopName.FACTS, cluster.pk)
        for fact in itertools.filterfalse(_is_unremarkable, facts):
            with job_log.about({"run_id": fact.run_id, "epoch": fact.epoch}):
                record_now_or_later(cluster, fact, loop)
        engine_contact.note_reachable(cluster, timezone.now())
        answered = True
    except ExecutorError as error:
        logger.warning("cluster %s, executor %s: %s", cluster, cluster.executor, error)
        engine_contact.note_unreachable(cluster, str(error), timezone.now())
    _note_isolation(cluster, executor)
    return answered


def _take_inventory(cluster: Cluster, executor: Executor) -> None:
    """Raises ExecutorError if the executor cannot answer: then it cannot report on runs either."""
    steps, item, check_first = observation_loop(cluster), step("inventory", cluster.pk), settings.EVENKEEL_NODE_CHECKS
    try:
        with savepoint():
            nodes = executor.inventory()
    except ExecutorError:
        raise
    except Exception as error:
        steps.failed(item, error)
        return
    steps.run(step("note the engine's limits", cluster.pk), _note_limits, cluster, executor)
    record = inventory.record_inventory
    steps.run(item, record, cluster=cluster, nodes=nodes, now=timezone.now(), check_first=check_first)


def _note_limits(cluster: Cluster, executor: Executor) -> None:
    """Of Slurm: no other engine has any."""
    note_limits(cluster, executor.limits() if cluster.executor == "slurm" else EngineLimits())


def observation_loop(cluster: Cluster) -> Loop:
    """Retried in each round."""
    return Loop(LoopName.ROUND, cluster.pk, postpones=False)


def _note_isolation(cluster: Cluster, executor: Executor) -> None:
    trust = "single_trust" if executor.single_trust_mode else "accounts"
    if cluster.isolation != trust:
        Cluster.objects.filter(pk=cluster.pk).update(isolation=trust)


def _is_unremarkable(fact: Fact) -> bool:
    """The run is alive and there is nothing else to record, as for most."""
    return fact.kind == "alive"


def record_now_or_later(cluster: Cluster, fact: Fact, loop: Loop | None = None) -> None:
    """Reports that a runner left behind are read in a separate task, which then records the fact: rounds read no
    reports. If the task has failed several times, the fact is recorded without them."""
    loop, run = loop or Loop(LoopName.FACTS, cluster.pk), of_run_id(fact.run_id)
    if fact.spooled:
        reports = Item(f"reports:{run.key}", run.name, None, run.about)
        if not loop.run(reports, _is_given_up, cluster, fact):
            return  # the task records the fact; if it could not be sent, the next round tries again
    take_in(fact, loop)


def _is_given_up(cluster: Cluster, fact: Fact) -> bool:
    """Passes the reports to a task, unless that has failed several times."""
    if spooled_runs.is_given_up(fact.run_id, fact.epoch):
        observation.note_dropped(fact, "the reports that its runner left behind could not be read")
        return True
    _send_task(cluster, fact)
    return False


def _send_task(cluster: Cluster, fact: Fact) -> None:
    if spooled_runs.claim_task(fact.run_id, fact.epoch):
        current_app.send_task("evenkeel.take_spooled", (cluster.pk, asdict(fact) | {"usage": {}}))


def fact_from(content: dict[str, Any]) -> Fact:
    """The inverse of `asdict` for an exit."""
    return Fact(**content | {"exit": ExitInfo(**content["exit"])})


def take_in(fact: Fact, loop: Loop | None = None) -> None:
    """One fact; errors in a job's own files must never block the facts of other jobs."""
    (loop or Loop(LoopName.FACTS)).run(of_run_id(fact.run_id), _record_fact, fact)


def _record_fact(fact: Fact) -> None:
    """Errors in an exit record must not keep the GPUs of its run occupied."""
    try:
        with savepoint():
            observation.record_fact(fact)
    except Exception as error:
        reraise_unless_item(error)
        if fact.exit is None:
            raise
        logger.exception("fact of run %s: taken as a lost runner", fact.run_id)
        unreadable = ExitInfo("runner_lost", message="Its exit record cannot be read.", alleged=True)
        observation.record_fact(replace(fact, exit=unreadable))


@shared_task(name="evenkeel.reap_orphans", ignore_result=True)
def reap_orphans() -> None:
    """End processes of no known run."""
    for cluster in active_clusters():
        Loop(LoopName.ORPHANS, cluster.pk).run(of_cluster(cluster), _reap_orphans, cluster)


def _reap_orphans(cluster: Cluster) -> None:
    """If an engine does not answer, its processes are checked the next time."""
    try:
        held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
        known = {(str(run_id), epoch) for run_id, epoch in held.values_list("run_id", "epoch")}
        for run_id, epoch in executors.executor_for(cluster).reap_orphans(known):
            about = {"run_id": run_id, "epoch": epoch}
            logger.warning("ended unknown run %s epoch %s", run_id, epoch, extra=about)
    except ExecutorError as error:
        logger.warning("orphans of cluster %s: %s", cluster, error)
