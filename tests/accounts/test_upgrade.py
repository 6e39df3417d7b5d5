"""What an older portal kept survives the upgrade."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from accounts.addresses import is_doubtful
from accounts.audit import rows, sealed_entries, verify_chain
from accounts.models import ApiToken, AuditEntry, Invitation, Project, User
from accounts.tree import ancestors

pytestmark = [pytest.mark.django_db(transaction=True)]
BEFORE = [("accounts", "0002_ledger_by_end")]
BESIDE = [
    ("account", "0009_emailaddress_unique_primary_email"),
    ("socialaccount", "0006_alter_socialaccount_extra_data"),
]


def _migrate(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


def test_projects_tokens_and_the_audit_log_are_brought_along() -> None:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()  # of all: others build on these
    old = _migrate(BEFORE)
    try:
        user = old.get_model("accounts", "User").objects.create(email="ana@example.org", password="x")
        projects = old.get_model("accounts", "Project").objects
        org = projects.create(key="org", name="Org")
        projects.create(key="team", name="Team", parent=projects.create(key="lab", name="Lab", parent=org))
        old.get_model("accounts", "ApiToken").objects.create(user=user, name="ci", prefix="p", digest="d")
        for action in ("a", "b"):
            old.get_model("accounts", "AuditEntry").objects.create(actor=user, action=action, target="x")
    finally:
        _migrate(newest)
        with connection.cursor() as cursor:  # as tests/conftest.py leaves it
            cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")
    assert [p.key for p in ancestors(Project.objects.get(key="team"))] == ["org", "lab", "team"]
    assert set(ApiToken.objects.get().scopes) == {"jobs:read", "jobs:write", "admin"}
    assert {e.actor_email for e in AuditEntry.objects.all()} == {"ana@example.org"}
    verdict = verify_chain(rows(sealed_entries()))
    assert (verdict.position, verdict.problem) == (2, None)


def test_accounts_say_how_their_address_was_proved_and_who_invited_them() -> None:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    old = _migrate([("accounts", "0014_clusters"), *BESIDE])
    now = timezone.now()
    try:
        users = old.get_model("accounts", "User").objects
        names = ("root", "connected", "renamed", "invited", "member")
        made = {name: users.create(email=f"{name}@example.org", password="x") for name in names}
        vision = old.get_model("accounts", "Project").objects.create(key="vision", name="Vision")
        for name, address in (("connected", "Connected@example.org"), ("renamed", "before@example.org")):
            user = made[name].pk
            old.get_model("socialaccount", "SocialAccount").objects.create(user_id=user, provider="sso", uid=name)
            old.get_model("account", "EmailAddress").objects.create(user_id=user, email=address, verified=True)
        for name, later in (("invited", timedelta()), ("member", timedelta(days=1))):
            old.get_model("accounts", "Invitation").objects.create(
                project=vision, email=f"{name}@example.org", digest=name, created_by=made["root"], expires_at=now,
                accepted_by=made[name], accepted_at=made[name].date_joined + later,
            )  # fmt: skip
    finally:
        _migrate(newest)
        with connection.cursor() as cursor:  # as tests/conftest.py leaves it
            cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")
    proved = {user.email.partition("@")[0]: user.address_proved_by for user in User.objects.all()}
    assert proved == {"root": "", "connected": "identity_provider", "renamed": "", "invited": "", "member": ""}
    assert [user.email for user in User.objects.all() if is_doubtful(user)] == ["invited@example.org"]
    invited = User.objects.get(email="invited@example.org")
    assert invited.invited_by is not None
    assert invited.invited_into is not None
    assert (invited.invited_by.email, invited.invited_into.key) == ("root@example.org", "vision")


def test_accounts_whose_addresses_differ_by_case_get_addresses_of_their_own() -> None:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    old = _migrate([("accounts", "0015_proved_addresses"), *BESIDE])
    now = timezone.now()
    try:
        users = old.get_model("accounts", "User").objects
        first = users.create(email="ana@example.org", password="x", last_login=now)
        proved = users.create(email="Ana@Example.org", password="x", address_proved_by="mail", address_proved_at=now)
        longest = users.create(email=f"{'A' * 242}@example.org", password="x")
        doubled = users.create(email=f"{'a' * 242}@example.org", password="x", last_login=now)
        users.create(email="Bob@example.org", password="x")
        old.get_model("account", "EmailAddress").objects.create(user_id=first.pk, email="ana@example.org")
        vision = old.get_model("accounts", "Project").objects.create(key="vision", name="Vision")
        old.get_model("accounts", "Invitation").objects.create(
            project=vision, email="Cleo@example.org", digest="d", created_by=first, expires_at=now + timedelta(days=1)
        )
    finally:
        _migrate(newest)
        with connection.cursor() as cursor:  # as tests/conftest.py leaves it
            cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")
    addresses = dict(User.objects.values_list("pk", "email"))
    assert addresses[proved.pk] == "ana@example.org"
    assert addresses[first.pk] == f"ana.account-{first.pk}@example.org"
    assert addresses[doubled.pk] == f"{'a' * 242}@example.org"
    assert addresses[longest.pk].endswith(f".account-{longest.pk}@example.org")
    assert len(addresses[longest.pk]) == 254
    assert "bob@example.org" in addresses.values()
    assert not EmailAddress.objects.filter(user_id=first.pk).exists()
    assert Invitation.objects.get().email == "cleo@example.org"


def test_accounts_whose_domains_are_spelt_otherwise_get_addresses_of_their_own() -> None:
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    old = _migrate([("accounts", "0018_unix_accounts"), *BESIDE])
    now = timezone.now()
    try:
        users = old.get_model("accounts", "User").objects
        seen = users.create(email="ana@b\u00fccher.example", password="x", last_login=now)
        other = users.create(email="ana@xn--bcher-kva.example", password="x", address_proved_at=now)
        dotted = users.create(email="bob@example.org.", password="x")
        strange = users.create(email="cleo@\u2603.example", password="x")
        old.get_model("account", "EmailAddress").objects.create(user_id=seen.pk, email="ana@b\u00fccher.example")
        vision = old.get_model("accounts", "Project").objects.create(key="vision", name="Vision")
        old.get_model("accounts", "Invitation").objects.create(
            project=vision, email="dan@b\u00fccher.example", digest="d", created_by=seen, expires_at=now
        )
    finally:
        _migrate(newest)
        with connection.cursor() as cursor:  # as tests/conftest.py leaves it
            cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")
    addresses = dict(User.objects.values_list("pk", "email"))
    assert addresses[seen.pk] == "ana@xn--bcher-kva.example"
    assert addresses[other.pk] == f"ana.account-{other.pk}@xn--bcher-kva.example"
    assert addresses[dotted.pk] == "bob@example.org"
    assert addresses[strange.pk] == "cleo@\u2603.example"
    assert User.objects.get(pk=other.pk).address_proved_at is None
    assert not EmailAddress.objects.exists()
    assert Invitation.objects.get().email == "dan@xn--bcher-kva.example"
    changed = User.objects.get(pk=strange.pk)  # who had it before goes on
    changed.first_name = "Cleo"
    changed.save()
