"""A round takes a bounded number of statements, however many jobs run and wait."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.jobs.models import Run
from scheduling.lifecycle import State
from tests.portal.world import World

pytestmark = pytest.mark.django_db
#: Of a round that moves nothing, savepoints included.
STATEMENTS = 57
ONE = {"min": 1, "max": 1}


def statements_of_a_round(running: int, waiting: int) -> int:
    """Of one that moves nothing: acceptance, clocks, snapshot, plan, commit and launches."""
    world = World({"a": running})
    jobs = [world.submit(gpus=ONE, steps=10**6) for _ in range(running + waiting)]
    world.round()
    for job in jobs[:running]:
        world.ready(job)
        world.unprotect(job)
    world.round()
    with CaptureQueriesContext(connection) as queries:
        plan = world.round()
    assert plan is not None
    assert not plan.moves
    assert Run.objects.filter(state=State.RUNNING).count() == running
    return len(queries)


@pytest.mark.parametrize(("running", "waiting"), [(4, 4), (20, 20)])
def test_a_round_takes_few_and_no_more_with_more_jobs(running: int, waiting: int) -> None:
    assert statements_of_a_round(running, waiting) <= STATEMENTS
