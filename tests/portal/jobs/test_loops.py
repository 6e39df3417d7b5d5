"""What a loop does with an item that fails: put off, remembered within bounds, shown, forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from celery.exceptions import Retry, SoftTimeLimitExceeded
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.db.backends.postgresql.base import DatabaseWrapper
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from accounts.models import User
from portal.execution.checks.probes import examine_loops
from portal.jobs import loops
from portal.jobs.loops import Item, Loop, LoopName, failing_now, forget_old, in_a_sentence, of_job, postponed_in
from portal.jobs.models import Cluster, FailingItem, FailureCount
from portal.lifecycle.commit_plan import note_skipped
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
BAD, GOOD = Item("1", "bad"), Item("2", "good")


def fail(*_: object) -> int:
    raise KeyError("nice")


def make_due() -> None:
    FailingItem.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))


def test_a_failing_item_is_put_off_for_longer_each_time_and_others_are_not() -> None:
    waits = []
    for _ in range(12):
        assert Loop(LoopName.LIVE).run(BAD, fail) is None
        row = FailingItem.objects.get()
        waits.append(round((row.next_attempt_at - row.last_at).total_seconds()))
        assert Loop(LoopName.LIVE).attempt(BAD, lambda: 1) == (False, None)  # not tried
        assert Loop(LoopName.LIVE).run(GOOD, lambda: 7) == 7
        make_due()
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]
    row = FailingItem.objects.get()
    assert (row.loop, row.key, row.name, row.failures, row.error) == ("live", "1", "bad", 12, "KeyError: 'nice'")
    assert FailureCount.objects.get().failures == 12


def test_an_item_that_succeeds_is_forgotten_and_its_failures_stay_counted() -> None:
    Loop(LoopName.LIVE).run(BAD, fail)
    make_due()
    assert Loop(LoopName.LIVE).run(BAD, lambda: 3) == 3
    assert not FailingItem.objects.exists()
    assert FailureCount.objects.get().failures == 1


def test_the_same_item_of_another_loop_is_another_item() -> None:
    Loop(LoopName.LIVE).run(BAD, fail)
    assert Loop(LoopName.OUTBOX).run(BAD, lambda: 3) == 3
    assert FailingItem.objects.count() == 1
    assert postponed_in(LoopName.LIVE) == {"1"}
    assert postponed_in(LoopName.OUTBOX) == set()


def test_a_loop_that_does_not_rest_tries_each_time() -> None:
    for _ in range(3):
        Loop(LoopName.ROUND, postpones=False).run(BAD, fail)
    assert FailingItem.objects.get().failures == 3


def test_nothing_is_read_before_the_first_item(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        loop = Loop(LoopName.LIVE)
        assert loop.together([], lambda one: GOOD, list) == []
        loop.succeeded_all([])


@pytest.mark.parametrize("error", [SoftTimeLimitExceeded(), Retry()])
def test_what_ends_the_task_is_no_failure_of_an_item(error: Exception) -> None:
    def end(*_: object) -> Any:
        raise error

    for call in (
        lambda: Loop(LoopName.LIVE).run(BAD, end),
        lambda: Loop(LoopName.LIVE).together([1, 2, 3], lambda one: BAD, end),
        lambda: Loop(LoopName.LIVE).most([1, 2, 3], lambda one: BAD, end),
    ):
        with pytest.raises(type(error)):
            call()
    assert not FailingItem.objects.exists()


def test_a_loop_ends_where_the_database_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def lose(number: int) -> None:
        tried.append(number)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(DatabaseWrapper, "is_usable", lambda _: False)
    loop = Loop(LoopName.LIVE)

    def go_on() -> None:
        for number in range(10_000):
            loop.run(Item(str(number), "x"), lose, number)

    with pytest.raises(OperationalError):
        go_on()
    assert tried == [0]
    assert not FailingItem.objects.exists()


def test_a_deadlock_is_a_failure_of_its_item() -> None:
    def lock() -> None:
        raise OperationalError("deadlock detected")

    Loop(LoopName.LIVE).run(BAD, lock)
    assert FailingItem.objects.get().error == "OperationalError: deadlock detected"


def test_what_a_failing_item_wrote_within_a_transaction_is_undone() -> None:
    def write() -> None:
        Cluster.objects.create(name="half")
        raise RuntimeError

    Loop(LoopName.LIVE).run(BAD, write)
    assert not Cluster.objects.exists()


def test_of_a_batch_only_those_at_fault_fail() -> None:
    calls = []

    def do(some: Sequence[int]) -> list[int]:
        calls.append(len(some))
        if {3, 77} & set(some):
            raise RuntimeError("3 or 77")
        return [10 * one for one in some]

    numbers = list(range(100))
    of_number: Callable[[int], Item] = lambda one: Item(str(one), f"number {one}")  # noqa: E731
    assert Loop(LoopName.LIVE).together(numbers, of_number, do) == [10 * n for n in numbers if n not in (3, 77)]
    assert set(FailingItem.objects.values_list("key", flat=True)) == {"3", "77"}
    assert len(calls) < 30
    calls.clear()
    Loop(LoopName.LIVE).together(numbers, of_number, do)
    assert calls == [98]  # those that are put off cost nothing


def test_most_leaves_out_what_fails_alone_or_beside_others() -> None:
    def build(some: Sequence[int]) -> int:
        if 5 in some or {7, 60} <= set(some):
            raise RuntimeError("5, or 7 beside 60")
        return sum(some)

    numbers = list(range(64))
    found = Loop(LoopName.SNAPSHOT).most(numbers, lambda one: Item(str(one), f"number {one}"), build)
    assert found == sum(numbers) - 5 - 60
    assert set(FailingItem.objects.values_list("key", flat=True)) == {"5", "60"}


def test_most_raises_where_it_is_no_items_fault() -> None:
    with pytest.raises(KeyError):
        Loop(LoopName.SNAPSHOT).most([1, 2], lambda one: BAD, fail)
    assert not FailingItem.objects.exists()


def test_no_more_are_kept_than_the_bound_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_KEPT", 5)
    loop = Loop(LoopName.LIVE)
    for number in range(9):
        loop.run(Item(str(number), "x"), fail)
    assert FailingItem.objects.count() == 5
    assert FailureCount.objects.get().failures == 9


def test_what_nobody_tries_any_more_is_neither_shown_nor_kept() -> None:
    Loop(LoopName.LIVE).run(BAD, fail)
    now = timezone.now()
    assert failing_now(now).exists()
    later = now + timedelta(hours=1)
    assert not failing_now(later).exists()
    forget_old(now)
    assert FailingItem.objects.exists()
    forget_old(later)
    assert not FailingItem.objects.exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("https://build:t0psecret@packages.example.org/x"), "ValueError: https://***@packages"),
        (ValueError("password=t0psecret refused"), "ValueError: password=*** refused"),
        (ValueError("Authorization: Bearer t0psecret"), "ValueError: Authorization: ***"),
        (ValueError("Bearer t0psecret was sent"), "ValueError: Bearer *** was sent"),
        (ValueError("ekr_t0psecrett0psecretXX is no token"), "ValueError: ekr_[redacted] is no token"),
        (ValueError("first\nt0psecret"), "ValueError: first"),
        (ValueError("a\0b\udc80c\x1b[2J"), "ValueError: a b c [2J"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 10_000), "ValueError: xxx"),
    ],
)
def test_an_error_is_a_sentence_without_secrets(error: Exception, said: str) -> None:
    found = in_a_sentence(error)
    assert found.startswith(said)
    assert "t0psecret" not in found
    assert len(found) <= 400
    Loop(LoopName.LIVE).run(Item("\0\udc80" * 500, "\0" * 500), lambda: (_ for _ in ()).throw(error))
    assert FailingItem.objects.get().error == found


def test_an_error_that_cannot_be_said_has_its_type() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert in_a_sentence(Odd()) == "Odd"


# Shown -------------------------------------------------------------------------------------------------


def test_administrators_see_what_fails_and_nobody_else_does() -> None:
    world = World()
    job = world.submit(name="night")
    Loop(LoopName.LIMITS, world.cluster.pk).run(of_job(job), fail)
    Loop(LoopName.PRUNING).run(Item(":decisions", "decisions"), fail)
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    assert Api(world.user).get("failing-items").status == 403
    page = root.get("failing-items?limit=1").json
    assert [row["loop"] for row in page["results"]] == ["pruning"]
    (row,) = root.get(page["next"].partition("/api/v1/")[2]).json["results"]
    assert row["job"] == {"number": job.number, "name": "night"}
    assert (row["cluster"], row["failures"], row["error"]) == ("test", 1, "KeyError: 'nice'")
    assert row["task"] == "enforce a job's max_cost or deadline"
    job.delete()
    assert root.get("failing-items").json["results"][1]["job"] is None


def test_metrics_count_by_loop_and_cluster(settings: Any) -> None:
    settings.EVENKEEL_METRICS_TOKEN = "scrape-me"
    world = World()

    def scrape() -> dict[tuple[str, str, str], float]:
        text = Client().get("/metrics", headers={"Authorization": "Bearer scrape-me"}).content.decode()
        return {
            (sample.name, sample.labels["loop"], sample.labels["cluster"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if "loop" in sample.labels
        }

    assert set(scrape().values()) == {0.0}  # from the start, so that an increase is seen
    Loop(LoopName.LIMITS, world.cluster.pk).run(BAD, fail)
    make_due()
    Loop(LoopName.LIMITS, world.cluster.pk).run(BAD, fail)
    Loop(LoopName.OUTBOX).run(BAD, fail)
    said = scrape()
    assert said["evenkeel_item_failures_total", "limits", "test"] == 2
    assert said["evenkeel_failing_items", "limits", "test"] == 1
    assert said["evenkeel_item_failures_total", "outbox", ""] == 1
    FailingItem.objects.all().delete()
    assert scrape()["evenkeel_item_failures_total", "limits", "test"] == 2
    assert scrape()["evenkeel_failing_items", "limits", "test"] == 0


def test_the_doctor_says_what_fails() -> None:
    world = World()
    assert [finding.ok for finding in examine_loops(world.cluster.pk, timezone.now())] == [True]
    for number in range(12):
        Loop(LoopName.LIMITS, world.cluster.pk).run(Item(str(number), f"#{number} night"), fail)
    found = list(examine_loops(world.cluster.pk, timezone.now()))
    assert [finding.ok for finding in found] == [False] * 11
    assert "#0 night: fails to enforce a job's max_cost or deadline since" in found[0].seen
    out = StringIO()
    with pytest.raises(CommandError, match="to put right"):
        call_command("doctor", stdout=out)
    assert "WRONG failing items: #0 night" in out.getvalue()


def test_a_job_that_is_left_out_says_why() -> None:
    world = World()
    job = world.submit()
    world.round()
    before = world.run(job).reason_text
    Loop(LoopName.SNAPSHOT, world.cluster.pk).run(of_job(job), fail)
    note_skipped(world.cluster.pk, {str(job.pk): None})  # type: ignore[dict-item]
    assert world.run(job).reason_text == before
    waiting = world.submit(gpus={"min": 64})
    world.round()
    Loop(LoopName.SNAPSHOT, world.cluster.pk).run(of_job(waiting), fail)
    note_skipped(world.cluster.pk, {})
    assert "failed to read or schedule a job" in world.run(waiting).reason_text
    FailingItem.objects.all().delete()
    world.round()
    assert "64" in world.run(waiting).reason_text
