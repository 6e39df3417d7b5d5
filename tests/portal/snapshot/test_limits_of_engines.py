"""What an engine allows a launch is said at submission and in previews."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Project
from portal.jobs.models import Cluster, Job, Run
from portal.snapshot.engine_limits import note_limits
from portal.throughput.launch_times import expected_s
from scheduling.executors.base import EngineLimits
from tests.portal.api_calls import Api
from tests.portal.world import CURVES, World

pytestmark = pytest.mark.django_db
WISH = {"command": "train", "project": "vision", "total_steps": 1_000_000, "throughput": {"k1": [1.0, 1.9]}}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def api(world: World) -> Api:
    return Api(world.user)


def limit(**limits: Any) -> None:
    note_limits(Cluster.objects.get(), EngineLimits("Slurm's partition main", **limits))


def test_what_no_launch_may_have_is_refused_by_its_field(api: Api) -> None:
    limit(max_nodes=1, memory_mib=32_000)
    refused = api.post("jobs", WISH | {"memory": "64GiB", "gpus": {"min": 50}})
    assert refused.fields == ["memory", "gpus.min"]
    said = [one["message"] for one in refused.json["errors"]]
    assert said[0] == "Slurm's partition main gives a job at most 32,000 MiB of a node, not 65,536"
    assert said[1].startswith("Slurm's partition main allows 1 node a job, which has ")
    assert api.post("jobs/preview", WISH | {"memory": "64GiB"}).fields == ["memory"]
    assert api.post("jobs", WISH | {"memory": "16GiB"}).status == 201


def test_a_job_does_not_grow_beyond_the_nodes_that_it_may_have(world: World, api: Api) -> None:
    limit(max_nodes=1)
    made = api.post("jobs", WISH)
    assert made.status == 201, made.json
    largest = max(len(node.accelerators) for node in world.node_infos())
    assert Job.objects.get(number=made.json["number"]).max_gpus == largest


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "it fails there as time_limit unless its program writes checkpoints with the SDK. Let it write"),
        ({"restartable": False}, "because its program cannot resume from a checkpoint. Let it write"),
        ({"throughput": {}, "max_duration": "3d"}, "may need 3 d: it fails there as time_limit"),
    ],
)
def test_what_is_longer_than_the_engine_lets_it_run_is_told(api: Api, more: dict[str, Any], words: str) -> None:
    limit(max_duration_s=86_400.0)
    [said] = api.post("jobs/preview", WISH | more).json["warnings"]
    assert said.startswith("Slurm's partition main lets a launch run for 1 d, and it may need ")
    assert words in said
    assert api.post("jobs", WISH | more).json["warnings"] == [said]


def test_what_goes_on_from_a_checkpoint_is_told_so(world: World, api: Api) -> None:
    limit(max_duration_s=60.0)
    number = api.post("jobs", WISH).json["number"]
    Run.objects.filter(job__number=number).update(uses_sdk=True)
    [said] = api.get(f"jobs/{number}").json["warnings"]
    assert said.endswith("it stops there with a checkpoint and continues later.")


@pytest.mark.parametrize("more", [{"total_steps": 1_000}, {"throughput": {}}, {"max_duration": "2h"}])
def test_what_ends_in_time_or_is_not_known_is_not(api: Api, more: dict[str, Any]) -> None:
    limit(max_duration_s=86_400.0)
    assert api.post("jobs/preview", WISH | more).json["warnings"] == []


def test_a_partition_of_the_projects_own_has_other_limits_and_is_asked_for_once_for_all_jobs(
    world: World, api: Api
) -> None:
    limit(max_duration_s=60.0)
    for _ in range(3):
        assert api.post("jobs", WISH).json["warnings"]

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            api.get("jobs")
        return len(seen)

    queries()  # what is asked for once in a process
    few = queries()
    for _ in range(4):
        api.post("jobs", WISH)
    assert queries() == few
    Project.objects.filter(pk=world.project.pk).update(slurm={"partition": "long"})
    assert api.post("jobs", WISH).json["warnings"] == []


def test_only_what_goes_on_from_a_checkpoint_is_given_a_forecast(world: World) -> None:
    run = world.run(world.submit(steps=1_000))
    kind, curve = next(iter(CURVES.items()))
    known = Job.objects.get(pk=run.job_id).spec["throughput"]
    kind, curve = next(iter(known.items()))
    run.uses_sdk = True
    assert expected_s(run, kind, 1) == pytest.approx(1_000 / curve[0] * 1.3)
    run.checkpoint_step = 500
    assert expected_s(run, kind, 1) == pytest.approx(500 / curve[0] * 1.3)
    assert expected_s(run, "nowhere", 1) is None
    for uses_sdk, restartable in ((False, None), (False, True), (None, True), (True, False)):
        run.uses_sdk, run.job.restartable, run.job.model_type = uses_sdk, restartable, None
        assert expected_s(run, kind, 1) is None
