"""Checks of nodes for display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from portal.core.times import iso
from portal.jobs.models import Node, NodeCheck


def describe_checks(nodes: Sequence[Node]) -> dict[int, dict[str, Any]]:
    """By node: what prevents work on it, its open check and its last ended one. One statement for all nodes; their
    `check_waived_by` must be loaded."""
    last = NodeCheck.objects.filter(node=OuterRef("node"), ended_at__isnull=False).order_by("-pk")
    newest = Q(ended_at=None) | Q(pk=Subquery(last.values("pk")[:1]))
    rows = NodeCheck.objects.filter(newest, node__in=[node.pk for node in nodes]).select_related("asked_by")
    found: dict[int, dict[bool, dict[str, Any]]] = {node.pk: {} for node in nodes}
    for row in rows:
        found[row.node_id][row.ended_at is None] = _check(row)
    return {
        node.pk: {
            "state": node.check_state or None,
            "open": found[node.pk].get(True),
            "last": found[node.pk].get(False),
            "failures": node.check_failures,
            "next_at": iso(node.next_check_at),
            "waived_at": iso(node.check_waived_at),
            "waived_by": str(node.check_waived_by) if node.check_waived_by else None,
        }
        for node in nodes
    }


def _check(row: NodeCheck) -> dict[str, Any]:
    return {
        "cause": row.cause,
        "asked_at": iso(row.asked_at),
        "asked_by": str(row.asked_by) if row.asked_by else None,
        "begun_at": iso(row.begun_at),
        "ended_at": iso(row.ended_at),
        "passed": row.passed,
        "items": row.findings,
    }
