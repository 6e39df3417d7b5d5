"""What the last round and the last forecast say of each cluster, kept for the choice of a cluster at submission."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from portal.core.times import from_posix
from portal.forecasts.inputs import Expectation
from portal.jobs.access import in_states
from portal.jobs.models import Cluster, Job
from portal.snapshot.take import ClusterView, take_snapshot
from scheduling.domain import Plan
from scheduling.forecast.calibration import LONGEST_S
from scheduling.forecast.next_start import Demand, RoundFigures, demand, figures_of
from scheduling.lifecycle import WAITING

logger = logging.getLogger(__name__)
#: Figures of a cluster whose engine does not answer are forgotten after so long.
_KEPT_S = 600
#: Of jobs that came after the round so many are counted.
_MOST_NEW = 1_000


@dataclass(frozen=True)
class ClusterFigures:
    """Of one cluster. `starts`: POSIX seconds at which the last waiting job of a demand is expected to start; `new`:
    jobs that came after the round."""

    round: RoundFigures
    starts: Mapping[Demand, float] = field(default_factory=dict)
    new: Mapping[Demand, int] = field(default_factory=dict)

    def expected_s(self, now: datetime) -> dict[Demand, float]:
        return {wanted: max(0.0, at - now.timestamp()) for wanted, at in self.starts.items()}


def note_round(view: ClusterView, plan: Plan) -> None:
    """What a committed round leaves."""
    _keep(_round_key(view.cluster.pk), figures_of(view.snapshot, plan.moves, plan.reasons))


def note_starts(cluster: Cluster, expected: Expectation) -> None:
    """When the last job of each demand is expected to start, as far as that is known."""
    latest: dict[Demand, float] = {}
    for job in expected.waiting:
        start = expected.start(job.id)
        if start is not None and start.p50_s < LONGEST_S:
            at = expected.at.timestamp() + start.p50_s
            latest[demand(job)] = max(at, latest.get(demand(job), at))
    _keep(_starts_key(cluster.pk), latest)


def figures_by_cluster(clusters: Sequence[Cluster]) -> dict[int, ClusterFigures]:
    """By id. Where no round has left any (it is new, or the cache was emptied) they are read from the rows, once."""
    kept = _kept([key for one in clusters for key in (_round_key(one.pk), _starts_key(one.pk))])
    rounds: dict[int, RoundFigures] = {one.pk: kept.get(_round_key(one.pk)) or _as_it_is(one) for one in clusters}
    new = _new_jobs(rounds)
    return {
        pk: ClusterFigures(figures, kept.get(_starts_key(pk)) or {}, new.get(pk, {})) for pk, figures in rounds.items()
    }


def _as_it_is(cluster: Cluster) -> RoundFigures:
    snapshot = take_snapshot(cluster, timezone.now()).snapshot
    found = figures_of(snapshot, (), {})
    _keep(_round_key(cluster.pk), found)
    return found


def _new_jobs(rounds: Mapping[int, RoundFigures]) -> dict[int, Counter[Demand]]:
    """By cluster; a burst of submissions is shorter than a round."""
    since = {pk: figures.snapshot.now for pk, figures in rounds.items()}
    first = from_posix(min(since.values()))
    mine = Job.objects.filter(in_states(WAITING), cluster__in=since, hold_kind="", submitted_at__gt=first)
    columns = ("cluster_id", "accelerator_types", "spec__throughput", "partition__name", "min_gpus", "submitted_at")
    found: dict[int, Counter[Demand]] = {}
    for pk, types, curves, partition, least, at in mine.order_by("-submitted_at").values_list(*columns)[:_MOST_NEW]:
        if at.timestamp() > since[pk]:
            found.setdefault(pk, Counter())[tuple(sorted(types or curves or ())), partition or "", least] += 1
    return found


def _round_key(cluster_id: int) -> str:
    return f"round-figures/{cluster_id}"


def _starts_key(cluster_id: int) -> str:
    return f"expected-starts-of/{cluster_id}"


def _keep(key: str, value: object) -> None:
    try:
        cache.set(key, value, _KEPT_S)
    except RedisError as error:
        logger.warning("figures for the choice of a cluster cannot be kept: %s", error)


def _kept(keys: Sequence[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = cache.get_many(keys)
    except RedisError as error:
        logger.warning("figures for the choice of a cluster cannot be read: %s", error)
        return {}
    return found
