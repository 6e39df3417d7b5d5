"""The tree of projects and roles that are inherited down it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts.models import MAX_DEPTH, Membership, Project, User
from accounts.selectors import (
    manageable_projects,
    projects_with_roles,
    role_in,
    visible_projects,
    writable_projects,
)
from accounts.tokens import bounded_user, create_token
from accounts.tree import ancestors, descendants

pytestmark = pytest.mark.django_db


def grow(*keys: str, parent: Project | None = None) -> list[Project]:
    """Projects below one another."""
    chain = []
    for key in keys:
        parent = Project.objects.create(key=key, name=key.title(), parent=parent)
        chain.append(parent)
    return chain


@pytest.fixture
def ana() -> User:
    return User.objects.create_user("ana@example.org", "x")


def keys(projects: Any) -> list[str]:
    return [project.key for project in projects]


def test_the_way_from_the_root_and_what_is_below() -> None:
    org, lab, team = grow("org", "lab", "team")
    grow("other", parent=org)
    assert keys(ancestors(team)) == ["org", "lab", "team"]
    assert keys(descendants(lab)) == ["lab", "team"]
    assert keys(descendants(org)) == ["lab", "org", "other", "team"]


def test_a_moved_project_takes_all_below_it_along() -> None:
    org, lab, team = grow("org", "lab", "team")
    (firm,) = grow("firm")
    Project.objects.filter(pk=lab.pk).update(parent=firm)
    assert keys(ancestors(team)) == ["firm", "lab", "team"]
    assert keys(descendants(org)) == ["org"]
    Project.objects.filter(pk=lab.pk).update(parent=None)
    assert keys(ancestors(team)) == ["lab", "team"]


def test_a_stale_instance_that_is_saved_leaves_the_tree_right() -> None:
    _, lab, team = grow("org", "lab", "team")
    lab.name = "Laboratory"
    lab.save()
    assert keys(ancestors(team)) == ["org", "lab", "team"]


@pytest.mark.parametrize("below", ["org", "lab", "team"])
def test_cycles_are_refused(below: str) -> None:
    grow("org", "lab", "team")
    with pytest.raises(IntegrityError, match="below itself"), transaction.atomic():
        Project.objects.filter(key="org").update(parent=Project.objects.get(key=below))


def test_the_depth_is_bounded_wherever_it_grows() -> None:
    deepest = grow(*(f"p{n}" for n in range(MAX_DEPTH)))[-1]
    with pytest.raises(IntegrityError, match="depth"), transaction.atomic():
        grow("one-more", parent=deepest)
    grow("top", "below-top")
    with pytest.raises(IntegrityError, match="depth"), transaction.atomic():
        Project.objects.filter(key="p1").update(parent=Project.objects.get(key="below-top"))
    assert ancestors(deepest).count() == MAX_DEPTH


def test_roles_are_inherited_and_the_highest_counts(ana: User) -> None:
    org, lab, team = grow("org", "lab", "team")
    (side,) = grow("side", parent=org)
    Membership.objects.create(user=ana, project=lab, role="manager")
    Membership.objects.create(user=ana, project=team, role="viewer")
    Membership.objects.create(user=ana, project=side, role="viewer")
    assert {p.key: role for p, role in projects_with_roles(ana)} == {
        "lab": "manager",
        "team": "manager",
        "side": "viewer",
    }
    assert [role_in(ana, p) for p in (org, lab, team, side)] == [None, "manager", "manager", "viewer"]
    assert keys(visible_projects(ana)) == ["lab", "side", "team"]
    assert keys(writable_projects(ana)) == ["lab", "team"]
    assert keys(manageable_projects(ana)) == ["lab", "team"]


def test_a_membership_below_gives_nothing_above(ana: User) -> None:
    org, _, team = grow("org", "lab", "team")
    Membership.objects.create(user=ana, project=team, role="manager")
    assert keys(visible_projects(ana)) == ["team"]
    assert role_in(ana, org) is None


def test_each_question_is_one_query(ana: User, django_assert_num_queries: Any) -> None:
    chain = grow(*(f"p{n}" for n in range(8)))
    Membership.objects.create(user=ana, project=chain[0], role="manager")
    Membership.objects.create(user=ana, project=chain[4], role="viewer")
    for ask in (
        lambda: len(visible_projects(ana)),
        lambda: len(writable_projects(ana)),
        lambda: len(manageable_projects(ana)),
        lambda: len(projects_with_roles(ana)),
        lambda: role_in(ana, chain[7]),
        lambda: len(ancestors(chain[7])),
        lambda: len(descendants(chain[0])),
    ):
        with django_assert_num_queries(1):
            ask()


def test_a_token_bound_to_a_project_reaches_that_and_what_is_below(ana: User) -> None:
    org, lab, team = grow("org", "lab", "team")
    Membership.objects.create(user=ana, project=org, role="manager")
    token, _ = create_token(user=ana, name="ci", project=lab)
    bounded = bounded_user(token)
    assert keys(visible_projects(bounded)) == ["lab", "team"]
    assert role_in(bounded, org) is None
    assert role_in(bounded, team) == "manager"


@pytest.mark.parametrize(("scopes", "bound"), [(["jobs:read", "jobs:write"], False), (["admin"], True)])
def test_a_narrow_token_of_an_administrator_is_no_administrator(scopes: list[str], bound: bool) -> None:
    (org,) = grow("org")
    root = User.objects.create_superuser("root@example.org", "x")
    token, _ = create_token(user=root, name="ci", scopes=scopes, project=org if bound else None)
    bounded = bounded_user(token)
    assert not bounded.is_superuser
    assert not visible_projects(bounded).exists()
    with pytest.raises(RuntimeError):
        bounded.save()
    assert User.objects.get().is_superuser


def test_archived_projects_are_read_only(ana: User) -> None:
    (org,) = grow("org")
    Membership.objects.create(user=ana, project=org, role="manager")
    Project.objects.update(archived_at="2026-01-01T00:00Z")
    assert keys(visible_projects(ana)) == ["org"]
    assert not writable_projects(ana).exists()
