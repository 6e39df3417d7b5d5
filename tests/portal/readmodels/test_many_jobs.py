"""What a round, a page and a publication cost does not grow with jobs, and not with those that have ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.jobs.access import in_states
from portal.jobs.models import Job, Run
from portal.live import streams
from portal.readmodels.jobs.summary import describe_jobs
from portal.readmodels.queue.order import queue_order, queue_positions
from scheduling.lifecycle import LIVE, WAITING
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
#: PostgreSQL plans so many joins at once before planning costs more than answering.
MAX_JOINS = 4


def _statements(call: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        call()
    return [query["sql"] for query in captured.captured_queries]


def _publish() -> object:
    return streams.build(timezone.now())


@pytest.mark.parametrize("what", ["round", "publication"])
def test_its_statements_do_not_grow_with_jobs(world: World, what: str) -> None:
    call: Callable[[], object] = world.round if what == "round" else _publish
    for _ in range(2):
        world.submit(gpus={"min": 99})
    world.round()
    few = _statements(call)
    for _ in range(20):
        world.submit(gpus={"min": 99})
    world.round()
    assert len(_statements(call)) == len(few)


def test_a_round_that_changes_nothing_locks_no_run(world: World) -> None:
    world.submit(gpus={"min": 99})
    world.round()
    assert not [sql for sql in _statements(world.round) if "FOR UPDATE" in sql and "reason" in sql]


def test_a_reason_that_changes_is_stored(world: World) -> None:
    job = world.submit()
    blocked = world.submit(gpus={"min": 99})
    world.round()
    before = world.run(blocked).reason_text
    world.nodes["b"], world.reachable["b"] = 99, True
    world.inventory()
    world.round()
    assert world.run(blocked).reason_text != before
    assert world.gpus(job)


@pytest.mark.parametrize("query", ["", "?state=queued", "?search=train", "?on_hold=true"])
def test_a_page_of_jobs_joins_few_tables(world: World, query: str) -> None:
    world.submit()
    for sql in _statements(lambda: Api(world.user).get(f"jobs{query}")):
        assert sql.count(" JOIN ") <= MAX_JOINS, sql


def test_jobs_are_found_by_the_state_of_their_newest_run(world: World) -> None:
    waiting, trains, ended = world.submit(), world.submit(), world.submit()
    world.train(trains)
    Job.objects.filter(pk=waiting.pk).update(priority=5)
    world.round()
    run = world.run(ended)
    run.state, run.ended_at = "CANCELLED", timezone.now()
    run.save()
    live = set(Job.objects.filter(in_states(LIVE)).values_list("pk", flat=True))
    assert live == {waiting.pk, trains.pk}
    assert set(queue_order(world.cluster)) == set(
        Job.objects.filter(run__state__in=list(WAITING)).values_list("pk", flat=True)
    )


def test_a_job_has_a_past_from_its_first_gpu_on(world: World) -> None:
    job = world.submit(retry={"on": ["signal"]})
    assert not world.run(job).had_gpus
    world.round()
    assert world.run(job).had_gpus
    world.ready(job)
    world.gone(job, "signal", signal=9)
    retried = world.run(job)
    assert retried.attempt == 2
    assert retried.had_gpus


def test_times_cover_earlier_attempts(world: World) -> None:
    job = world.submit(retry={"on": ["signal"]})
    world.train(job)
    first = world.run(job)
    world.gone(job, "signal", signal=9)
    Run.objects.filter(pk=first.pk).update(running_s=500.0, rescales=3)
    assert world.run(job).attempt == 2
    described = describe_jobs([Job.objects.select_related("run", "project").get(pk=job.pk)], timezone.now())[0]
    assert described["times"]["running_s"] >= 500
    assert described["resizes"] >= 3


def test_places_in_the_queue_are_the_same_for_a_few_and_for_all(world: World) -> None:
    jobs = [world.submit(gpus={"min": 99}) for _ in range(6)]
    world.round()
    Job.objects.filter(pk=jobs[4].pk).update(priority=7)
    places = queue_order(world.cluster)
    assert [places[job.pk] for job in jobs] == [2, 3, 4, 5, 1, 6]
    assert queue_positions([jobs[2], jobs[4]]) == {jobs[2].pk: 4, jobs[4].pk: 1}
    assert queue_positions([]) == {}
    for job in Job.objects.all():
        assert queue_positions([job]) == (
            {job.pk: queue_order(world.cluster)[job.pk]} if job.pk in queue_order(world.cluster) else {}
        )
