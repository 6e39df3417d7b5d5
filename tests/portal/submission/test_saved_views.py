"""Views of the list of jobs: each has their own."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from portal.jobs.models import SavedView
from portal.submission import saved
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
SWEEP: dict[str, Any] = {
    "name": "Sweep 7",
    "filters": {"state": ["running"], "label": ["sweep:7"], "owner": "me"},
    "ordering": "number",
    "columns": ["state", "cost"],
}


@pytest.fixture
def api() -> Api:
    return Api(World().user)


def test_what_was_saved_comes_back(api: Api) -> None:
    made = api.post("views", SWEEP)
    assert made.status == 201
    assert {key: made.json[key] for key in SWEEP} == SWEEP
    changed = api.put(f"views/{made.json['id']}", {"name": "All of it", "columns": ["gpus", "gpus"]}).json
    assert (changed["name"], changed["filters"], changed["ordering"], changed["columns"]) == (
        "All of it",
        {},
        "-number",
        ["gpus"],
    )
    assert api.get(f"views/{made.json['id']}").json == changed
    assert [view["name"] for view in api.get("views").json["results"]] == ["All of it"]
    assert api.delete(f"views/{made.json['id']}").status == 204
    assert api.get("views").json["results"] == []


def test_filters_are_those_of_the_list(api: Api) -> None:
    for wrong, field in (
        ({"filters": {"stat": ["running"]}}, "filters.stat"),
        ({"filters": {"state": ["bored"]}}, "filters.state.0"),
        ({"ordering": "cost"}, "ordering"),
        ({"columns": ["secret"]}, "columns.0"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 61}, "name"),
    ):
        refused = api.post("views", SWEEP | wrong)
        assert (refused.status, refused.fields) == (400, [field])
    assert not SavedView.objects.exists()


def test_names_are_unique_per_user(api: Api) -> None:
    first = api.post("views", SWEEP).json
    assert api.post("views", SWEEP).status == 409
    other = api.post("views", SWEEP | {"name": "Other"}).json
    taken = api.put(f"views/{other['id']}", SWEEP)
    assert (taken.status, taken.fields) == (409, ["name"])
    assert api.put(f"views/{first['id']}", SWEEP).status == 200
    eve = Api(User.objects.create_user("eve@example.org", "x"))
    assert eve.post("views", SWEEP).status == 201


def test_others_views_are_not_there(api: Api) -> None:
    view = api.post("views", SWEEP).json["id"]
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    assert root.get("views").json["results"] == []
    assert root.get(f"views/{view}").status == 404
    assert root.put(f"views/{view}", SWEEP).status == 404
    assert root.delete(f"views/{view}").status == 404
    assert SavedView.objects.filter(pk=view).exists()


def test_there_are_only_so_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_VIEWS", 1)
    view = api.post("views", SWEEP).json["id"]
    full = api.post("views", SWEEP | {"name": "Another"})
    assert (full.status, full.json["errors"][0]["code"]) == (409, "full")
    assert api.put(f"views/{view}", SWEEP | {"name": "Another"}).status == 200
