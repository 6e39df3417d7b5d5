"""Shadow evaluation: a candidate plans the same rounds as the live policy, on the same snapshots, without effect.

The round stores its input for the evaluation. Of the rounds not evaluated yet, the newest is kept, and a few earlier
ones that moved something; an evaluation that falls behind continues with these, and counts the missed ones.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import F, Sum
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from portal.core import task_queue
from portal.core.packed_json import pack
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import Cluster
from portal.rollouts.comparing import Comparison, compare_plans
from portal.rollouts.models import Phase, Rollout, ShadowDecision
from portal.snapshot.for_policy import complete
from portal.snapshot.take import ClusterView
from scheduling.domain import Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy

logger = logging.getLogger(__name__)
#: Time limit of one plan, in seconds; a process that ignores it is killed somewhat later.
LONGEST_S, KILLED_S = 20, 40
_KEPT_S = 120
#: Rounds that moved something, besides the newest, that are kept for evaluation.
MOST_PENDING = 8


@dataclass(frozen=True)
class Seen:
    """A live round: its snapshot and its decision."""

    round: int
    at: float
    policy: str
    snapshot: Snapshot
    plan: Plan


def _key(cluster_id: int) -> str:
    return f"shadow/{cluster_id}"


# In the live round ---------------------------------------------------------------------------------


def keep_for_shadow(*, view: ClusterView, plan: Plan, now: datetime, **_: object) -> None:
    """One query while there is no candidate. Failures are logged, and never affect the round."""
    cluster = view.cluster
    if not Rollout.objects.filter(cluster=cluster.pk, phase=Phase.SHADOW).exists():
        return
    seen = Seen(
        cluster.round_epoch + 1,
        now.timestamp(),
        cluster.policy_name,
        view.snapshot,
        Plan(moves=tuple(plan.moves)),  # formatting reasons may be slow, and they are not needed
    )
    try:
        _store_pending(cluster.pk, seen)
        ask(cluster.pk)
    except (RedisError, OperationalError, OSError) as error:
        logger.warning("round %d has no shadow: %s", seen.round, error)


def _store_pending(cluster_id: int, seen: Seen) -> None:
    """Rounds of a cluster are sequential, so no other process writes the list meanwhile."""
    key = _key(cluster_id)
    listed: list[tuple[int, bool]] = cache.get(key) or []
    kept = [(number, moved) for number, moved in listed if moved and number < seen.round][-MOST_PENDING:]
    gone = {number for number, _ in listed} - {number for number, _ in kept}
    cache.set(f"{key}/{seen.round}", seen, _KEPT_S)
    cache.set(key, [*kept, (seen.round, bool(seen.plan.moves))], _KEPT_S)
    cache.delete_many([f"{key}/{number}" for number in gone])


def _next(cluster_id: int, after: int | None) -> tuple[Seen | None, bool]:
    """The oldest round to be evaluated, and whether there are more."""
    key = _key(cluster_id)
    listed: list[tuple[int, bool]] = cache.get(key) or []
    numbers = [number for number, _ in listed if after is None or number > after]
    for place, number in enumerate(numbers):
        if (seen := cache.get(f"{key}/{number}")) is not None:
            return seen, place + 1 < len(numbers)
    return None, False


def ask(cluster_id: int) -> None:
    """Request an evaluation, unless one is requested already."""
    if cache.add(f"{_key(cluster_id)}/asked", 1, KILLED_S):
        task_queue.send(task_queue.SHADOW_ROUND, cluster_id, expires=_KEPT_S)


# In the shadow -------------------------------------------------------------------------------------


def shadow(cluster: Cluster) -> Rollout | None:
    """Evaluate the next stored round, once. None if there is nothing to do."""
    cache.delete(f"{_key(cluster.pk)}/asked")
    row = Rollout.objects.filter(cluster=cluster, phase=Phase.SHADOW).first()
    if row is None:
        return None
    if row.shadow_begun is not None:
        _note_lost_round(row, row.shadow_begun)
        row.refresh_from_db()
    seen, more = _next(cluster.pk, row.shadow_round)
    if seen is None:
        return None
    if more:
        ask(cluster.pk)
    missed = 0 if row.shadow_round is None else seen.round - row.shadow_round - 1
    mine = Rollout.objects.filter(pk=row.pk, phase=Phase.SHADOW)
    if not mine.update(shadow_begun=seen.round):
        return None
    began = datetime.now(UTC)
    try:
        memory, comparison = _plan(row, seen, cluster)
    except SoftTimeLimitExceeded:
        _failed(row, seen.round, missed, f"Round {seen.round}: no plan after {LONGEST_S} s.")
    except Exception as error:  # a candidate that cannot plan a round is a result, not a failure of the portal
        logger.info("%s in round %d", row, seen.round, exc_info=True)
        _failed(row, seen.round, missed, f"Round {seen.round}: {type(error).__name__}: {error}")
    else:
        seconds = (datetime.now(UTC) - began).total_seconds()
        _store(row, seen, memory, comparison, seconds, missed)
    return row


def _plan(row: Rollout, seen: Seen, cluster: Cluster) -> tuple[dict[str, Any], Comparison]:
    policy = load_policy(row.policy, row.parameters)
    # as if it were put in force: a policy of the same name continues with the memory
    first = dict(seen.snapshot.memory) if seen.policy == row.policy else {}
    memory = first if row.memory is None else row.memory
    snapshot = replace(complete(seen.snapshot, cluster, policy.capabilities.needs), memory=memory)
    plan = plan_round(snapshot, policy)
    return dict(plan.memory), compare_plans(seen.snapshot, seen.plan, plan)


def _note_lost_round(row: Rollout, begun: int) -> None:
    """A round whose evaluation was started and never finished took so long that its process was killed."""
    missed = 0 if row.shadow_round is None else begun - row.shadow_round - 1
    _failed(row, begun, missed, f"Round {begun}: no plan, and its process was ended.")


def _failed(row: Rollout, number: int, missed: int, said: str) -> None:
    totals = _added(row.totals, {"failed": 1, "skipped": missed})
    error = said[:500]
    kept = {"shadow_round": number, "shadow_begun": None, "shadow_error": error, "totals": totals}
    Rollout.objects.filter(pk=row.pk, phase=Phase.SHADOW).update(**kept)


@transaction.atomic
def _store(row: Rollout, seen: Seen, memory: dict[str, Any], found: Comparison, seconds: float, missed: int) -> None:
    totals = _added(row.totals, _counted(found, seconds, missed))
    kept = {"shadow_round": seen.round, "shadow_begun": None, "memory": memory, "totals": totals}
    if not Rollout.objects.filter(pk=row.pk, phase=Phase.SHADOW).update(**kept):
        return
    at = datetime.fromtimestamp(seen.at, UTC)
    newest, digest = row.decisions.order_by("-pk").first(), found.digest
    if newest is not None and newest.digest == digest:
        alike = ShadowDecision.objects.filter(pk=newest.pk)
        now = {"last_round": seen.round, "last_at": at, "live": found.live, "candidate": found.candidate}
        alike.update(rounds=F("rounds") + 1, **now)
        return
    packed = pack({"jobs": found.jobs, "moves": found.moves})
    ShadowDecision.objects.create(
        rollout=row,
        round=seen.round,
        at=at,
        last_round=seen.round,
        last_at=at,
        seconds=seconds,
        different=found.different,
        elsewhere=found.elsewhere,
        live=found.live,
        candidate=found.candidate,
        digest=digest,
        packed=packed,
        size_bytes=len(packed),
    )


def _counted(found: Comparison, seconds: float, missed: int) -> dict[str, float]:
    both = found.live["variance"] is not None and found.candidate["variance"] is not None
    return {
        "rounds": 1,
        "same": int(not found.different),
        "skipped": missed,
        "different": found.different,
        "seconds": seconds,
        "gpus_live": found.live["gpus"],
        "gpus_candidate": found.candidate["gpus"],
        "variances": int(both),
        "variance_live": found.live["variance"] if both else 0.0,
        "variance_candidate": found.candidate["variance"] if both else 0.0,
        "put_out_live": found.live["put_out"],
        "put_out_candidate": found.candidate["put_out"],
        "starting_live": found.live["starting"],
        "starting_candidate": found.candidate["starting"],
    }


def _added(totals: dict[str, float], more: dict[str, float]) -> dict[str, float]:
    return {key: totals.get(key, 0) + more.get(key, 0) for key in {*totals, *more}}


def prune() -> None:
    """Remove the oldest decisions until the rest fits."""
    total = ShadowDecision.objects.aggregate(n=Sum("size_bytes"))["n"] or 0
    loop = Loop(LoopName.PRUNING)
    for pk, size in ShadowDecision.objects.order_by("pk").values_list("pk", "size_bytes").iterator():
        if total <= settings.EVENKEEL_KEEP.shadows_bytes:
            break
        if loop.attempt(Item(f"shadow:{pk}", f"shadow decision {pk}"), ShadowDecision.objects.filter(pk=pk).delete)[0]:
            total -= size
