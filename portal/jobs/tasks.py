"""The tasks: order of calls, no rules. Only this module knows executors."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from celery import current_app, shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from evenkeel.runner.grace import KILL_AFTER_S
from evenkeel.store import StoreError

from accounts.models import Project
from portal.core import job_log
from portal.jobs import (
    audit_heads,
    checkpoint_store,
    decisions,
    history,
    launching,
    live,
    reporting,
    site_shares,
    spooling,
    wakeups,
)
from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.engine_isolation import refusals
from portal.jobs.engine_limits import note_limits
from portal.jobs.locks import cluster_lock, engine_slot, planning_lock, project_slot
from portal.jobs.loops import (
    Item,
    Loop,
    LoopName,
    in_a_sentence,
    of_cluster,
    of_job,
    of_run,
    of_run_id,
    raise_what_is_no_items,
    savepoint,
    step,
)
from portal.jobs.models import Cluster, Command, Handover, Hold, Job, Run
from portal.jobs.round_plans import plan_cluster
from portal.jobs.round_signal import round_committed
from portal.jobs.services import (
    administration,
    budgets,
    checks,
    engine_contact,
    engine_waits,
    handovers,
    limits,
    observation,
    plans,
)
from portal.jobs.services.hopeless import cancel_hopeless
from portal.jobs.snapshots import ClusterView
from portal.material import preparation
from scheduling.domain import Plan
from scheduling.errors import ExecutorError
from scheduling.executors import load_executor
from scheduling.executors.base import EngineLimits, Executor, ExitInfo, Fact
from scheduling.lifecycle import LIVE, State

logger = logging.getLogger(__name__)

_RESEND_S, _LONGEST_RESEND_S = 2.0, 60.0
_PUT_OFF_S = 1.0
_MAX_ATTEMPTS = 30
#: A launch that the engine does not take for the moment is placed anew after so many, some eight minutes.
_ANEW_AFTER = 12


@cache
def executor_for(cluster: Cluster) -> Executor:
    """The process's own executor object of the cluster; what it needs to know lies on disk. Raises NoEngine, and
    ExecutorError where its jobs could become the portal."""
    engine = engine_of(cluster.pk)
    for refusal in refusals(engine):
        raise ExecutorError(refusal, permanent=False)
    return load_executor(engine.executor, engine.options)


@shared_task(name="evenkeel.run_round", ignore_result=True)
def run_round(cluster_id: int | None = None) -> int:
    """Observe, snapshot, plan, commit, dispatch; one at a time per cluster. For how many clusters it was this call.

    Several clusters have a task each: one whose engine does not answer holds up no other.
    """
    wakeups.clear(wakeups.round_key(cluster_id))
    clusters = active_clusters() if cluster_id is None else active_clusters().filter(pk=cluster_id)
    wanted = list(clusters.values_list("pk", flat=True))
    if len(wanted) > 1:
        for pk in wanted:
            wakeups.wake(cluster_id=pk)
        return 0
    return sum(_round_alone(pk) for pk in wanted)


def _round_alone(cluster_id: int) -> int:
    """1 where nobody else was at it."""
    if left_s := wakeups.rest_left_s(cluster_id):
        wakeups.wake(left_s, cluster_id)
        return 0
    with cluster_lock(cluster_id) as mine:
        if not mine:
            # The round in progress may have taken its snapshot already.
            wakeups.wake(0.3, cluster_id)
            return 0
        began_s = time.thread_time()
        _round(Cluster.objects.get(pk=cluster_id))
        wakeups.rest(time.thread_time() - began_s, cluster_id)
    return 1


def _round(cluster: Cluster) -> None:
    try:
        executor = executor_for(cluster)
    except ExecutorError as error:
        logger.warning("cluster %s has no executor: %s", cluster, error)
        engine_contact.note_away(cluster, str(error), timezone.now())
        return
    pk, steps = cluster.pk, _steps(cluster)
    answered = steps.run(step("observe", pk), observe, cluster, executor)
    now = timezone.now()
    if answered is False:
        steps.run(step("give notice of budgets", pk), budgets.give_notices, now)
        steps.run(step("count runs", pk), reporting.note_runs)
        return
    steps.run(step("ask for node checks", pk), _ask_for_checks, pk, now)
    steps.run(step("accept", pk), accept, cluster, executor, now)
    steps.run(step("end overdue states", pk), observation.advance_clock, cluster_id=pk, now=now)
    steps.run(step("end waits in the engine", pk), engine_waits.end_long_waits, cluster_id=pk, now=now)
    steps.run(step("place anew where others are", pk), engine_waits.end_taken, cluster_id=pk, now=now)
    steps.run(step("enforce limits", pk), limits.enforce, cluster_id=pk, now=now)
    if answered:  # else they may have ended long ago, and well
        steps.run(step("enforce max_duration", pk), limits.end_overdue, cluster_id=pk, now=now)
    steps.run(step("give notice of budgets", pk), budgets.give_notices, now)
    steps.run(step("cancel unschedulable jobs", pk), cancel_hopeless, cluster_id=pk)
    steps.run(step("plan", pk), plan_and_commit, cluster, timezone.now(), executor)
    steps.run(step("launch", pk), plans.launch_ready, cluster_id=pk, now=timezone.now())
    steps.run(step("count runs", pk), reporting.note_runs)
    steps.run(step("dispatch commands", pk), dispatch_commands, cluster)


def _ask_for_checks(cluster_id: int, now: datetime) -> None:
    checks.keep_house(cluster_id=cluster_id, now=now)
    if checks.is_due(cluster_id, now):  # an offer that nobody takes up is made again by the next round
        current_app.send_task("evenkeel.check_nodes", (cluster_id,), expires=settings.EVENKEEL_ROUND_INTERVAL_S)


def accept(cluster: Cluster, executor: Executor, now: datetime) -> None:
    """Take new runs in once their code and environment are there, and have the executor prepare for them."""
    accepted = observation.accept_waiting(
        cluster_id=cluster.pk, problem_of=lambda run: preparation.why_not(run, executor), now=now
    )
    if executor.supports_warm_start:
        for project_id in {run.job.project_id for run in accepted}:
            warm_up.delay(cluster.pk, project_id)
    for run_id in preparation.due(cluster.pk, now):
        prepare_run.delay(str(run_id))


@shared_task(name="evenkeel.warm_up", ignore_result=True)
def warm_up(cluster_id: int, project_id: int) -> None:
    """Prepare the project's next launch; one that finds others of its project at work is not needed."""
    with project_slot(project_id) as mine:
        if mine:
            cluster, project = Cluster.objects.get(pk=cluster_id), Project.objects.get(pk=project_id)
            try:
                executor_for(cluster).warm_up({project.key})
            except ExecutorError as error:
                logger.warning("warm start of project %s: %s", project.key, error)


