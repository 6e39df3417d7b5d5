"""Nodes get no work until their check has passed: when they join or return, and after node faults.

A check is a row that is open until its result arrives. A worker claims and runs it
(portal.execution.checks.node_tasks); without a result it is run again, as the worker may have died.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from accounts.audit import record_audit
from accounts.levels import Levels
from accounts.models import User
from portal.core import wake
from portal.jobs import events
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import CheckState, Hold, Node, NodeCheck, Run
from scheduling.executors.base import Finding
from scheduling.lifecycle import State

logger = logging.getLogger(__name__)

Cause = NodeCheck.Cause
WORDS = {
    Cause.JOINED: "it joined",
    Cause.RETURNED: "it is back",
    Cause.FAULTS: "runs failed on it",
    Cause.ASKED: "it was requested",
    Cause.AGAIN: "the last one failed",
}
#: Time for a worker to finish a claimed check and store its result, beyond the check's time limit.
MARGIN = timedelta(seconds=15)
MAX_ATTEMPTS = 3
#: A check without an answer fails after this time.
TIMEOUT_S = 60.0
#: A node is checked when this many runs failed by its fault within this many seconds.
FAULTS, FAULTS_WITHIN_S = 3, 3_600
#: At one time: each may use its whole time limit.
AT_ONCE = 16
#: After a failure, doubled each time up to the longest.
AGAIN_S = 60
LONGEST_BACKOFF = timedelta(hours=1)
KEPT = 20
MAX_FINDINGS, MAX_TEXT = 20, 500


def _limit() -> timedelta:
    return timedelta(seconds=TIMEOUT_S)


# Requesting checks ------------------------------------------------------------------------------


def open_check(node: Node, cause: Cause, now: datetime, *, withhold: bool, actor: User | None = None) -> NodeCheck:
    """In the transaction that has locked `node`. `withhold`: no job is placed there until the check has passed, and
    checks that began before do not count."""
    found = NodeCheck.objects.filter(node=node, ended_at=None).first()
    if found is not None and not withhold:
        return found
    if found is not None:
        found.delete()
    if withhold:
        _set(node, check_state=CheckState.CHECKING, check_failures=0, check_waived_at=None, check_waived_by=None)
    _set(node, next_check_at=None)
    transaction.on_commit(wake.schedule_round)
    transaction.on_commit(wake.publish)
    return NodeCheck.objects.create(node=node, cause=cause, asked_at=now, asked_by=actor)


@transaction.atomic
def check_now(*, actor: User | None, node: Node, now: datetime) -> Node:
    """Check a node that may be in use; it stays in use unless the check fails."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    open_check(node, Cause.ASKED, now, withhold=False, actor=actor)
    record_audit(actor=actor, action="node.check_asked", target=node.name)
    return node


