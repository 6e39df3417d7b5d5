"""Told after a live round has been committed, to whoever looks on; nobody who listens can hold up or undo it."""

from __future__ import annotations

from django.dispatch import Signal

#: With `view` (portal.snapshot.take.ClusterView), `plan` (scheduling.domain.Plan) and `now`.
round_committed = Signal()