def observe(cluster: Cluster, executor: Executor) -> bool:
    """Take in what the executor sees. One that cannot answer (False) leaves everything as it is."""
    answered = False
    try:
        _take_inventory(cluster, executor)
        held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
        known = {(str(run_id), epoch) for run_id, epoch in held.values_list("run_id", "epoch").distinct()}
        facts = executor.observe(sorted(known), observation.renewals(cluster.pk))
        observation.record_alive([fact for fact in facts if _is_all_said(fact)], cluster.pk)
        engine_waits.note_waits(facts, cluster.pk)
        loop = Loop(LoopName.FACTS, cluster.pk)
        for fact in itertools.filterfalse(_is_all_said, facts):
            with job_log.about({"run_id": fact.run_id, "epoch": fact.epoch}):
                take_in_later_or_now(cluster, fact, loop)
        engine_contact.note_back(cluster, timezone.now())
        answered = True
    except ExecutorError as error:
        logger.warning("cluster %s, executor %s: %s", cluster, cluster.executor, error)
        engine_contact.note_away(cluster, str(error), timezone.now())
    _note_isolation(cluster, executor)
    return answered


def _take_inventory(cluster: Cluster, executor: Executor) -> None:
    """Raises ExecutorError where the executor cannot answer: then it cannot say what became of runs either."""
    steps, item, check_first = _steps(cluster), step("inventory", cluster.pk), settings.EVENKEEL_NODE_CHECKS
    try:
        with savepoint():
            nodes = executor.inventory()
    except ExecutorError:
        raise
    except Exception as error:
        steps.failed(item, error)
        return
    steps.run(step("note the engine's limits", cluster.pk), _note_limits, cluster, executor)
    record = administration.record_inventory
    steps.run(item, record, cluster=cluster, nodes=nodes, now=timezone.now(), check_first=check_first)


def _note_limits(cluster: Cluster, executor: Executor) -> None:
    """Of Slurm: no other engine has any."""
    note_limits(cluster, executor.limits() if cluster.executor == "slurm" else EngineLimits())


