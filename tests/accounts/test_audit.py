"""The audit log only grows, is one chain whoever writes at the same time, and shows every change."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction

from accounts import denials
from accounts.audit import as_csv, as_json_lines, record_audit, rows, sealed_entries, verify_chain
from accounts.models import AuditEntry, User

pytestmark = pytest.mark.django_db


def seal() -> None:
    """What a commit does."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def write(*targets: str) -> None:
    for target in targets:
        record_audit(actor=None, action="test", target=target, detail={"a b": [1, 2.50, None], "ü\n": '"\\'})
    seal()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE accounts_auditentry SET target = 'x'",
        "UPDATE accounts_auditentry SET hash = 'x', position = 9",
        "DELETE FROM accounts_auditentry",
        "TRUNCATE accounts_auditentry",
    ],
)
def test_the_database_refuses_every_change(change: str) -> None:
    write("a")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_auditentry ENABLE TRIGGER audit_no_truncate")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(change)
        cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")
    assert AuditEntry.objects.get().target == "a"


def test_an_entry_cannot_bring_its_own_seal() -> None:
    AuditEntry.objects.create(action="test", target="a", position=7, hash="f" * 64, previous_hash="e" * 64)
    seal()
    entry = AuditEntry.objects.get()
    assert (entry.position, entry.previous_hash) == (1, "0" * 64)
    assert entry.hash != "f" * 64


def test_what_is_not_sealed_yet_cannot_be_altered_either() -> None:
    record_audit(actor=None, action="test", target="a")
    AuditEntry.objects.update(target="b", hash="x")
    assert AuditEntry.objects.get().target == "a"


def test_the_chain_follows_the_commits_and_verifies() -> None:
    write("a", "b")
    write("c")
    verdict = verify_chain(rows(sealed_entries()))
    assert (verdict.position, verdict.problem) == (3, None)
    assert verdict.hash == AuditEntry.objects.get(target="c").hash


def test_deleting_a_person_leaves_what_they_did() -> None:
    ana = User.objects.create_user("ana@example.org", "x")
    pk = ana.pk
    record_audit(actor=ana, action="test", target="a")
    seal()
    ana.delete()
    seal()
    entry = AuditEntry.objects.get()
    assert (entry.actor_id, entry.actor_email) == (pk, "ana@example.org")
    assert verify_chain(rows(sealed_entries())).problem is None


@pytest.mark.parametrize(
    ("forgery", "said"),
    [
        ("UPDATE accounts_auditentry SET target = 'x' WHERE target = 'b'", "entry 2 is not what was written"),
        ("UPDATE accounts_auditentry SET detail = '{}' WHERE target = 'b'", "entry 2 is not what was written"),
        ("UPDATE accounts_auditentry SET at = at + interval '1 us' WHERE target = 'b'", "entry 2 is not"),
        ("DELETE FROM accounts_auditentry WHERE target = 'b'", "after entry 1 comes 3"),
        ("DELETE FROM accounts_auditentry WHERE target = 'a'", "after entry 0 comes 2"),
    ],
)
def test_a_forger_past_the_triggers_is_found(forgery: str, said: str) -> None:
    write("a", "b", "c")
    _forge(forgery)
    with pytest.raises(CommandError, match=said):
        call_command("verify_audit")


def _forge(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_guard")
        cursor.execute(statement)
        cursor.execute("ALTER TABLE accounts_auditentry ENABLE TRIGGER audit_guard")


def test_a_cut_end_is_found_by_whoever_kept_the_head(capsys: Any) -> None:
    write("a", "b")
    call_command("verify_audit")
    head = capsys.readouterr().out.split()[-1]
    call_command("verify_audit", "--expect", head)
    _forge("DELETE FROM accounts_auditentry WHERE target = 'b'")
    call_command("verify_audit")
    with pytest.raises(CommandError, match="entry 2"):
        call_command("verify_audit", "--expect", head)


def test_an_export_can_be_verified_without_the_database() -> None:
    write("a", "=b()", "c")
    before = "0" * 64
    for line in as_json_lines(rows(sealed_entries())):
        entry = json.loads(line)
        assert hashlib.sha256(entry["sealed"].encode()).hexdigest() == entry["hash"]
        assert json.loads(entry["sealed"])[-1] == before
        assert entry["detail"] == {"a b": [1, 2.5, None], "ü\n": '"\\'}
        before = entry["hash"]
    table = list(csv.DictReader(io.StringIO("".join(as_csv(rows(sealed_entries()), header=True)))))
    assert [row["target"] for row in table] == ["a", "'=b()", "c"]


@pytest.mark.django_db(transaction=True)
def test_parallel_writers_keep_one_chain() -> None:
    def many(name: int) -> None:
        for turn in range(10):
            with transaction.atomic():
                record_audit(actor=None, action="test", target=f"{name}.{turn}")
                record_audit(actor=None, action="test", target=f"{name}.{turn}'")
        connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(many, range(6)))
    verdict = verify_chain(rows(sealed_entries()))
    assert (verdict.position, verdict.problem) == (120, None)


@pytest.fixture
def counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def test_denials_are_bounded_by_who_and_in_all(counted: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(denials, "time", lambda: 6_000.0)
    for _ in range(100):
        denials.record_denial(actor=None, target="/x", detail={}, who="eve")
    assert AuditEntry.objects.count() == denials.LIMIT + 1
    assert "left_out" in AuditEntry.objects.latest("id").detail
    for n in range(2 * denials.TOTAL):
        denials.record_denial(actor=None, target="/x", detail={}, who=f"somebody:{n}")
    assert AuditEntry.objects.count() <= denials.TOTAL + 1
    monkeypatch.setattr(denials, "time", lambda: 6_060.0)
    before = AuditEntry.objects.count()
    denials.record_denial(actor=None, target="/x", detail={}, who="eve")
    assert AuditEntry.objects.count() == before + 1
