"""Job files to begin with: whose they are, who may change them, and that they could be submitted."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import AuditEntry, Membership, Project, User
from portal.jobs.models import JobTemplate
from portal.submission import saved
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FILE: dict[str, Any] = {"command": "train", "total_steps": 100, "gpus": {"max": 4}, "labels": {"a": "1"}}


def person(world: World, role: str) -> Api:
    user = User.objects.create_user(f"{role}@example.org", "x")
    Membership.objects.create(project=world.project, user=user, role=role)
    return Api(user)


def test_what_was_left_open_stays_open(api: Api) -> None:
    made = api.post("templates", {"name": "Night", "file": FILE}).json
    assert made["file"] == FILE
    assert (made["project"], made["author"], made["can_change"]) == (None, "ana@example.org", True)
    assert api.post("jobs", made["file"] | {"project": "vision"}).status == 201
    listed = api.get("templates").json["results"]
    assert [{**row, "file": FILE} for row in listed] == [made]


def test_a_file_is_checked_as_a_submission_is(api: Api) -> None:
    for file, fields in (
        ({"command": "train"}, ["file.total_steps"]),
        (FILE | {"nmae": "x"}, ["file.nmae"]),
        (FILE | {"gpus": {"min": 4, "max": 2}}, ["file.gpus"]),
        (FILE | {"model_type": "resnet50"}, ["file.model_type"]),
    ):
        refused = api.post("templates", {"name": "Night", "file": file})
        assert (refused.status, refused.fields) == (400, fields)
    assert not JobTemplate.objects.exists()


def test_ones_own_are_nobody_elses(world: World, api: Api) -> None:
    mine = api.post("templates", {"name": "Night", "file": FILE}).json["id"]
    manager = person(world, "manager")
    assert manager.get("templates").json["results"] == []
    assert manager.get(f"templates/{mine}").status == 404
    assert manager.delete(f"templates/{mine}").status == 404
    assert manager.post("templates", {"name": "Night", "file": FILE}).status == 201


def test_a_projects_is_for_its_members_and_changed_by_author_and_managers(world: World, api: Api) -> None:
    wish = {"name": "Night", "file": FILE}
    viewer, member, manager = (person(world, role) for role in ("viewer", "member", "manager"))
    stranger = User.objects.create_user("else@example.org", "x")
    shared = api.post("templates", wish | {"project": "vision"}).json["id"]
    can_change = {
        name: [row["can_change"] for row in one.get("templates?project=vision").json["results"]]
        for name, one in {"author": api, "viewer": viewer, "member": member, "manager": manager}.items()
    }
    assert can_change == {"author": [True], "viewer": [False], "member": [False], "manager": [True]}
    assert [one.get(f"templates/{shared}").status for one in (viewer, member)] == [200, 200]
    assert [one.put(f"templates/{shared}", wish).status for one in (viewer, member, manager)] == [403, 403, 200]
    assert [one.delete(f"templates/{shared}").status for one in (viewer, member)] == [403, 403]
    assert viewer.post("templates", wish | {"name": "Mine", "project": "vision"}).status == 403
    outside = Api(stranger)
    assert [outside.get(f"templates/{shared}").status, outside.delete(f"templates/{shared}").status] == [404, 404]
    refused = outside.post("templates", wish | {"project": "vision"})
    assert refused.text == outside.post("templates", wish | {"project": "nowhere"}).text
    assert refused.status == 404
    assert manager.delete(f"templates/{shared}").status == 204
    acts = AuditEntry.objects.filter(action__startswith="template.").order_by("pk").values_list("action", "target")
    assert list(acts) == [("template.create", "vision"), ("template.change", "vision"), ("template.remove", "vision")]


def test_an_author_who_may_only_look_changes_it_no_more(world: World, api: Api) -> None:
    shared = api.post("templates", {"name": "Night", "file": FILE, "project": "vision"}).json["id"]
    Membership.objects.filter(user=world.user).update(role="viewer")
    assert api.delete(f"templates/{shared}").status == 403
    Membership.objects.filter(user=world.user).delete()
    assert api.get(f"templates/{shared}").status == 404


def test_names_are_unique_per_user_and_per_project(api: Api) -> None:
    for more in ({}, {"project": "vision"}):
        assert api.post("templates", {"name": "Night", "file": FILE} | more).status == 201
        taken = api.post("templates", {"name": "Night", "file": FILE} | more)
        assert (taken.status, taken.fields) == (409, ["name"])


def test_there_are_only_so_many(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_TEMPLATES", 1)
    assert api.post("templates", {"name": "One", "file": FILE}).status == 201
    assert api.post("templates", {"name": "Two", "file": FILE}).fields == ["name"]
    assert api.post("templates", {"name": "Two", "file": FILE, "project": "vision"}).status == 201


def test_statements_do_not_grow_with_a_projects_templates(
    world: World, api: Api, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    speech = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=speech, user=world.user)

    def add(count: int) -> None:
        for i in range(count):
            for project in (world.project, speech):
                name = f"t{JobTemplate.objects.count()}-{i}"
                JobTemplate.objects.create(project=project, author=world.user, name=name, file=FILE)

    add(1)
    api.get("templates")
    with django_assert_max_num_queries(20) as few:
        assert len(api.get("templates").json["results"]) == 2
    statements = len(few)
    add(10)
    with django_assert_num_queries(statements):
        assert len(api.get("templates").json["results"]) == 22
