"""Maintenance windows and reservations: created and revoked by administrators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import record_audit
from accounts.mail_address import normalized
from accounts.models import Project, User
from portal.cluster.partitions import unknown_nodes
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.jobs import events
from portal.jobs.models import Cluster, Node, NodeWindow
from portal.snapshot.windows import open_windows

#: Bounds of the work of rounds, and of a mistyped year.
MOST_OPEN = 100
LONGEST = timedelta(days=366)
FURTHEST = timedelta(days=2 * 366)


class WindowIsOver(Exception):
    def __init__(self, window: NodeWindow) -> None:
        super().__init__(f"The {window} is over; it is kept as it was.")


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """A requested window. Without projects and users it closes the nodes to all."""

    kind: str
    start_at: datetime
    end_at: datetime
    reason: str = ""
    nodes: Sequence[str] = ()
    accelerator_types: Sequence[str] = ()
    all_nodes: bool = False
    projects: Sequence[str] = ()
    users: Sequence[str] = ()


@transaction.atomic
def add_window(*, actor: User | None, cluster: Cluster, wish: WindowRequest, now: datetime) -> NodeWindow:
    """Raises Problems by field."""
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    projects = {row.key: row for row in Project.objects.filter(key__in=wish.projects)}
    users = {row.email: row for row in User.objects.filter(email__in=[normalized(one) for one in wish.users])}
    problems = [*_times(wish, now), *_for_whom(wish, projects, users), *_nodes(cluster, wish)]
    if not problems:
        problems = [*_overlaps(cluster, wish)]
    if open_windows(now).filter(cluster=cluster).count() >= MOST_OPEN:
        problems.append(FieldProblem("start_at", f"{MOST_OPEN} windows are open or to come; remove one first", "full"))
    if problems:
        raise Problems(problems)
    window = NodeWindow.objects.create(
        cluster=cluster,
        kind=wish.kind,
        start_at=wish.start_at,
        end_at=wish.end_at,
        reason=wish.reason,
        nodes=list(wish.nodes),
        accelerator_types=list(wish.accelerator_types),
        all_nodes=wish.all_nodes,
        created_by=actor,
        created_at=now,
    )
    window.projects.set(projects.values())
    window.users.set(users.values())
    _tell(actor, window, "window.add", "is set", now)
    return window


@transaction.atomic
def remove_window(*, actor: User, window: NodeWindow, now: datetime) -> NodeWindow:
    """Revoke a future window, or end an active one. Raises WindowIsOver."""
    changed = open_windows(now).filter(pk=window.pk).update(removed_at=now)
    window.refresh_from_db()
    if not changed:
        raise WindowIsOver(window)
    _tell(actor, window, "window.remove", "is taken back", now)
    return window


def _tell(actor: User | None, window: NodeWindow, action: str, word: str, now: datetime) -> None:
    span = f"{window.start_at:%F %H:%M} to {window.end_at:%F %H:%M} UTC"
    detail = {
        "kind": window.kind,
        "start_at": window.start_at.isoformat(),
        "end_at": window.end_at.isoformat(),
        "reason": window.reason,
        "nodes": window.nodes,
        "accelerator_types": window.accelerator_types,
        "all_nodes": window.all_nodes,
    }
    record_audit(actor=actor, action=action, target=f"window {window.pk}", detail=detail)
    where = {"cluster": window.cluster.name}
    events.append(kind="notice", text=f"A {window.kind} window, {span}, {word}", at=now, detail=where)
    transaction.on_commit(wake.schedule_round)


def _times(wish: WindowRequest, now: datetime) -> list[FieldProblem]:
    if wish.end_at <= wish.start_at:
        return [FieldProblem("end_at", "has to be after start_at", "order")]
    if wish.end_at <= now:
        return [FieldProblem("end_at", "has to be in the future", "past")]
    if wish.start_at > now + FURTHEST:
        return [FieldProblem("start_at", f"may be at most {FURTHEST.days} days ahead", "range")]
    if wish.end_at - wish.start_at > LONGEST:
        return [
            FieldProblem("end_at", f"may be at most {LONGEST.days} days after start_at; drain nodes instead", "range")
        ]
    return []


def _for_whom(wish: WindowRequest, projects: dict[str, Project], users: dict[str, User]) -> list[FieldProblem]:
    problems = [
        FieldProblem("projects", f"{one!r} is no project", "unknown") for one in wish.projects if one not in projects
    ]
    unknown = [one for one in wish.users if normalized(one) not in users]
    problems += [FieldProblem("users", f"no user has the address {one!r}", "unknown") for one in unknown]
    named = bool(wish.projects or wish.users)
    if wish.kind == NodeWindow.Kind.RESERVATION and not named:
        problems.append(
            FieldProblem("projects", "name projects or users; without them it is a maintenance window", "required")
        )
    if wish.kind == NodeWindow.Kind.MAINTENANCE and named:
        problems.append(
            FieldProblem("kind", "maintenance closes the nodes to all: leave out projects and users", "invalid")
        )
    return problems


def _nodes(cluster: Cluster, wish: WindowRequest) -> list[FieldProblem]:
    sets = {"nodes": wish.nodes, "accelerator_types": wish.accelerator_types}
    if not wish.all_nodes:
        return unknown_nodes(cluster, sets)
    if wish.nodes or wish.accelerator_types:
        return [FieldProblem("all_nodes", "is all of them: leave out nodes and accelerator_types", "invalid")]
    return []


def _overlaps(cluster: Cluster, wish: WindowRequest) -> list[FieldProblem]:
    """Two windows of one kind share no node at any time; maintenance may overlap a reservation, and prevails."""
    nodes = Node.objects.filter(cluster=cluster).values_list("name", "accelerator_type")
    mine = NodeWindow(nodes=list(wish.nodes), accelerator_types=list(wish.accelerator_types), all_nodes=wish.all_nodes)
    at_once = open_windows(wish.start_at).filter(cluster=cluster, kind=wish.kind, start_at__lt=wish.end_at)
    for other in at_once.order_by("start_at"):
        shared = sorted(name for name, kind in nodes if mine.has(name, kind) and other.has(name, kind))
        if shared:
            span = f"{other.start_at:%F %H:%M} to {other.end_at:%F %H:%M} UTC"
            text = (
                f"{other} is on {', '.join(shared[:5])} from {span}; two windows of one kind may not overlap: "
                "remove that one first, or take other nodes or times"
            )
            return [FieldProblem("start_at", text, "overlap")]
    return []
