"""manage.py export_trace: finished jobs come back in the simulator, and nothing else of them leaves."""

from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.jobs.models import Job
from scheduling.lifecycle import State
from scheduling.simulator import simulate
from scheduling.simulator.inputs.trace import Cluster
from scheduling.simulator.readers import load_trace
from tests.builders import make_nodes
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def _finish(world: World, job: Job) -> None:
    run = world.run(job)
    run.state, run.ended_at, run.step = State.FINISHED, timezone.now(), job.total_steps
    run.queueing_s, run.running_s = 5.0, 100.0
    run.save()


def test_finished_jobs_come_back_in_the_simulator(tmp_path: Path) -> None:
    world = World({"a": 4})
    start = timezone.now() - timedelta(hours=1)
    first = world.submit("fast", steps=500, gpus={"min": 1, "max": 3}, name="secret-name", priority=2)
    second, third = world.submit("slow", steps=700), world.submit("slow", steps=900)
    for job in (first, second):
        _finish(world, job)
    out = StringIO()
    call_command("export_trace", "--from", start.isoformat(), "--out", str(tmp_path / "t.json"), stdout=out)
    assert "2 jobs" in out.getvalue()
    text = (tmp_path / "t.json").read_text()
    assert "secret-name" not in text
    assert "ana@" not in text
    one, two = load_trace(tmp_path / "t.json").jobs
    assert (one.id, one.total_steps, one.min_gpus, one.max_gpus, one.priority) == (str(first.number), 500.0, 1, 3, 2)
    assert one.arrival_s == pytest.approx((first.submitted_at - start).total_seconds())
    assert one.curves["k1"].steps_per_s[:3] == (10.0, 18.0, 24.0)
    assert two.curves["k1"].at(1) == 1.0
    assert third.number not in {int(one.id), int(two.id)}
    result = simulate([one, two], Cluster(make_nodes(4, type="k1"), {}), "f_scheduling")
    assert result["finished"] == 2


def test_the_times_bound_what_is_written(tmp_path: Path) -> None:
    world = World({"a": 4})
    _finish(world, world.submit())
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    call_command("export_trace", "--from", later, "--to", later, "--out", str(tmp_path / "t.json"), stdout=StringIO())
    assert '"jobs": []' in (tmp_path / "t.json").read_text()


def test_wrong_times_and_clusters_are_one_line(tmp_path: Path) -> None:
    World({"a": 1})
    for wrong in (("--from", "yesterday"), ("--from", "2026-01-01", "--cluster", "nosuch")):
        with pytest.raises(CommandError) as error:
            call_command("export_trace", *wrong, "--out", str(tmp_path / "t.json"))
        assert "\n" not in str(error.value)
