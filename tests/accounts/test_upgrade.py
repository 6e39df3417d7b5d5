"""What an older portal kept survives the upgrade."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from accounts.audit import rows, sealed_entries, verify_chain
from accounts.models import ApiToken, AuditEntry, Project
from accounts.tree import ancestors

pytestmark = [pytest.mark.django_db(transaction=True)]
BEFORE = [("accounts", "0002_ledger_by_end")]


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
