"""Destinations through the API: one's own alone, secrets that nobody reads back, and tests that say what came back."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from accounts.people import create_service_account
from accounts.tokens import ALL_SCOPES, create_token
from portal.lifecycle.cancel import cancel_job
from portal.notices.deliveries import deliver_due
from portal.notices.models import Delivery, Destination
from portal.notices.outbox import take_in
from portal.notices.services import MAX_DESTINATIONS
from portal.notices.transport.signing import sign
from tests.portal.api_calls import Answer, Api
from tests.portal.receiver import Receiver, receiving
from tests.portal.world import World

pytestmark = pytest.mark.django_db
PATH = "notifications/destinations"
URL = "https://hooks.example.org/path-that-is-a-secret?key=s3cret"


@pytest.fixture
def world() -> World:
    cache.clear()
    return World()


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    with receiving() as receiver:
        yield receiver


def create(api: Api, **keys: Any) -> Answer:
    body = {"kind": "webhook", "name": "ends", "url": URL, "events": ["job.cancelled", "job.failed"]} | keys
    return api.post(PATH, {key: value for key, value in body.items() if value is not ...})


def cancel_one(world: World) -> None:
    cancel_job(user=world.user, job=world.submit())
    take_in(timezone.now())
    deliver_due(timezone.now())


class TestOwning:
    def test_it_is_made_listed_changed_and_removed(self, api: Api) -> None:
        made = create(api)
        assert made.status == 201
        assert made.json["secret"].startswith("whsec_")
        number = made.json["id"]
        shown = api.get(f"{PATH}/{number}").json
        assert shown == {key: value for key, value in made.json.items() if key != "secret"}
        assert (shown["address"], shown["waiting_minutes"], shown["own_jobs"]) == (
            "https://hooks.example.org",
            60,
            True,
        )
        changed = api.patch(f"{PATH}/{number}", {"events": ["job.started"], "waiting_minutes": 5, "project": "vision"})
        assert (changed.json["events"], changed.json["project"]) == (["job.started"], "vision")
        assert api.patch(f"{PATH}/{number}", {"project": None}).json["project"] is None
        listed = api.get(PATH).json
        assert [row["waiting_minutes"] for row in listed["results"]] == [5]
        assert api.delete(f"{PATH}/{number}").status == 204
        assert api.get(PATH).json["results"] == []
        written = AuditEntry.objects.filter(target=f"destination {number}").order_by("pk")
        assert list(written.values_list("action", flat=True)) == [
            "destination.create", "destination.change", "destination.change", "destination.remove",
        ]  # fmt: skip

    def test_addresses_and_secrets_are_stored_encrypted_and_shown_to_nobody(self, api: Api) -> None:
        made = create(api)
        secret = made.json["secret"]
        row = Destination.objects.get()
        stored = " ".join(str(getattr(row, field.attname)) for field in row._meta.concrete_fields)
        audited = " ".join(str(entry.detail) for entry in AuditEntry.objects.all())
        said = api.get(PATH).text + api.get(f"{PATH}/{row.pk}").text + stored + audited
        for hidden in ("path-that-is-a-secret", "s3cret", secret):
            assert hidden not in said

    def test_other_people_s_are_not_there(self, api: Api, world: World) -> None:
        number = create(api).json["id"]
        delivery = Delivery.objects.create(
            destination_id=number, event="job.failed", payload={"data": {"text": ""}}, status="given_up"
        )
        other = Api(User.objects.create_superuser("root@example.org", "x"))
        assert other.get(PATH).json["results"] == []
        for method, path in (
            ("GET", f"{PATH}/{number}"),
            ("PATCH", f"{PATH}/{number}"),
            ("DELETE", f"{PATH}/{number}"),
            ("POST", f"{PATH}/{number}/test"),
            ("POST", f"{PATH}/{number}/rotate"),
            ("GET", f"{PATH}/{number}/deliveries"),
            ("POST", f"notifications/deliveries/{delivery.pk}/again"),
        ):
            assert other.request(method, path, {} if method == "PATCH" else None).status == 404, (method, path)

    def test_people_have_so_many_at_most(self, api: Api) -> None:
        for _ in range(MAX_DESTINATIONS):
            assert create(api).status == 201
        refused = create(api)
        assert (refused.status, refused.fields) == (400, ["name"])

    @pytest.mark.parametrize(
        ("keys", "field"),
        [
            ({"url": ...}, "url"),
            ({"url": "http://hooks.example.org/"}, "url"),
            ({"url": "https://10.0.0.1/"}, "url"),
            ({"url": "https://user:x@hooks.example.org/"}, "url"),
            ({"kind": "pigeon"}, "kind"),
            ({"kind": "email"}, "url"),
            ({"kind": "email", "url": ...}, "kind"),
            ({"events": []}, "events"),
            ({"events": ["job.exploded"]}, "events.0"),
            ({"events": ["node.lost"]}, "events"),
            ({"own_jobs": False}, "project"),
            ({"project": "nothing"}, "project"),
            ({"project": "speech"}, "project"),
            ({"waiting_minutes": 0}, "waiting_minutes"),
            ({"name": ""}, "name"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_every_error_names_its_field(self, api: Api, keys: dict[str, Any], field: str) -> None:
        Project.objects.create(key="speech", name="Speech")
        refused = create(api, **keys)
        assert (refused.status, refused.fields) == (400, [field])
        assert "s3cret" not in refused.text
        assert not Destination.objects.exists()

    def test_a_token_of_one_project_reaches_no_other(self, api: Api, world: World) -> None:
        speech = Project.objects.create(key="speech", name="Speech")
        Membership.objects.create(project=speech, user=world.user)
        outside = create(api).json["id"]
        bound = Api(token=create_token(user=world.user, name="b", scopes=ALL_SCOPES, project=speech)[1])
        made = create(bound)
        assert made.json["project"] == "speech"
        assert create(bound, project="vision").fields == ["project"]
        assert bound.patch(f"{PATH}/{made.json['id']}", {"project": None}).json["project"] == "speech"
        assert [row["id"] for row in bound.get(PATH).json["results"]] == [made.json["id"]]
        assert bound.get(f"{PATH}/{outside}").status == 404

    def test_two_who_change_it_do_not_undo_each_other(self, api: Api) -> None:
        number = create(api).json["id"]
        tag = api.get(f"{PATH}/{number}").headers["ETag"]
        assert api.patch(f"{PATH}/{number}", {"name": "a"}, if_match=tag).status == 200
        assert api.patch(f"{PATH}/{number}", {"name": "b"}, if_match=tag).status == 412


class TestEmail:
    def test_it_is_offered_where_mail_is_set_up_and_goes_to_one_s_own_address(
        self, api: Api, world: World, settings: Any
    ) -> None:
        assert api.get(PATH).json["email_available"] is False
        refused = create(api, kind="email", url=...)
        assert "This portal sends no e-mail" in refused.json["errors"][0]["message"]
        settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
        assert api.get(PATH).json["email_available"] is True
        made = create(api, kind="email", url=...)
        assert (made.json["address"], made.json["secret"]) == ("ana@example.org", None)
        assert api.post(f"{PATH}/{made.json['id']}/test").json["status"] == "delivered"
        assert mail.outbox[0].to == ["ana@example.org"]
        assert api.post(f"{PATH}/{made.json['id']}/rotate").status == 409

    def test_service_accounts_have_no_address(self, world: World, settings: Any) -> None:
        settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
        root = User.objects.create_superuser("root@example.org", "x")
        robot = create_service_account(actor=root, project=world.project, name="robot", role="member")
        assert create(Api(robot), kind="email", url=...).fields == ["kind"]
        assert create(Api(robot)).status == 201


class TestSending:
    def test_a_test_says_what_came_back_and_is_not_tried_again(self, api: Api, receiver: Receiver) -> None:
        receiver.fail(500, body=b"out of order")
        number = create(api, url=receiver.url).json["id"]
        failed = api.post(f"{PATH}/{number}/test").json
        assert (failed["status"], failed["answer_code"], failed["answer"]) == ("given_up", 500, "out of order")
        assert failed["error"] == "It answered 500."
        assert api.get(f"{PATH}/{number}").json["failing_since"] is None
        done = api.post(f"{PATH}/{number}/test").json
        assert (done["status"], done["answer_code"], done["attempts"]) == ("delivered", 200, 1)
        assert receiver.types == ["test", "test"]
        assert [row["id"] for row in api.get(f"{PATH}/{number}/deliveries").json["results"]] == [
            done["id"],
            failed["id"],
        ]

    def test_one_test_at_a_time(self, api: Api, world: World, receiver: Receiver) -> None:
        number = create(api, url=receiver.url).json["id"]
        cache.add(f"notices:test:{world.user.pk}", 1, 10)
        assert api.post(f"{PATH}/{number}/test").status == 409
        assert receiver.received == []

    def test_what_was_given_up_is_sent_again_with_its_id(self, api: Api, world: World, receiver: Receiver) -> None:
        receiver.fail(410)
        number = create(api, url=receiver.url).json["id"]
        cancel_one(world)
        (row,) = api.get(f"{PATH}/{number}/deliveries").json["results"]
        assert (row["status"], row["answer_code"]) == ("given_up", 410)
        shown = api.get(f"{PATH}/{number}").json
        assert (shown["enabled"], shown["disabled_why"]) == (False, "It answered 410: it wants no more.")
        again = f"notifications/deliveries/{row['id']}/again"
        assert "turn it on first" in api.post(again).json["detail"]
        assert api.patch(f"{PATH}/{number}", {"enabled": True}).json["disabled_why"] == ""
        assert api.post(again).json["status"] == "waiting"
        assert api.post(again).status == 409
        deliver_due(timezone.now())
        (row,) = api.get(f"{PATH}/{number}/deliveries").json["results"]
        assert (row["status"], row["attempts"]) == ("delivered", 1)
        assert {one.headers["webhook-id"] for one in receiver.received} == {row["message"]}
        assert api.post(again).status == 409

    def test_turned_off_it_drops_what_waits(self, api: Api, world: World, receiver: Receiver) -> None:
        receiver.fail(500)
        number = create(api, url=receiver.url).json["id"]
        cancel_one(world)
        api.patch(f"{PATH}/{number}", {"enabled": False})
        (row,) = api.get(f"{PATH}/{number}/deliveries").json["results"]
        assert (row["status"], row["error"]) == ("given_up", "Its destination was turned off before it was sent.")
        cancel_one(world)
        assert len(receiver.received) == 1

    def test_a_rotated_secret_and_the_one_before_both_sign(self, api: Api, world: World, receiver: Receiver) -> None:
        made = create(api, url=receiver.url).json
        rotated = api.post(f"{PATH}/{made['id']}/rotate").json
        assert rotated["secret"] != made["secret"]
        cancel_one(world)
        (got,) = receiver.received
        message, at = got.headers["webhook-id"], int(got.headers["webhook-timestamp"])
        assert got.headers["webhook-signature"].split() == [
            sign(secret, message, at, got.body) for secret in (rotated["secret"], made["secret"])
        ]
        Destination.objects.update(old_secret_until=timezone.now())
        cancel_one(world)
        assert len(receiver.received[1].headers["webhook-signature"].split()) == 1

    def test_another_url_begins_anew(self, api: Api, world: World, receiver: Receiver) -> None:
        receiver.fail(500)
        number = create(api, url=receiver.url).json["id"]
        cancel_one(world)
        assert api.get(f"{PATH}/{number}").json["failures"] == 1
        changed = api.patch(f"{PATH}/{number}", {"url": receiver.url + "/other"}).json
        assert (changed["failures"], changed["failing_since"]) == (0, None)
        Delivery.objects.update(next_attempt_at=timezone.now())
        deliver_due(timezone.now())
        assert [one.path for one in receiver.received] == ["/hook", "/hook/other"]
