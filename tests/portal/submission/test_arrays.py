"""Arrays of jobs: asked for, limited, named, shown and cancelled as one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from accounts.models import Membership, Project, Quota, User
from portal.execution.launch_request import launch_request
from portal.jobs.models import Job, JobArray, JobEvent
from portal.snapshot.take import take_snapshot
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FILE: dict[str, Any] = {"command": "train", "project": "vision", "total_steps": 1000, "gpus": {"max": 1}}


def submit(api: Api, array: Any, **keys: Any) -> JobArray:
    made = api.post("jobs", FILE | {"array": array} | keys)
    assert made.status == 201, made.json
    return JobArray.objects.get(number=made.json["array"]["number"])


def members(array: JobArray) -> list[Job]:
    return list(array.jobs.order_by("array_index"))


def test_one_job_is_made_for_each_index(api: Api) -> None:
    array = submit(api, "1-5:2,9%2")
    assert [job.array_index for job in members(array)] == [1, 3, 5, 9]
    assert (array.size, array.first_index, array.max_running) == (4, 1, 2)
    numbers = [array.number, *(job.number for job in members(array))]
    assert len(set(numbers)) == 5
    assert JobEvent.objects.filter(kind="submitted").count() == 4


def test_no_more_of_its_jobs_hold_gpus_than_it_says(world: World, api: Api) -> None:
    array = submit(api, "0-3%2")
    world.round()
    held = [world.gpus(job) for job in members(array)]
    assert sorted(held) == [0, 0, 1, 1]
    waiting = [world.run(job) for job in members(array) if not world.gpus(job)]
    assert {run.reason_token for run in waiting} == {"quota_jobs"}
    assert f"Array #{array.number} may have 2 jobs running" in waiting[0].reason_text
    assert api.patch(f"arrays/{array.number}", {"max_running": None}).json["max_running"] is None
    world.round()
    assert [world.gpus(job) for job in members(array)] == [1, 1, 1, 1]


def test_a_job_finds_its_place_in_its_environment(world: World, api: Api) -> None:
    array = submit(api, "3,7")
    world.round()
    for job in members(array):
        run = world.run(job)
        env = launch_request(run, run.epoch).env
        assert env["EVENKEEL_ARRAY_ID"] == str(array.number)
        assert (env["EVENKEEL_ARRAY_INDEX"], env["EVENKEEL_ARRAY_SIZE"]) == (str(job.array_index), "2")


def test_a_job_is_also_named_by_array_and_index(api: Api) -> None:
    array = submit(api, "0-2")
    wanted = members(array)[1]
    found = api.get(f"jobs/{array.number}_1").json
    assert found["number"] == wanted.number
    assert found["array"] == {"number": array.number, "index": 1, "size": 3}
    assert api.get(f"jobs/{array.number}_9").status == 404
    results = api.post("jobs/bulk", {"action": "hold", "ids": [f"{array.number}_2"]}).json["results"]
    assert [row["status"] for row in results] == [200]


def test_it_is_cancelled_as_one(world: World, api: Api) -> None:
    array = submit(api, "0-3%1")
    world.round()
    world.gone(members(array)[0], "done", step=1000)
    answer = api.post(f"arrays/{array.number}/cancel", {}).json
    assert answer["cancelled"] == 3
    assert answer["array"]["states"] == {"succeeded": 1, "cancelled": 3}
    assert answer["array"]["ended"]
    assert {world.state(job) for job in members(array)[1:]} == {State.CANCELLED}
    assert api.post(f"arrays/{array.number}/cancel", {}).json["cancelled"] == 0


def test_a_list_shows_it_as_one(api: Api) -> None:
    array = submit(api, "4-6")
    alone = api.post("jobs", FILE).json["number"]
    first = members(array)[0].number
    assert [row["number"] for row in api.get("jobs?arrays=first").json["results"]] == [alone, first]
    assert len(api.get("jobs").json["results"]) == 4
    assert {row["array"]["index"] for row in api.get(f"jobs?array={array.number}").json["results"]} == {4, 5, 6}
    (row,) = api.get("arrays").json["results"]
    assert (row["number"], row["first_job"], row["states"]) == (array.number, first, {"queued": 3})


def test_it_costs_what_its_jobs_cost(world: World, api: Api) -> None:
    array = submit(api, "0-2%2")
    assert api.get(f"arrays/{array.number}").json["cost"]["so_far"] == "0.000000"
    world.round()
    ended, running, waiting = members(array)
    for job in (ended, running):
        world.train(job)
    world.gone(ended, "done", step=1000)
    before = Decimal(api.get(f"arrays/{array.number}").json["cost"]["so_far"])
    alone = [Decimal(api.get(f"jobs/{job.number}/cost").json["so_far"]) for job in (ended, running, waiting)]
    after = Decimal(api.get(f"arrays/{array.number}").json["cost"]["so_far"])
    assert before <= sum(alone) <= after
    assert min(alone[:2]) > 0


def test_bulk_acts_reach_it(world: World, api: Api) -> None:
    array = submit(api, "0-2")
    assert api.post("jobs/bulk", {"action": "hold", "filter": {"array": array.number}}).json["succeeded"] == 3
    world.round()
    assert all(world.gpus(job) == 0 for job in members(array))


def test_a_resubmitted_job_keeps_its_index(api: Api) -> None:
    array = submit(api, "0-7")
    made = api.post(f"jobs/{array.number}_5/resubmit", {"name": "again"}).json
    assert made["array"]["index"] == 5
    assert made["array"]["size"] == 1
    assert made["array"]["number"] != array.number


def test_a_job_can_wait_for_all_of_it(world: World, api: Api) -> None:
    array = submit(api, "0-1")
    after = api.post("jobs", FILE | {"dependencies": [{"type": "afterok", "job": array.number}]}).json["number"]
    job = Job.objects.get(number=after)
    for member in members(array):
        world.round()
        assert world.gpus(job) == 0
        world.gone(member, "done", step=1000)
    world.round()
    assert world.gpus(job) == 1


def test_the_same_key_makes_it_once(world: World) -> None:
    api = Api(world.user)
    first = api.post("jobs", FILE | {"array": "0-2"}, idempotency_key="k")
    again = api.post("jobs", FILE | {"array": "0-2"}, idempotency_key="k")
    assert (first.status, again.status, first.json["number"]) == (201, 200, again.json["number"])
    assert Job.objects.count() == 3


@pytest.mark.parametrize(
    ("kind", "limit", "array", "said"),
    [
        ("gpus", 8, "0-3", "these 4 jobs need 8 more"),
        ("queued_jobs", 5, "0-4", "these are 5 jobs more"),
        ("running_jobs", 5, "0-4", "these are 5 jobs more"),
    ],
)
def test_hard_limits_count_all_of_its_jobs(world: World, kind: str, limit: int, array: str, said: str) -> None:
    Quota.objects.create(project=world.project, kind=kind, limit=limit, hard=True)
    api = Api(world.user)
    gpus = {"gpus": {"min": 2, "max": 2}}
    assert api.post("jobs", FILE | gpus).status == 201
    refused = api.post("jobs", FILE | gpus | {"array": array})
    assert refused.status == 409
    assert said in refused.json["detail"]
    assert Job.objects.count() == 1
    assert not JobArray.objects.exists()


@pytest.mark.parametrize(
    "array", ["", "3-1", "0-1000", "0,0", "a", "0-3%0", "0-10:0", {"indices": "0-3", "at_once": 2}, [1, 2]]
)
def test_what_cannot_be_an_array_is_refused(api: Api, array: Any) -> None:
    answer = api.post("jobs", FILE | {"array": array})
    assert answer.status == 400
    assert answer.json["errors"][0]["field"].startswith("array")
    assert not Job.objects.exists()


def test_others_see_nothing_of_it(world: World, api: Api) -> None:
    array = submit(api, "0-1")
    other = User.objects.create_user("eve@example.org", "correct horse battery")
    Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=other)
    eve = Api(other)
    assert eve.get(f"arrays/{array.number}").status == 404
    assert eve.get(f"jobs/{array.number}_0").status == 404
    assert eve.get("arrays").json["results"] == []
    refused = eve.post("jobs", FILE | {"project": "speech", "dependencies": [{"type": "afterok", "job": array.number}]})
    assert refused.status == 400


def test_a_thousand_jobs_are_one_submission(api: Api, django_assert_max_num_queries: Any, world: World) -> None:
    with django_assert_max_num_queries(40):
        submit(api, "0-999")
    assert Job.objects.count() == 1000
    view = take_snapshot(world.cluster, Job.objects.earliest("submitted_at").submitted_at)
    assert len(view.snapshot.jobs) == 1000
