"""Whether a cluster's engine answers, and since when it does not; nothing is planned meanwhile.

Running jobs continue without the engine's controller; a plan could stop a job that the engine then cannot restart.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from portal.jobs import events
from portal.jobs.engine_names import engine_name
from portal.jobs.models import Cluster, Run
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import WAITING


@transaction.atomic
def note_unreachable(cluster: Cluster, error: str, now: datetime) -> None:
    """The engine did not answer; `error` says how. Waiting jobs get this as their reason; jobs on hold keep theirs."""
    row = Cluster.objects.filter(pk=cluster.pk)
    row.update(last_error=error)
    name = engine_name(cluster)
    if row.filter(engine_away_since=None).update(engine_away_since=now):
        text = f"{name} does not answer: nothing is started, stopped or resized until it does ({error})"
        events.append(kind="engine_away", text=text, at=now, detail={"cluster": cluster.name})
    states = [state.value for state in WAITING]
    waiting = Run.objects.filter(job__cluster=cluster, job__hold_kind="", state__in=states)
    text = f"{name} does not answer, so nothing is started until it does."
    waiting.exclude(reason_token=ReasonCode.ENGINE_AWAY).update(
        reason_token=ReasonCode.ENGINE_AWAY, reason_text=text, reason_detail={}
    )


@transaction.atomic
def note_reachable(cluster: Cluster, now: datetime) -> None:
    """The engine answered again."""
    away = Cluster.objects.filter(pk=cluster.pk, engine_away_since__isnull=False)
    if away.update(engine_away_since=None, engine_back_at=now):
        text = f"{engine_name(cluster)} answers again"
        events.append(kind="engine_back", text=text, at=now, detail={"cluster": cluster.name})
