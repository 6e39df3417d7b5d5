"""The API's documentation is a page of the portal's own, under its Content-Security-Policy."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from accounts.models import User
from portal.jobs.models import Cluster

ELSEWHERE = re.compile(r"""(?:src|href)=["'](?:https?:)?//""")


def directives(policy: str) -> dict[str, str]:
    return {part.split()[0]: part for part in policy.split(";") if part.strip()}


@pytest.mark.django_db
def test_everything_on_the_page_is_served_from_here() -> None:
    page = Client().get("/api/docs")
    assert page.status_code == 200
    assert not ELSEWHERE.search(page.content.decode())
    for name in re.findall(r'"/static/([^"]+)"', page.content.decode()):
        assert name == "icon.svg" or finders.find(name), name


@pytest.mark.django_db
@pytest.mark.parametrize(("isolation", "said"), [("single_trust", True), ("accounts", False)])
def test_single_trust_mode_is_said_here_and_in_the_administration(isolation: str, said: bool) -> None:
    Cluster.objects.create(name="test", isolation=isolation)
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.org", "x"))
    for path in ("/api/docs", "/admin/", "/admin/accounts/user/"):
        assert ("single-trust mode" in client.get(path).content.decode().lower()) is said, path


@pytest.mark.django_db
def test_no_page_runs_scripts_that_are_not_files_of_the_portal() -> None:
    for path in ("/", "/api/docs", "/api/v1/schema", "/healthz"):
        policy = directives(Client().get(path)["Content-Security-Policy"])
        assert "script-src" not in policy
        assert policy["default-src"].split()[1:] == ["'self'"]
        assert policy["frame-ancestors"].split()[1:] == ["'none'"]


@pytest.mark.django_db
def test_the_administration_may_evaluate_but_loads_nothing_from_elsewhere() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.org", "x"))
    policy = directives(client.get("/admin/")["Content-Security-Policy"])
    assert policy["script-src"].split()[1:] == ["'self'", "'unsafe-inline'", "'unsafe-eval'"]


def test_the_page_says_where_it_is_linked_from() -> None:
    assert Client().get("/api/v1/nothing").json()["detail"].endswith("/api/docs lists all of them.")
