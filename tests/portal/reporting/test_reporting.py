"""How often runs report, and what is made of what was seen a while ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.cluster import inventory as administration
from portal.execution import launch_request
from portal.jobs.models import Accelerator, Command, Node
from portal.lifecycle import report_interval
from portal.reporting import observation, throughput
from scheduling.executors.base import AcceleratorInfo, Fact, NodeInfo
from scheduling.lifecycle import State
from tests.portal.world import World

pytestmark = pytest.mark.django_db
_KEY = "reporting:runs"


@pytest.fixture
def world() -> World:
    cache.delete(_KEY)
    return World()


def test_few_runs_report_at_the_usual_pace_and_many_less_often(settings: Any) -> None:
    settings.EVENKEEL_REPORT_INTERVAL_S, settings.EVENKEEL_REPORTS_PER_S = 10.0, 20.0
    paces = {200: 10.0, 201: 12.5, 250: 12.5, 251: 15.625, 1_000: 10 * 1.25**8, 10**6: 120.0}
    for count, pace_s in paces.items():
        cache.set(_KEY, count, None)
        assert report_interval.interval_s() == pace_s
    settings.EVENKEEL_REPORT_INTERVAL_S = 300.0
    assert report_interval.interval_s() == 300.0
    cache.delete(_KEY)


def test_runs_that_hold_gpus_are_counted_and_launches_told(world: World, settings: Any) -> None:
    settings.EVENKEEL_REPORTS_PER_S = 0.1
    jobs = [world.submit(gpus={"min": 1, "max": 1}) for _ in range(2)]
    report_interval.note_runs()
    assert report_interval.interval_s() == 10.0
    world.round()
    report_interval.note_runs()
    assert report_interval.interval_s() == 10.0 * 1.25**4
    assert launch_request.launch_request(world.run(jobs[0]), 1).report_interval_s == report_interval.interval_s()
    cache.delete(_KEY)


def test_an_old_absence_does_not_end_whoever_was_heard_from_since(world: World) -> None:
    job = world.submit()
    world.round()
    before = timezone.now().timestamp()
    world.ready(job)
    run = world.run(job)
    observation.record_fact(Fact(str(run.pk), 1, "absent", before))
    assert world.state(job) is State.RUNNING_PROTECTED
    observation.record_fact(Fact(str(run.pk), 1, "absent", timezone.now().timestamp()))
    assert world.state(job) is not State.RUNNING_PROTECTED
    assert world.run(job).attempt == 2


def test_alive_runs_close_their_own_launch_only_in_three_statements(world: World) -> None:
    jobs = [world.submit(gpus={"min": 1, "max": 1}) for _ in range(3)]
    world.round()
    seen = [Fact(str(world.run(job).pk), 1, "alive", 1_700_000_000.0) for job in jobs[:2]]
    stale = Fact(str(world.run(jobs[2]).pk), 7, "alive", 1_700_000_000.0)
    with CaptureQueriesContext(connection) as queries:
        observation.record_alive([*seen, stale])
    statements = [query for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) == 3  # one asks which runs are put off
    assert {command.run.job_id for command in Command.objects.filter(closed_at=None)} == {jobs[2].pk}


def test_later_reports_are_measured_once_a_minute(world: World) -> None:
    job = world.submit()
    world.train(job)
    run, now = world.run(job), timezone.now().replace(second=30)
    run.ready_at = now - timedelta(seconds=200)
    assert throughput.is_due(run, now - timedelta(seconds=10), now)
    run.ready_at = now - timedelta(seconds=2_000)
    assert not throughput.is_due(run, now - timedelta(seconds=10), now)
    assert throughput.is_due(run, now - timedelta(seconds=31), now)
    assert throughput.is_due(run, None, now)


def inventory(count: int) -> list[NodeInfo]:
    return [
        NodeInfo(f"n{number}", (AcceleratorInfo(0, "k1", f"gpu-{number}", 1_000, emulated=True),), cpus=4, memory_mib=9)
        for number in range(count)
    ]


def test_nodes_that_are_as_they_were_cost_no_statement_each(world: World) -> None:
    costs = []
    for count in (5, 50):
        for _ in range(2):
            with CaptureQueriesContext(connection) as queries:
                administration.record_inventory(cluster=world.cluster, nodes=inventory(count), now=timezone.now())
        costs.append(len(queries))
    assert costs[0] == costs[1]
    assert Node.objects.filter(name__startswith="n", lost=False).count() >= 50


def test_devices_are_replaced_go_and_come_back(world: World) -> None:
    def store(*gpus: AcceleratorInfo) -> list[tuple[int, str, bool]]:
        node = NodeInfo("changing", gpus, cpus=4, memory_mib=9)
        administration.record_inventory(cluster=world.cluster, nodes=[node], now=timezone.now())
        rows = Accelerator.objects.filter(node__name="changing").order_by("index")
        return list(rows.values_list("index", "uuid", "present"))

    first, second = (AcceleratorInfo(n, "k1", f"old-{n}", 1_000, emulated=True) for n in range(2))
    other = AcceleratorInfo(1, "k1", "new-1", 1_000, emulated=True)
    assert store(first, second) == [(0, "old-0", True), (1, "old-1", True)]
    assert store(first) == [(0, "old-0", True), (1, "old-1", False)]
    assert store(first, other) == [(0, "old-0", True), (1, "new-1", True)]
