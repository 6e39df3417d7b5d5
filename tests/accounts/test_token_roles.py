"""What a token may make, what an invitation makes of a role, and what the chain of the audit log holds together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.audit import GENESIS, SEALED, sealed_text, verify_chain
from accounts.invitations import (
    BadInvitation,
    OtherAccount,
    accept_invitation,
    find_invitation,
    invite,
    revoke_invitation,
)
from accounts.models import ApiToken, AuditEntry, Invitation, Membership, Project, User
from accounts.tokens import (
    DEFAULT_EXPIRY_DAYS,
    TokenEnded,
    WiderToken,
    create_token,
    find_token,
    revoke_token,
    rotate_token,
    usual_days,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
DAY, MICRO = timedelta(days=1), timedelta(microseconds=1)


@pytest.fixture
def ana() -> User:
    return User.objects.create_user("ana@example.org", "x")


@pytest.fixture
def project() -> Project:
    return Project.objects.create(key="vision", name="Vision")


def acting(user: User, **token: Any) -> User:
    user.acting_token = create_token(user=user, name="own", **{"expires_in_days": None} | token)[0]
    return user


# Tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "days", "wider"),
    [(10, None, True), (10, 11, True), (10, 9, False), (None, None, False), (None, 300, False)],
)
def test_a_token_makes_none_that_ends_later(ana: User, own: int | None, days: int | None, wider: bool) -> None:
    actor = acting(ana, expires_in_days=own)
    if wider:
        with pytest.raises(WiderToken, match="expires_in_days"):
            create_token(user=actor, name="new", expires_in_days=days)
        assert ApiToken.objects.count() == 1
    else:
        create_token(user=actor, name="new", expires_in_days=days)


def test_a_token_makes_one_that_ends_with_it(ana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    actor = acting(ana, expires_in_days=10)
    assert create_token(user=actor, name="new", expires_in_days=10)[0].expires_at == NOW + 10 * DAY


@pytest.mark.parametrize(
    ("own", "asked", "wider"),
    [
        (["jobs:read"], ["jobs:read"], False),
        (["jobs:read"], ["jobs:read", "jobs:write"], True),
        (["jobs:read", "jobs:write"], ["jobs:write"], False),
        (["jobs:write"], ["admin"], True),
    ],
)
def test_a_token_makes_none_with_other_scopes(ana: User, own: Sequence[str], asked: Sequence[str], wider: bool) -> None:
    actor = acting(ana, scopes=own)
    if wider:
        with pytest.raises(WiderToken, match="scopes"):
            create_token(user=actor, name="new", scopes=asked)
    else:
        assert create_token(user=actor, name="new", scopes=asked)[0].scopes == list(asked)


@pytest.mark.parametrize(
    ("bound", "wider"), [("vision", False), ("deep", False), ("speech", True), ("top", True), (None, True)]
)
def test_a_token_bound_to_a_project_makes_none_beyond_it(ana: User, bound: str | None, wider: bool) -> None:
    top = Project.objects.create(key="top", name="Top")
    vision = Project.objects.create(key="vision", name="Vision", parent=top)
    Project.objects.create(key="deep", name="Deep", parent=vision)
    Project.objects.create(key="speech", name="Speech", parent=top)
    actor = acting(ana, project=vision)
    target = Project.objects.get(key=bound) if bound else None
    if wider:
        with pytest.raises(WiderToken, match="project"):
            create_token(user=actor, name="new", project=target)
    else:
        create_token(user=actor, name="new", project=target)


def test_what_one_makes_for_another_is_bounded_by_ones_own_token(ana: User) -> None:
    robot = User.objects.create_user("robot@example.org", "x")
    actor = acting(ana, scopes=["jobs:read"])
    with pytest.raises(WiderToken):
        create_token(user=robot, name="new", scopes=["jobs:write"], actor=actor)
    made, _ = create_token(user=robot, name="new", scopes=["jobs:read"], actor=actor)
    assert made.user == robot
    assert AuditEntry.objects.filter(action="token.create").latest("pk").actor_id == ana.pk


@pytest.mark.parametrize(("own", "days"), [(None, 90), (365, 90), (90, 90), (30, 30), (1, 1)])
def test_a_token_lasts_as_usual_or_as_long_as_its_maker(
    ana: User, own: int | None, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    assert usual_days(ana) == DEFAULT_EXPIRY_DAYS == 90
    actor = acting(ana, expires_in_days=own)
    assert usual_days(actor) == days
    if own == 1:
        monkeypatch.setattr(timezone, "now", lambda: NOW + DAY - MICRO)
        assert usual_days(actor) == 1


def test_a_token_works_until_its_last_moment_and_only_whole(ana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    token, text = create_token(user=ana, name="ci", expires_in_days=1)
    other, wrong = create_token(user=ana, name="other")
    assert find_token(text, NOW + DAY - MICRO) == token
    assert find_token(text, NOW + DAY) is None
    scheme, prefix, secret = text.split("_", 2)
    for broken in (
        f"xx_{prefix}_{secret}",
        f"{scheme}_{prefix}_",
        f"{scheme}_{prefix}_{wrong.split('_', 2)[2]}",
        f"{scheme}_{other.prefix}_{secret}",
        f"{scheme}_{prefix}_{secret}x",
        f"{scheme}__{secret}",
    ):
        assert find_token(broken, NOW) is None
    User.objects.update(is_active=False)
    assert find_token(text, NOW) is None
    User.objects.update(is_active=True)
    assert find_token(text, NOW) == token
    for _ in range(2):
        revoke_token(actor=ana, token=token)
    assert find_token(text, NOW) is None
    assert AuditEntry.objects.filter(action="token.revoke").count() == 1
    assert find_token(wrong, NOW) == other


def test_a_rotated_token_lasts_as_long_as_the_old_one_was_made_for(ana: User) -> None:
    old, text = create_token(user=ana, name="ci", expires_in_days=30, scopes=["jobs:read"])
    now = old.created_at + 10 * DAY
    new, other = rotate_token(actor=ana, token=old, now=now, overlap_hours=24)
    assert new.expires_at is not None
    assert new.expires_at - (now + 30 * DAY) < timedelta(minutes=1)
    assert (new.rotated_from, new.scopes, new.user_id) == (old, ["jobs:read"], ana.pk)
    assert find_token(text, now + DAY - MICRO) == old
    assert find_token(text, now + DAY) is None
    assert find_token(other, now + DAY) == new


def test_rotating_prolongs_neither_what_ends_sooner_nor_what_was_made_for_too_long(ana: User) -> None:
    short, _ = create_token(user=ana, name="short", expires_in_days=1)
    assert short.expires_at is not None
    rotate_token(actor=ana, token=short, now=short.expires_at - timedelta(hours=1), overlap_hours=24)
    assert ApiToken.objects.get(pk=short.pk).expires_at == short.expires_at
    long, _ = create_token(user=ana, name="long", expires_in_days=5_000)
    new, _ = rotate_token(actor=ana, token=long, now=NOW)
    assert new.expires_at == NOW + 366 * DAY
    endless, _ = create_token(user=ana, name="endless", expires_in_days=None)
    assert rotate_token(actor=ana, token=endless, now=NOW)[0].expires_at is None
    assert ApiToken.objects.get(pk=endless.pk).expires_at == NOW + DAY


@pytest.mark.parametrize("end", ["expired", "revoked", "rotated"])
def test_what_has_ended_is_not_rotated(ana: User, end: str) -> None:
    token, _ = create_token(user=ana, name="ci", expires_in_days=1)
    assert token.expires_at is not None
    now = token.expires_at - MICRO
    if end == "revoked":
        revoke_token(actor=ana, token=token)
    elif end == "rotated":
        rotate_token(actor=ana, token=token, now=now, overlap_hours=0)
        now = token.created_at
    count = ApiToken.objects.count()
    with pytest.raises(TokenEnded):
        rotate_token(actor=ana, token=token, now=token.expires_at if end == "expired" else now)
    assert ApiToken.objects.count() == count


def test_a_token_that_acts_rotates_none_into_a_wider_one(ana: User) -> None:
    wide, _ = create_token(user=ana, name="wide", scopes=["jobs:read", "jobs:write"])
    actor = acting(ana, scopes=["jobs:read"])
    with pytest.raises(WiderToken):
        rotate_token(actor=actor, token=wide, now=timezone.now())
    assert not ApiToken.objects.filter(rotated_from=wide).exists()


# Invitations -----------------------------------------------------------------------------------------------


def invited(project: Project, email: str = "ana@example.org", role: str = "viewer", **more: Any) -> str:
    root = User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("root@example.org", "x")
    return invite(actor=root, project=project, email=email, role=role, now=NOW, **more)[1]


@pytest.mark.parametrize(
    ("held", "role", "becomes"),
    [
        (None, "viewer", "viewer"),
        ("viewer", "member", "member"),
        ("manager", "viewer", "manager"),
        ("manager", "member", "manager"),
        ("manager", "manager", "manager"),
        ("member", "manager", "manager"),
    ],
)
def test_an_invitation_makes_no_manager_less(
    ana: User, project: Project, held: str | None, role: str, becomes: str
) -> None:
    if held:
        Membership.objects.create(project=project, user=ana, role=held)
    accept_invitation(secret=invited(project, role=role), user=ana, now=NOW)
    assert Membership.objects.get(project=project, user=ana, by_directory=False).role == becomes
    assert AuditEntry.objects.filter(action="invitation.accept", actor=ana).count() == 1


def test_a_manager_by_the_directory_gets_a_role_of_their_own(ana: User, project: Project) -> None:
    Membership.objects.create(project=project, user=ana, role="manager", by_directory=True)
    accept_invitation(secret=invited(project, role="member"), user=ana, now=NOW)
    assert Membership.objects.get(project=project, user=ana, by_directory=False).role == "member"


def test_a_manager_elsewhere_gets_the_role_of_the_invitation_here(ana: User, project: Project) -> None:
    there = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=there, user=ana, role="manager")
    accept_invitation(secret=invited(project, role="viewer"), user=ana, now=NOW)
    assert {row.project_id: row.role for row in Membership.objects.all()} == {there.pk: "manager", project.pk: "viewer"}


def test_where_somebody_else_manages_one_joins_all_the_same(ana: User, project: Project) -> None:
    bo = User.objects.create_user("bo@example.org", "x")
    Membership.objects.create(project=project, user=bo, role="manager")
    accept_invitation(secret=invited(project, role="viewer"), user=ana, now=NOW)
    roles = {row.user_id: row.role for row in Membership.objects.filter(project=project)}
    assert roles == {bo.pk: "manager", ana.pk: "viewer"}


def test_an_invitation_counts_until_its_last_moment_and_once(ana: User, project: Project) -> None:
    secret = invited(project, expires_in_days=2)
    find_invitation(secret, NOW + 2 * DAY - MICRO)
    for late in (NOW + 2 * DAY, NOW + 3 * DAY):
        with pytest.raises(BadInvitation):
            accept_invitation(secret=secret, user=ana, now=late)
    with pytest.raises(BadInvitation):
        find_invitation(secret + "x", NOW)
    accept_invitation(secret=secret, user=ana, now=NOW)
    row = Invitation.objects.get()
    assert (row.accepted_by, row.accepted_at) == (ana, NOW)
    with pytest.raises(BadInvitation):
        accept_invitation(secret=secret, user=ana, now=NOW)


@pytest.mark.parametrize("end", ["revoked", "again", "archived", "demoted"])
def test_an_invitation_ends_with_what_it_rests_on(ana: User, project: Project, end: str) -> None:
    secret = invited(project)
    row = Invitation.objects.get()
    elsewhere = invited(Project.objects.create(key="speech", name="Speech"), "Ana@Example.org")
    other = invited(project, "bo@example.org")
    if end == "revoked":
        for _ in range(2):
            revoke_invitation(actor=row.created_by, invitation=row, now=NOW)
        assert AuditEntry.objects.filter(action="invitation.revoke").count() == 1
    elif end == "again":
        find_invitation(invited(project, "ANA@example.org"), NOW)
    elif end == "archived":
        Project.objects.filter(pk=project.pk).update(archived_at=NOW)
    else:
        User.objects.filter(is_superuser=True).update(is_superuser=False)
    with pytest.raises(BadInvitation):
        accept_invitation(secret=secret, user=ana, now=NOW)
    assert not Membership.objects.filter(user=ana).exists()
    if end in ("revoked", "again"):
        find_invitation(elsewhere, NOW)
        find_invitation(other, NOW)


def test_an_invitation_is_for_one_address(ana: User, project: Project) -> None:
    secret = invited(project, "BO@example.org")
    with pytest.raises(OtherAccount):
        accept_invitation(secret=secret, user=ana, now=NOW)
    assert not Membership.objects.exists()
    assert Invitation.objects.get().accepted_at is None
    bo = User.objects.create_user("bo@example.org", "x")
    with pytest.raises(OtherAccount, match="has an account"):
        accept_invitation(secret=secret, user=None, now=NOW, password="correct horse battery")
    accept_invitation(secret=secret, user=bo, now=NOW)
    assert Membership.objects.get().user == bo


# The audit log ---------------------------------------------------------------------------------------------


def chain(*targets: str) -> list[dict[str, Any]]:
    rows, before = list[dict[str, Any]](), GENESIS
    for position, target in enumerate(targets, start=1):
        row = dict.fromkeys(SEALED, "") | {"position": position, "previous_hash": before, "target": target, "at": NOW}
        row["hash"] = before = _hash(row)
        rows.append(row)
    return rows


def _hash(row: dict[str, Any]) -> str:
    return hashlib.sha256(sealed_text(row).encode()).hexdigest()


def _rewritten(rows: list[dict[str, Any]]) -> None:
    rows[1]["target"] = "forged"
    rows[1]["hash"] = _hash(rows[1])


def _left_out(rows: list[dict[str, Any]]) -> None:
    del rows[1]


def _renumbered(rows: list[dict[str, Any]]) -> None:
    del rows[1]
    rows[1]["position"] = 2
    rows[1]["hash"] = _hash(rows[1])


def _altered(rows: list[dict[str, Any]]) -> None:
    rows[2]["target"] = "forged"


@pytest.mark.parametrize(
    ("forge", "position", "problem"),
    [
        (lambda rows: None, 3, None),
        (_rewritten, 3, "entry 3 does not follow entry 2"),
        (_left_out, 1, "after entry 1 comes 3: entries are missing"),
        (_renumbered, 2, "entry 2 does not follow entry 1"),
        (_altered, 3, "entry 3 is not what was written"),
    ],
)
def test_the_first_entry_that_is_not_as_it_was_written_is_named(forge: Any, position: int, problem: str | None) -> None:
    rows = chain("a", "b", "c")
    forge(rows)
    verdict = verify_chain(rows)
    assert (verdict.position, verdict.problem) == (position, problem)
