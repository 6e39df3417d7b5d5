"""`/metrics` for Prometheus.

Every figure is read from the database at the scrape, so all web processes return the same, and no counter restarts with
a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Min, Sum, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from rest_framework.request import Request
from rest_framework.views import APIView

from portal.api.http.permissions import ADMINISTRATORS
from portal.jobs.access import in_states
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import OF_CLUSTERS, LoopName, failing_now
from portal.jobs.models import Accelerator, CheckState, Cluster, Command, FailureCount, Hold, Job, Node, Run
from portal.snapshot.engine_jobs import taken_gpus
from scheduling.lifecycle import LIVE, TERMINAL, WAITING, State, coarse_state

#: Waits are those of jobs that started within this time.
_WINDOW = timedelta(hours=1)
_QUANTILES = (0.5, 0.9, 0.99)
_BY = ["cluster"]


class _Cluster(Collector):
    """Queries whose number does not grow with jobs."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("evenkeel_up", "The portal answers.", 1)
        names = list(active_clusters().values_list("name", flat=True))
        yield from _jobs(names)
        yield _waits()
        yield from _accelerators(names)
        yield from _checks(names)
        yield from _rounds()
        yield from _commands(names)
        yield from _failures(names)


def _jobs(names: Sequence[str]) -> Iterator[Metric]:
    rows = Run.objects.filter(job__run=F("pk"), state__in=[state.value for state in LIVE]).order_by()
    states, by = ("queued", "starting", "running", "rescaling"), [*_BY, "state"]
    live = Counter({(name, state): 0 for name in names for state in states})
    columns = ("job__cluster__name", "state", "has_trained")
    for name, state, trained, count in rows.values_list(*columns).annotate(count=Count("pk")):
        live[name, coarse_state(State(state), rescaling=trained)] += count
    gauge = GaugeMetricFamily("evenkeel_jobs", "Jobs that have not ended, by state.", labels=by)
    for labels, count in sorted(live.items()):
        gauge.add_metric(labels, count)
    yield gauge
    ended = Run.objects.filter(job__run=F("pk"), state__in=[state.value for state in TERMINAL]).order_by()
    found = _counts(ended.values_list("job__cluster__name", "state").annotate(count=Count("pk")))
    counter = CounterMetricFamily("evenkeel_jobs_ended", "Jobs that have ended, by how.", labels=by)
    for name in names:
        for one in sorted(TERMINAL, key=lambda state: state.value):
            counter.add_metric([name, coarse_state(one, rescaling=False)], found.get((name, one.value), 0))
    yield counter
    waiting = Job.objects.filter(in_states(WAITING), hold_kind="").order_by()
    oldest = dict(waiting.values_list("cluster__name").annotate(at=Min("submitted_at")))
    ages = GaugeMetricFamily(
        "evenkeel_oldest_wait_seconds", "Since the oldest job that waits was submitted.", labels=_BY
    )
    for name in names:
        at = oldest.get(name)
        ages.add_metric([name], max(0.0, (timezone.now() - at).total_seconds()) if at else 0.0)
    yield ages


