"""What is kept of the past, and for how long."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from portal.jobs import event_months
from portal.jobs.models import ClusterSample, JobEvent
from portal.rounds import pruning
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def event(at: datetime) -> JobEvent:
    return JobEvent.objects.create(kind="test", text="It happened.", at=at)


def partition_of(event: JobEvent) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM jobs_jobevent WHERE id = %s", [event.pk])
        return str(cursor.fetchone()[0])


def test_this_months_events_lie_in_its_partition() -> None:
    assert partition_of(event(timezone.now())) == f"jobs_jobevent_y{timezone.now():%Y}m{timezone.now():%m}"


def test_events_of_a_month_without_a_partition_wait_and_move_when_it_is_made() -> None:
    late = datetime(2031, 12, 31, 23, 59, tzinfo=UTC)
    of_december, of_january = event(late), event(late + timedelta(hours=1))
    assert partition_of(of_december) == "jobs_jobevent_default"
    event_months.ensure(late)
    event_months.ensure(late)
    assert partition_of(of_december) == "jobs_jobevent_y2031m12"
    assert partition_of(of_january) == "jobs_jobevent_y2032m01"
    assert list(JobEvent.objects.order_by("-id")[:2]) == [of_january, of_december]


def test_months_that_are_over_are_dropped_whole() -> None:
    now = datetime(2032, 3, 10, tzinfo=UTC)
    for month in (datetime(2031, 12, 5, tzinfo=UTC), datetime(2032, 2, 5, tzinfo=UTC)):
        event_months.ensure(month)
    gone, kept = event(datetime(2031, 12, 5, tzinfo=UTC)), event(datetime(2032, 2, 5, tzinfo=UTC))
    stray = event(datetime(2001, 1, 1, tzinfo=UTC))
    event_months.drop_before(now - timedelta(days=60))
    left = set(JobEvent.objects.values_list("pk", flat=True))
    assert kept.pk in left
    assert not {gone.pk, stray.pk} & left
    assert "jobs_jobevent_y2031m12" not in event_months.existing()


def test_a_pruned_cluster_keeps_what_is_young() -> None:
    world = World()
    now = timezone.now()
    pruning.sample(world.cluster, now)
    pruning.sample(world.cluster, now - timedelta(days=40))
    job = world.submit()
    pruning.prune(now)
    assert ClusterSample.objects.count() == 1
    assert JobEvent.objects.filter(job=job).exists()
