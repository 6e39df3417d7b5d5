"""Every way an account can come to be, and every way it can be trusted for its address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from accounts.addresses import is_doubtful, is_proved, prove_address
from accounts.connecting import connect_account
from accounts.models import AuditEntry, Invitation, Membership, Project, Proof, User
from accounts.people import create_service_account
from tests.portal.api.test_api_access import Browser
from tests.portal.api.test_api_projects import secret_of
from tests.portal.api_calls import Api

pytestmark = pytest.mark.django_db
CEO = "ceo@bolt.example"
PASSWORD = "correct horse battery"
SENTENCE = "The account was made by invitation into Acme by mallory@acme.example; the address was never proved."


@pytest.fixture
def places() -> Iterator[dict[str, Api]]:
    """Two organisations with a manager each, and an administrator."""
    cache.clear()
    managers = {}
    for key, name in (("acme", "mallory"), ("bolt", "bob")):
        project = Project.objects.create(key=key, name=key.title())
        person = User.objects.create_user(f"{name}@{key}.example", PASSWORD)
        Membership.objects.create(project=project, user=person, role="manager")
        managers[key] = Api(person)
    managers["root"] = Api(User.objects.create_superuser("root@example.org", PASSWORD))
    yield managers
    cache.clear()


def accept(secret: str, **more: str) -> Any:
    return Browser().send("post", "invitations/accept", {"secret": secret, "name": "Ceo", "password": PASSWORD, **more})


def by_createsuperuser(places: dict[str, Api], settings: Any) -> None:
    call_command("createsuperuser", email=CEO, interactive=False)
    User.objects.filter(email=CEO).update(is_superuser=False, is_staff=False)


def by_the_administration(places: dict[str, Api], settings: Any) -> None:
    client = Client()
    client.force_login(User.objects.get(email="root@example.org"))
    body = {"email": CEO, "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    assert client.post("/admin/accounts/user/add/", body).status_code == 302


def by_a_link_that_was_shown(places: dict[str, Api], settings: Any) -> None:
    made = places["acme"].post("projects/acme/invitations", {"email": CEO}).json
    assert accept(secret_of(made)).status_code == 200


def by_a_link_that_was_mailed(places: dict[str, Api], settings: Any) -> None:
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    made = places["acme"].post("projects/acme/invitations", {"email": CEO}).json
    assert (made["link"], made["mailed"]) == (None, True)
    assert accept(mail.outbox[-1].body.partition("/invitation#")[2].split()[0]).status_code == 200
    settings.EVENKEEL_EMAIL_URL = ""


def shown_then_mailed(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_shown(places, settings)
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    places["bolt"].post("projects/bolt/invitations", {"email": CEO, "role": "viewer"})
    secret = mail.outbox[-1].body.partition("/invitation#")[2].split()[0]
    browser = Browser()
    browser.send("post", "session", {"email": CEO, "password": PASSWORD})
    assert browser.send("post", "invitations/accept", {"secret": secret}).status_code == 200
    Membership.objects.filter(user__email=CEO, project__key="bolt").delete()
    settings.EVENKEEL_EMAIL_URL = ""


def by_the_provider(places: dict[str, Api], settings: Any) -> None:
    """As accounts.oidc does at the first sign-in; tests/portal/api/test_oidc.py has a real provider."""
    user = User.objects.create_user(CEO)
    prove_address(user=user, by=Proof.IDENTITY_PROVIDER, now=timezone.now())


def shown_then_connected(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_shown(places, settings)
    user = User.objects.get(email=CEO)
    connect_account(user=user, now=timezone.now())
    prove_address(user=user, by=Proof.IDENTITY_PROVIDER, now=timezone.now())


def mailed_then_changed(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_mailed(places, settings)
    user = User.objects.get(email=CEO)
    user.email = "other@acme.example"
    user.save()
    user.email = CEO
    user.save(update_fields=["email"])


def shown_with_a_new_password(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_shown(places, settings)
    user = User.objects.get(email=CEO)
    user.set_password("another horse battery")
    user.save()


#: How an account came to be -> how its address was proved, and whether it takes a confirmation to trust it.
ORIGINS: dict[Callable[[dict[str, Api], Any], None], tuple[str, bool]] = {
    by_createsuperuser: ("", False),
    by_the_administration: ("", False),
    by_a_link_that_was_shown: ("", True),
    by_a_link_that_was_mailed: ("mail", False),
    shown_then_mailed: ("mail", False),
    by_the_provider: ("identity_provider", False),
    shown_then_connected: ("identity_provider", False),
    mailed_then_changed: ("", True),
    shown_with_a_new_password: ("", True),
}


def added(places: dict[str, Api], ceo: User, confirmed: bool) -> bool:
    body = {"email": CEO.upper(), "role": "viewer", **({"confirm_unproved": True} if confirmed else {})}
    return asked(places["bolt"].post("projects/bolt/members", body))


def raised(places: dict[str, Api], ceo: User, confirmed: bool) -> bool:
    Membership.objects.create(project=Project.objects.get(key="bolt"), user=ceo, role="viewer")
    body = {"role": "manager", **({"confirm_unproved": True} if confirmed else {})}
    return asked(places["bolt"].patch(f"projects/bolt/members/{ceo.pk}", body))


def made_administrator(places: dict[str, Api], ceo: User, confirmed: bool) -> bool:
    body = {"is_admin": True, **({"confirm_unproved": True} if confirmed else {})}
    return asked(places["root"].patch(f"people/{ceo.pk}", body))


def added_in_the_administration(places: dict[str, Api], ceo: User, confirmed: bool) -> bool:
    client, bolt = Client(), Project.objects.get(key="bolt")
    client.force_login(User.objects.get(email="root@example.org"))
    bob = Membership.objects.get(project=bolt, user__email="bob@bolt.example")
    body = {"key": "bolt", "name": "Bolt", "parent": "", "share_weight": 1, "inner_rule": "fairness", "priority": ""}
    body |= {"memberships-TOTAL_FORMS": 2, "memberships-INITIAL_FORMS": 1, "quotas-TOTAL_FORMS": 0}
    body |= {"quotas-INITIAL_FORMS": 0, "memberships-0-id": bob.pk, "memberships-0-project": bolt.pk}
    body |= {"memberships-0-user": bob.user_id, "memberships-0-role": "manager", "memberships-1-user": ceo.pk}
    body |= {"memberships-1-role": "viewer", "memberships-1-project": bolt.pk}
    body |= {"memberships-1-confirm_unproved": "on"} if confirmed else {}
    response = client.post(f"/admin/accounts/project/{bolt.pk}/change/", body)
    assert response.status_code in (200, 302)
    assert (response.status_code == 302) is Membership.objects.filter(project=bolt, user=ceo).exists()
    return response.status_code == 200


TRUSTS = (added, raised, made_administrator, added_in_the_administration)


def asked(answer: Any) -> bool:
    if answer.status == 409:
        assert answer.fields == ["confirm_unproved"]
        assert SENTENCE in answer.json["detail"]
        return True
    assert answer.status in (200, 201), answer.text
    return False


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.__name__)
@pytest.mark.parametrize("trust", TRUSTS, ids=lambda trust: trust.__name__)
def test_trust_in_an_address_is_asked_for(places: dict[str, Api], settings: Any, origin: Any, trust: Any) -> None:
    proved_by, doubtful = ORIGINS[origin]
    origin(places, settings)
    ceo = User.objects.get(email=CEO)
    assert (ceo.address_proved_by, is_proved(ceo), is_doubtful(ceo)) == (proved_by, bool(proved_by), doubtful)
    assert (ceo.address_proved_at is None) is (proved_by == "")
    assert trust(places, ceo, False) is doubtful
    if doubtful:
        assert trust_again(trust, places, ceo) is False


def trust_again(trust: Any, places: dict[str, Api], ceo: User) -> bool:
    Membership.objects.filter(user=ceo, project__key="bolt").delete()
    return bool(trust(places, ceo, True))


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.__name__)
def test_lists_mark_what_is_unproved(places: dict[str, Api], settings: Any, origin: Any) -> None:
    proved_by, doubtful = ORIGINS[origin]
    origin(places, settings)
    bolt = Project.objects.get(key="bolt")
    Membership.objects.create(project=bolt, user=User.objects.get(email=CEO), role="viewer")
    viewer = User.objects.create_user("vi@bolt.example", PASSWORD)
    Membership.objects.create(project=bolt, user=viewer, role="viewer")
    seen = {
        name: of(CEO, api.get("projects/bolt/members")) for name, api in (("m", places["bolt"]), ("v", Api(viewer)))
    }
    person = next(p for p in places["root"].get("people").json["results"] if p["email"] == CEO)
    assert [one["address_proved"] for one in seen.values()] == [bool(proved_by)] * 2
    assert person["address_proved_by"] == (proved_by or None)
    assert (person["provenance"] is None, seen["m"]["provenance"] is None) == (bool(proved_by), bool(proved_by))
    assert seen["v"]["provenance"] is None, "viewers learn nothing of other organisations"
    assert (person["provenance"] == SENTENCE) is doubtful


def of(email: str, answer: Any) -> dict[str, Any]:
    return next(member for member in answer.json["results"] if member["user"]["email"] == email)


def test_the_first_administrator_has_proved_nothing() -> None:
    call_command("bootstrap", admin_email=CEO, print_json=True, stdout=StringIO())
    first = User.objects.get()
    assert (first.is_superuser, is_proved(first), is_doubtful(first)) == (True, False, False)


def test_service_accounts_have_no_address_to_prove(places: dict[str, Api]) -> None:
    bolt, bob = Project.objects.get(key="bolt"), User.objects.get(email="bob@bolt.example")
    account = create_service_account(actor=bob, project=bolt, name="ci", role="member")
    member = of(account.email, places["bolt"].get("projects/bolt/members"))
    assert (member["address_proved"], member["provenance"]) == (True, None)


def test_a_lower_or_the_same_role_is_not_asked_about(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_shown(places, settings)
    ceo = User.objects.get(email=CEO)
    Membership.objects.create(project=Project.objects.get(key="bolt"), user=ceo, role="manager")
    for role in ("manager", "member", "viewer"):
        assert not asked(places["bolt"].patch(f"projects/bolt/members/{ceo.pk}", {"role": role}))
    assert asked(places["bolt"].patch(f"projects/bolt/members/{ceo.pk}", {"role": "member"}))


def test_a_role_that_reaches_down_is_raised_below_only_if_confirmed(places: dict[str, Api], settings: Any) -> None:
    by_a_link_that_was_shown(places, settings)
    ceo, bolt = User.objects.get(email=CEO), Project.objects.get(key="bolt")
    Membership.objects.create(project=bolt, user=ceo, role="viewer")
    Project.objects.create(key="below", name="Below", parent=bolt)
    assert asked(places["bolt"].post("projects/below/members", {"email": CEO, "role": "manager"}))
    assert asked(places["bolt"].patch(f"projects/below/members/{ceo.pk}", {"role": "manager"}))


def test_the_inviter_cannot_accept_what_was_mailed(places: dict[str, Api], settings: Any) -> None:
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    made = places["acme"].post("projects/acme/invitations", {"email": CEO})
    secret = mail.outbox[-1].body.partition("/invitation#")[2].split()[0]
    assert secret not in made.text
    assert secret not in places["acme"].get("projects/acme/invitations").text
    assert secret not in str(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_a_link_that_cannot_be_mailed_is_shown_to_nobody(
    places: dict[str, Api], settings: Any, monkeypatch: Any
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("550 no such mailbox")

    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    monkeypatch.setattr("portal.api.people.invitations.send_mail", refuse)
    answer = places["acme"].post("projects/acme/invitations", {"email": CEO})
    assert (answer.status, "link" in answer.json) == (503, False)
    assert Invitation.objects.get().revoked_at is not None


@pytest.mark.parametrize(
    ("host", "begins"),
    [
        ("testserver", "http://testserver/invitation#"),
        ("testserver:8800", "http://testserver:8800/invitation#"),
        ("testserver:7788", "https://portal.example.org/invitation#"),
        ("localhost:7788", "https://portal.example.org/invitation#"),
    ],
)
def test_a_mailed_link_leads_to_no_port_that_the_inviter_chose(
    places: dict[str, Api], settings: Any, host: str, begins: str
) -> None:
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    settings.ALLOWED_HOSTS = ["testserver", "localhost"]
    settings.EVENKEEL_PORT = 8800
    trusted = begins.startswith("https")
    settings.CSRF_TRUSTED_ORIGINS = ["https://*.example.net", "https://portal.example.org"] if trusted else []
    answer = places["acme"].request("POST", "projects/acme/invitations", {"email": CEO}, Host=host)
    assert answer.status == 201
    assert begins in mail.outbox[-1].body


def test_an_unknown_port_is_refused_where_nothing_says_which_is_the_portals(
    places: dict[str, Api], settings: Any
) -> None:
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    answer = places["acme"].request("POST", "projects/acme/invitations", {"email": CEO}, Host="testserver:7788")
    assert answer.status == 400
    assert "EVENKEEL_TRUSTED_ORIGINS" in answer.json["detail"]
    assert not mail.outbox


def test_the_sso_password_and_second_invitations_change_nothing_back(places: dict[str, Api], settings: Any) -> None:
    shown_then_connected(places, settings)
    made = places["acme"].post("projects/acme/invitations", {"email": CEO}).json
    assert accept(secret_of(made)).status_code == 409
    ceo = User.objects.get(email=CEO)
    assert (ceo.has_usable_password(), ceo.address_proved_by) == (False, "identity_provider")
    assert Browser().send("post", "session", {"email": CEO, "password": PASSWORD}).status_code == 401
