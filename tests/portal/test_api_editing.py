"""ETag and If-Match: nobody undoes what somebody else did meanwhile without seeing it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from tests.portal.api import Api
from tests.portal.world import World

CHOICE = {"name": "static_partition", "parameters": {}}
BACK = {"name": "f_scheduling", "parameters": {}}


@pytest.fixture
def api(db: None) -> Api:
    World()
    return Api(User.objects.create_superuser("root@example.org", "x"))


def test_a_change_of_what_was_read_is_taken(api: Api) -> None:
    etag = api.get("policy").headers["ETag"]
    assert _at_once(api, "PUT", [("policy", CHOICE, etag)] * 4) == [200, 412, 412, 412]


def _at_once(api: Api, method: str, changes: list[tuple[str, Any, str]]) -> list[int]:
    """Their statuses, sorted."""
    statuses: list[int] = []
    together = threading.Barrier(len(changes))
    token = api.headers["Authorization"].removeprefix("Bearer ")

    def change(path: str, body: Any, etag: str) -> None:
        together.wait(10)
        try:
            statuses.append(Api(token=token).request(method, path, body, If_Match=etag).status)
        finally:
            connection.close()

    threads = [threading.Thread(target=change, args=values) for values in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return sorted(statuses)


@pytest.mark.django_db(transaction=True)
def test_who_read_at_different_moments_wait_for_each_other_too() -> None:
    """What changes by itself is in the tag as well, but not in what is compared: the tags differ, the version not."""
    World()
    root = User.objects.create_superuser("root@example.org", "x")
    api = Api(root)
    tags = []
    for _ in range(4):
        tags.append(api.get("projects/vision").headers["ETag"])
        api.post("jobs", {"command": "x", "project": "vision", "total_steps": 1})
    assert len(set(tags)) == 4
    changes = [("projects/vision", {"name": f"Name {n}"}, tag) for n, tag in enumerate(tags)]
    assert _at_once(api, "PATCH", changes) == [200, 412, 412, 412]
