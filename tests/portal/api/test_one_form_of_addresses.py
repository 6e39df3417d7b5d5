"""An address that only looks like another one, or is another spelling of it, makes no account beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from accounts import attempts
from accounts.audit import record_audit
from accounts.mail_address import checked, normalized
from accounts.models import Membership, Project, User
from accounts.oidc import AccountAdapter
from tests.cases import in_turn
from tests.portal.api.test_api_access import Browser
from tests.portal.api_calls import Api

pytestmark = pytest.mark.django_db
CEO, ANA = "ceo@bolt.example", "ana@xn--bcher-kva.example"
PASSWORD = "correct horse battery"
#: The same as `CEO` and `ANA` for DNS or any mail server.
SPELLINGS = {
    CEO: [
        "CEO@Bolt.Example",
        "ceo@bolt.example.",
        "ceo@\uff42\uff4f\uff4c\uff54.example",
        "ceo@bolt\u3002example",
        "ceo@BOLT\uff0eexample",
    ],
    ANA: ["ana@bücher.example", "ana@bu\u0308cher.example", "ana@BÜCHER.example.", "Ana@XN--Bcher-KVA.example"],
}
SPELT = [(spelling, address) for address, spellings in SPELLINGS.items() for spelling in spellings]
LOOKALIKES = {
    "\uff43eo@bolt.example": "U\\+FF43 .* write c",
    "ce\u00ba@bolt.example": "U\\+00BA .* write o",
    "bo\u017fs@bolt.example": "U\\+017F .* write s",
    "o\ufb03ce@bolt.example": "U\\+FB03 .* write ffi",
    "\U0001d41ceo@bolt.example": "write c",
    "ceo@bo\u2488t.example": "a domain that DNS can have",
    "ceo@\u2603.example": "a domain that DNS can have",
    f"{'a' * 60}@{'ü.' * 24}example": "at most 254 characters",
}


@pytest.fixture(autouse=True)
def _nobody_counts() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def manager() -> Api:
    acme = Project.objects.create(key="acme", name="Acme")
    person = User.objects.create_user("mallory@acme.example", PASSWORD)
    Membership.objects.create(project=acme, user=person, role="manager")
    return Api(person)


@in_turn(("spelling", "address"), SPELT)
def test_spellings_of_an_address_are_one(spelling: str, address: str) -> None:
    assert checked(spelling) == normalized(spelling) == address
    assert checked(address) == address
    user = User.objects.create_user(spelling, PASSWORD)
    assert user.email == address
    client = Client()
    assert client.login(username=spelling, password=PASSWORD)
    assert client.login(username=address, password=PASSWORD)


def test_other_letters_are_other_people() -> None:
    """Also where an older rule of names in DNS made them one."""
    assert checked("ana@straße.example") != checked("ana@strasse.example")
    assert checked("ana@\u0430pple.example") == "ana@xn--pple-43d.example"  # shown so that it cannot be mistaken
    assert checked("иван@bolt.example") == "иван@bolt.example"


@in_turn(("spelling", "address"), SPELT)
def test_an_invitation_is_for_the_one_account(manager: Api, spelling: str, address: str) -> None:
    made = manager.post("projects/acme/invitations", {"email": spelling})
    assert (made.status, made.json["email"]) == (201, address)
    User.objects.create_user(address, PASSWORD)
    secret = made.json["link"].partition("#")[2]
    taken = Browser().send("post", "invitations/accept", {"secret": secret, "name": "Ceo", "password": PASSWORD})
    assert (taken.status_code, "has an account" in taken.text) == (409, True)
    assert manager.post("projects/acme/members", {"email": spelling}).json["user"]["email"] == address
    assert User.objects.filter(email=address).count() == 1


@pytest.mark.parametrize(("spelling", "address"), SPELT)
def test_whoever_is_looked_for_is_found_by_any_spelling(manager: Api, spelling: str, address: str) -> None:
    person = User.objects.create_user(address, PASSWORD)
    Membership.objects.create(project=Project.objects.get(), user=person, role="viewer")
    root = Api(User.objects.create_superuser("root@example.org", PASSWORD))
    record_audit(actor=person, action="access.tried", target="a")
    for api, path, wish in (
        (root, "people", "email"),
        (root, "people", "search"),
        (manager, "projects/acme/members", "email"),
        (root, "audit", "actor"),
    ):
        rows = api.get(f"{path}?{urlencode({wish: spelling})}").json["results"]
        assert len(rows) == 1, (path, wish)
        assert address in json.dumps(rows), (path, wish)


def _save(email: str) -> object:
    return User.objects.create_user(email, PASSWORD)


def _change(email: str) -> None:
    user = User.objects.create_user("old@bolt.example", PASSWORD)
    user.email = email
    user.save(update_fields=["email"])


ENTRANCES: list[tuple[Callable[[str], object], type[Exception]]] = [
    (_save, ValueError),
    (_change, ValueError),
    (AccountAdapter().clean_email, ValidationError),
    (lambda email: call_command("bootstrap", admin_email=email), CommandError),
]


@in_turn(("address", "words"), LOOKALIKES.items())
@in_turn(("entrance", "error"), ENTRANCES)
def test_lookalikes_are_refused_at_each_entrance(
    entrance: Callable[[str], object], error: type[Exception], address: str, words: str
) -> None:
    with pytest.raises(error, match=words):
        entrance(address)
    assert not User.objects.exclude(email="old@bolt.example").exists()


@in_turn("address", LOOKALIKES)
def test_lookalikes_are_neither_invited_nor_added(manager: Api, address: str) -> None:
    for path in ("invitations", "members"):
        answer = manager.post(f"projects/acme/{path}", {"email": address})
        assert (answer.status, "email" in answer.text) == (400, True)


def test_the_administration_makes_them_plain_or_says_what_is_wrong() -> None:
    """As Django does it with names of users."""
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.org", PASSWORD))
    User.objects.create_user("boss@bolt.example", PASSWORD)
    body = {"usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    for address, words in (
        ("bo\u017fs@bolt.example", "with this Email already exists"),
        ("ana@\u2603.example", "must have a domain that DNS can have"),
    ):
        page = client.post("/admin/accounts/user/add/", {"email": address} | body)
        assert words in str(page.context["adminform"].form.errors)


def test_what_is_no_address_finds_nobody() -> None:
    for text in ("", "ana", "@", "ana@", "a@b@ü", "ana@" + "ü" * 300, "ana@..ü", "\ud800@ü", "ana@xn--\ud800"):
        assert not Client().login(username=text.encode("utf-8", "replace").decode(), password=PASSWORD)
        assert normalized(text) == normalized(normalized(text))


def test_attempts_at_an_account_count_together_however_it_is_written() -> None:
    keys = {attempts._keys("192.0.2.7", spelling)[attempts.ACCOUNT] for spelling in SPELLINGS[ANA]}
    assert len(keys) == 1
