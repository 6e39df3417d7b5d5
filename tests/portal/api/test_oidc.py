"""Signing in by OpenID Connect at a real provider: allauth's own, in another process, over real HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from accounts import unix_accounts
from accounts.directory import apply_groups
from accounts.grants import Grant
from accounts.models import AuditEntry, Invitation, Membership, Project, User
from accounts.people import deactivate_user
from accounts.selectors import role_in
from accounts.tokens import create_token
from portal.config import env
from portal.notices.models import Delivery, Destination
from tests.portal.api.test_api_access import Browser
from tests.portal.api_calls import Api
from tests.supervisor.running import ROOT

pytestmark = pytest.mark.django_db
LOGIN = "/accounts/oidc/sso/login/"
CALLBACK = "http://testserver/accounts/oidc/sso/login/callback/"
DORA = {"email": "dora@example.org", "email_verified": True, "name": "Dora Example"}


@dataclass
class Provider:
    url: str
    folder: Path

    def says(self, **claims: Any) -> None:
        """What it claims of its one person from now on."""
        (self.folder / "claims.json").write_text(json.dumps({"dora": DORA | claims}))

    def sign_in(self, address: str) -> str:
        """As a browser there: from its authorisation page, with the password, to the address it sends back to."""
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=20) as browser:
            page = browser.get(address)
            form = browser.get(httpx.URL(address).join(page.headers["Location"]))
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)
            assert token
            data = {"login": "dora", "password": "dora's password", "csrfmiddlewaretoken": token[1]}
            back = browser.post(form.url, data=data, headers={"Referer": str(form.url)})
            return str(browser.get(form.url.join(back.headers["Location"])).headers["Location"])


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    folder = tmp_path_factory.mktemp("idp")
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(*pem))
    (folder / "claims.json").write_text("{}")
    environment = {**os.environ, "IDP_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.idp.serve", CALLBACK]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
    try:
        assert process.stdout
        port = process.stdout.readline().strip()
        assert port, (folder / "errors").read_text()
        yield Provider(f"http://127.0.0.1:{port}", folder)
    finally:
        process.kill()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def idp(provider: Provider, settings: Any, monkeypatch: Any) -> Iterator[Provider]:
    cache.clear()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    app = {
        "provider_id": "sso",
        "name": "Example",
        "client_id": "evenkeel",
        "secret": "the client's secret",
        "settings": {"server_url": provider.url},
    }
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
    settings.EVENKEEL_OIDC_ISSUER = provider.url
    settings.EVENKEEL_OIDC_NAME = "Example"
    settings.EVENKEEL_OIDC_GROUPS_CLAIM = "groups"
    settings.EVENKEEL_OIDC_GROUP_ROLES = {
        "vision-team": [Grant("vision", "member")],
        "leads": [Grant("vision", "manager")],
        "ops": [Grant()],
    }
    Project.objects.create(key="vision", name="Vision")
    provider.says()
    yield provider
    cache.clear()


def sign_in(idp: Provider) -> tuple[Client, Any]:
    """The whole way round; the portal's browser and its last answer."""
    client = Client()
    begun = client.get(LOGIN)
    assert begun.status_code == 302
    assert begun["Location"].startswith(idp.url)
    assert "code_challenge=" in begun["Location"]
    back = idp.sign_in(begun["Location"])
    assert back.startswith(CALLBACK)
    return client, client.get(back.removeprefix("http://testserver"))


def who(client: Client) -> Any:
    return client.get("/api/v1/session").json()["user"]


def test_the_session_says_how_people_sign_in(idp: Provider) -> None:
    assert Client().get("/api/v1/session").json()["single_sign_on"] == {"name": "Example", "url": LOGIN}


def test_somebody_new_gets_an_account_and_the_roles_of_their_groups(idp: Provider) -> None:
    idp.says(groups=["vision-team", "chess club"])
    client, answer = sign_in(idp)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert who(client)["email"] == "dora@example.org"
    dora = User.objects.get(email="dora@example.org")
    assert not dora.has_usable_password()
    assert not dora.is_superuser
    membership = Membership.objects.get(user=dora)
    assert (membership.project.key, membership.role, membership.by_directory) == ("vision", "member", True)
    assert AuditEntry.objects.filter(action="session.create", target="dora@example.org").exists()


def test_a_claim_names_the_unix_account_and_takes_it_away(
    idp: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_accounts, "check_name", lambda name: None)
    settings.EVENKEEL_OIDC_ACCOUNT_CLAIM = "unix_name"
    for said, kept in (("alice", "alice"), (["bea"], "bea"), (["a", "b"], ""), ("alice", "alice"), (None, "")):
        idp.says(**({} if said is None else {"unix_name": said}))
        client, _ = sign_in(idp)
        assert User.objects.get(pk=who(client)["id"]).unix_account == kept


