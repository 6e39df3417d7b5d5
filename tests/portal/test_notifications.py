"""Notices: who is told what, once, and never of what did not happen."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, Quota, User
from portal.jobs import events
from portal.jobs.models import HoldKind, Job, JobEvent, Node, Run
from portal.jobs.services.budgets import give_notices
from portal.jobs.services.holds import place_hold
from portal.jobs.services.submission import cancel_job
from portal.notices import deliveries, kinds, messages, pruning, tasks, waiting
from portal.notices.deliveries import FAILS_FOR, MAX_ATTEMPTS, claim, deliver_due
from portal.notices.models import Delivery, Destination, Outbox, WaitingTold
from portal.notices.outbox import take_in
from portal.notices.services import create_destination
from tests.portal.receiver import Receiver, receiving
from tests.portal.world import World

pytestmark = pytest.mark.django_db
ENDS = ["job.succeeded", "job.failed", "job.cancelled"]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    with receiving() as receiver:
        yield receiver


def destination(
    user: User, url: str | None = "https://hooks.example.org/x", kind: str = "webhook", **values: Any
) -> Destination:
    everything = [kind for kind in kinds.KINDS if user.is_superuser or kind != "node.lost"]
    values = {"name": "d", "events": everything, "own_jobs": True, "project": None, "enabled": True} | values
    row, secret = create_destination(
        actor=user, kind=kind, url=url, portal_url="https://portal.example.org/", values=values
    )
    row.secret = secret  # type: ignore[attr-defined]
    return row


def tell() -> list[str]:
    """Kinds of the deliveries that the outbox makes now."""
    before = set(Delivery.objects.values_list("pk", flat=True))
    take_in(timezone.now())
    return list(Delivery.objects.exclude(pk__in=before).order_by("pk").values_list("event", flat=True))


def due_again(*, rested: bool = True) -> None:
    """The time until the next attempts has passed."""
    now = timezone.now()
    Delivery.objects.filter(status="waiting").update(next_attempt_at=now)
    if rested:
        Destination.objects.update(rests_until=None)


def send() -> None:
    deliver_due(timezone.now())


def end(world: World, job: Job, reason: str = "done") -> None:
    world.gone(job, reason)


def person(name: str, project: Project | None = None, **values: Any) -> User:
    user = User.objects.create_user(f"{name}@example.org", "x", **values)
    if project is not None:
        Membership.objects.create(user=user, project=project, role="viewer")
    return user


class TestWhatIsTold:
    def test_a_job_is_told_from_its_start_to_its_end(self, world: World) -> None:
        destination(world.user)
        job = world.submit(name="night")
        world.train(job)
        assert tell() == ["job.started"]
        end(world, job)
        assert tell() == ["job.succeeded"]
        first, last = Delivery.objects.order_by("pk")
        assert first.payload["data"]["text"] == f"#{job.number} night starts on 4 × k1"
        assert first.payload["data"]["job"] == {
            "id": str(job.pk),
            "number": job.number,
            "name": "night",
            "project": "vision",
            "state": "starting",
        }
        assert last.payload["data"]["job"]["state"] == "succeeded"
        assert last.payload["data"]["url"] == f"https://portal.example.org/jobs/{job.number}"
        assert not Outbox.objects.exists()

    def test_fewer_gpus_and_none_are_told_but_not_more(self, world: World) -> None:
        destination(world.user, events=["job.preempted", "job.started"])
        first = world.submit()
        world.train(first)
        assert tell() == ["job.started"]
        second = world.submit()
        world.round()
        assert world.gpus(first) < 4
        assert tell() == ["job.preempted"]
        world.checkpoint(first, 10, reason="request")
        world.gone(first)
        world.round()
        cancel_job(user=world.user, job=second)
        world.ready(first)
        world.unprotect(first)
        world.gone(second)
        world.round()
        assert world.gpus(first) == 4
        assert tell() == ["job.started"]  # of the second, not of the first's return

    def test_a_failure_is_told_once_it_is_final(self, world: World) -> None:
        destination(world.user)
        job = world.submit(retry={"limit": 1})
        world.train(job)
        tell()
        world.gone(job, "user_error", exit_code=1)
        assert tell() == ["job.retried"]
        Run.objects.filter(pk=world.run(job).pk).update(not_before=None)
        world.train(job)
        world.gone(job, "user_error", exit_code=1)
        assert tell() == ["job.failed"]
        assert "exit code 1" in Delivery.objects.latest("pk").payload["data"]["text"]

    def test_holds_and_cancellations_are_told(self, world: World) -> None:
        destination(world.user)
        job = world.submit()
        world.round()
        tell()
        with transaction.atomic():
            place_hold(job, world.run(job), kind=HoldKind.COST, actor=None, text="Too dear.", now=timezone.now())
        assert tell() == ["job.held"]
        cancel_job(user=world.user, job=job)
        assert tell() == ["job.cancelled"]

    def test_only_what_is_wanted_is_told(self, world: World) -> None:
        destination(world.user, events=["job.cancelled"])
        job = world.submit()
        world.train(job)
        end(world, job)
        assert tell() == []

    def test_a_budget_is_told_to_those_who_have_a_role_there(self, world: World) -> None:
        below = Project.objects.create(key="faces", name="Faces", parent=world.project)
        for user in (world.user, person("faces", below), person("else"), person("root", is_superuser=True)):
            destination(user, events=["budget.reached"])
        destination(world.user, events=["budget.reached"], own_jobs=False, project=world.project)
        destination(world.user, events=["budget.reached"], project=below)
        Quota.objects.create(project=world.project, kind="money", period="month", limit=1)
        job = world.submit()
        world.train(job)
        tell()
        Quota.objects.update(limit=1)
        give_notices(timezone.now() + timedelta(seconds=1))
        give_notices(timezone.now() + timedelta(hours=5))
        told = tell()
        assert set(told) == {"budget.reached"}
        users = Delivery.objects.filter(event="budget.reached").values_list("destination__user__email", flat=True)
        assert set(users) == {world.user.email}
        budget = Delivery.objects.filter(event="budget.reached").first()
        assert budget is not None
        assert budget.payload["data"]["budget"]["percent"] in (80, 100)
        assert not Delivery.objects.filter(event="budget.reached", destination__project=below).exists()

    def test_lost_nodes_are_told_to_administrators_alone(self, world: World) -> None:
        root = person("root", is_superuser=True)
        mine = destination(root, events=["node.lost"])
        sly = destination(world.user)
        Destination.objects.filter(pk=sly.pk).update(events=["node.lost"])
        world.reachable["a"] = False
        world.inventory()
        assert tell() == ["node.lost"]
        assert Delivery.objects.get().destination == mine
        User.objects.filter(pk=root.pk).update(is_superuser=False)
        Node.objects.update(lost=False)
        world.inventory()
        assert tell() == []

    def test_the_trigger_lets_in_what_the_code_tells_and_nothing_else(self, world: World) -> None:
        destination(world.user)
        for kind in (*kinds.TELLING, "notice", "round", "ASSIGNED"):
            events.append(kind=kind, text=kind, at=timezone.now())
        written = JobEvent.objects.filter(pk__in=Outbox.objects.values("event_id"))
        assert set(written.values_list("kind", flat=True)) == set(kinds.TELLING)


class TestWhoIsTold:
    def test_own_jobs_or_all_of_a_project_and_below(self, world: World) -> None:
        below = Project.objects.create(key="faces", name="Faces", parent=world.project)
        other = Project.objects.create(key="speech", name="Speech")
        boss = person("boss", world.project)
        whole = destination(boss, own_jobs=False, project=world.project)
        part = destination(boss, own_jobs=False, project=below)
        destination(boss)
        destination(person("bo", other), own_jobs=False, project=other)
        mine = destination(world.user)
        mine_below = destination(world.user, project=below)
        for project, expected in (("vision", {whole, mine}), ("faces", {whole, part, mine, mine_below})):
            job = world.submit(project=project)
            cancel_job(user=world.user, job=job)
            Delivery.objects.all().delete()
            assert set(tell()) == {"job.cancelled"}
            assert {delivery.destination for delivery in Delivery.objects.all()} == expected

    def test_who_may_no_longer_see_it_is_not_told(self, world: World) -> None:
        boss = person("boss", world.project)
        destination(boss, own_jobs=False, project=world.project)
        destination(world.user)
        job = world.submit()
        Membership.objects.all().delete()
        cancel_job(user=person("root", is_superuser=True), job=job)
        assert tell() == []

    @pytest.mark.parametrize("how", ["inactive", "off"])
    def test_nobody_is_told_who_is_gone_or_turned_it_off(self, world: World, how: str) -> None:
        destination(world.user)
        job = world.submit()
        if how == "inactive":
            User.objects.filter(pk=world.user.pk).update(is_active=False)
        else:
            Destination.objects.update(enabled=False)
        cancel_job(user=person("root", is_superuser=True), job=job)
        assert tell() == []

    def test_one_statement_finds_the_destinations_of_many_events(self, world: World) -> None:
        def cost(jobs: int) -> int:
            for _ in range(jobs):
                cancel_job(user=world.user, job=world.submit())
            with CaptureQueriesContext(
                connection,
            ) as queries:
                assert take_in(timezone.now()) == jobs * Destination.objects.count()
            return len(queries)

        destination(world.user)
        few = cost(1)
        for i in range(5):
            destination(person(f"p{i}", world.project), own_jobs=False, project=world.project)
        assert cost(20) == few

    def test_without_destinations_nothing_is_written_and_little_is_read(self, world: World) -> None:
        cancel_job(user=world.user, job=world.submit())
        assert not Outbox.objects.exists()
        with CaptureQueriesContext(connection) as queries:
            take_in(timezone.now())
            send()
            waiting.tell_long_waits(timezone.now())
        assert len([q for q in queries if "SAVEPOINT" not in q["sql"]]) == 3


class TestTheOutbox:
    def test_what_is_rolled_back_is_not_told(self, world: World) -> None:
        destination(world.user)
        job = world.submit()
        with transaction.atomic():
            cancel_job(user=world.user, job=job)
            assert Outbox.objects.exists()
            transaction.set_rollback(True)
        assert not Outbox.objects.exists()
        assert tell() == []

    def test_what_was_not_told_yet_is_told_later_and_once(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        destination(world.user)
        cancel_job(user=world.user, job=world.submit())

        def die(*_: object, **__: object) -> None:
            raise RuntimeError

        with monkeypatch.context() as patch:
            patch.setattr("portal.notices.outbox.Audience.of", die)
            with pytest.raises(RuntimeError):
                take_in(timezone.now())
        assert not Delivery.objects.exists()
        assert tell() == ["job.cancelled"]
        assert tell() == []

    def test_an_event_that_cannot_be_told_holds_up_no_other(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        destination(world.user)
        bad, good = world.submit(name="bad"), world.submit(name="good")
        cancel_job(user=world.user, job=bad)
        cancel_job(user=world.user, job=good)
        told = messages.of_event

        def refuse(kind: str, event: JobEvent) -> dict[str, Any]:
            if event.job == bad:
                raise ValueError
            return told(kind, event)

        monkeypatch.setattr(messages, "of_event", refuse)
        assert tell() == ["job.cancelled"]
        assert Delivery.objects.get().payload["data"]["job"]["name"] == "good"


class TestLongWaits:
    def wait(self, job: Job, minutes: float) -> None:
        Job.objects.filter(pk=job.pk).update(submitted_at=timezone.now() - timedelta(minutes=minutes))

    @pytest.fixture
    def job(self, world: World) -> Job:
        """It waits behind one that holds everything."""
        holder = world.submit(gpus={"min": 4, "max": 4}, restartable=False)
        world.train(holder)
        job = world.submit(gpus={"min": 4, "max": 4}, name="late")
        world.round()
        return job

    def test_it_is_told_once_to_each_beyond_their_threshold(self, world: World, job: Job) -> None:
        patient = destination(world.user, events=["job.waiting"], waiting_minutes=90)
        destination(world.user, events=["job.waiting"], waiting_minutes=30)
        destination(world.user, events=["job.failed"], waiting_minutes=1)
        destination(person("else"), events=["job.waiting"], waiting_minutes=1)
        self.wait(job, 29)
        assert waiting.tell_long_waits(timezone.now()) == 0
        self.wait(job, 31)
        assert [waiting.tell_long_waits(timezone.now()) for _ in range(2)] == [1, 0]
        text = Delivery.objects.get().payload["data"]["text"]
        assert text.startswith(f"#{job.number} late has waited for 31 min.")
        self.wait(job, 91)
        assert waiting.tell_long_waits(timezone.now()) == 1
        assert Delivery.objects.latest("pk").destination == patient

    def test_time_under_a_hold_is_no_waiting(self, world: World, job: Job) -> None:
        destination(world.user, events=["job.waiting"], waiting_minutes=30)
        self.wait(job, 60)
        Job.objects.filter(pk=job.pk).update(hold_kind=HoldKind.USER, held_at=timezone.now())
        assert waiting.tell_long_waits(timezone.now()) == 0
        Job.objects.filter(pk=job.pk).update(
            hold_kind="", held_at=None, eligible_at=timezone.now() - timedelta(minutes=10)
        )
        assert waiting.tell_long_waits(timezone.now()) == 0

    def test_whoever_cannot_see_the_job_is_not_told(self, world: World, job: Job) -> None:
        destination(world.user, events=["job.waiting"], waiting_minutes=30)
        self.wait(job, 60)
        Membership.objects.all().delete()
        assert waiting.tell_long_waits(timezone.now()) == 0

    def test_what_was_told_is_forgotten_with_the_job_s_end(self, world: World, job: Job) -> None:
        destination(world.user, events=["job.waiting"], waiting_minutes=30)
        self.wait(job, 60)
        waiting.tell_long_waits(timezone.now())
        tasks.prune_notices()
        assert WaitingTold.objects.count() == 1
        cancel_job(user=world.user, job=job)
        tasks.prune_notices()
        assert not WaitingTold.objects.exists()


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
        assert len(mail.outbox) == 2
        assert mail.outbox[1].subject.startswith("2 notices, first #")

    def test_a_mail_server_that_refuses_is_tried_again(
        self, world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
        destination(world.user, None, kind="email")

        def refuse(*_: object) -> None:
            raise ConnectionRefusedError("refused")

        monkeypatch.setattr("portal.notices.mailing.send_mail", refuse)
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


@pytest.mark.django_db(transaction=True)
def test_two_timers_tell_of_a_long_wait_once() -> None:
    world = World()
    destination(world.user, events=["job.waiting"], waiting_minutes=1)
    jobs = [world.submit() for _ in range(10)]
    Run.objects.update(state="WAITING_FOR_INITIAL_RESOURCE")
    Job.objects.update(submitted_at=timezone.now() - timedelta(hours=2))

    def look(_: int) -> int:
        try:
            return waiting.tell_long_waits(timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as timers:
        assert sum(timers.map(look, range(4))) == len(jobs)


def test_payloads_are_json_that_says_the_time(world: World) -> None:
    destination(world.user)
    cancel_job(user=world.user, job=world.submit(name="Größe"))
    take_in(timezone.now())
    body = Delivery.objects.get().payload
    assert set(body) == {"type", "timestamp", "data"}
    assert datetime.fromisoformat(body["timestamp"]).tzinfo is not None
    assert json.loads(messages.as_json(body)) == body