def _counts(rows: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    return {(name, what): count for name, what, count in rows}


def _waits() -> Metric:
    """Of those that first trained within the window."""
    started = Run.objects.filter(attempt=1, first_started_at__gte=timezone.now() - _WINDOW).order_by()
    said = "Time in the queue of the jobs that started in the last hour."
    gauge = GaugeMetricFamily("evenkeel_wait_seconds", said, labels=[*_BY, "quantile"])
    rows = started.values_list("job__cluster__name").annotate(waits=ArrayAgg("queueing_s", order_by="queueing_s"))
    for name, waits in rows.order_by("job__cluster__name"):
        for quantile in _QUANTILES:
            gauge.add_metric([name, str(quantile)], waits[min(len(waits) - 1, int(quantile * len(waits)))])
    return gauge


def _accelerators(names: Sequence[str]) -> Iterator[Metric]:
    """Each has one state, `others` if the engine's other jobs have it; if its node is lost, drained or withheld by its
    check, that counts even while it is occupied."""
    labels = [*_BY, "type", "state"]
    gauge = GaugeMetricFamily("evenkeel_gpus", "Accelerators, by type and state.", labels=labels)
    held = set(Hold.objects.filter(during__upper_inf=True).values_list("accelerator", flat=True))
    counts: Counter[tuple[str, str, str]] = Counter()
    taken = taken_gpus(set(Cluster.objects.values_list("pk", flat=True)))
    present = Accelerator.objects.filter(present=True)
    columns = (
        "pk",
        "node__cluster__name",
        "node__accelerator_type",
        "node__lost",
        "node__drained",
        "node__check_state",
        "node__unclear",
    )
    for pk, name, kind, lost, drained, checked, unclear in present.values_list(*columns).order_by():
        for state in ("held", "free", "others", "drained", "lost", "withheld"):
            counts[name, kind, state] += 0
        closed = "lost" if lost else "drained" if drained else "withheld" if checked or unclear else None
        counts[name, kind, closed or ("held" if pk in held else "others" if pk in taken else "free")] += 1
    for key, count in sorted(counts.items()):
        gauge.add_metric(key, count)
    yield gauge
    shares = GaugeMetricFamily("evenkeel_gpu_allocation_ratio", "Held accelerators over those in service.", labels=_BY)
    for name in names:
        busy, free = (
            sum(count for (where, _, state), count in counts.items() if (where, state) == (name, wanted))
            for wanted in ("held", "free")
        )
        shares.add_metric([name], busy / (busy + free) if busy + free else 0.0)
    yield shares


def _checks(names: Sequence[str]) -> Iterator[Metric]:
    nodes = Node.objects.order_by().values_list("cluster__name")
    sums = {
        name: (passed, failed)
        for name, passed, failed in nodes.annotate(passed=Sum("checks_passed"), failed=Sum("checks_failed"))
    }
    said = "Checks of nodes that ended, by result."
    counter = CounterMetricFamily("evenkeel_node_checks", said, labels=[*_BY, "result"])
    for name in names:
        for result, count in zip(("passed", "failed"), sums.get(name, (0, 0)), strict=True):
            counter.add_metric([name, result], count)
    yield counter
    said = "Nodes kept from work by their check."
    gauge = GaugeMetricFamily("evenkeel_nodes_withheld", said, labels=[*_BY, "state"])
    rows = Node.objects.order_by().values_list("cluster__name", "check_state")
    found = _counts(rows.annotate(count=Count("pk")))
    for name in names:
        for state in CheckState:
            gauge.add_metric([name, state.value], found.get((name, state.value), 0))
    yield gauge


def _rounds() -> Iterator[Metric]:
    rounds = SummaryMetricFamily("evenkeel_round_seconds", "Rounds decided, and how long that took.", labels=_BY)
    last = GaugeMetricFamily("evenkeel_last_round_timestamp_seconds", "When a plan was last applied.", labels=_BY)
    variance = GaugeMetricFamily("evenkeel_slowdown_variance", "Of relative throughput, by the last plan.", labels=_BY)
    failed = GaugeMetricFamily("evenkeel_solver_failed", "The last round fell back, for the solver failed.", labels=_BY)
    policy = GaugeMetricFamily("evenkeel_policy_info", "The policy in force.", labels=[*_BY, "policy"])
    said = "For how long the engine has not answered; 0: it does."
    away = GaugeMetricFamily("evenkeel_engine_away_seconds", said, labels=_BY)
    now = timezone.now()
    for cluster in active_clusters():
        name = cluster.name
        rounds.add_metric([name], cluster.rounds, cluster.rounds_s)
        if cluster.last_round_at:
            last.add_metric([name], cluster.last_round_at.timestamp())
        if (value := cluster.figures.get("variance")) is not None:
            variance.add_metric([name], value)
        failed.add_metric([name], 1.0 if cluster.figures.get("solver_failed") else 0.0)
        policy.add_metric([name, cluster.policy_name], 1)
        since = cluster.engine_away_since
        away.add_metric([name], max(0.0, (now - since).total_seconds()) if since else 0.0)
    yield from (rounds, last, variance, failed, policy, away)


def _commands(names: Sequence[str]) -> Iterator[Metric]:
    """Commands that executors have not been observed to carry out."""
    said = "Commands to executors that are not done."
    gauge = GaugeMetricFamily("evenkeel_open_commands", said, labels=[*_BY, "verb"])
    opened = Command.objects.filter(closed_at=None).order_by()
    found = _counts(opened.values_list("run__job__cluster__name", "verb").annotate(count=Count("pk")))
    said = "Of those, the ones that were sent more than once."
    again = GaugeMetricFamily("evenkeel_retried_commands", said, labels=_BY)
    retried = opened.filter(attempts__gt=1).values_list("run__job__cluster__name").annotate(count=Count("pk"))
    counts = dict(retried)
    for name in names:
        for verb in Command.Verb:
            gauge.add_metric([name, verb.value], found.get((name, verb.value), 0))
        again.add_metric([name], counts.get(name, 0))
    yield from (gauge, again)


def _failures(names: Sequence[str]) -> Iterator[Metric]:
    """For loops over more than one cluster the label `cluster` is empty."""
    labels = ["loop", *_BY]
    said = "Failures of single items (jobs, runs, nodes, files) in loops of the control plane."
    counter = CounterMetricFamily("evenkeel_item_failures", said, labels=labels)
    said = "Items that fail now, and are tried again."
    gauge = GaugeMetricFamily("evenkeel_failing_items", said, labels=labels)
    counts = _counts(FailureCount.objects.values_list("loop", "cluster_name", "failures"))
    rows = failing_now(timezone.now()).order_by().values_list("loop", Coalesce("cluster__name", Value("")))
    failing = _counts(rows.annotate(count=Count("pk")))
    known = {(loop.value, name) for loop in LoopName for name in (names if loop in OF_CLUSTERS else [""])}
    for key in sorted({*known, *counts, *failing}):
        counter.add_metric(key, counts.get(key, 0))
        gauge.add_metric(key, failing.get(key, 0))
    yield from (counter, gauge)


def has_metrics_token(request: HttpRequest) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    expected: str = settings.EVENKEEL_METRICS_TOKEN
    return bool(expected) and scheme.lower() == "bearer" and constant_time_compare(given.strip(), expected)


class MetricsView(APIView):
    """For holders of the token in `EVENKEEL_METRICS_TOKEN`, and for administrators."""

    schema = None

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if has_metrics_token(request):
            self.authentication_classes, self.permission_classes, self.throttle_classes = [], [], []
        return super().initialize_request(request, *args, **kwargs)

    permission_classes = ADMINISTRATORS

    def get(self, request: Request) -> HttpResponse:
        """In Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Cluster())
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
