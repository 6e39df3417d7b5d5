"""Names that changed: every row of `portal.core.renamed`, asked for and answered under both names."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from django.utils import timezone
from pydantic import BaseModel

from accounts.models import User
from portal.api import shapes
from portal.api.deprecated import API, visits_of
from portal.api.jobs.filters import JobsExportQuery, JobsFilter, JobsQuery
from portal.api.schema import document
from portal.api.shapes import base
from portal.api.shapes import live as live_shapes
from portal.core.renamed import ADDRESSES, ANSWERS, INPUTS, OPERATIONS, names_of
from portal.live.streams import build
from tests.cases import in_turn
from tests.portal.api_calls import Api
from tests.portal.things import Things

ANSWER_ROWS = [(shape, old, new) for shape, names in ANSWERS.items() for old, new in names.items()]
DEPRECATION, SUNSET = "@1795824000", "Sun, 28 Nov 2027 00:00:00 GMT"


def all_shapes(kind: type[BaseModel] = base.Shape) -> list[type[BaseModel]]:
    return [kind, *(found for below in kind.__subclasses__() for found in all_shapes(below))]


for _module in pkgutil.iter_modules(shapes.__path__, "portal.api.shapes."):
    importlib.import_module(_module.name)
SHAPES = {shape.__name__: shape for shape in all_shapes()}


@in_turn(("shape", "old", "new"), ANSWER_ROWS)
def test_an_answer_has_both_names_whichever_it_was_stored_under(shape: str, old: str, new: str) -> None:
    visits = visits_of([list[SHAPES[shape]]])  # type: ignore[valid-type]
    present, before = {new: 7, "other": None}, {old: 7}
    for visit in visits:
        visit([present, before])
    assert present == {new: 7, old: 7, "other": None}
    assert before == {old: 7, new: 7}


@in_turn(("shape", "old", "new"), ANSWER_ROWS)
def test_the_document_calls_the_old_member_deprecated(shape: str, old: str, new: str) -> None:
    schemas = document()["components"]["schemas"]
    served = [name for name, kind in SHAPES.items() if old in names_of(kind, ANSWERS) and name in schemas]
    assert shape in served or f"Live{shape}" in served
    for name in served:
        if new not in schemas[name]["properties"]:
            continue  # the live twin of a shape has fewer members
        member = schemas[name]["properties"][old]
        assert (member["deprecated"], member["description"]) == (True, f"The old name of `{new}`.")
        assert old not in schemas[name].get("required", [])
        assert "deprecated" not in schemas[name]["properties"][new]


def test_the_live_streams_have_both_names(things: Things) -> None:
    member = Api(things.world.user)
    assert {member.get(f"live/{stream}").status for stream in ("cluster", "project:vision")} == {200}
    states = build(timezone.now())
    assert {"cluster", f"project:{things.world.project.key}"} <= set(states)
    for stream, state in states.items():
        before = repr(state)
        shape = live_shapes.ClusterState if stream.startswith("cluster") else live_shapes.ProjectState
        for visit in visits_of([shape]):
            visit(state)
        assert repr(state) == before


# Requests -------------------------------------------------------------------------------------------------


def test_the_inputs_that_were_renamed_are_those_tried_here() -> None:
    assert INPUTS == {"_Filters": {"held": "on_hold"}}
    for model in (JobsQuery, JobsExportQuery, JobsFilter):
        assert names_of(model, INPUTS) == {"held": "on_hold"}


@pytest.mark.django_db
def test_a_query_parameter_is_read_under_its_old_name(things: Things) -> None:
    world, api = things.world, Api(things.world.user)
    on_hold = world.submit()
    assert api.post(f"jobs/{on_hold.number}/hold").status == 200
    world.submit()
    now, before = api.get("jobs?on_hold=true"), api.get("jobs?held=true")
    assert [job["number"] for job in now.json["results"]] == [on_hold.number]
    assert [job["number"] for job in before.json["results"]] == [on_hold.number]
    assert before.headers["Warning"] == '299 - "held is deprecated; use on_hold"'
    assert (before.headers["Deprecation"], before.headers["Sunset"]) == (DEPRECATION, SUNSET)
    assert not {"Deprecation", "Sunset", "Warning"} & set(now.headers)


@pytest.mark.django_db
def test_a_member_of_a_body_is_read_under_its_old_name(things: Things) -> None:
    world, api = things.world, Api(things.world.user)
    job = world.submit()
    assert api.post(f"jobs/{job.number}/hold").status == 200
    made = api.post("jobs/bulk", {"action": "release", "filter": {"held": True}})
    assert (made.status, made.json["succeeded"]) == (200, 1)
    assert made.headers["Warning"] == '299 - "held is deprecated; use on_hold"'
    saved = api.post("views", {"name": "On hold", "filters": {"held": True}})
    assert (saved.status, saved.json["filters"]) == (201, {"on_hold": True})
    assert "Deprecation" in saved.headers


@pytest.mark.django_db
def test_a_view_that_was_saved_before_is_shown_with_the_new_name(things: Things) -> None:
    world, api = things.world, Api(things.world.user)
    made = api.post("views", {"name": "Mine", "filters": {"on_hold": False}}).json["id"]
    view = User.objects.get(pk=world.user.pk).saved_views.get(pk=made)
    view.filters = {"held": False}
    view.save()
    assert api.get(f"views/{made}").json["filters"] == {"on_hold": False}
    assert "Deprecation" not in api.get(f"views/{made}").headers


@pytest.mark.django_db
def test_a_member_under_both_names_is_refused(things: Things) -> None:
    api = Api(things.world.user)
    query = api.get("jobs?held=true&on_hold=true")
    assert (query.status, query.fields) == (400, ["held"])
    assert query.json["detail"] == "held: is the old name of on_hold: give on_hold alone"
    body = api.post("jobs/bulk", {"action": "release", "filter": {"held": True, "on_hold": True}})
    assert (body.status, body.fields) == (400, ["filter"])
    assert "held is the old name of on_hold: give on_hold alone" in body.json["detail"]


# Addresses ------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@in_turn(("old", "new"), ADDRESSES.items())
def test_an_old_address_answers_as_the_new_one(old: str, new: str, things: Things) -> None:
    admin = Api(token=things.actors["admin"].token)
    where: dict[str, Any] = {"project": "vision", "limit": things.quota.pk}
    before, now = (admin.get(address.format(**where)) for address in (old, new))
    assert (before.status, now.status) == (200, 200)
    assert before.json == now.json
    assert (before.headers["Deprecation"], before.headers["Sunset"]) == (DEPRECATION, SUNSET)
    assert before.headers["Warning"] == f'299 - "{API}{old} is deprecated; use {API}{new}"'
    assert "Deprecation" not in now.headers


@in_turn(("old", "new"), ADDRESSES.items())
def test_the_document_calls_the_old_address_deprecated(old: str, new: str) -> None:
    paths = document()["paths"]
    assert set(paths[API + old]) == set(paths[API + new])
    for method, operation in paths[API + old].items():
        present = paths[API + new][method]
        assert operation["deprecated"] is True
        assert "deprecated" not in present
        assert operation["operationId"] == OPERATIONS[present["operationId"]]


@pytest.mark.django_db
def test_a_limit_is_made_changed_and_removed_at_the_old_address(things: Things) -> None:
    admin = Api(token=things.actors["admin"].token)
    made = admin.post("quotas", {"project": "vision", "kind": "running_jobs", "limit": "3"})
    assert made.status == 201, made.text
    address = f"quotas/{made.json['id']}"
    assert admin.put(address, {"limit": "4"}).json["limit"] == "4"
    assert admin.delete(address).status == 204
    assert admin.get(address).status == 404
