"""Nodes and accelerators of a cluster, as its executor reports them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from portal.cluster.drains import drain_node, engine_prefix, note_due, resume_node
from portal.cluster.engine_jobs import note_taken
from portal.cluster.node_checks import open_check
from portal.core import wake
from portal.jobs import events
from portal.jobs.loops import Loop, LoopName, of_node_name
from portal.jobs.models import Accelerator, Cluster, Hold, Node, NodeCheck
from scheduling.executors.base import NodeInfo


def record_inventory(*, cluster: Cluster, nodes: Sequence[NodeInfo], now: datetime, check_first: bool = False) -> None:
    """Store nodes and accelerators as reported by the executor; a node that is no longer reported is lost.
    `check_first`: nodes that join or return get no work until they were checked. A node that cannot be stored stays as
    it was."""
    named = {info.name: info for info in nodes if info.accelerators}
    gone = Node.objects.filter(cluster=cluster).exclude(name__in=named).values_list("name", flat=True)
    Loop(LoopName.INVENTORY, cluster.pk).together(
        [*named, *gone],
        lambda name: of_node_name(cluster.pk, name),
        lambda names: _record_nodes(cluster, names, named, now, check_first),
    )


def _columns(info: NodeInfo) -> dict[str, Any]:
    first = info.accelerators[0]
    return {
        "accelerator_type": first.type,
        "emulated": first.emulated,
        "cpus": info.cpus,
        "memory_mib": info.memory_mib,
        "boot_s": info.boot_s,
    }


def _join(cluster: Cluster, info: NodeInfo, now: datetime, check_first: bool) -> Node:
    node = Node.objects.create(cluster=cluster, name=info.name, last_seen_at=now, **_columns(info))
    text = f"{node.name} joined with {len(info.accelerators)} × {node.accelerator_type}"
    events.append(kind="node_joined", text=text, at=now, detail=events.about(node))
    if check_first:
        open_check(node, NodeCheck.Cause.JOINED, now, withhold=True)
    return node


def _store_node(
    cluster: Cluster, node: Node, info: NodeInfo, gpus: Sequence[Accelerator], now: datetime, check_first: bool
) -> None:
    """No statement if nothing changed: there may be a thousand nodes, in every round. `gpus`: all it ever had."""
    columns = _columns(info)
    if any(getattr(node, name) != value for name, value in columns.items()):
        Node.objects.filter(pk=node.pk).update(**columns)
    have = {gpu.index: gpu for gpu in gpus}
    new = [a for a in info.accelerators if a.index not in have]
    if new:
        Accelerator.objects.bulk_create(
            Accelerator(node=node, index=a.index, uuid=a.uuid, memory_mib=a.memory_mib) for a in new
        )
    for a in info.accelerators:  # another device in its place, or other MIG instances
        old = have.pop(a.index, None)
        if old and (old.uuid, old.memory_mib, old.present) != (a.uuid, a.memory_mib, True):
            Accelerator.objects.filter(pk=old.pk).update(uuid=a.uuid, memory_mib=a.memory_mib, present=True)
    gone = [gpu.pk for gpu in have.values() if gpu.present]
    if gone:
        Accelerator.objects.filter(pk__in=gone).update(present=False)
    note_taken(node, info.taken)
    returned = node.lost and info.reachable and not info.unclear
    _set_unclear(node, info.unclear, now)
    _set_lost(node, _is_given_up(node, now) if info.unclear else not info.reachable, now)
    if info.unclear and info.drain_reason is None:
        return  # nor is it resumed
    resumed = _follow_engine(node, engine_prefix(cluster.executor), info.drain_reason, now)
    if check_first and (returned or resumed):
        open_check(node, NodeCheck.Cause.RETURNED, now, withhold=True)


def _follow_engine(node: Node, prefix: str, reason: str | None, now: datetime) -> bool:
    """Whether its engine has just resumed it. A node that its engine drains is drained here, too; drains by people
    stay."""
    ours = node.drained and node.drain_reason.startswith(prefix)
    if reason is not None and (ours or not node.drained):
        drain_node(actor=None, node=node, now=now, reason=(prefix + reason)[:200])
    elif reason is None and ours:
        resume_node(actor=None, node=node, now=now)
        return True
    return False


def _set_lost(node: Node, lost: bool, now: datetime) -> None:
    if node.lost == lost:
        return
    Node.objects.filter(pk=node.pk).update(lost=lost)
    node.lost = lost
    kind, text = ("node_lost", f"{node.name} is lost") if lost else ("node_back", f"{node.name} is back")
    events.append(kind=kind, text=text, at=now, detail=events.about(node))
    transaction.on_commit(wake.schedule_round)


@transaction.atomic
def _record_nodes(
    cluster: Cluster, names: Sequence[str], named: Mapping[str, NodeInfo], now: datetime, check_first: bool
) -> list[str]:
    known = {node.name: node for node in Node.objects.select_for_update().filter(cluster=cluster, name__in=names)}
    note_due(known.values(), now)
    gpus: dict[int, list[Accelerator]] = defaultdict(list)
    for gpu in Accelerator.objects.filter(node__in=known.values()):
        gpus[gpu.node_id].append(gpu)
    seen = []
    for info in (named[name] for name in names if name in named):
        node = known.pop(info.name, None)
        if node is None:
            node = _join(cluster, info, now, check_first)
        if info.reachable and not info.unclear:
            seen.append(node.pk)
        _store_node(cluster, node, info, gpus[node.pk], now, check_first)
    Node.objects.filter(pk__in=seen).update(last_seen_at=now)
    for node in known.values():  # the engine no longer reports them
        if cluster.executor == "local":
            _set_lost(node, True, now)
        else:
            _set_unclear(node, "not listed", now)
            _set_lost(node, node.lost or not _is_held(node), now)
    return list(names)


def _set_unclear(node: Node, word: str, now: datetime) -> None:
    """`word`: the engine's word for a node whose state it does not know."""
    if node.unclear == word:
        return
    node.unclear, node.unclear_since = word, (node.unclear_since or now) if word else None
    node.save(update_fields=["unclear", "unclear_since"])
    transaction.on_commit(wake.schedule_round)


def _is_given_up(node: Node, now: datetime) -> bool:
    """A node that has been unclear for long counts as lost, unless our jobs may run there, which the engine decides."""
    if node.lost:
        return True
    limit = timedelta(seconds=settings.EVENKEEL_NODE_UNCLEAR_S)
    long = node.unclear_since is not None and node.unclear_since <= now - limit
    return long and not _is_held(node)


def _is_held(node: Node) -> bool:
    return Hold.objects.filter(accelerator__node=node, during__upper_inf=True).exists()
