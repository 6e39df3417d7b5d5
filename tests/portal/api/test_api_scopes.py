"""Scopes of tokens, on every operation of the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import URLPattern, get_resolver

from accounts.models import User
from accounts.tokens import TokenAuthentication, create_token
from portal.api import urls
from portal.api.http.access import Access
from portal.api.http.permissions import HasScope
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def _views() -> list[Any]:
    assert get_resolver()
    patterns = [p for p in urls.urlpatterns if isinstance(p, URLPattern)]
    return [cls for p in patterns if (cls := getattr(p.callback, "cls", None)) is not None]


def test_every_view_that_takes_tokens_checks_scopes(rf: Any) -> None:
    """Also those that are not in the document, which test_api_matrix.py asks."""
    checked = 0
    for view in (view for view in _views() if TokenAuthentication in view.authentication_classes):
        for method in ("get", "post", "put", "patch", "delete"):
            if (handler := getattr(view, method, None)) is None or handler.access in (Access.PUBLIC, Access.RUN):
                continue
            instance = view()
            instance.request = rf.generic(method.upper(), "/")
            assert any(isinstance(one, HasScope) for one in instance.get_permissions()), (view, method)
            checked += 1
    assert checked > 100


def api(user: User, *scopes: str) -> Api:
    return Api(token=create_token(user=user, name="ci", scopes=scopes)[1])


def test_reading_submitting_and_administering_are_apart() -> None:
    world = World()
    root = User.objects.create_superuser("root@example.org", "x")
    wish = {"command": "x", "project": "vision", "total_steps": 1}
    reader, writer, boss = api(world.user, "jobs:read"), api(world.user, "jobs:write"), api(root, "admin")
    assert reader.get("jobs").status == 200
    refused = reader.post("jobs", wish)
    assert refused.status == 403
    assert "jobs:write" in refused.json["detail"]
    assert writer.post("jobs", wish).status == 201
    assert writer.get("jobs").status == 403
    assert boss.post("nodes/a/drain").status == 200
    assert boss.get("jobs").status == 403
    assert api(root, "jobs:read", "jobs:write").post("nodes/a/drain").status == 403
    assert api(world.user).get("jobs").status == 403
