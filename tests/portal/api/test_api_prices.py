"""Rates, discounts and estimates over the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Discount, Membership, Project, Quota, Rate, User
from accounts.rates import set_discount, set_rate
from accounts.services import create_project
from portal.core.times import iso
from portal.jobs.models import Job, Node
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
RATE = {"accelerator_type": "k1", "price_per_hour": "2.5"}
FILE: dict[str, Any] = {"command": "train", "project": "vision", "total_steps": 36_000, "gpus": {"max": 2}}


@pytest.fixture
def boss(world: World) -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


def test_a_price_begins_now_and_ends_the_one_before(world: World, boss: Api) -> None:
    made = boss.post("prices", RATE)
    assert (made.status, made.json["price_per_hour"]) == (201, "2.500000")
    new, old = boss.get("prices?accelerator_type=k1").json["results"]
    assert (old["valid_to_at"], new["valid_to_at"]) == (new["valid_from_at"], None)
    assert AuditEntry.objects.filter(action="rate.set", target="k1").exists()


@pytest.mark.parametrize("days", [-1, -0.00002])
def test_the_past_is_not_priced_anew(world: World, boss: Api, days: float) -> None:
    past = iso(timezone.now() + timedelta(days=days))
    refused = boss.post("prices", RATE | {"valid_from_at": past})
    assert (refused.status, refused.fields) == (409, ["valid_from_at"])
    assert "which is in the past; past use keeps its price" in refused.json["detail"]
    refused = boss.post("discounts", {"project": "vision", "percent": "5", "valid_from_at": past})
    assert (refused.status, refused.fields) == (409, ["valid_from_at"])
    assert (Rate.objects.count(), Discount.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"price_per_hour": "-1"},
        {"price_per_hour": "0.0000001"},
        {"resource": "cpu"},
        {"accelerator_type": None},
        {"accelerator_type": "a b"},
        {"accelerator_type": "titan_px"},  # titan_xp
        {"resource": "disk"},
        {"valid_from_at": "tomorrow"},
    ],
)
def test_a_wrong_price_is_refused(world: World, boss: Api, change: dict[str, Any]) -> None:
    refused = boss.post("prices", RATE | change)
    assert refused.status == 400
    assert refused.fields
    assert Rate.objects.count() == 1


def test_a_type_that_no_node_has_reported_yet_has_a_price(boss: Api) -> None:
    assert boss.post("prices", RATE | {"accelerator_type": "h300"}).status == 201


@pytest.mark.parametrize("role", ["viewer", "member", "manager"])
def test_only_administrators_set_prices(world: World, role: str) -> None:
    Membership.objects.update(role=role)
    api = Api(world.user)
    assert api.post("prices", RATE).status == 403
    assert api.post("discounts", {"project": "vision", "percent": "5"}).status == 403
    assert api.get("prices").status == 200


def test_people_see_discounts_that_are_theirs(world: World, boss: Api) -> None:
    top = Project.objects.create(key="lab", name="Lab")
    Project.objects.create(key="else", name="Else")
    Project.objects.filter(pk=world.project.pk).update(parent=top)
    for key in ("lab", "else"):
        assert boss.post("discounts", {"project": key, "percent": "12.5"}).json["percent"] == "12.50"
    assert [row["project"] for row in Api(world.user).get("discounts").json["results"]] == ["lab"]
    assert boss.post("discounts", {"project": "no-such", "percent": "1"}).status == 404


def test_a_running_jobs_cost_counts_discount_cpus_and_memory(world: World) -> None:
    set_rate(actor=None, resource="cpu", price_micro_per_hour=100_000)
    set_rate(actor=None, resource="memory", price_micro_per_hour=10_000)
    set_discount(actor=None, project=world.project, percent_hundredths=2_500)
    Node.objects.update(memory_mib=4_096)
    job = world.submit(gpus={"max": 2}, cpus=4, memory="2GiB")
    world.train(job)
    cost = Api(world.user).get(f"jobs/{job.number}/cost").json
    assert cost["price"] == {
        "per_gpu_hour": "1.234567",
        "per_cpu_hour": "0.100000",
        "per_gib_hour": "0.010000",
        "discount_percent": "25",
    }
    assert cost["price_per_gpu_hour"] == "0.925925"
    assert cost["price_per_hour"] == "2.166850"  # 0.75 * (2 * 1.234567 + 4 * 0.1 + 2 * 0.01)
    world.gone(job, "done", step=1000)
    ended = Api(world.user).get(f"jobs/{job.number}/cost").json
    assert float(ended["so_far"]) == pytest.approx(sum(map(float, ended["by_resource"].values())), abs=2e-6)
    assert ended["so_far"] == ended["estimated"]


def test_an_estimate_names_price_and_source(world: World) -> None:
    set_discount(actor=None, project=world.project, percent_hundredths=5_000)
    Quota.objects.create(project=world.project, kind="queued_jobs", limit=0, hard=True)
    api = Api(world.user)
    found = api.post("jobs/estimate", FILE | {"throughput": {"k1": [10, 20]}, "cpus": 8}).json
    least, most = found["options"]
    assert (least["gpus"], least["duration_s"], least["amount"]) == (1, 3600, "0.617284")
    assert (most["gpus"], most["duration_s"], most["amount"]) == (2, 1800, "0.617284")
    assert (least["source"], least["price"]["discount_percent"]) == ("user", "50")
    assert "36,000 steps at 10 steps/s (user) on 1 × k1, at 1.234567 USD per GPU-hour less 50 %" in least["basis"]
    assert float(found["low"]) < 0.617284 < float(found["high"])
    assert found["refused_by"] == [
        "The limit of 0 queued jobs on project Vision is reached: 0 in use, and this is one more."
    ]
    assert not Job.objects.exists()


def test_an_estimate_says_whose_discount_it_is(world: World) -> None:
    api = Api(world.user)
    assert api.post("jobs/estimate", FILE).json["discount"] is None
    set_discount(actor=None, project=world.project, percent_hundredths=2_000)
    own = {"percent": "20", "project": "vision", "name": "Vision"}
    assert api.post("jobs/estimate", FILE).json["discount"] == own
    below = create_project(actor=None, key="ocr", name="OCR", parent=world.project)
    Membership.objects.get_or_create(user=world.user, project=below, defaults={"role": "member"})
    assert api.post("jobs/estimate", FILE | {"project": "ocr"}).json["discount"] == own


def limit(world: World, kind: str, most: int, *, hard: bool, **columns: Any) -> Quota:
    return Quota.objects.create(project=world.project, kind=kind, limit=most, hard=hard, **columns)


def test_an_estimate_names_the_soft_limits_that_the_job_would_wait_for(world: World) -> None:
    limit(world, "running_jobs", 0, hard=False)
    limit(world, "gpus", 2, hard=False)
    limit(world, "money", 0, hard=False, period="month")
    api = Api(world.user)
    found = api.post("jobs/estimate", FILE).json
    jobs, money = found["waits_for"]
    assert jobs == "The limit of 0 running jobs on project Vision is reached: 0 in use, and this is one more."
    assert money.startswith(
        "The limit of 0.00 USD per month on project Vision is reached: 0.00 USD used. It starts when"
    )
    assert (found["refused_by"], api.post("jobs", FILE).status) == ([], 201)


def test_an_estimate_counts_all_jobs_of_an_array(world: World) -> None:
    limit(world, "gpus", 2, hard=False)
    array = FILE | {"array": {"indices": "0-2"}}
    found = Api(world.user).post("jobs/estimate", array).json
    text = "The limit of 2 GPUs at once on project Vision has 0 in use, and these 3 jobs need 3 more."
    assert (found["jobs"], found["waits_for"], found["refused_by"]) == (3, [text], [])


@pytest.mark.parametrize("hard", [True, False])
def test_what_an_estimate_says_of_limits_is_what_refuses(world: World, hard: bool) -> None:
    limit(world, "gpus", 1, hard=hard)
    limit(world, "running_jobs", 0, hard=hard)
    api, wide = Api(world.user), FILE | {"gpus": {"min": 2}}
    found, refused = api.post("jobs/estimate", wide).json, api.post("jobs", wide)
    assert found["refused_by"] == [error["message"] for error in refused.json["errors"]]
    assert len(found["refused_by"]) == (2 if hard else 1)  # more than there can ever be is refused by a soft one too
    assert len(found["waits_for"]) == (0 if hard else 1)


def test_an_estimate_locks_no_limit(world: World, django_assert_max_num_queries: Any) -> None:
    limit(world, "gpus", 1, hard=True)
    api = Api(world.user)
    api.post("jobs/estimate", FILE)
    with django_assert_max_num_queries(16) as asked:
        api.post("jobs/estimate", FILE)
    assert not [one for one in asked.captured_queries if "FOR NO KEY UPDATE" in one["sql"]]


def test_of_an_unknown_program_nothing_is_estimated(world: World) -> None:
    found = Api(world.user).post("jobs/estimate", FILE).json
    assert (found["options"], found["low"]) == ([], None)
    assert "Nothing is known" in found["basis"]


@pytest.mark.parametrize(("role", "status"), [("viewer", 400), ("member", 200), (None, 400)])
def test_who_may_submit_may_estimate(world: World, role: str | None, status: int) -> None:
    if role:
        Membership.objects.update(role=role)
    else:
        Membership.objects.all().delete()
    assert Api(world.user).post("jobs/estimate", FILE).status == status
