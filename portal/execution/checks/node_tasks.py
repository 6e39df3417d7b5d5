"""Runs node checks, outside rounds and several at once."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from portal.cluster import node_checks
from portal.execution import executors
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Cluster, NodeCheck
from scheduling.errors import ExecutorError
from scheduling.executors import base

logger = logging.getLogger(__name__)
#: In one worker process at a time.
BATCH = 16


@shared_task(name="evenkeel.check_nodes", ignore_result=True)
def check_nodes(cluster_id: int) -> None:
    """Start some of the due checks, and record each result as it arrives. A check without a result in time has failed.
    The remaining ones follow in a separate task."""
    try:
        executor = executors.executor_for(Cluster.objects.get(pk=cluster_id))
    except ExecutorError as error:
        logger.warning("nodes of cluster %s are not checked: %s", cluster_id, error)
        return
    now, loop = timezone.now(), Loop(LoopName.NODE_CHECKS, cluster_id)
    found = node_checks.due(cluster_id, now)[:BATCH]
    mine = [
        claimed for check in found if (claimed := loop.run(node_checks.of_check(check), node_checks.claim, check, now))
    ]
    results: queue.Queue[tuple[NodeCheck, Sequence[base.Finding]]] = queue.Queue()
    limit_s = node_checks.TIMEOUT_S
    for check in mine:
        # Not joined: a check that hangs must delay neither the others nor the end of this process.
        arguments = (executor, check, limit_s, results)
        threading.Thread(target=_examine, args=arguments, daemon=True).start()
    waiting, give_up_at = {check.pk: check for check in mine}, time.monotonic() + limit_s + 2.0
    while waiting:
        try:
            check, findings = results.get(timeout=max(0.0, give_up_at - time.monotonic()))
        except queue.Empty:
            break
        del waiting[check.pk]
        loop.run(node_checks.of_check(check), node_checks.conclude, check, findings, timezone.now())
    for check in waiting.values():
        late = base.Finding("examination", False, f"no answer within {limit_s:g} s", "see whether the machine is well")
        loop.run(node_checks.of_check(check), node_checks.conclude, check, [late], timezone.now())
    if len(mine) == BATCH and node_checks.is_due(cluster_id, timezone.now()):
        check_nodes.apply_async((cluster_id,), expires=settings.EVENKEEL_ROUND_INTERVAL_S, retry=False)


def _examine(
    executor: base.Executor,
    check: NodeCheck,
    limit_s: float,
    results: queue.Queue[tuple[NodeCheck, Sequence[base.Finding]]],
) -> None:
    """No database access: a thread would open its own connection."""
    wish = base.NodeCheck(check.node.name, settings.EVENKEEL_API_URL, settings.NODE_CHECK_FREE_MIB, timeout_s=limit_s)
    try:
        findings = executor.check_node(wish)
    except ExecutorError as error:
        findings = [base.Finding("engine", False, str(error), "see what `manage.py doctor` says")]
    except Exception as error:
        logger.exception("the check of node %s", check.node.name)
        findings = [base.Finding("examination", False, f"{type(error).__name__}: {error}", "see the worker's log")]
    results.put((check, findings))