def test_roles_come_and_go_with_the_groups(idp: Provider) -> None:
    idp.says(groups=["leads", "vision-team", "ops"])
    sign_in(idp)
    dora, vision = User.objects.get(email="dora@example.org"), Project.objects.get(key="vision")
    assert dora.is_superuser
    User.objects.create_superuser("root@example.org", "x")
    idp.says(groups="vision-team")
    sign_in(idp)
    dora = User.objects.get(pk=dora.pk)
    assert not dora.is_superuser
    assert role_in(dora, vision) == "member"
    Membership.objects.create(user=dora, project=vision, role="viewer")
    idp.says()
    sign_in(idp)
    assert role_in(dora, vision) == "viewer"
    changes = AuditEntry.objects.filter(action="project.member_by_directory").order_by("id")
    assert [c.detail["after"] for c in changes] == ["manager", "member", None]


def test_who_has_an_account_keeps_it_and_signs_in_by_the_directory_from_then_on(idp: Provider) -> None:
    """Whoever made the account knows its password, and need not be whom the address belongs to."""
    dora = User.objects.create_user("dora@example.org", "correct horse battery")
    client, _ = sign_in(idp)
    assert who(client)["id"] == dora.pk
    assert User.objects.count() == 1
    dora.refresh_from_db()
    assert not dora.has_usable_password()


def test_the_provider_may_write_an_address_in_another_case(idp: Provider) -> None:
    dora = User.objects.create_user("Dora@Example.org", "correct horse battery")
    idp.says(email="DORA@example.org")
    client, _ = sign_in(idp)
    assert who(client)["id"] == dora.pk
    assert list(User.objects.values_list("email", flat=True)) == ["dora@example.org"]
    idp.says(email="dora@example.org")
    assert who(sign_in(idp)[0])["id"] == dora.pk


def test_the_provider_may_write_a_domain_in_either_of_its_forms(idp: Provider) -> None:
    dora = User.objects.create_user("dora@xn--bcher-kva.example", "correct horse battery")
    for spelling in ("dora@b\u00fccher.example", "dora@xn--bcher-kva.example", "Dora@B\u00dcCHER.example"):
        idp.says(email=spelling)
        assert who(sign_in(idp)[0])["id"] == dora.pk
    dora.refresh_from_db()
    assert dora.address_proved_by == "identity_provider"
    assert User.objects.count() == 1


def test_an_address_of_letters_that_only_look_like_others_opens_nothing(idp: Provider) -> None:
    idp.says(email="bo\u017fs@example.org")
    client, answer = sign_in(idp)
    assert answer["Location"] == "/signin?error=unverified"
    assert who(client) is None
    assert not User.objects.exists()


def test_whoever_made_the_account_before_has_no_way_in_left(idp: Provider) -> None:
    """The address was invited and accepted by somebody else, who waits for its owner to sign in."""
    mallory = User.objects.create_user("mallory@example.org", "correct horse battery")
    vision = Project.objects.get(key="vision")
    Membership.objects.create(project=vision, user=mallory, role="manager")
    made = Api(mallory).post("projects/vision/invitations", {"email": "dora@example.org", "role": "manager"}).json
    browser = Browser()
    body = {"secret": made["link"].partition("#")[2], "name": "Dora", "password": "mallory's password"}
    assert browser.send("post", "invitations/accept", body).status_code == 200
    token = browser.send("post", "tokens", {"name": "later", "scopes": ["admin"], "expires_in_days": 366}).json()
    hook = {"kind": "email", "name": "spy", "events": ["job.failed"]}
    dora = User.objects.get(email="dora@example.org")
    spy = Destination.objects.create(user=dora, **hook, portal_url="http://testserver")
    Delivery.objects.create(destination=spy, event="job.failed", payload={}, next_attempt_at=timezone.now())
    browser.send("post", "projects/vision/invitations", {"email": "eve@example.org"})
    assert (dora.address_proved_by, dora.invited_by) == ("", mallory)

    idp.says(groups=["ops"])
    client, answer = sign_in(idp)
    assert answer["Location"] == "/"
    assert who(client)["id"] == dora.pk
    dora = User.objects.get(pk=dora.pk)
    assert (dora.is_superuser, dora.address_proved_by, dora.has_usable_password()) == (True, "identity_provider", False)
    assert Api(token=token["secret"]).get("people").status == 401
    assert browser.send("get", "session").json()["user"] is None
    again = {"email": "dora@example.org", "password": "mallory's password"}
    assert browser.send("post", "session", again).status_code == 401
    spy.refresh_from_db()
    assert (spy.enabled, "single sign-on" in spy.disabled_why) == (False, True)
    assert Delivery.objects.get().status == "given_up"
    assert not Invitation.objects.filter(email="eve@example.org", revoked_at=None).exists()
    assert role_in(dora, vision) == "manager"
    entry = AuditEntry.objects.get(action="user.connected")
    counted = {key: entry.detail[key] for key in ("tokens", "sessions", "destinations", "invitations", "password")}
    assert counted == {"tokens": 1, "sessions": 1, "destinations": 1, "invitations": 1, "password": True}
    assert (entry.detail["invited_by"], entry.detail["address_was_proved"]) == ("mallory@example.org", False)


