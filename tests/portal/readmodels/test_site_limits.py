"""Limits of the engine's own accounting: rounds, previews and submissions keep them, and say whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Project
from portal.jobs.models import Assignment, Cluster, Job
from portal.readmodels.jobs.why_waiting import explain_job
from portal.snapshot.engine_limits import note_limits
from scheduling.executors.base import EngineLimits
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.forecasts.test_previews import preview
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
GOLD = {"gpus": {"": [8, 0]}}
VISION = {"parent": "root", "gpus": {"": [4, 0]}}


@pytest.fixture
def world() -> World:
    world = World({"a": 4, "b": 4, "c": 4})
    Cluster.objects.update(executor="slurm")
    world.cluster.refresh_from_db()
    return world


def note(world: World, **table: Any) -> None:
    content = {"at": timezone.now().timestamp(), "sender": "evenkeel", "given": {"partition": "main"}, **table}
    note_limits(world.cluster, EngineLimits("Slurm's partition main", table=content))


def test_what_others_have_of_a_qos_is_not_given_out_and_the_reason_says_so(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold"})
    note(world, qos={"gold": {"gpus": {"": [8, 6]}}})
    first, second = world.submit(gpus=2), world.submit(gpus=2)
    world.round()
    assert (world.state(first), world.state(second)) == (State.LAUNCHING, State.WAITING_FOR_INITIAL_RESOURCE)
    run = world.run(second)
    assert run.reason_text == "QOS gold allows 8 GPUs at a time, 8 are used; this job needs at least 2."
    assert explain_job(world.user, Job.objects.get(pk=second.pk))["slurm"] == "QOSGrpGRES"
    check_invariants(world)


def test_our_own_use_is_not_counted_twice_and_growth_stops_at_the_limit(world: World) -> None:
    Project.objects.update(slurm={"account": "vision"})
    note(world, accounts={"vision": VISION})
    job = world.submit(gpus={"min": 1})
    world.round()
    world.ready(job)
    world.unprotect(job)
    note(world, accounts={"vision": {"parent": "root", "gpus": {"": [4, 1]}}})
    for _ in range(3):
        world.round()
    assert 1 < world.gpus(job) <= 4
    check_invariants(world)


def test_a_job_that_no_limit_lets_start_is_refused_by_its_field(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold", "partition": "small"})
    api = Api(world.user)
    note(
        world,
        qos={"gold": {"each": {"": 4}, "each_account": {"": 8}}},
        partitions={"small": {"max_nodes": 2, "min_nodes": 1, "qos": ""}},
    )
    wish = {"command": "train", "project": world.project.key, "total_steps": 10}
    for path in ("jobs", "jobs/preview"):
        refused = api.post(path, wish | {"gpus": {"min": 9}})
        assert [one["message"] for one in refused.json["errors"]] == [
            "partition small allows 2 nodes a job, which have 8 GPUs, not 9",
            "QOS gold allows 4 GPUs a job, not 9",
        ] or [one["message"] for one in refused.json["errors"]] == [
            "partition small allows 2 nodes a job, which have 8 GPUs, not 9",
            "QOS gold allows 8 GPUs an account at a time, not 9",
        ]
    made = api.post("jobs", wish)
    assert Job.objects.get(number=made.json["number"]).max_gpus == 4


def test_a_job_from_before_waits_with_the_limit(world: World) -> None:
    job = world.submit(gpus=6)
    note(world, qos={"gold": {"each": {"": 4}}})
    Project.objects.update(slurm={"qos": "gold"})
    world.round()
    assert world.run(job).reason_text == "QOS gold allows 4 GPUs a job; this job needs at least 6."


def test_a_preview_says_what_is_used_up(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold", "account": "vision"})
    note(world, qos={"gold": {"each_account": {"": 8}, "by_account": {"vision": {"": 8}}}})
    shown = preview(world)
    assert shown["verdict"] == "later"
    assert "QOS gold allows 8 GPUs an account at a time, 8 are used" in str(shown["reason"])


def test_a_job_goes_only_to_nodes_with_what_it_asks_for(world: World) -> None:
    note(world, features={"nvlink": ["b"], "big": ["a", "b"]})
    api = Api(world.user)
    wish = {"command": "train", "project": world.project.key, "total_steps": 10, "gpus": {"min": 2, "max": 2}}
    refused = api.post("jobs", wish | {"slurm": {"constraint": "fast"}})
    if refused.json.get("errors", [{}])[0].get("code") != "not_offered":  # the engine of these tests is no Slurm
        assert "no node has fast; they have big, nvlink" in str(refused.json)
    jobs = [world.submit(gpus=2) for _ in range(3)]
    for job in jobs:
        Job.objects.filter(pk=job.pk).update(spec={**job.spec, "slurm": {"constraint": "nvlink"}})
    world.round()
    started = [job for job in jobs if world.gpus(job)]
    assert len(started) == 2
    names = Assignment.objects.filter(during__upper_inf=True).values_list("accelerator__node__name", flat=True)
    assert set(names) == {"b"}
    [waits] = [job for job in jobs if job not in started]
    assert world.run(waits).reason_text.startswith("Nodes with nvlink (its constraint) have 0 of their 4 GPUs free")
    check_invariants(world)


def test_how_many_jobs_may_run_counts_others_and_no_job_of_ours_twice(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold", "account": "vision"})
    note(world, qos={"gold": {"jobs": [4, 2], "each_account": {"submits": 5}}})
    jobs = [world.submit(gpus=1) for _ in range(3)]
    world.round()
    assert [world.state(job) for job in jobs] == [State.LAUNCHING] * 2 + [State.WAITING_FOR_INITIAL_RESOURCE]
    text = "QOS gold allows 4 running jobs at a time, 4 are there; this one starts when one ends."
    assert world.run(jobs[2]).reason_text == text
    assert explain_job(world.user, Job.objects.get(pk=jobs[2].pk))["slurm"] == "QOSGrpJobsLimit"
    note(world, qos={"gold": {"jobs": [4, 3]}})  # two of the three are ours
    world.round()
    assert world.state(jobs[2]) is State.LAUNCHING
    check_invariants(world)


def test_a_job_of_a_qos_that_demands_gpus_gets_as_many(world: World) -> None:
    Project.objects.update(slurm={"account": "vision"})
    taken = [world.submit(gpus={"min": 1, "max": most}) for most in (1, 2)]
    note(world, qos={"gold": {"least": 2}}, default_qos={"evenkeel@vision": "gold"})
    api = Api(world.user)
    wish = {"command": "train", "project": world.project.key, "total_steps": 10}
    refused = api.post("jobs", wish | {"gpus": {"min": 1, "max": 1}})
    assert [(one["field"], one["message"]) for one in refused.json["errors"]] == [
        ("gpus.max", "QOS gold allows no job with fewer than 2 GPUs, not with 1")
    ]
    world.round()
    assert [world.gpus(job) for job in taken] == [0, 2]
    assert world.run(taken[0]).reason_text.startswith("QOS gold allows no job with fewer than 2 GPUs, and this one")
    assert explain_job(world.user, Job.objects.get(pk=taken[0].pk))["slurm"] == "QOSMinGRES"


def test_a_job_is_spread_as_a_qos_demands_and_grows_no_further_than_that(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold", "partition": "small"})
    note(
        world,
        qos={"gold": {"each_node": {"": 1}}},
        partitions={"small": {"max_nodes": 2, "min_nodes": 1, "qos": ""}},
    )
    api = Api(world.user)
    wish = {"command": "train", "project": world.project.key, "total_steps": 10}
    refused = api.post("jobs", wish | {"gpus": {"min": 3}})
    words = "partition small allows 2 nodes a job and QOS gold allows 1 GPU of a node, which have 2 GPUs, not 3"
    assert [one["message"] for one in refused.json["errors"]] == [words]
    job = world.submit(gpus={"min": 2})
    world.round()
    names = Assignment.objects.filter(during__upper_inf=True).values_list("accelerator__node__name", flat=True)
    assert len(set(names)) == len(names) == world.gpus(job) == 2


def test_where_nobody_may_run_a_job_is_refused(world: World) -> None:
    Project.objects.update(slurm={"qos": "gold"})
    note(world, qos={"gold": {"each_user": {"jobs": 0}}})
    refused = Api(world.user).post("jobs", {"command": "train", "project": world.project.key, "total_steps": 10})
    assert "QOS gold allows 0 running jobs a user at a time: no job starts" in str(refused.json["errors"])
