"""Who may see and change what; tokens; quotas."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.utils import timezone

from accounts.models import ApiToken, AuditEntry, Membership, Project, User
from accounts.quotas import gpu_limits
from accounts.selectors import projects_with_roles, role_in, visible_projects, writable_projects
from accounts.services import add_member, create_project
from accounts.tokens import create_token, find_token, revoke_token

pytestmark = pytest.mark.django_db


def person(email: str, **more: bool) -> User:
    return User.objects.create_user(email, "x", **more)


@pytest.fixture
def project() -> Project:
    return create_project(actor=None, key="vision", name="Vision", gpu_quota=4)


@pytest.mark.parametrize(("role", "writes"), [("viewer", False), ("member", True), ("manager", True)])
def test_roles_decide_who_writes(project: Project, role: str, writes: bool) -> None:
    ana = person("ana@example.org")
    add_member(actor=None, project=project, user=ana, role=role)
    assert list(visible_projects(ana)) == [project]
    assert writable_projects(ana).exists() is writes
    assert role_in(ana, project) == role
    assert projects_with_roles(ana) == [(project, role)]


def test_nobody_sees_what_is_not_theirs(project: Project) -> None:
    gone = person("gone@example.org", is_active=False)
    Membership.objects.create(project=project, user=gone)
    for user in (person("eve@example.org"), gone, AnonymousUser()):
        assert not visible_projects(user).exists()
        assert not writable_projects(user).exists()
        assert projects_with_roles(user) == []


def test_an_administrator_is_a_manager_everywhere(project: Project) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    assert projects_with_roles(root) == [(project, "manager")]
    assert role_in(root, project) == "manager"


@pytest.mark.parametrize("key", ["", "Vision", "1a", "a b", "../x", "a" * 41, "a\n"])
def test_a_project_key_is_a_plain_word(key: str) -> None:
    with pytest.raises(ValidationError):
        create_project(actor=None, key=key, name="x")


def test_membership_changes_are_audited(project: Project) -> None:
    ana = person("ana@example.org")
    for role in ("viewer", "manager"):
        add_member(actor=ana, project=project, user=ana, role=role)
    assert Membership.objects.get().role == "manager"
    assert AuditEntry.objects.filter(action="project.member").count() == 2


def test_a_project_begins_with_its_quota(project: Project) -> None:
    assert gpu_limits() == {project.pk: 4}


def test_a_token_is_stored_as_a_digest_only() -> None:
    token, text = create_token(user=person("ana@example.org"), name="ci")
    secret = text.split("_", 2)[2]
    assert len(secret) >= 43
    row = ApiToken.objects.values().get()
    assert text not in str(row)
    assert secret not in str(row)
    assert find_token(text, timezone.now()) == token


def test_tokens_end() -> None:
    ana, now = person("ana@example.org"), timezone.now()
    token, text = create_token(user=ana, name="ci", expires_in_days=1)
    assert find_token(text, now + timedelta(hours=23))
    assert find_token(text, now + timedelta(hours=25)) is None
    revoke_token(actor=ana, token=token)
    revoke_token(actor=ana, token=token)
    assert find_token(text, now) is None
    assert AuditEntry.objects.filter(action="token.revoke").count() == 1


def test_tokens_without_expiry_last() -> None:
    _, text = create_token(user=person("ana@example.org"), name="ci", expires_in_days=None)
    assert find_token(text, timezone.now() + timedelta(days=10_000))


@pytest.mark.parametrize("text", ["", "ek_", "ek__x", "ek_a", "xx_a_b", "ek_\x00_b", "ek_é_b", "_" * 500])
def test_what_is_no_token_finds_none(text: str) -> None:
    assert find_token(text, timezone.now()) is None
