"""Notices on their way: signed, tried again, given up, and sent by one worker only."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from accounts.models import AuditEntry
from portal.jobs import events
from portal.jobs.models import Job
from portal.lifecycle.cancel import cancel_job
from portal.notices import deliveries, pruning, tasks
from portal.notices.deliveries import FAILS_FOR, MAX_ATTEMPTS, claim, deliver_due
from portal.notices.models import Delivery, Destination
from portal.notices.outbox import take_in
from tests.portal.notices.outbox import destination, due_again, send
from tests.portal.receiver import Receiver, receiving
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    with receiving() as receiver:
        yield receiver


class TestDelivering:
    @pytest.fixture
    def hook(self, world: World, receiver: Receiver) -> Destination:
        return destination(world.user, receiver.url)

    def cancel_one(self, world: World) -> Job:
        job = world.submit()
        cancel_job(user=world.user, job=job)
        take_in(timezone.now())
        return job

    def test_the_signature_is_that_of_the_standard(self, world: World, receiver: Receiver, hook: Destination) -> None:
        job = self.cancel_one(world)
        tasks.send_notices()
        (got,) = receiver.received
        key = base64.b64decode(hook.secret.removeprefix("whsec_"))  # type: ignore[attr-defined]
        signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert got.headers["webhook-signature"] == f"v1,{expected}"
        assert abs(int(got.headers["webhook-timestamp"]) - datetime.now().timestamp()) < 60  # noqa: DTZ005
        assert got.json["type"] == "job.cancelled"
        assert got.json["data"]["job"]["number"] == job.number
        assert (got.path, got.headers["content-type"]) == ("/hook", "application/json")
        row = Delivery.objects.get()
        assert (row.status, row.attempts, row.answer_code, row.answer) == ("delivered", 1, 200, "ok")

    def test_the_documented_check_takes_it_and_nothing_that_was_changed(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        text = (settings.BASE_DIR / "docs" / "notifications.md").read_text()
        names: dict[str, Any] = {}
        exec(text.split("```python\n")[1].split("```")[0], names)
        self.cancel_one(world)
        send()
        (got,) = receiver.received
        secret = hook.secret  # type: ignore[attr-defined]
        assert names["is_genuine"](secret, got.headers, got.body)
        assert not names["is_genuine"](secret, got.headers, got.body + b" ")
        assert not names["is_genuine"](secret, got.headers | {"webhook-id": "msg_other"}, got.body)
        assert not names["is_genuine"](secret, got.headers | {"webhook-timestamp": "1"}, got.body)

    def test_it_fails_first_and_is_tried_again_with_the_same_id(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        receiver.fail(500, 503)
        self.cancel_one(world)
        send()
        row = Delivery.objects.get()
        assert (row.status, row.attempts, row.answer_code, row.answer) == ("waiting", 1, 500, "no")
        assert row.error == "It answered 500."
        assert row.next_attempt_at is not None
        assert row.next_attempt_at > timezone.now() + timedelta(seconds=20)
        hook.refresh_from_db()
        assert hook.failing_since is not None
        send()
        assert len(receiver.received) == 1
        for _ in range(2):
            due_again()
            send()
        row.refresh_from_db()
        assert (row.status, row.attempts, row.error) == ("delivered", 3, "")
        assert len({one.headers["webhook-id"] for one in receiver.received}) == 1
        working = Destination.objects.get()
        assert (working.failing_since, working.failures) == (None, 0)
        assert working.delivered_at is not None

    def test_attempts_end(self, world: World, receiver: Receiver, hook: Destination) -> None:
        receiver.fail(*[500] * MAX_ATTEMPTS)
        self.cancel_one(world)
        for _ in range(MAX_ATTEMPTS + 2):
            due_again()
            send()
        row = Delivery.objects.get()
        assert (row.status, row.attempts, row.next_attempt_at) == ("given_up", MAX_ATTEMPTS, None)
        assert len(receiver.received) == MAX_ATTEMPTS

    def test_pauses_grow_to_about_a_day_in_all(self) -> None:
        pauses = [deliveries.pause_s(attempt) for attempt in range(1, MAX_ATTEMPTS)]
        assert pauses == sorted(pauses)
        assert 24 <= pauses[0] <= 36
        assert 15 * 3_600 < sum(pauses) < 30 * 3_600
        assert len({deliveries.pause_s(1) for _ in range(5)}) == 5

    def test_while_one_fails_the_others_behind_it_wait(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        receiver.fail(500)
        for _ in range(3):
            self.cancel_one(world)
        send()
        assert len(receiver.received) == 1
        assert sorted(Delivery.objects.values_list("attempts", flat=True)) == [0, 0, 1]
        due_again(rested=False)
        send()
        assert len(receiver.received) == 1
        due_again()
        send()
        assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}
        numbers = [one.json["data"]["job"]["number"] for one in receiver.received]
        assert numbers[1:] == sorted(numbers[1:])

    def test_an_answer_that_makes_no_sense_is_one_failure_of_its_own(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        receiver.answers.append((302, {"Location": "https://xn--a/"}, b""))
        self.cancel_one(world)
        send()
        delivery = Delivery.objects.get()
        assert (delivery.attempts, delivery.status) == (1, "waiting")
        due_again()
        send()
        assert Delivery.objects.get().status == "delivered"

    def test_gone_turns_it_off(self, world: World, receiver: Receiver, hook: Destination) -> None:
        receiver.fail(410)
        self.cancel_one(world)
        self.cancel_one(world)
        send()
        hook.refresh_from_db()
        assert (hook.enabled, hook.disabled_why) == (False, "It answered 410: it wants no more.")
        assert set(Delivery.objects.values_list("status", flat=True)) == {"given_up"}
        assert AuditEntry.objects.filter(action="destination.disable").count() == 1
        self.cancel_one(world)
        due_again()
        send()
        assert len(receiver.received) == 1

    def test_one_that_failed_for_days_is_turned_off_and_says_so(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        receiver.fail(500, 500)
        self.cancel_one(world)
        long_ago = timezone.now() - FAILS_FOR
        Destination.objects.update(failing_since=long_ago, failures=2)
        send()
        assert Destination.objects.get().enabled
        Destination.objects.update(failures=MAX_ATTEMPTS)
        Delivery.objects.update(attempts=MAX_ATTEMPTS - 1)
        due_again()
        send()
        row = Destination.objects.get()
        assert not row.enabled
        assert row.disabled_why.startswith(f"Nothing was delivered since {long_ago:%Y-%m-%d %H:%M} UTC.")
        assert row.disabled_why.endswith("It answered 500.")

    def test_redirects_are_not_followed(self, world: World, receiver: Receiver, hook: Destination) -> None:
        receiver.answers = [(302, {"Location": receiver.url + "/other"}, b"")]
        self.cancel_one(world)
        send()
        assert [one.path for one in receiver.received] == ["/hook"]
        assert "redirects are not followed" in Delivery.objects.get().error

    def test_of_an_answer_only_the_beginning_is_read(self, world: World, receiver: Receiver, hook: Destination) -> None:
        receiver.answers = [(200, {}, b"a\x00\n" + b"b" * 5_000_000)]
        self.cancel_one(world)
        send()
        row = Delivery.objects.get()
        assert row.status == "delivered"
        assert row.answer == "a  " + "b" * 197

    def test_it_is_the_callers_until_the_claim_ends(self, world: World, receiver: Receiver, hook: Destination) -> None:
        self.cancel_one(world)
        now = timezone.now()
        assert len(claim(now)) == 1
        assert claim(now) == []
        assert len(claim(now + deliveries.CLAIM + timedelta(seconds=1))) == 1

    def test_chats_get_one_message_of_all_that_is_due(self, world: World, receiver: Receiver) -> None:
        destination(world.user, receiver.url, kind="slack")
        jobs = [world.submit(), world.submit()]
        for job, text in zip(jobs, ("a<b>&c", "second"), strict=True):
            events.append(kind="held", job=job, run=job.run, at=timezone.now(), text=text)
        take_in(timezone.now())
        send()
        (got,) = receiver.received
        assert list(got.json) == ["text"]
        first, second = got.json["text"].splitlines()
        assert "a&lt;b&gt;&amp;c" in first
        assert second.endswith(f"<https://portal.example.org/jobs/{jobs[1].number}|Open>")
        assert "webhook-signature" not in got.headers
        assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}

    def test_e_mail_goes_to_the_owner_in_one_message(self, world: World, settings: Any) -> None:
        settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
        destination(world.user, None, kind="email")
        job = world.submit(name="night")
        cancel_job(user=world.user, job=job)
        take_in(timezone.now())
        send()
        (got,) = mail.outbox
        assert got.to == [world.user.email]
        assert got.subject == f"#{job.number} night: cancelled"
        assert f"https://portal.example.org/jobs/{job.number}" in got.body
        assert "https://portal.example.org/notifications" in got.body
        for _ in range(2):
            cancel_job(user=world.user, job=world.submit())
        take_in(timezone.now())
        send()
        assert len(mail.outbox) == 1  # in five minutes at the earliest
        Destination.objects.update(rests_until=timezone.now())
        send()
        assert len(mail.outbox) == 2
        assert mail.outbox[1].subject.startswith("2 notices, first #")

    def test_a_mail_server_that_refuses_is_tried_again(
        self, world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
        destination(world.user, None, kind="email")

        def refuse(*_: object) -> None:
            raise ConnectionRefusedError("refused")

        monkeypatch.setattr("portal.notices.transport.mailing.send_mail", refuse)
        cancel_job(user=world.user, job=world.submit())
        take_in(timezone.now())
        send()
        row = Delivery.objects.get()
        assert (row.status, row.error) == ("waiting", "The mail server did not take it: refused")

    def test_keys_change_and_everything_stays_readable(
        self, world: World, receiver: Receiver, hook: Destination
    ) -> None:
        for _ in range(3):
            call_command("rotate_secrets", verbosity=0)
        self.cancel_one(world)
        send()
        assert receiver.types == ["job.cancelled"]

    def test_what_no_key_opens_says_so(self, world: World, receiver: Receiver, hook: Destination) -> None:
        Destination.objects.update(address_ciphertext="x")
        self.cancel_one(world)
        send()
        assert "No key of this installation" in Delivery.objects.get().error


class TestTheLog:
    def fill(self, row: Destination, count: int, **values: Any) -> None:
        payload = {"type": "job.failed", "data": {"text": "said"}}
        Delivery.objects.bulk_create(
            [Delivery(destination=row, event="job.failed", payload=payload, **values) for _ in range(count)]
        )

    def test_it_is_bounded(self, world: World) -> None:
        row, other = destination(world.user), destination(world.user)
        now = timezone.now()
        self.fill(row, pruning.KEPT_OF_ONE + 5, status="delivered")
        self.fill(other, 2, status="given_up")
        self.fill(other, 1, status="given_up", created_at=now - pruning.KEPT_FOR - timedelta(seconds=1))
        pruning.prune(now)
        assert row.deliveries.count() == pruning.KEPT_OF_ONE
        assert other.deliveries.count() == 2

    def test_what_waits_is_bounded_too(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pruning, "WAITING_OF_ONE", 3)
        row = destination(world.user)
        now = timezone.now()
        self.fill(row, 1, created_at=now - pruning.WAITING_FOR - timedelta(seconds=1), next_attempt_at=now)
        self.fill(row, 4, next_attempt_at=now)
        pruning.prune(now)
        assert row.deliveries.filter(status="waiting").count() == 3
        given_up = row.deliveries.filter(status="given_up")
        assert set(given_up.values_list("error", flat=True)) == {
            "Not sent within 2 days, or too many newer ones waited."
        }


@pytest.mark.django_db(transaction=True)
def test_two_workers_send_it_once(receiver: Receiver) -> None:
    world = World()
    destination(world.user, receiver.url)
    for _ in range(20):
        cancel_job(user=world.user, job=world.submit())

    def work(_: int) -> None:
        try:
            take_in(timezone.now())
            for _ in range(3):
                deliver_due(timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, range(4)))
    send()
    ids = [one.headers["webhook-id"] for one in receiver.received]
    assert len(ids) == len(set(ids)) == 20
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 1)}
