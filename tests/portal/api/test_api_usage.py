"""Usage: what is summed, who sees it, pages and CSV; and that it is the ledger."""

from __future__ import annotations

import asyncio
import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db.models import Sum
from django.test import AsyncClient

from accounts import ledger, usage
from accounts.models import LedgerEntry, Membership, Project, Rate, UsageDay, User
from accounts.tokens import create_token
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
START = datetime(2026, 3, 30, 22, tzinfo=UTC)
RANGE = "from_day=2026-03-01&to_day=2026-04-30"


@pytest.fixture
def world() -> World:
    world = World()
    Rate.objects.create(
        accelerator_type="k2", price_micro_per_hour=2_000_000, valid_from=datetime(2020, 1, 1, tzinfo=UTC)
    )
    return world


def hold(project: Project, user: User | None, number: int, hours: float, kind: str = "k1") -> None:
    """Held from two hours before the end of 30 March."""
    job = UUID(int=number)
    end = START + timedelta(hours=hours)
    user_id = user.pk if user else None
    ledger.record_holds([ledger.Held(project.pk, user_id, job, job, number, kind, START, end)])


@pytest.fixture
def used(world: World) -> World:
    """Vision under Lab, and a project of others."""
    top, other = (Project.objects.create(key=key, name=key.title()) for key in ("lab", "else"))
    Project.objects.filter(pk=world.project.pk).update(parent=top)
    boss = User.objects.create_user("boss@example.org", "x", first_name="Boss")
    Membership.objects.create(project=top, user=boss, role="manager")
    hold(world.project, world.user, 1, 4)
    hold(world.project, world.user, 2, 30, "k2")
    hold(top, boss, 3, 1, "k2")
    hold(other, None, 4, 100)
    return world


def rows(api: Api, **query: str) -> list[tuple[str, int, float, str]]:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    found = api.get(f"usage?{RANGE}&{text}")
    assert found.status == 200, found.text
    return [(row["key"], row["jobs"], row["gpu_hours"], row["cost"]) for row in found.json["results"]]


def test_a_project_counts_its_subtree(used: World) -> None:
    boss = Api(User.objects.get(email="boss@example.org"))
    assert rows(boss) == [("lab", 3, 35.0, "66.938268"), ("vision", 2, 34.0, "64.938268")]
    assert rows(Api(used.user)) == [("vision", 2, 34.0, "64.938268")]


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        ("user", [("ana@example.org", 2, 34.0, "64.938268"), ("boss@example.org", 1, 1.0, "2.000000")]),
        ("type", [("k2", 2, 31.0, "62.000000"), ("k1", 1, 4.0, "4.938268")]),
        (
            "day",
            [
                ("2026-04-01", 1, 4.0, "8.000000"),
                ("2026-03-31", 2, 26.0, "50.469134"),
                ("2026-03-30", 3, 5.0, "8.469134"),
            ],
        ),
        ("month", [("2026-04", 1, 4.0, "8.000000"), ("2026-03", 3, 31.0, "58.938268")]),
    ],
)
def test_it_is_grouped(used: World, group_by: str, expected: list[Any]) -> None:
    assert rows(Api(User.objects.get(email="boss@example.org")), group_by=group_by) == expected


def test_others_usage_is_never_seen(used: World) -> None:
    api = Api(used.user)
    for group_by in ("project", "user", "day", "month", "type"):
        assert sum(float(row[3]) for row in rows(api, group_by=group_by)) == pytest.approx(64.938268)
    assert api.get(f"usage?{RANGE}&project=else").status == 404
    assert api.get(f"usage?{RANGE}&project=lab").status == 404
    assert api.get(f"usage?{RANGE}&project=no-such").status == 404
    assert rows(api, user="boss@example.org") == rows(api, user="nobody@example.org") == []
    assert rows(Api(User.objects.create_user("eve@example.org", "x"))) == []
    assert Api().get("usage").status == 401