def _steps(cluster: Cluster) -> Loop:
    """They are tried in each round."""
    return Loop(LoopName.ROUND, cluster.pk, rests=False)


def _note_isolation(cluster: Cluster, executor: Executor) -> None:
    trust = "single_trust" if executor.single_trust_mode else "accounts"
    if cluster.isolation != trust:
        Cluster.objects.filter(pk=cluster.pk).update(isolation=trust)


@shared_task(name="evenkeel.prepare_run", ignore_result=True)
def prepare_run(run_id: str) -> None:
    """Begin or look at what a run needs before it can queue; again a second later while it is under way."""
    project_id = Run.objects.filter(pk=run_id).values_list("job__project_id", flat=True).first()
    if project_id is None:
        return
    with project_slot(project_id) as mine:
        run = preparation.claim(UUID(run_id), timezone.now()) if mine else None  # else a later round sends it again
        if run is not None:
            Loop(LoopName.PREPARE, run.job.cluster_id).run(of_run(run), _prepare, run)


def _prepare(run: Run) -> None:
    executor, working = executor_for(run.job.cluster), False
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
        wakeups.wake(cluster_id=run.job.cluster_id)


def _is_all_said(fact: Fact) -> bool:
    """It is alive and nothing else is to be told of it, as of most."""
    return fact.kind == "alive"


def take_in_later_or_now(cluster: Cluster, fact: Fact, loop: Loop | None = None) -> None:
    """Reports that a runner left behind are read in a task of their own, which then takes the fact in: a round reads
    none. Where that has not worked several times, the fact alone counts."""
    loop, run = loop or Loop(LoopName.FACTS, cluster.pk), of_run_id(fact.run_id)
    if fact.spooled:
        reports = Item(f"reports:{run.key}", run.name, None, run.about)
        if not loop.run(reports, _is_given_up, cluster, fact):
            return  # the task takes the fact in; where it could not be sent the next round tries again
    take_in(fact, loop)


def _is_given_up(cluster: Cluster, fact: Fact) -> bool:
    """Hands the reports out to a task, unless that has not worked several times."""
    if spooling.is_given_up(fact.run_id, fact.epoch):
        observation.note_dropped(fact, "the reports that its runner left behind could not be read")
        return True
    _hand_out(cluster, fact)
    return False


def _hand_out(cluster: Cluster, fact: Fact) -> None:
    if spooling.hand_out(fact.run_id, fact.epoch):
        current_app.send_task("evenkeel.take_spooled", (cluster.pk, asdict(fact) | {"usage": {}}))


def fact_from(content: dict[str, Any]) -> Fact:
    """What `asdict` made of an exit."""
    return Fact(**content | {"exit": ExitInfo(**content["exit"])})


def take_in(fact: Fact, loop: Loop | None = None) -> None:
    """One fact; what a job's own files say must never stop the facts of others."""
    (loop or Loop(LoopName.FACTS)).run(of_run_id(fact.run_id), _record_fact, fact)


def _record_fact(fact: Fact) -> None:
    """What an exit record says must not keep the GPUs of its run held."""
    try:
        with savepoint():
            observation.record_fact(fact)
    except Exception as error:
        raise_what_is_no_items(error)
        if fact.exit is None:
            raise
        logger.exception("fact of run %s: taken as a lost runner", fact.run_id)
        unreadable = ExitInfo("runner_lost", message="Its exit record cannot be read.", alleged=True)
        observation.record_fact(replace(fact, exit=unreadable))


def plan_and_commit(cluster: Cluster, now: datetime, executor: Executor | None = None) -> Plan | None:
    """One decision, stored when it moves something, others now and then; None where another round was faster, or the
    engine does not answer. Before something moves the engine has been asked just now."""
    with _alone(cluster):
        started = time.monotonic()
        view, plan = plan_cluster(cluster, now)
        if not (plan.moves and executor is not None and executor.look_anew()):
            return _commit(cluster, view, plan, time.monotonic() - started, now)
    # Without the lock: the engine may take its time, and other clusters plan meanwhile.
    if not observe(cluster, executor):
        return None
    with _alone(cluster):
        started = time.monotonic()
        view, plan = plan_cluster(cluster, now)
        return _commit(cluster, view, plan, time.monotonic() - started, now)


def _alone(cluster: Cluster) -> contextlib.AbstractContextManager[object]:
    return planning_lock() if _has_others(cluster) else contextlib.nullcontext()


def _has_others(cluster: Cluster) -> bool:
    return active_clusters().exclude(pk=cluster.pk).exists()


