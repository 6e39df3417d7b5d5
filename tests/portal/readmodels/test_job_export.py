"""The list of jobs as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any

import pytest
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext

from accounts.models import Membership, Project, User
from accounts.tokens import create_token
from portal.api.jobs import export
from portal.jobs.access import visible_jobs
from portal.jobs.models import Job
from tests.portal.api_calls import Api
from tests.portal.world import World


def lines(user: User, query: str = "") -> list[dict[str, str]]:
    token = create_token(user=user, name="csv")[1]

    async def fetch() -> str:
        headers = {"Authorization": f"Bearer {token}"}
        response: Any = await AsyncClient().get(f"/api/v1/jobs/export?{query}", headers=headers)
        assert response.status_code == 200
        assert response["Content-Type"] == "text/csv; charset=utf-8"
        return "".join([part.decode() async for part in response])

    return list(csv.DictReader(io.StringIO(asyncio.run(fetch()))))


@pytest.mark.django_db(transaction=True)
def test_it_has_what_the_list_with_the_same_filters_has(world: World) -> None:
    running = world.submit(name="night", labels={"sweep": "7", "seed": "1"})
    world.train(running)
    waiting = world.submit(labels={"sweep": "7"})
    world.submit()
    found = lines(world.user, "label=sweep:7&ordering=number")
    assert [int(line["number"]) for line in found] == [running.number, waiting.number]
    first = found[0]
    assert (first["name"], first["project"], first["owner"]) == ("night", "vision", "ana@example.org")
    assert (first["state"], first["labels"], first["gpus_held"]) == ("running", "seed=1 sweep=7", "4")
    assert found[1]["gpus_held"] == "0"
    assert [int(line["number"]) for line in lines(world.user, "state=running")] == [running.number]


@pytest.mark.django_db(transaction=True)
def test_batches_follow_each_other_up_to_the_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [world.submit().number for _ in range(7)]
    monkeypatch.setattr(export, "_BATCH", 3)
    assert [int(line["number"]) for line in lines(world.user)] == made[::-1]
    assert [int(line["number"]) for line in lines(world.user, "ordering=number")] == made
    monkeypatch.setattr(export, "MAX_ROWS", 5)
    assert [int(line["number"]) for line in lines(world.user)] == made[:1:-1]


@pytest.mark.django_db(transaction=True)
def test_nobody_gets_jobs_of_other_projects_or_a_formula(world: World) -> None:
    speech = Project.objects.create(key="speech", name="Speech")
    world.submit(name="=cmd()", labels={"a": "@x"})
    hidden = world.submit()
    Job.objects.filter(pk=hidden.pk).update(project=speech)
    found = lines(world.user)
    assert [line["name"] for line in found] == ["'=cmd()"]
    assert lines(User.objects.create_user("eve@example.org", "x")) == []


@pytest.mark.django_db
def test_wrong_filters_and_unknown_projects_are_refused_before_anything_is_sent(world: World) -> None:
    api = Api(world.user)
    assert api.get("jobs/export?stat=queued").fields == ["stat"]
    assert api.get("jobs/export?cursor=n5").fields == ["cursor"]
    assert api.get("jobs/export?project=nowhere").status == 404
    assert Api().get("jobs/export").status == 401


@pytest.mark.django_db
def test_statements_of_a_batch_do_not_grow_with_its_rows(world: World, django_assert_num_queries: Any) -> None:
    member = User.objects.create_user("max@example.org", "x")
    Membership.objects.create(project=world.project, user=member)
    world.submit()
    now = world.submit().submitted_at
    rows = visible_jobs(member)
    with CaptureQueriesContext(connection) as few:
        assert export._batch(rows.all(), None, 100, True, now)[2] == 2
    for _ in range(10):
        world.submit()
    with django_assert_num_queries(len(few)):
        assert export._batch(rows.all(), None, 100, True, now)[2] == 12
