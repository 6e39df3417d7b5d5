"""Expected starts, on a separate queue, so that their computation delays neither rounds nor commands."""

from __future__ import annotations

import time

from celery import shared_task
from django.core.cache import cache
from django.db import transaction
from django.utils import timezone

from portal.core.locks import forecast_lock
from portal.forecasts import cluster_figures, inputs, start_cache_writer
from portal.jobs.access import in_states
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Loop, LoopName, of_cluster
from portal.jobs.models import Cluster, Job
from scheduling.lifecycle import WAITING

#: After this many seconds no further future is started; the first one also ends then.
_LONGEST_S = 1.5
#: With a large queue a forecast takes a second or two of a core: it then uses at most a sixth of one.
_REST_FACTOR = 5.0
_RESTS = "expected-starts:rest"


@shared_task(name="evenkeel.foresee_starts", ignore_result=True)
def foresee_starts() -> None:
    """Compute expected starts of all waiting jobs; does nothing if none waits."""
    if cache.get(_RESTS):
        return
    with forecast_lock() as mine:
        if not mine:
            return
        began_s = time.thread_time()
        for cluster in active_clusters():
            Loop(LoopName.EXPECTED_STARTS, cluster.pk).run(of_cluster(cluster), foresee_cluster, cluster)
        took_s = time.thread_time() - began_s
    cache.set(_RESTS, 1, max(0.5, _REST_FACTOR * took_s))


def foresee_cluster(cluster: Cluster) -> None:
    inputs.record_outcomes(cluster)
    if not Job.objects.filter(in_states(WAITING), cluster=cluster).exists():
        return
    until_s = time.thread_time() + _LONGEST_S
    expected = inputs.expect_starts(cluster, timezone.now(), lambda: time.thread_time() > until_s)
    start_cache_writer.store(expected)
    cluster_figures.note_starts(cluster, expected)
    with transaction.atomic():
        inputs.keep_samples(cluster, expected)


@shared_task(name="evenkeel.prune_start_samples", ignore_result=True)
def prune_start_samples() -> None:
    """Keep the calibration samples within their limits."""
    inputs.prune(timezone.now())
