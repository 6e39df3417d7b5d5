"""Signal after a live round was committed. A receiver can neither delay nor undo the round."""

from __future__ import annotations

from django.dispatch import Signal

#: Arguments: `view` (portal.snapshot.take.ClusterView), `plan` (scheduling.domain.Plan) and `now`.
round_committed = Signal()
