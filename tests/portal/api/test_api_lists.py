"""Pages, filters, parameters and problems, which are alike everywhere."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from accounts.models import User
from portal.jobs.models import Job, ModelType
from scheduling.lifecycle import COARSE_STATES
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def follow(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.path.removeprefix('/api/v1/')}?{parts.query}"


def numbers(api: Api, query: str) -> list[int]:
    answer = api.get(f"jobs?{query}")
    assert answer.status == 200, answer.text
    return [job["number"] for job in answer.json["results"]]


@pytest.mark.parametrize("ordering", ["-number", "number"])
def test_pages_follow_each_other_there_and_back(world: World, api: Api, ordering: str) -> None:
    made = [world.submit().number for _ in range(7)]
    expected = made if ordering == "number" else made[::-1]
    seen, query, pages = [], f"jobs?limit=3&ordering={ordering}", []
    while True:
        page = api.get(query).json
        pages.append([job["number"] for job in page["results"]])
        seen += pages[-1]
        if page["next"] is None:
            break
        query = follow(page["next"])
    assert seen == expected
    back = []
    while page["previous"]:
        page = api.get(follow(page["previous"])).json
        back.append([job["number"] for job in page["results"]])
    assert back == [pages[1], pages[0]]


def test_rows_that_come_in_do_not_shift_a_page(world: World, api: Api) -> None:
    made = [world.submit().number for _ in range(4)]
    first = api.get("jobs?limit=2").json
    world.submit()
    assert [job["number"] for job in api.get(follow(first["next"])).json["results"]] == [made[1], made[0]]


def test_an_empty_list_has_no_links(api: Api) -> None:
    assert api.get("jobs").json == {"next": None, "previous": None, "results": []}
    assert api.get("jobs?cursor=n5").json["results"] == []


def test_filters_by_what_people_say(world: World, api: Api) -> None:
    running = world.submit(name="ResNet night", labels={"team": "a", "sweep": "3"})
    world.train(running)
    queued = world.submit(name="100% üblich", labels={"team": "b"})
    ended = world.submit()
    api.post(f"jobs/{ended.number}/cancel")
    eve = User.objects.create_user("eve@example.org", "x", is_superuser=True)
    other = world.submit(user=eve)
    cases = {
        "state=running": [running],
        "state=queued,cancelled": [other, ended, queued],
        "state=queued&state=cancelled": [other, ended, queued],
        "state=rescaling": [],
        "owner=me": [ended, queued, running],
        "owner=EVE@example.org": [other],
        "search=resnet": [running],
        "search=%25": [queued],
        f"search=%23{queued.number}": [queued],
        "search=ÜBLICH": [queued],
        "label=team=a": [running],
        "label=team": [queued, running],
        "label=team=a&label=sweep=3": [running],
        "label=team=a&label=sweep=4": [],
        "project=vision&state=running": [running],
    }
    for query, expected in cases.items():
        assert numbers(api, query) == [job.number for job in expected], query


def test_labels_are_found_by_either_sign_and_by_their_text(world: World, api: Api) -> None:
    first = world.submit(labels={"team": "speech", "at": "10:30"})
    second = world.submit(labels={"team": "vision=a"})
    cases = {
        "label=team:speech": [first],
        "label=team=speech": [first],
        "label=at:10:30": [first],
        "label=team:vision=a": [second],
        "label=team:vision": [],
        "label=team&label=at": [first],
        "search=SPEECH": [first],
        "search=team": [second, first],
    }
    for query, expected in cases.items():
        assert numbers(api, query) == [job.number for job in expected], query


def test_filters_by_time_program_and_hold(world: World, api: Api) -> None:
    ModelType.objects.create(name="tiny", title="Tiny", argv=["tiny"])
    old, held = world.submit(), world.submit()
    Job.objects.filter(pk=old.pk).update(submitted_at="2026-01-02T00:00:00Z")
    api.post(f"jobs/{held.number}/hold")
    tiny = api.post("jobs", {"model_type": "tiny", "project": "vision", "total_steps": 5}).json["number"]
    cases = {
        "submitted_to_at=2026-01-02T00:00:01Z": [old.number],
        "submitted_from_at=2026-01-02T00:00:01Z": [tiny, held.number],
        "submitted_from_at=2026-01-02T00:00:00Z&submitted_to_at=2026-01-02T00:00:00Z": [],
        "model_type=tiny": [tiny],
        "on_hold=true": [held.number],
        "on_hold=false": [tiny, old.number],
    }
    for query, expected in cases.items():
        assert numbers(api, query) == expected, query
    api.post(f"jobs/{held.number}/cancel")
    assert numbers(api, "on_hold=true") == []
    assert api.get("jobs?submitted_to_at=yesterday").fields == ["submitted_to_at"]


def test_a_filtered_list_costs_the_same_for_few_and_many_jobs(
    world: World, api: Api, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    query = "jobs?label=a:1&search=1&state=queued&on_hold=true&submitted_from_at=2026-01-01T00:00:00Z"
    source = world.submit()

    def add() -> None:
        job = world.submit(labels={"a": "1"})
        api.post(f"jobs/{job.number}/hold")
        Job.objects.filter(pk=job.pk).update(resubmit_of=source)

    add()
    api.get(query)
    with django_assert_max_num_queries(25) as few:
        assert len(api.get(query).json["results"]) == 1
    statements = len(few)  # now: the next request begins a new log
    assert statements > 3
    for _ in range(20):
        add()
    with django_assert_num_queries(statements):
        assert len(api.get(query).json["results"]) == 21


def test_every_state_can_be_filtered_by(world: World, api: Api) -> None:
    for word in COARSE_STATES:
        assert api.get(f"jobs?state={word}").status == 200
    assert api.get("jobs?state=RUNNING").fields == ["state.0"]


@pytest.mark.parametrize(
    ("query", "field", "hint"),
    [
        ("stat=queued", "stat", "state"),
        ("page_size=3", "page_size", "there are"),
        ("limit=0", "limit", ""),
        ("limit=201", "limit", ""),
        ("limit=x", "limit", ""),
        ("limit=1&limit=2", "limit", "more than once"),
        ("cursor=zzz", "cursor", ""),
        ("cursor=n" + "9" * 19, "cursor", ""),
        ("ordering=spec", "ordering", ""),
        ("search=%00", "search", "control"),
        ("owner=%00", "owner", "control"),
        ("label=%00", "label.0", "control"),
        ("label==x", "label.0", "key=value"),
        ("project=" + "x" * 300, "project", ""),
        ("%00=1", "?", ""),
    ],
)
def test_wrong_parameters_are_named(api: Api, query: str, field: str, hint: str) -> None:
    refused = api.get(f"jobs?{query}")
    assert (refused.status, refused.fields) == (400, [field])
    assert hint in refused.json["errors"][0]["message"]


@pytest.mark.parametrize("path", ["session", "jobs/1", "nodes", "policy", "model-types", "live/cluster"])
def test_parameters_are_refused_where_there_are_none(world: World, api: Api, path: str) -> None:
    refused = api.get(f"{path}?verbose=1")
    assert (refused.status, refused.fields) == (400, ["verbose"])


@pytest.mark.parametrize("reference", ["0", "99999999999999999999", "-1", "x", "%00", "1e3", "٣", "🚂", "a" * 3000])
def test_a_reference_to_no_job_is_404(api: Api, reference: str) -> None:
    assert api.get(f"jobs/{reference}").status == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "/api/v1/nothing", 404), ("get", "/api/", 404), ("get", "/api/v2/jobs", 404),
        ("get", "/api/v1/jobs/", 404),
        ("patch", "/api/v1/jobs", 405), ("put", "/api/v1/session", 405), ("get", "/api/v1/jobs/1/cancel", 405),
        ("post", "/api/v1/nothing", 404), ("get", "/api/v1/runs/x/reports", 404), ("delete", "/api/v1/tokens/x", 404),
    ],
)  # fmt: skip
def test_addresses_that_are_none_are_problems_too(api: Api, method: str, path: str, status: int) -> None:
    response = getattr(Client(enforce_csrf_checks=True), method)(path, headers=api.headers)
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_a_strange_host_is_a_problem(settings: object) -> None:
    response = Client().get("/api/v1/session", headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"


def test_a_bug_is_a_problem_without_its_traceback(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("portal.api.jobs.jobs.describe_jobs", broken)
    response = api.client.get("/api/v1/jobs", headers=api.headers)
    assert response.status_code == 500
    assert response["Content-Type"] == "application/problem+json"
    assert "secret" not in response.content.decode()
    assert "secret detail" in caplog.text


def test_a_database_that_is_away_is_503(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(*args: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("portal.api.jobs.jobs.describe_jobs", away)
    response = api.client.get("/api/v1/jobs", headers=api.headers)
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert Job.objects.count() == 0