def _commit(cluster: Cluster, view: ClusterView, plan: Plan, seconds: float, now: datetime) -> Plan | None:
    try:
        with transaction.atomic():
            applied = plans.commit_plan(
                cluster_id=cluster.pk, round_epoch=cluster.round_epoch, plan=plan, seen=view.seen, now=now
            )
            steps = _steps(cluster)
            steps.run(step("note jobs left out", cluster.pk), plans.note_left_out, cluster.pk, view.seen)
            note, keep = plans.note_round, decisions.store
            item = step("note the round", cluster.pk)
            steps.run(item, note, cluster=cluster, plan=plan, applied=applied, seconds=seconds, now=now)
            if applied or decisions.sampling_is_due(cluster, now):
                item = step("keep the decision", cluster.pk)
                steps.run(item, keep, view=view, plan=plan, seconds=seconds, now=now)
    except plans.StaleRound as stale:
        logger.info("%s", stale)
        return None
    _wake_for(cluster, plan, now)
    round_committed.send_robust(sender=Cluster, view=view, plan=plan, now=now)
    return plan


def _wake_for(cluster: Cluster, plan: Plan, now: datetime) -> None:
    """The timer may be seconds away; a plan that names its next moment gets it."""
    if plan.next_wake_at is not None:
        wait_s = plan.next_wake_at - now.timestamp()
        if wait_s < settings.EVENKEEL_ROUND_INTERVAL_S:
            wakeups.wake(max(0.1, wait_s), cluster.pk)


def dispatch_commands(cluster: Cluster) -> None:
    """Hand every open command that is due to a worker: a slow launch holds up no round."""
    due = Command.objects.filter(run__job__cluster=cluster, closed_at=None, next_attempt_at__lte=timezone.now())
    for pk in due.order_by("pk").values_list("pk", flat=True)[:5_000]:
        send_command.delay(pk)


@shared_task(name="evenkeel.send_command", ignore_result=True)
def send_command(pk: int) -> None:
    """Tell the executor, unless somebody else is doing it; an observation closes the command."""
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
    """It may not answer, and there are other clusters whose commands would wait with this one's."""
    return engine_of(cluster.pk).executor != "local" and _has_others(cluster)


def _put_off(command: Command, cluster: Cluster) -> None:
    """The next round but not this one sends it again; the wait occupies no worker."""
    due_at = timezone.now() + timedelta(seconds=_PUT_OFF_S)
    Command.objects.filter(pk=command.pk, attempts=command.attempts, closed_at=None).update(next_attempt_at=due_at)
    wakeups.wake(_PUT_OFF_S, cluster.pk)


def _claim_and_send(command: Command, cluster: Cluster) -> None:
    # A kill returns while the program has its grace, and ends it for certain when it comes again after that.
    longest_s = KILL_AFTER_S if command.verb == Command.Verb.KILL else _LONGEST_RESEND_S
    wait_s = min(longest_s, _RESEND_S * 2 ** min(command.attempts, 5))
    claimed = Command.objects.filter(pk=command.pk, attempts=command.attempts, closed_at=None).update(
        attempts=F("attempts") + 1, next_attempt_at=timezone.now() + timedelta(seconds=wait_s)
    )
    if claimed:
        with job_log.about({**job_log.of_run(command.run), "epoch": command.epoch}):
            _send(command, executor_for(cluster))
        if command.verb == Command.Verb.KILL:
            wakeups.wake(0.1, cluster.pk)


def _send(command: Command, executor: Executor) -> None:
    run, epoch = command.run, command.epoch
    try:
        match command.verb:
            case Command.Verb.LAUNCH:
                if run.epoch == epoch and State(run.state) in LIVE and State(run.state) is not State.LAUNCHING:
                    # It has launched since: this is the same command, sent once more.
                    Command.objects.filter(pk=command.pk).update(closed_at=timezone.now())
                elif State(run.state) is State.LAUNCHING and run.epoch == epoch:
                    request = launching.launch_request(run, epoch)
                    Run.objects.filter(pk=run.pk, epoch=epoch).update(pace_steps_per_s=request.pace_steps_per_s)
                    if request.resume_job_id is not None:
                        _give_files(executor, UUID(request.resume_job_id))
                    _give_stored(run.job.pk)
                    executor.launch(request)
                    if command.error:  # of an attempt before
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
        engine_waits.note_not_taken(command, str(error), timezone.now(), anew=command.attempts >= _ANEW_AFTER)
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
            observation.fail(run, info, timezone.now())
        Command.objects.filter(pk=command.pk).update(closed_at=timezone.now())


