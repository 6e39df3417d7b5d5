"""Nothing keeps what the API answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from portal.api.schema import document
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
OPERATIONS = [
    (method, path)
    for path, methods in sorted(document()["paths"].items())
    for method in sorted(methods)
    if method in ("get", "post", "put", "patch", "delete")
]


def named(path: str, world: World) -> str:
    """With objects that there are where that is easy, else with ones that there are not: that answer counts, too."""
    known = {"project": "vision", "person": str(world.user.pk)}
    return re.sub(r"{(\w+)}", lambda match: known.get(match[1], "1"), path)


@pytest.mark.parametrize("who", ["administrator", "nobody"])
def test_every_operation_says_so(world: World, who: str, settings: Any) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    client, headers = Client(raise_request_exception=False), {}
    if who == "administrator":
        headers = Api(root).headers
    statuses = set()
    for method, path in OPERATIONS:
        response = client.generic(method.upper(), named(path, world), "{}", "application/json", headers=headers)
        statuses.add(response.status_code)
        assert response["Cache-Control"] == "no-store", (method, path, response.status_code)
    assert len(OPERATIONS) > 150
    assert {200, 400, 404} <= statuses if who == "administrator" else {200, 401} <= statuses


def test_errors_downloads_and_what_no_route_is_say_so_too(world: World) -> None:
    api = Api(User.objects.create_superuser("root@example.org", "x"))
    job = world.submit()
    for path in ("usage/export?format=csv", "audit/export?format=jsonl", "jobs/export", f"jobs/{job.number}/logs"):
        assert Client().get(f"/api/v1/{path}", headers=api.headers)["Cache-Control"] == "no-store", path
    for path in ("/api/v1/nothing", "/api/", "/api/v1/jobs/%00", "/api/docs"):
        assert Client().get(path)["Cache-Control"] == "no-store", path
    assert Client().get("/api/v1/jobs", HTTP_HOST="evil.example")["Cache-Control"] == "no-store"


def test_pages_and_what_is_built_once_are_left_alone(settings: Any) -> None:
    assert "no-store" not in Client().get("/static/none.js").headers.get("Cache-Control", "")
