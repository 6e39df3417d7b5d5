"""`/metrics` for Prometheus.

Every figure is read from the database at the scrape, so it is the same whichever of several web processes is asked, and
no counter begins anew with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Min, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from rest_framework.request import Request
from rest_framework.views import APIView

from portal.api.permissions import ADMINISTRATORS
from portal.jobs.models import Accelerator, CheckState, Cluster, Command, Hold, Job, Node, Run
from portal.jobs.selectors import in_states
from scheduling.lifecycle import LIVE, TERMINAL, WAITING, State, coarse_state

#: Waits are those of jobs that started within so long.
_WINDOW = timedelta(hours=1)
_QUANTILES = (0.5, 0.9, 0.99)


class _Cluster(Collector):
    """Queries whose number does not grow with jobs."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("evenkeel_up", "The portal answers.", 1)
        yield from _jobs()
        yield _waits()
        yield from _accelerators()
        yield from _checks()
        yield from _rounds()
        yield from _commands()


def _jobs() -> Iterator[Metric]:
    rows = Run.objects.filter(job__run=F("pk"), state__in=[state.value for state in LIVE]).order_by()
    live: Counter[str] = Counter(dict.fromkeys(("queued", "starting", "running", "rescaling"), 0))
    for state, trained, count in rows.values_list("state", "has_trained").annotate(count=Count("pk")):
        live[coarse_state(State(state), rescaling=trained)] += count
    gauge = GaugeMetricFamily("evenkeel_jobs", "Jobs that have not ended, by state.", labels=["state"])
    for state, count in sorted(live.items()):
        gauge.add_metric([state], count)
    yield gauge
    ended = Run.objects.filter(job__run=F("pk"), state__in=[state.value for state in TERMINAL]).order_by()
    found = dict(ended.values_list("state").annotate(count=Count("pk")))
    counter = CounterMetricFamily("evenkeel_jobs_ended", "Jobs that have ended, by how.", labels=["state"])
    for one in sorted(TERMINAL, key=lambda state: state.value):
        counter.add_metric([coarse_state(one, rescaling=False)], found.get(one.value, 0))
    yield counter
    oldest = Job.objects.filter(in_states(WAITING), hold_kind="").aggregate(at=Min("submitted_at"))["at"]
    age_s = max(0.0, (timezone.now() - oldest).total_seconds()) if oldest else 0.0
    yield GaugeMetricFamily("evenkeel_oldest_wait_seconds", "Since the oldest job that waits was submitted.", age_s)


def _waits() -> Metric:
    """Of those that first trained within the window."""
    started = Run.objects.filter(attempt=1, first_started_at__gte=timezone.now() - _WINDOW)
    waits = sorted(started.aggregate(waits=ArrayAgg("queueing_s", default=[]))["waits"])
    gauge = GaugeMetricFamily(
        "evenkeel_wait_seconds", "Time in the queue of the jobs that started in the last hour.", labels=["quantile"]
    )
    for quantile in _QUANTILES if waits else ():
        gauge.add_metric([str(quantile)], waits[min(len(waits) - 1, int(quantile * len(waits)))])
    return gauge


def _accelerators() -> Iterator[Metric]:
    """Each is in one state; one whose node is lost, drained or withheld by its check counts there even while held."""
    labels = ["type", "state"]
    gauge = GaugeMetricFamily("evenkeel_gpus", "Accelerators, by type and state.", labels=labels)
    held = set(Hold.objects.filter(during__upper_inf=True).values_list("accelerator", flat=True))
    counts: Counter[tuple[str, str]] = Counter()
    present = Accelerator.objects.filter(present=True)
    columns = ("pk", "node__accelerator_type", "node__lost", "node__drained", "node__check_state")
    for pk, kind, lost, drained, checked in present.values_list(*columns).order_by():
        for state in ("held", "free", "drained", "lost", "withheld"):
            counts[kind, state] += 0
        closed = "lost" if lost else "drained" if drained else "withheld" if checked else None
        counts[kind, closed or ("held" if pk in held else "free")] += 1
    for (kind, state), count in sorted(counts.items()):
        gauge.add_metric([kind, state], count)
    yield gauge
    usable = sum(count for (_, state), count in counts.items() if state in ("held", "free"))
    busy = sum(count for (_, state), count in counts.items() if state == "held")
    share = busy / usable if usable else 0.0
    yield GaugeMetricFamily("evenkeel_gpu_allocation_ratio", "Held accelerators over those in service.", share)


def _checks() -> Iterator[Metric]:
    sums = Node.objects.aggregate(passed=Sum("checks_passed", default=0), failed=Sum("checks_failed", default=0))
    counter = CounterMetricFamily("evenkeel_node_checks", "Checks of nodes that ended, by result.", labels=["result"])
    for result in ("passed", "failed"):
        counter.add_metric([result], sums[result])
    yield counter
    gauge = GaugeMetricFamily("evenkeel_nodes_withheld", "Nodes kept from work by their check.", labels=["state"])
    found = dict(Node.objects.order_by().values_list("check_state").annotate(count=Count("pk")))
    for state in CheckState:
        gauge.add_metric([state.value], found.get(state.value, 0))
    yield gauge


def _rounds() -> Iterator[Metric]:
    by = ["cluster"]
    rounds = SummaryMetricFamily("evenkeel_round_seconds", "Rounds decided, and how long that took.", labels=by)
    last = GaugeMetricFamily("evenkeel_last_round_timestamp_seconds", "When a plan was last applied.", labels=by)
    variance = GaugeMetricFamily("evenkeel_slowdown_variance", "Of relative throughput, by the last plan.", labels=by)
    failed = GaugeMetricFamily("evenkeel_solver_failed", "The last round fell back, for the solver failed.", labels=by)
    policy = GaugeMetricFamily("evenkeel_policy_info", "The policy in force.", labels=[*by, "policy"])
    for cluster in Cluster.objects.all():
        name = cluster.name
        rounds.add_metric([name], cluster.rounds, cluster.rounds_s)
        if cluster.last_round_at:
            last.add_metric([name], cluster.last_round_at.timestamp())
        if (value := cluster.figures.get("variance")) is not None:
            variance.add_metric([name], value)
        failed.add_metric([name], 1.0 if cluster.figures.get("solver_failed") else 0.0)
        policy.add_metric([name, cluster.policy_name], 1)
    yield from (rounds, last, variance, failed, policy)


def _commands() -> Iterator[Metric]:
    """What executors were told and have not been seen to do."""
    gauge = GaugeMetricFamily("evenkeel_open_commands", "Commands to executors that are not done.", labels=["verb"])
    opened = Command.objects.filter(closed_at=None).order_by()
    found = dict(opened.values_list("verb").annotate(count=Count("pk")))
    for verb in Command.Verb:
        gauge.add_metric([verb.value], found.get(verb.value, 0))
    yield gauge
    retried = opened.aggregate(count=Count("pk", filter=Q(attempts__gt=1)))["count"]
    yield GaugeMetricFamily("evenkeel_retried_commands", "Of those, the ones that were sent more than once.", retried)


def has_metrics_token(request: HttpRequest) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    expected: str = settings.EVENKEEL_METRICS_TOKEN
    return bool(expected) and scheme.lower() == "bearer" and constant_time_compare(given.strip(), expected)


class MetricsView(APIView):
    """For whoever has the token of `EVENKEEL_METRICS_TOKEN`, and for administrators."""

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