def test_what_the_person_makes_afterwards_stays(idp: Provider) -> None:
    User.objects.create_user("dora@example.org", "correct horse battery")
    sign_in(idp)
    _, secret = create_token(user=User.objects.get(), name="mine")
    client, _ = sign_in(idp)
    assert Api(token=secret).get("jobs").status == 200
    assert who(client)["email"] == "dora@example.org"
    assert AuditEntry.objects.filter(action="user.connected").count() == 1


def test_another_identity_with_the_same_address_ends_what_the_first_one_made(idp: Provider) -> None:
    """An address is given to somebody new, or the site changes its provider."""
    sign_in(idp)
    dora = User.objects.get()
    _, secret = create_token(user=dora, name="hers")
    SocialAccount.objects.update(uid="the one before")
    EmailAddress.objects.all().delete()
    client, _ = sign_in(idp)
    assert who(client)["id"] == dora.pk
    assert Api(token=secret).get("jobs").status == 401
    assert SocialAccount.objects.get(user=dora).uid != "the one before"
    assert AuditEntry.objects.get(action="user.connected").detail["identities"] == 1


def test_an_address_that_was_given_up_leads_to_the_account_no_longer(idp: Provider) -> None:
    sign_in(idp)
    dora = User.objects.get()
    dora.email = "doris@example.org"
    dora.save()
    assert (dora.address_proved_at, dora.address_proved_by) == (None, "")
    SocialAccount.objects.all().delete()
    client, _ = sign_in(idp)
    assert who(client)["id"] != dora.pk


def test_an_address_that_nobody_vouches_for_opens_nothing(idp: Provider) -> None:
    User.objects.create_user("dora@example.org", "correct horse battery")
    idp.says(email_verified=False)
    client, answer = sign_in(idp)
    assert answer["Location"] == "/signin?error=unverified"
    assert who(client) is None


def test_a_deactivated_person_stays_out(idp: Provider) -> None:
    sign_in(idp)
    dora = User.objects.get()
    deactivate_user(actor=None, user=dora, now=timezone.now())
    client, answer = sign_in(idp)
    assert answer["Location"] == "/signin?error=inactive"
    assert who(client) is None


def test_an_answer_that_was_not_asked_for_is_refused(idp: Provider) -> None:
    begun = Client().get(LOGIN)
    back = idp.sign_in(begun["Location"])
    stranger = Client()
    answer = stranger.get(back.removeprefix("http://testserver"))
    assert answer["Location"] == "/signin?error=directory"
    assert who(stranger) is None
    assert AuditEntry.objects.filter(action="session.refused").exists()


def test_a_provider_that_is_away_is_said_so(idp: Provider, settings: Any) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"
    assert Client().get(LOGIN)["Location"] == "/signin?error=directory"


def test_without_an_issuer_there_is_no_such_page() -> None:
    assert Client().get(LOGIN).status_code == 404
    assert Client().get("/api/v1/session").json()["single_sign_on"] is None


def test_the_last_administrator_stays_one_whatever_the_directory_says() -> None:
    ana = User.objects.create_user("ana@example.org", "x")
    mapping = {"ops": [Grant()]}
    apply_groups(user=ana, groups=["ops"], mapping=mapping)
    apply_groups(user=ana, groups=[], mapping=mapping)
    assert User.objects.get().is_superuser


def test_an_administrator_made_by_hand_is_not_unmade_by_groups() -> None:
    User.objects.create_superuser("root@example.org", "x")
    ana = User.objects.create_superuser("ana@example.org", "x")
    apply_groups(user=ana, groups=[], mapping={"ops": [Grant()]})
    assert User.objects.get(pk=ana.pk).is_superuser


@pytest.mark.parametrize(
    "raw", ["[]", "{", '{"a": "root"}', '{"a": {"project": "x"}}', '{"a": {"project": "x", "role": "boss"}}']
)
def test_a_mapping_that_cannot_be_used_stops_the_start(raw: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVENKEEL_OIDC_GROUP_ROLES", raw)
    with pytest.raises(env.BadSetting, match="EVENKEEL_OIDC_GROUP_ROLES"):
        env.group_roles("EVENKEEL_OIDC_GROUP_ROLES")


def test_a_mapping_may_give_several_things(monkeypatch: Any) -> None:
    monkeypatch.setenv("EVENKEEL_OIDC_GROUP_ROLES", '{"a": ["admin", {"project": "x", "role": "viewer"}]}')
    assert env.group_roles("EVENKEEL_OIDC_GROUP_ROLES") == {"a": [Grant(), Grant("x", "viewer")]}
