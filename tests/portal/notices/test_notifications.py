"""Notices: who is told what, once, and never of what did not happen."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Membership, Project, Quota, User
from portal.accounting.budgets import give_notices
from portal.cluster import node_checks
from portal.jobs import events
from portal.jobs.models import FailingItem, HoldKind, Job, JobEvent, Node, NodeCheck, Run
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.suspend import place_hold
from portal.notices import kinds, messages, tasks, waiting
from portal.notices.models import Delivery, Destination, Outbox, WaitingTold
from portal.notices.outbox import take_in
from scheduling.executors.base import Finding
from tests.portal.notices.outbox import destination, end, person, send, tell
from tests.portal.world import World

pytestmark = pytest.mark.django_db


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
        job = world.submit(retry={"limit": 1, "on": ["user_error"]})
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

    def test_checks_that_fail_are_told_to_administrators_once_for_the_same_reasons(self, world: World) -> None:
        destination(person("root", is_superuser=True), events=["node.check_failed"])
        node = Node.objects.get(name="a")
        for cause in (NodeCheck.Cause.JOINED, NodeCheck.Cause.AGAIN):
            check = NodeCheck.objects.create(node=node, cause=cause)
            node_checks.conclude(check, [Finding("free space", False, "3 MiB", "make room")], timezone.now())
        assert tell() == ["node.check_failed"]
        data = Delivery.objects.get().payload["data"]
        assert data["node"] == "a"
        assert "free space: 3 MiB" in data["text"]

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
            take_in(timezone.now())
        assert not Delivery.objects.exists()
        assert tell() == []  # it is put off
        FailingItem.objects.update(next_attempt_at=timezone.now())
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
