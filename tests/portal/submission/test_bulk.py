"""One act on many jobs."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import AuditEntry, Membership, Project, Quota, User
from portal.jobs.models import Job
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def bulk(api: Api, action: str, ids: Any = None, **body: Any) -> Any:
    return api.post("jobs/bulk", {"action": action} | ({"ids": ids} if ids is not None else {}) | body)


def test_each_job_has_its_own_result(world: World, api: Api) -> None:
    done, waiting, third = world.submit(), world.submit(), world.submit()
    world.train(done)
    world.gone(done, "done", step=1000)
    answer = bulk(api, "cancel", [done.number, str(waiting.pk), 999_999, "nonsense", third.number, waiting.number]).json
    assert [(r["id"], r["number"], r["status"]) for r in answer["results"]] == [
        (str(done.number), done.number, 409),
        (str(waiting.pk), waiting.number, 200),
        ("999999", None, 404),
        ("nonsense", None, 404),
        (str(third.number), third.number, 200),
        (str(waiting.number), waiting.number, 200),
    ]
    assert (answer["succeeded"], answer["refused"]) == (3, 3)
    assert world.state(waiting) is State.CANCELLED
    assert "ended" in answer["results"][0]["detail"]


def test_every_action(world: World, api: Api) -> None:
    jobs = [world.submit(labels={"a": "1"}) for _ in range(3)]
    ids = [job.number for job in jobs]
    assert bulk(api, "hold", ids).json["succeeded"] == 3
    assert Job.objects.filter(hold_kind="user").count() == 3
    assert bulk(api, "release", ids).json["succeeded"] == 3
    assert Job.objects.filter(hold_kind="").count() == 3
    assert bulk(api, "label", ids, labels={"a": None, "b": "2"}).json["succeeded"] == 3
    assert {tuple(job.labels.items()) for job in Job.objects.all()} == {(("b", "2"),)}
    made = bulk(api, "resubmit", ids, changes={"total_steps": 77}).json["results"]
    assert {result["status"] for result in made} == {201}
    assert set(Job.objects.filter(total_steps=77).values_list("number", flat=True)) == {r["made"] for r in made}
    wrong = bulk(api, "resubmit", ids, changes={"total_steps": 0}).json
    assert wrong["refused"] == 3
    assert "total_steps" in wrong["results"][0]["detail"]


def test_a_filter_takes_what_its_list_shows(world: World, api: Api) -> None:
    mine, other = world.submit(labels={"sweep": "7"}), world.submit(labels={"sweep": "8"})
    answer = bulk(api, "cancel", filter={"label": ["sweep:7"], "state": ["queued"]}).json
    assert [result["number"] for result in answer["results"]] == [mine.number]
    assert world.state(other) is not State.CANCELLED
    assert bulk(api, "cancel", filter={"search": "nothing is called so"}).json["results"] == []


def test_more_than_a_thousand_are_refused(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bulk(api, "cancel", list(range(1_001))).fields == ["ids"]
    monkeypatch.setattr("portal.api.jobs.bulk.MAX_JOBS", 2)
    for _ in range(3):
        world.submit()
    assert bulk(api, "cancel", filter={}).fields == ["filter"]
    assert not Job.objects.filter(run__state=State.CANCELLED).exists()


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "ids": [1], "filter": {}},
        {"action": "delete", "ids": [1]},
        {"action": "label", "ids": [1]},
        {"action": "cancel", "ids": [1], "labels": {"a": "1"}},
        {"action": "hold", "ids": [1], "changes": {}},
        {"action": "cancel", "filter": {"stat": ["queued"]}},
        {"action": "cancel", "filter": {}},
        {"action": "cancel", "ids": [-1]},
        {"action": "cancel", "ids": [{}]},
    ],
)
def test_what_is_not_understood_is_refused_as_a_whole(world: World, api: Api, body: dict[str, Any]) -> None:
    job = world.submit()
    assert api.post("jobs/bulk", body).status == 400
    assert world.state(job) is not State.CANCELLED


def test_access_is_looked_at_job_by_job(world: World) -> None:
    project = Project.objects.create(key="speech", name="Speech")
    user = User.objects.create_user("max@example.org", "x")
    Membership.objects.create(project=project, user=user)
    Membership.objects.create(project=world.project, user=user, role=Membership.Role.VIEWER)
    secret = Project.objects.create(key="secret", name="Secret")
    read_only = world.submit()
    own = world.submit(project="speech", user=user)
    hidden = world.submit()
    Job.objects.filter(pk=hidden.pk).update(project=secret)
    answer = bulk(Api(user), "cancel", [read_only.number, own.number, hidden.number, str(hidden.pk), 10**9]).json
    assert [result["status"] for result in answer["results"]] == [403, 200, 404, 404, 404]
    unseen, nowhere = answer["results"][2], answer["results"][4]
    assert {**unseen, "id": ""} == {**nowhere, "id": ""}
    refused = bulk(Api(user), "hold", filter={"project": "secret"})
    assert (refused.status, refused.fields) == (404, ["filter.project"])
    assert refused.text == bulk(Api(user), "hold", filter={"project": "nowhere"}).text
    assert bulk(Api(), "cancel", [own.number]).status == 401


def test_one_entry_says_what_was_done(world: World, api: Api) -> None:
    first, second = world.submit(), world.submit()
    bulk(api, "hold", [first.number, second.number, 10**9])
    entry = AuditEntry.objects.get(action="jobs.hold")
    assert entry.detail == {"jobs": [first.number, second.number], "refused": 1, "filter": None}
    assert (entry.actor, entry.target) == (world.user, "2 jobs")
    bulk(api, "cancel", [10**9])
    assert not AuditEntry.objects.filter(action="jobs.cancel").exists()


def test_a_mistyped_condition_is_told_which_there_are(api: Api) -> None:
    refused = bulk(api, "cancel", filter={"lable": ["a=1"]})
    assert "did you mean label?" in refused.json["errors"][0]["message"]


def test_a_repeated_resubmission_makes_no_second_job(world: World, api: Api) -> None:
    first, second = world.submit(), world.submit()
    made = bulk_again(api, [first.number, second.number]).json["results"]
    assert [result["status"] for result in made] == [201, 201]
    again = bulk_again(api, [first.number, second.number]).json["results"]
    assert [(result["status"], result["made"]) for result in again] == [(200, result["made"]) for result in made]
    assert Job.objects.count() == 4
    other = bulk_again(api, [first.number], changes={"total_steps": 7}).json["results"]
    assert [result["status"] for result in other] == [409]
    assert api.post("jobs/bulk", {"action": "cancel", "ids": [1]}, Idempotency_Key="a b").fields == ["Idempotency-Key"]


def bulk_again(api: Api, ids: list[int], **body: Any) -> Any:
    return api.post("jobs/bulk", {"action": "resubmit", "ids": ids} | body, Idempotency_Key="k")


def test_a_limit_refuses_the_one_job_that_it_is_met_at(world: World, api: Api) -> None:
    first, second = world.submit(), world.submit()
    Quota.objects.create(project=world.project, kind="queued_jobs", limit=3, hard=True)
    results = bulk(api, "resubmit", [first.number, second.number]).json["results"]
    assert [result["status"] for result in results] == [201, 409]
    assert "limit" in results[1]["detail"]