def test_what_is_held_now_counts_until_now(world: World) -> None:
    job = world.submit(gpus={"max": 2})
    world.train(job)
    api = Api(world.user)
    (row,) = api.get("usage?group_by=job").json["results"]
    assert (row["key"], row["label"], row["jobs"]) == (str(job.number), "command", 1)
    assert float(row["cost"]) > 0
    world.gone(job, "done", step=1000)
    (row,) = api.get("usage?group_by=job").json["results"]
    assert Decimal(row["cost"]) == Decimal(api.get(f"jobs/{job.number}/cost").json["so_far"])


def test_pages_are_bounded_and_lead_on(used: World) -> None:
    api = Api(User.objects.get(email="boss@example.org"))
    first = api.get(f"usage?{RANGE}&group_by=day&limit=2").json
    assert [row["key"] for row in first["results"]] == ["2026-04-01", "2026-03-31"]
    second = api.get(first["next"].split("/api/v1/")[1]).json
    assert [row["key"] for row in second["results"]] == ["2026-03-30"]
    assert second["next"] is None
    assert "cursor=n0" in second["previous"]
    assert api.get("usage?limit=1000").status == 400
    assert api.get("usage?from_day=2026-05-01&to_day=2026-04-01").fields == ["from_day"]
    assert api.get("usage?group_by=colour").status == 400


def test_queries_do_not_grow_with_rows(used: World, django_assert_max_num_queries: Any) -> None:
    api = Api(User.objects.create_superuser("root@example.org", "x"))
    for number in range(10, 60):
        hold(used.project, used.user, number, 1)
    with django_assert_max_num_queries(20):
        api.get(f"usage?{RANGE}&group_by=user")
        api.get(f"usage?{RANGE}&group_by=day")


@pytest.mark.django_db(transaction=True)
def test_csv_streams_all_rows(used: World) -> None:
    Project.objects.filter(key="vision").update(name="=cmd()")
    token = create_token(user=User.objects.get(email="boss@example.org"), name="csv")[1]

    async def fetch() -> str:
        response: Any = await AsyncClient().get(
            f"/api/v1/usage/export?{RANGE}", headers={"Authorization": f"Bearer {token}"}
        )
        assert response["Content-Type"] == "text/csv; charset=utf-8"
        return "".join([part.decode() async for part in response])

    lines = list(csv.DictReader(io.StringIO(asyncio.run(fetch()))))
    assert [(line["key"], line["cost"], line["gpu_hours_by_type"]) for line in lines] == [
        ("lab", "66.938268", "k1=4.0 k2=31.0"),
        ("vision", "64.938268", "k1=4.0 k2=30.0"),
        ("total", "66.938268", "k1=4.0 k2=31.0"),  # lab's row has vision's in it: nothing is counted twice
    ]
    assert lines[-1]["jobs"] == lines[0]["jobs"]
    assert lines[1]["label"] == "'=cmd()"


def test_the_roll_up_is_the_ledger(used: World) -> None:
    for number in range(100, 120):
        hold(used.project, used.user, number, number / 7, "k2")
    by_job = LedgerEntry.objects.values("job_id").annotate(total=Sum("product")).order_by("job_id")
    rolled = UsageDay.objects.values("job_id").annotate(total=Sum("product")).order_by("job_id")
    assert list(by_job) == list(rolled)
    totals = usage.totals_since(START.date())
    assert sum(money for _, money in totals.values()) == ledger.product_sum(LedgerEntry.objects.all())


def test_a_month_of_the_sites_time_zone(world: World, settings: Any) -> None:
    settings.TIME_ZONE = "Pacific/Auckland"  # Django forgets the old one as this is set, and again as it is set back
    late = datetime(2026, 3, 31, 10, tzinfo=UTC)  # 23:00 there
    job = UUID(int=9)
    ledger.record_holds([ledger.Held(world.project.pk, None, job, job, 9, "k1", late, late + timedelta(hours=3))])
    found = rows(Api(world.user), group_by="month")
    assert [row[0:3] for row in found] == [("2026-04", 1, 2.0), ("2026-03", 1, 1.0)]