@transaction.atomic
def use_anyway(*, actor: User | None, node: Node, now: datetime) -> Node:
    """Place jobs on a node whose check has failed, or has not ended: until it is lost, or has faults again."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    if not node.check_state:
        return node
    before = node.withheld
    NodeCheck.objects.filter(node=node, ended_at=None).delete()
    _set(node, check_state="", check_failures=0, next_check_at=None, faults_from=now)
    _set(node, check_waived_at=now, check_waived_by=actor)
    record_audit(actor=actor, action="node.check_waived", target=node.name, detail={"state": before})
    by = f" by {actor}" if actor else ""
    text = f"{node.name} is used without a passed check{by}"
    events.append(kind="node_check_waived", text=text, at=now, detail=events.about(node))
    transaction.on_commit(wake.schedule_round)
    return node


# Steps of rounds ----------------------------------------------------------------------------------


def request_due_checks(*, cluster_id: int, now: datetime) -> None:
    """Request the checks that are due by time or faults."""
    nodes = Node.objects.filter(cluster_id=cluster_id)
    if not settings.EVENKEEL_NODE_CHECKS:
        _release_all(nodes, now)
        return
    loop = Loop(LoopName.NODE_CHECKS, cluster_id)
    late = nodes.filter(check_state=CheckState.FAILED, next_check_at__lte=now, lost=False)
    for pk in late.values_list("pk", flat=True):
        loop.run(_of_node(pk), _check_again, pk, now)
    for pk, count in _faulty(nodes, now).items():
        loop.run(_of_node(pk), _check_faulty, pk, count, now)


def _of_node(pk: int) -> Item:
    return Item(f"ask:{pk}", f"node {pk}")


@transaction.atomic
def _check_again(pk: int, now: datetime) -> None:
    node = Node.objects.select_for_update().get(pk=pk)
    if node.check_state == CheckState.FAILED and not node.lost:
        open_check(node, Cause.AGAIN, now, withhold=False)


@transaction.atomic
def _check_faulty(pk: int, count: int, now: datetime) -> None:
    node = Node.objects.select_for_update().get(pk=pk)
    if not (node.check_state or node.lost):
        open_check(node, Cause.FAULTS, now, withhold=True)
        text = f"{node.name} gets no work until its check has passed: {count} runs failed on it"
        events.append(kind="node_faulty", text=text, at=now, detail=events.about(node) | {"runs": count})


def _release_all(nodes: QuerySet[Node], now: datetime) -> None:
    """Checks were turned off: requested ones still run, but withhold no node from work."""
    if nodes.exclude(check_state="").exists():
        NodeCheck.objects.filter(node__in=nodes, ended_at=None).exclude(cause=Cause.ASKED).delete()
        nodes.exclude(check_state="").update(check_state="", next_check_at=None, check_failures=0, faults_from=now)


def _faulty(nodes: QuerySet[Node], now: datetime) -> dict[int, int]:
    """Nodes on which too many runs failed, not because of a program, since their last passed check. Failures that a job
    may have caused itself count if runs of several projects failed that have no common ancestor."""
    most, since = FAULTS, now - timedelta(seconds=FAULTS_WITHIN_S)
    failed = Run.objects.filter(state=State.FAILED, ended_at__gt=since, exit__nodes_fault=True)
    said = failed.values_list("pk", "epoch", "ended_at", "job__project_id", "exit__alleged")
    levels = Levels.load()  # one team can create many subprojects
    ended = {(pk, epoch): (at, levels.chain(project)[0], alleged) for pk, epoch, at, project, alleged in said[:10_000]}
    if len(ended) < most:
        return {}
    holds = Hold.objects.filter(run__in={pk for pk, _ in ended}, accelerator__node__in=nodes)
    columns = ("run_id", "epoch", "accelerator__node_id", "accelerator__node__faults_from")
    faults: dict[int, list[tuple[Any, bool]]] = defaultdict(list)
    for run, epoch, node, counted_from in holds.order_by().values_list(*columns).distinct():
        at, project, alleged = ended.get((run, epoch), (None, None, None))
        if at is not None and (counted_from is None or at > counted_from):
            faults[node].append((project, bool(alleged)))
    counts = {node: _count(found) for node, found in faults.items()}
    return {node: count for node, count in counts.items() if count >= most}


def _count(faults: list[tuple[Any, bool]]) -> int:
    """The node faults that count, each given as project and whether it is only alleged."""
    if len({project for project, _ in faults}) > 1:
        return len(faults)
    return sum(not alleged for _, alleged in faults)


def is_due(cluster_id: int, now: datetime) -> bool:
    """Some check is waiting, and few enough are under way."""
    waiting = due(cluster_id, now)[:1]
    return bool(waiting) and under_way(cluster_id, now) < AT_ONCE


def of_check(check: NodeCheck) -> Item:
    return Item(str(check.pk), f"check of node {check.node.name}", None, {"node": check.node.name})


def due(cluster_id: int, now: datetime) -> list[NodeCheck]:
    """Checks that were not started, or whose result is overdue; none of lost nodes."""
    failing = Loop(LoopName.NODE_CHECKS, cluster_id).postponed_ids()
    late = Q(begun_at=None) | Q(begun_at__lt=now - _limit() - MARGIN)
    found = NodeCheck.objects.filter(late, node__cluster=cluster_id, node__lost=False, ended_at=None)
    return list(found.exclude(pk__in=failing).select_related("node").order_by("pk")[:AT_ONCE])


def under_way(cluster_id: int, now: datetime) -> int:
    since = now - _limit() - MARGIN
    return NodeCheck.objects.filter(node__cluster=cluster_id, ended_at=None, begun_at__gte=since).count()


# Results of checks --------------------------------------------------------------------------------


def claim(check: NodeCheck, now: datetime) -> NodeCheck | None:
    """Claim the check; None if another worker was faster, or if it was started too often already: then it has
    failed."""
    if check.attempts >= MAX_ATTEMPTS:
        text = f"it was begun {check.attempts} times and never ended"
        conclude(check, [Finding("examination", False, text, "see the worker's log")], now)
        return None
    same = NodeCheck.objects.filter(pk=check.pk, attempts=check.attempts, ended_at=None)
    if not same.update(attempts=F("attempts") + 1, begun_at=now):
        return None
    check.attempts, check.begun_at = check.attempts + 1, now
    return check


@transaction.atomic
def conclude(check: NodeCheck, findings: Sequence[Finding], now: datetime) -> bool:
    """Store the result; False if the check is no longer current."""
    node = Node.objects.select_for_update().select_related("cluster").get(pk=check.node_id)
    passed = bool(findings) and all(finding.ok for finding in findings)
    rows = [_row(finding) for finding in findings[:MAX_FINDINGS]]
    mine = NodeCheck.objects.filter(pk=check.pk, attempts=check.attempts, ended_at=None)
    if not mine.update(ended_at=now, passed=passed, findings=rows):
        return False
    (_passed if passed else _failed)(node, check, rows, now)
    old = NodeCheck.objects.filter(node=node).order_by("-pk").values_list("pk", flat=True)[KEPT:]
    NodeCheck.objects.filter(pk__in=list(old)).delete()
    transaction.on_commit(wake.schedule_round)
    return True


def _row(finding: Finding) -> dict[str, Any]:
    result = "failed" if not finding.ok else "passed" if finding.known else "unknown"
    fix = finding.fix[:MAX_TEXT] if result == "failed" else ""
    return {"subject": finding.subject[:100], "result": result, "seen": finding.seen[:MAX_TEXT], "fix": fix}


def _passed(node: Node, check: NodeCheck, rows: list[dict[str, Any]], now: datetime) -> None:
    _set(node, check_state="", check_failures=0, next_check_at=None, faults_from=now)
    _set(node, check_waived_at=None, check_waived_by=None, checks_passed=node.checks_passed + 1)
    text = f"{node.name} was checked ({WORDS[Cause(check.cause)]}): passed"
    events.append(kind="node_checked", text=text, at=now, detail=events.about(node) | {"check": check.pk})


def _failed(node: Node, check: NodeCheck, rows: list[dict[str, Any]], now: datetime) -> None:
    """The event is not repeated while the node keeps failing for the same reasons."""
    wrong = [f"{row['subject']}: {row['seen']}" for row in rows if row["result"] == "failed"] or ["it said nothing"]
    repeated = check.cause == Cause.AGAIN and _subjects(rows) == _subjects_before(check)
    failures = node.check_failures + 1
    backoff_s = AGAIN_S * 2 ** min(failures - 1, 20)
    backoff = max(min(timedelta(seconds=backoff_s), LONGEST_BACKOFF), timedelta(seconds=1))
    on = settings.EVENKEEL_NODE_CHECKS
    _set(node, check_state=CheckState.FAILED if on else "", check_failures=failures)
    _set(node, next_check_at=now + backoff if on else None, checks_failed=node.checks_failed + 1)
    _set(node, check_waived_at=None, check_waived_by=None)
    if not repeated:
        because = f"{node.name} failed its check ({WORDS[Cause(check.cause)]})"
        text = f"{because}, and gets no work: {'; '.join(wrong)}" if on else f"{because}: {'; '.join(wrong)}"
        detail = events.about(node) | {"check": check.pk, "failed": _subjects(rows)}
        events.append(kind="node_check_failed", text=text[:2_000], at=now, detail=detail)


def _subjects(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["subject"] for row in rows if row["result"] == "failed"]


def _subjects_before(check: NodeCheck) -> list[str]:
    before = NodeCheck.objects.filter(node_id=check.node_id, pk__lt=check.pk, passed=False).first()
    return _subjects(before.findings) if before else []


def _set(node: Node, **values: object) -> None:
    for name, value in values.items():
        setattr(node, name, value)
    node.save(update_fields=list(values))
