"""Nodes that administrators take out of service, at once or by a deadline, and back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import User
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.jobs import events
from portal.jobs.models import Node

#: Bound that catches a mistyped year.
FURTHEST = timedelta(days=366)


class DrainedByEngine(ValueError):
    """Only the engine can resume such a node."""

    def __init__(self, node: Node) -> None:
        engine, _, reason = node.drain_reason.partition(": ")
        why = f" ({reason})" if reason else ""
        super().__init__(f"{node.name} is drained by {engine}{why}: resume it there, and it is used again here.")


def engine_prefix(executor: str) -> str:
    """Prefix of the reason if a cluster's engine drained a node."""
    return f"{executor}: "


def is_drained_by_engine(node: Node) -> bool:
    prefix = engine_prefix(node.cluster.executor)
    return node.drained and node.drained_by_id is None and node.drain_reason.startswith(prefix)


def check_deadline(deadline_at: datetime | None, now: datetime) -> None:
    """Raises Problems for the field."""
    if deadline_at is None:
        return
    if deadline_at <= now:
        raise Problems([FieldProblem("deadline_at", "has to be in the future; without one it is drained now", "past")])
    if deadline_at > now + FURTHEST:
        raise Problems([FieldProblem("deadline_at", f"may be at most {FURTHEST.days} days ahead", "range")])


@transaction.atomic
def drain_node(
    *, actor: User | None, node: Node, now: datetime, deadline_at: datetime | None = None, reason: str = ""
) -> Node:
    """No job starts there, and its jobs leave: by the deadline, or when there is room. Raises Problems."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    if node.drained and (node.drain_deadline_at, node.drain_reason) == (deadline_at, reason):
        return node
    check_deadline(deadline_at, now)
    _set(
        node,
        drained=True,
        drained_at=node.drained_at if node.drained else now,
        drain_deadline_at=deadline_at,
        drain_reason=reason,
        drained_by=actor,
        drain_came_due=False,
    )
    detail = {"deadline_at": deadline_at.isoformat() if deadline_at else None, "reason": reason}
    record_audit(actor=actor, action="node.drained", target=node.name, detail=detail)
    until = f" by {deadline_at.astimezone(UTC):%F %H:%M} UTC" if deadline_at else ""
    text = f"{node.name} is drained{until}{f' ({reason})' if reason else ''}{_by(actor)}"
    events.append(kind="node_drained", text=text, at=now, detail=events.about(node) | detail)
    transaction.on_commit(wake.schedule_round)
    return node


@transaction.atomic
def resume_node(*, actor: User | None, node: Node, now: datetime) -> Node:
    """Use a drained node again; jobs that have not left it stay. Raises DrainedByEngine if a person resumes a node that
    the engine has drained: the next observation would drain it again."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    if not node.drained:
        return node
    if actor is not None and is_drained_by_engine(node):
        raise DrainedByEngine(node)
    _set(
        node,
        drained=False,
        drained_at=None,
        drain_deadline_at=None,
        drain_reason="",
        drained_by=None,
        drain_came_due=False,
    )
    record_audit(actor=actor, action="node.resumed", target=node.name)
    events.append(kind="node_resumed", text=f"{node.name} is resumed{_by(actor)}", at=now, detail=events.about(node))
    transaction.on_commit(wake.schedule_round)
    return node


def note_due(nodes: Iterable[Node], now: datetime) -> None:
    """An event for each of these locked nodes whose deadline has passed since."""
    for node in nodes:
        if node.drain_deadline_at is None or node.drain_deadline_at > now or node.drain_came_due:
            continue
        _set(node, drain_came_due=True)
        text = f"The deadline of {node.name}'s drain has come: jobs that are still there leave or are stopped"
        events.append(kind="node_drain_due", text=text, at=now, detail=events.about(node))


def _by(actor: User | None) -> str:
    return f" by {actor}" if actor else ""


def _set(node: Node, **values: object) -> None:
    for name, value in values.items():
        setattr(node, name, value)
    node.save(update_fields=list(values))
