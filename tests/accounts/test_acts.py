"""What acts leave in the audit log, how it is written out, and what a token or an invitation lets its holder do."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from accounts import origin
from accounts.audit import COLUMNS, SEALED, Verdict, as_csv, as_json_lines, chain_head, record_audit, verify_chain
from accounts.invitations import accept_invitation, find_invitation, invite, revoke_invitation
from accounts.models import ApiToken, AuditEntry, Invitation, Membership, Project, Proof, Scope, User
from accounts.origin import Origin
from accounts.tokens import (
    TokenAuthentication,
    bounded_user,
    create_token,
    revoke_token,
    rotate_token,
    user_of_token,
)

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
DAY, MICRO = timedelta(days=1), timedelta(microseconds=1)
PASSWORD = "correct horse battery"


@pytest.fixture
def ana(db: None) -> User:
    return User.objects.create_user("ana@example.org", "x")


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root@example.org", "x")


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(key="vision", name="Vision")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    def at(moment: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: moment)

    at(NOW)
    return at


# The entries ------------------------------------------------------------------------------------------------


def invited(root: User, project: Project, email: str = "ana@example.org", **more: Any) -> tuple[Invitation, str]:
    return invite(actor=root, project=project, email=email, role="member", now=NOW, **more)


def entries(action: str) -> list[tuple[str, str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(action=action).order_by("pk")
    return [(row.actor_email, row.target, row.detail) for row in rows]


def test_every_act_on_an_invitation_says_who_where_and_what(ana: User, root: User, project: Project) -> None:
    _, secret = invited(root, project)
    detail = {"email": "ana@example.org", "role": "member", "mailed": False, "expires_at": "2026-01-14T12:00:00+00:00"}
    assert entries("invitation.create") == [("root@example.org", "vision", detail)]
    accept_invitation(secret=secret, user=ana, now=NOW)
    detail = {"email": "ana@example.org", "invited_by": "root@example.org"}
    assert entries("invitation.accept") == [("ana@example.org", "vision", detail)]
    row, _ = invited(root, project, "bo@example.org", mailed=True, expires_in_days=1)
    assert entries("invitation.create")[1][2] == {
        "email": "bo@example.org",
        "role": "member",
        "mailed": True,
        "expires_at": "2026-01-08T12:00:00+00:00",
    }
    revoke_invitation(actor=root, invitation=row, now=NOW)
    assert entries("invitation.revoke") == [("root@example.org", "vision", {"email": "bo@example.org"})]


def test_every_act_on_a_token_says_who_which_and_what(
    ana: User, root: User, project: Project, clock: Callable[[datetime], None]
) -> None:
    token, _ = create_token(user=ana, actor=root, name="ci", project=project, scopes=["jobs:write", "jobs:read"])
    detail = {"scopes": ["jobs:read", "jobs:write"], "project": "vision", "user": "ana@example.org"}
    assert entries("token.create") == [("root@example.org", str(token), detail)]
    new, _ = rotate_token(actor=ana, token=token, now=NOW, overlap_hours=2)
    rotated: dict[str, Any] = {"from": token.prefix, "overlap_hours": 2}
    assert entries("token.rotate") == [("ana@example.org", str(new), rotated)]
    revoke_token(actor=root, token=new)
    assert entries("token.revoke") == [("root@example.org", str(new), {})]


def test_an_entry_fits_its_columns_and_says_where_from(ana: User) -> None:
    bare = record_audit(actor=None, action="test", target="x" * 201)
    assert (bare.actor, bare.actor_email, bare.target, bare.detail) == (None, "", "x" * 200, {})
    assert (bare.address, bare.credential, bare.request_id) == ("", "", "")
    source = Origin(address="f" * 46, request_id="r1", session_key=lambda: None, token="abc")
    before = origin._origin.set(source)
    try:
        full = record_audit(actor=ana, action="test", target="a", detail={"n": 1})
    finally:
        origin._origin.reset(before)
    assert (full.actor, full.actor_email, full.detail) == (ana, "ana@example.org", {"n": 1})
    assert (full.address, full.credential, full.request_id) == ("f" * 45, "token ek_abc", "r1")


# Written out ------------------------------------------------------------------------------------------------


def row(**values: Any) -> dict[str, Any]:
    usual = dict.fromkeys(SEALED) | {"position": 1, "at": NOW, "actor_id": 7, "detail_text": '{"n": 1}', "hash": "h"}
    return usual | values


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a=b", "a=b"),
        *((f"{sign}x", f"'{sign}x") for sign in "=+-@\t\r"),
        ("=", "'="),
    ],
)
def test_a_table_holds_no_formula(text: str, written: str) -> None:
    (found,) = csv.reader(io.StringIO("".join(as_csv([row(target=text)], header=False)), newline=""))
    assert dict(zip(COLUMNS, found, strict=True)) == dict.fromkeys(SEALED, "") | {
        "position": "1",
        "at": "2026-01-07T12:00:00.000000Z",
        "actor_id": "7",
        "target": written,
        "detail_text": '{"n": 1}',
        "hash": "h",
    }


@pytest.mark.parametrize(("header", "first"), [(True, COLUMNS[0]), (False, "1")])
def test_a_table_has_its_header_where_it_is_asked_for(header: bool, first: str) -> None:
    assert "".join(as_csv([row()], header=header)).startswith(f"{first},")


def test_a_line_has_numbers_as_numbers_and_letters_as_they_are() -> None:
    (line,) = as_json_lines([row(target="é", previous_hash="p")])
    found = json.loads(line)
    assert (found["position"], found["actor_id"], found["detail"], found["hash"]) == (1, 7, {"n": 1}, "h")
    assert (found["actor_email"], found["target"], "detail_text" in found) == ("", "é", False)
    assert json.loads(found["sealed"])[-1] == "p"
    assert line.count("é") == 2
    assert line.endswith("}\n")


def test_a_chain_without_entries_holds(db: None) -> None:
    assert verify_chain([]) == Verdict(0, "0" * 64, None)
    assert chain_head() == f"0:{'0' * 64}"


@pytest.mark.parametrize("position", [0, 2])
def test_a_chain_begins_with_the_first_entry(position: int) -> None:
    verdict = verify_chain([row(position=position, previous_hash="0" * 64)])
    assert verdict.problem == f"after entry 0 comes {position}: entries are missing"


# Invitations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mailed", "proved"), [(True, Proof.MAIL.value), (False, "")])
def test_only_a_mailed_link_proves_the_address(
    ana: User, root: User, project: Project, mailed: bool, proved: str
) -> None:
    accept_invitation(secret=invited(root, project, mailed=mailed)[1], user=ana, now=NOW)
    ana.refresh_from_db()
    assert (ana.address_proved_by, ana.address_proved_at) == (proved, NOW if mailed else None)


@pytest.mark.parametrize("password", ["short", "password123", "new.person@example.org"])
def test_a_bad_password_makes_no_account_and_uses_nothing_up(root: User, project: Project, password: str) -> None:
    _, secret = invited(root, project, "new.person@example.org")
    with pytest.raises(ValidationError):
        accept_invitation(secret=secret, user=None, now=NOW, password=password)
    assert not User.objects.filter(email="new.person@example.org").exists()
    find_invitation(secret, NOW)


def test_an_account_made_by_invitation_says_by_whom_and_signs_in(root: User, project: Project) -> None:
    _, secret = invited(root, project, "new@example.org")
    row, user = accept_invitation(secret=secret, user=None, now=NOW, name="n" * 151, password=PASSWORD)
    made = User.objects.get(email="new@example.org")
    assert (made, row.project) == (user, project)
    assert made.check_password(PASSWORD)
    assert (made.first_name, made.invited_by, made.invited_into) == ("n" * 150, root, project)
    assert Membership.objects.get().user == made
    assert entries("user.create") == [("new@example.org", "new@example.org", {"by": "invitation"})]


def test_another_invitation_ends_the_open_one_and_leaves_what_was_accepted(
    ana: User, root: User, project: Project
) -> None:
    used, secret = invited(root, project)
    accept_invitation(secret=secret, user=ana, now=NOW)
    ended, _ = invited(root, project)
    open_one, _ = invited(root, project)
    invited(root, project, "bo@example.org")
    later = NOW + DAY
    ends = dict(Invitation.objects.values_list("pk", "revoked_at"))
    assert (ends[used.pk], ends[ended.pk], ends[open_one.pk]) == (None, NOW, None)
    for row in (used, ended, open_one):
        revoke_invitation(actor=root, invitation=row, now=later)
    ends = dict(Invitation.objects.values_list("pk", "revoked_at"))
    assert (ends[used.pk], ends[ended.pk], ends[open_one.pk]) == (None, NOW, later)
    assert len(entries("invitation.revoke")) == 1


def test_an_invitation_that_has_ended_keeps_its_time(root: User, project: Project) -> None:
    ended, _ = invited(root, project)
    for later in (NOW + DAY, NOW + 2 * DAY):
        invite(actor=root, project=project, email="ana@example.org", role="member", now=later)
    ended.refresh_from_db()
    assert ended.revoked_at == NOW + DAY


# Tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "at", "stands"),
    [
        ({}, NOW, True),
        ({"expires_at": None}, NOW + 400 * DAY, True),
        ({}, NOW + 90 * DAY - MICRO, True),
        ({}, NOW + 90 * DAY, False),
        ({"revoked_at": NOW}, NOW, False),
        ({"expires_at": None, "revoked_at": NOW}, NOW, False),
        ({"user__is_active": False}, NOW, False),
    ],
)
def test_a_token_stands_for_its_user_until_it_ends(
    ana: User, clock: Callable[[datetime], None], change: dict[str, Any], at: datetime, stands: bool
) -> None:
    token, _ = create_token(user=ana, name="ci")
    create_token(user=ana, name="other", expires_in_days=None)
    active = {key: value for key, value in change.items() if key == "user__is_active"}
    User.objects.filter(pk=ana.pk).update(is_active=active.get("user__is_active", True))
    ApiToken.objects.filter(pk=token.pk).update(**{key: value for key, value in change.items() if key not in active})
    found = user_of_token(token, at)
    assert found == (ana if stands else None)
    assert found is None or found.acting_token == token


@pytest.mark.parametrize(
    ("scopes", "bound", "administers"),
    [([Scope.ADMIN], False, True), ([Scope.ADMIN], True, False), ([Scope.JOBS_READ], False, False), ([], False, False)],
)
def test_a_token_administers_with_its_scope_and_everywhere_only(
    scopes: list[str], bound: bool, administers: bool
) -> None:
    project = Project(pk=5) if bound else None
    token = ApiToken(user=User(is_superuser=True, is_staff=True), scopes=scopes, project=project)
    user = bounded_user(token)
    assert (user.is_superuser, user.is_staff, user.acting_token) == (administers, administers, token)


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    found: list[SimpleNamespace] = []
    monkeypatch.setattr("accounts.tokens.record_denial", lambda **said: found.append(SimpleNamespace(**said)))
    return found


def asking(text: str) -> Request:
    return Request(APIRequestFactory().get("/api/v1/jobs/", HTTP_AUTHORIZATION=text, REMOTE_ADDR="192.0.2.7"))


@pytest.mark.parametrize("text", ["", "Basic ek_a_b", "Bearer", "Bearer run_a_b", "ek_a_b", "Bearer xek_a_b"])
def test_what_is_no_token_of_a_person_is_left_to_others(text: str) -> None:
    assert TokenAuthentication().authenticate(asking(text)) is None


def test_when_a_token_was_used_is_noted_once_a_minute(ana: User, clock: Callable[[datetime], None]) -> None:
    token, text = create_token(user=ana, name="ci")
    other, _ = create_token(user=ana, name="other")
    used = []
    for seconds in (0, 60, 60.000001, 61):
        clock(NOW + timedelta(seconds=seconds))
        found = TokenAuthentication().authenticate(asking(f"bearer {text} "))
        assert found == (ana, token)
        token.refresh_from_db()
        assert token.last_used_at is not None
        used.append((token.last_used_at - NOW).total_seconds())
    assert used == [0, 0, 60.000001, 60.000001]
    assert token.last_used_address == "192.0.2.7"
    other.refresh_from_db()
    assert other.last_used_at is None


def test_what_is_done_with_a_token_says_with_which(ana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = create_token(user=ana, name="ci")
    noted = list[str]()
    monkeypatch.setattr("accounts.tokens.note_token", noted.append)
    TokenAuthentication().authenticate(asking(f"Bearer {text}"))
    with pytest.raises(AuthenticationFailed):
        TokenAuthentication().authenticate(asking(f"Bearer {text}x"))
    assert noted == [token.prefix]


@pytest.mark.parametrize("known", [True, False])
def test_a_refused_token_is_noted_where_it_was_real(ana: User, denied: list[SimpleNamespace], known: bool) -> None:
    token, _ = create_token(user=ana, name="ci")
    text = f"ek_{token.prefix if known else 'unknown'}_wrong"
    with pytest.raises(AuthenticationFailed, match="unknown, expired or revoked"):
        TokenAuthentication().authenticate(asking(f"Bearer {text}"))
    detail = {"status": 401, "token": token.prefix, "method": "GET"}
    said = SimpleNamespace(actor=ana, target="/api/v1/jobs/", detail=detail, who=f"token:{token.prefix}")
    assert denied == ([said] if known else [])
