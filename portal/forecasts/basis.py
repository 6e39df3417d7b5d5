"""The starting point of previews: the live snapshot with a round's answer to it, and unstored jobs in it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from portal.core import task_queue
from portal.drafts.draft import ResolvedDraft
from portal.jobs.models import Cluster, JobArray
from portal.snapshot.dependencies import would_wait
from portal.snapshot.newcomers import newcomers_of
from portal.snapshot.take import take_snapshot
from scheduling import domain
from scheduling.engine.rounds import plan_round
from scheduling.forecast.next_round import Planned
from scheduling.policies import load_policy

logger = logging.getLogger(__name__)
#: A snapshot is reused for this multiple of the time that it took to make, within the two bounds, so that previews use
#: at most a twentieth of a processor and yet are up to date. After a third of that age it is renewed in the background.
_TIMES_MADE, _LEAST_S, _STALE_S = 20.0, 1.0, 15.0
#: Jobs of an array that are considered.
MOST_NEWCOMERS = 100
#: Connections to an unreachable broker fail at once instead of blocking a request.


@dataclass(frozen=True)
class Basis:
    """The live snapshot, at most this many seconds old, with a round's answer to it."""

    at: datetime
    policy: tuple[str, dict[str, Any]]  # name and parameters
    seed: int
    planned: Planned
    took_s: float  # seconds to make it


#: By cluster: what this process has read or made last.
_READ: dict[int, Basis] = {}
_RENEWING = threading.Lock()


def _key(cluster_id: int) -> str:
    return f"preview-basis/{cluster_id}"


def basis_of(cluster: Cluster) -> Basis:
    """From the cache if it is recent enough; an older one is renewed for the next caller."""
    known = _newest(cluster)
    if known is None or not _does(known, cluster):
        with _RENEWING:  # concurrent callers wait, and get the same one
            known = _newest(cluster)
            return known if known is not None and _does(known, cluster) else renew(cluster)
    if _age_s(known) > (again_s := max(_LEAST_S, _serves_s(known) / 3)):
        _renew_soon(cluster, again_s)
    return known


def _age_s(basis: Basis) -> float:
    return (timezone.now() - basis.at).total_seconds()


def _serves_s(basis: Basis) -> float:
    return min(_STALE_S, max(_LEAST_S, _TIMES_MADE * basis.took_s))


def _does(basis: Basis, cluster: Cluster) -> bool:
    """Whether it is recent enough, and of the policy in force."""
    return _age_s(basis) <= _serves_s(basis) and basis.policy == (cluster.policy_name, cluster.policy_parameters)


def _newest(cluster: Cluster) -> Basis | None:
    """Read once by each process: with many jobs it is a megabyte, and rounds memoise by object."""
    known = _READ.get(cluster.pk)
    try:
        at: datetime | None = cache.get(f"{_key(cluster.pk)}/at")
        if at is None:
            return None
        if known is None or known.at != at:
            known = cache.get(_key(cluster.pk))
    except RedisError as error:
        logger.warning("the snapshot for previews cannot be read: %s", error)
    if known is not None:
        _READ[cluster.pk] = known
    return known


def renew(cluster: Cluster) -> Basis:
    now, began_s = timezone.now(), time.monotonic()
    snapshot = take_snapshot(cluster, now).snapshot
    plan = plan_round(snapshot, load_policy(cluster.policy_name, cluster.policy_parameters))
    policy = (cluster.policy_name, cluster.policy_parameters)
    basis = Basis(now, policy, cluster.round_epoch, Planned.of(snapshot, plan), time.monotonic() - began_s)
    _READ[cluster.pk] = basis
    try:
        cache.set(_key(cluster.pk), basis, _STALE_S)
        cache.set(f"{_key(cluster.pk)}/at", basis.at, _STALE_S)
    except RedisError as error:
        logger.warning("the snapshot for previews cannot be kept: %s", error)
    return basis


def _renew_soon(cluster: Cluster, again_s: float) -> None:
    task_queue.send_once(
        f"{_key(cluster.pk)}/renewing",
        ceil(again_s),
        task_queue.RENEW_BASIS,
        cluster.pk,
        expires_s=_STALE_S,
        failed="the snapshot for previews is not renewed",
    )


def drafted(
    wish: ResolvedDraft, cluster: Cluster, basis: Basis, now: datetime, *, packs: bool
) -> tuple[tuple[domain.Job, ...], domain.Snapshot]:
    given = wish.job_file.array
    array = JobArray(size=len(given.numbers), max_running=given.max_running) if given else None
    indices = given.numbers[:MOST_NEWCOMERS] if given else [None]
    last = max((job.number for job in basis.planned.snapshot.jobs), default=0)
    jobs = wish.jobs(list(enumerate(indices, last + 1)), now, array=array)
    waits = would_wait(jobs, wish.dependencies)
    return newcomers_of(jobs, cluster, basis.planned.snapshot, waits, now, packs=packs)