@shared_task(name="evenkeel.hand_over", ignore_result=True)
def hand_over(job_id: str) -> None:
    """Have the files of a job that was moved follow it."""
    handover = handovers.claim_handover(UUID(job_id), timezone.now())
    if handover is None:
        return
    try:
        with savepoint():
            _give_files(executor_for(handover.job.cluster), handover.job.pk)
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


def _give_files(executor: Executor, job_id: UUID) -> None:
    """To the project that the job belongs to, also where it is moved at this moment."""
    keys = Job.objects.filter(pk=job_id).values_list("project__key", flat=True)
    given = ""
    for _ in range(5):
        if (key := keys.first() or "") == given:
            return
        executor.hand_over(key, str(job_id))
        _give_stored(job_id)
        given = key
    raise ExecutorError(f"job {job_id} keeps being moved", permanent=False)


def _give_stored(job_id: UUID) -> None:
    """Checkpoints of a job that was moved lie under the former project's prefix until they have followed it."""
    handover = Handover.objects.select_related("job__project").filter(job_id=job_id).first()
    if handover is None or checkpoint_store.configured(handover.job.cluster_id) is None:
        return
    try:
        checkpoint_store.hand_over(handover.job.cluster_id, handover.job.project.key, job_id)
    except StoreError as error:
        raise ExecutorError(f"its checkpoints have not followed it in the store: {error}", permanent=False) from error


@shared_task(name="evenkeel.hand_over_all", ignore_result=True)
def hand_over_all() -> None:
    """What was moved and has not been handed over yet, whatever became of the message."""
    for job_id in handovers.due_handovers(timezone.now()):
        hand_over.delay(str(job_id))


@shared_task(name="evenkeel.publish_live", ignore_result=True)
def publish_live(calm: bool = False) -> None:
    """Bring the live streams up to date where somebody looks; at most two diffs a second per stream, and with `calm`,
    where nothing but steps were made, one."""
    wakeups.clear(wakeups.CALM_KEY if calm else wakeups.LIVE_KEY)
    if not live.is_watched():
        return
    again_s = live.publish_changes(timezone.now(), calm=calm)
    if again_s is not None:
        (wakeups.publish_steps if calm else wakeups.publish)(again_s)


@shared_task(name="evenkeel.sample_cluster", ignore_result=True)
def sample_cluster() -> None:
    """One point of the overview's sparklines per cluster."""
    for cluster in active_clusters():
        Loop(LoopName.SAMPLES, cluster.pk).run(of_cluster(cluster, "load"), history.sample, cluster, timezone.now())


@shared_task(name="evenkeel.reap_orphans", ignore_result=True)
def reap_orphans() -> None:
    """End processes that no run knows of."""
    for cluster in active_clusters():
        Loop(LoopName.ORPHANS, cluster.pk).run(of_cluster(cluster), _reap_orphans, cluster)


def _reap_orphans(cluster: Cluster) -> None:
    """An engine that does not answer has its own looked for the next time."""
    try:
        held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
        known = {(str(run_id), epoch) for run_id, epoch in held.values_list("run_id", "epoch")}
        for run_id, epoch in executor_for(cluster).reap_orphans(known):
            about = {"run_id": run_id, "epoch": epoch}
            logger.warning("ended run %s epoch %s, which nobody knows", run_id, epoch, extra=about)
    except ExecutorError as error:
        logger.warning("orphans of cluster %s: %s", cluster, error)


@shared_task(name="evenkeel.read_site_shares", ignore_result=True)
def read_site_shares() -> None:
    """The fair share of sites' own Slurm, where a policy reads it."""
    for cluster in active_clusters():
        Loop(LoopName.SAMPLES, cluster.pk).run(of_cluster(cluster, "site shares"), _read_site_shares, cluster)


def _read_site_shares(cluster: Cluster) -> None:
    if site_shares.are_read(cluster):
        try:
            site_shares.note(cluster.pk, executor_for(cluster).site_shares())
        except ExecutorError as error:
            logger.warning("fair share of cluster %s: %s", cluster, error)


@shared_task(name="evenkeel.prune", ignore_result=True)
def prune() -> None:
    """Keep events, metrics, samples and decisions within their bounds."""
    history.prune(timezone.now())


@shared_task(name="evenkeel.note_audit_head", ignore_result=True)
def note_audit_head() -> None:
    """Write down how far the audit log went."""
    audit_heads.note_head()
