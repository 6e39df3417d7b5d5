"""`/metrics`: what it says, to whom, and that the example dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from accounts.tokens import ALL_SCOPES, create_token
from portal.jobs.models import Command, Node, Run
from portal.lifecycle.cancel import cancel_job
from tests.portal.world import World

pytestmark = pytest.mark.django_db
TOKEN = "scrape-me-9f2c"
DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana.json"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape() -> Samples:
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(autouse=True)
def _token(settings: Any) -> None:
    settings.EVENKEEL_METRICS_TOKEN = TOKEN


def value(samples: Samples, name: str, *, cluster: str = "test", **labels: str) -> float:
    return samples[name, tuple(sorted({"cluster": cluster, **labels}.items()))]


def test_jobs_gpus_waits_rounds_and_commands_are_counted() -> None:
    world = World({"a": 4, "b": 2})
    first, second = world.submit(gpus={"min": 4, "max": 4}), world.submit(gpus={"min": 64})
    world.train(first)
    cancel_job(user=world.user, job=world.submit())
    Run.objects.filter(job=first).update(queueing_s=12.0)
    Node.objects.filter(name="b").update(drained=True)
    said = scrape()
    assert said["evenkeel_up", ()] == 1
    assert value(said, "evenkeel_jobs", state="running") == 1
    assert value(said, "evenkeel_jobs", state="queued") == 1
    assert value(said, "evenkeel_jobs_ended_total", state="cancelled") == 1
    assert value(said, "evenkeel_gpus", type="k1", state="held") == 4
    assert value(said, "evenkeel_gpus", type="k1", state="drained") == 2
    assert value(said, "evenkeel_gpu_allocation_ratio") == 1
    assert value(said, "evenkeel_wait_seconds", quantile="0.9") == 12.0
    assert value(said, "evenkeel_oldest_wait_seconds") > 0
    assert value(said, "evenkeel_round_seconds_count") == 1
    assert value(said, "evenkeel_round_seconds_sum") > 0
    assert value(said, "evenkeel_slowdown_variance") == 0
    assert value(said, "evenkeel_open_commands", verb=Command.Verb.LAUNCH.value) == len(world.open_commands())
    assert value(said, "evenkeel_policy_info", policy="f_scheduling") == 1
    world.round()
    assert value(scrape(), "evenkeel_round_seconds_count") == 2
    assert second.number


def test_an_empty_cluster_has_zeros_and_not_gaps() -> None:
    World()
    said = scrape()
    for state in ("queued", "starting", "running", "rescaling"):
        assert value(said, "evenkeel_jobs", state=state) == 0
    assert value(said, "evenkeel_oldest_wait_seconds") == 0
    assert value(said, "evenkeel_gpus", type="k1", state="held") == 0


def test_waits_are_those_of_the_last_hour() -> None:
    world = World()
    job = world.submit()
    world.train(job)
    Run.objects.filter(job=job).update(first_started_at=timezone.now() - timedelta(hours=2))
    assert not [key for key in scrape() if key[0] == "evenkeel_wait_seconds"]


def test_the_number_of_queries_does_not_grow_with_jobs(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    world = World()
    for _ in range(20):
        world.submit()
    with django_assert_max_num_queries(16):
        scrape()


def test_nobody_else_may_read_it(settings: Any) -> None:
    world = World()
    root = User.objects.create_superuser("root@example.org", "x")

    def status(client: Client, **headers: str) -> int:
        return client.get("/metrics", headers=headers).status_code

    assert status(Client()) == 401
    assert status(Client(), Authorization="Bearer wrong") == 401
    member, admin = Client(), Client()
    member.force_login(world.user)
    admin.force_login(root)
    assert (status(member), status(admin)) == (403, 200)
    token = create_token(user=root, name="t", scopes=ALL_SCOPES)[1]
    assert status(Client(), Authorization=f"Bearer {token}") == 200
    settings.EVENKEEL_METRICS_TOKEN = ""
    assert status(Client(), Authorization="Bearer ") == 401
    assert status(Client(), Authorization=f"Bearer {TOKEN}") == 401


def test_the_example_dashboard_asks_for_what_there_is() -> None:
    world = World()
    world.train(world.submit())
    there = {name for name, _ in scrape()}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel.get("targets", [])
        for name in re.findall(r"evenkeel_\w+", target["expr"])
    }
    assert asked
    assert asked <= there
