"""Use of a cluster's nodes by the engine's other jobs, as last observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from django.db import transaction

from portal.core import wake
from portal.jobs.models import Node
from scheduling.executors.base import Taken


def note_taken(node: Node, taken: Sequence[Taken]) -> None:
    """No statement if nothing changed."""
    rows = [asdict(one) for one in taken]
    if node.taken != rows:
        Node.objects.filter(pk=node.pk).update(taken=rows)
        node.taken = rows
        transaction.on_commit(wake.schedule_round)
