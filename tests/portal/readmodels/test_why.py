"""One portal, several jobs: each waiting reason with its token, its sentence and what would change it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Guarantee, Membership, Project, Quota, User
from portal.core import wake
from portal.jobs.models import Displacement, Job, Node, Qos
from portal.readmodels.jobs.expected_start import ExpectedStart
from portal.readmodels.jobs.why_waiting import _one_gpu
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
ONE, TWO, FOUR = ({"min": n, "max": n} for n in (1, 2, 4))


@pytest.fixture
def world() -> World:
    """Two nodes of four, of one type; a lab with a project beside Vision."""
    made = World({"a": 4, "b": 4}, policy="multifactor")
    lab = Project.objects.create(key="lab", name="Lab")
    Project.objects.create(key="speech", name="Speech", parent=lab)
    Project.objects.filter(key="vision").update(parent=lab)
    for project in Project.objects.exclude(key="vision"):
        Membership.objects.create(project=project, user=made.user)
    return made


def why(world: World, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = Api(world.user).get(f"jobs/{job.number}/explanation").json
    return found


def drain(name: str, **values: bool) -> None:
    Node.objects.filter(name=name).update(**(values or {"drained": True}))


def test_each_reason_has_a_token_a_sentence_and_a_next_action(world: World) -> None:
    Quota.objects.create(project=Project.objects.get(key="lab"), kind="running_jobs", limit=9)
    Quota.objects.create(project=Project.objects.get(key="speech"), kind="gpus", limit=1)
    running = world.submit(gpus={"min": 7, "max": 7})
    world.train(running)
    jobs = {
        "resources": world.submit(gpus=FOUR),
        "priority": world.submit(gpus=FOUR),
        "quota": world.submit(project="speech", gpus=ONE),
        "dependency": world.submit(gpus=ONE, dependencies=[{"type": "afterok", "job": running.number}]),
        "held": world.submit(gpus=ONE),
        "never": world.submit(gpus=ONE),
    }
    Quota.objects.filter(kind="gpus").update(limit=0)  # set after it was let in
    Job.objects.filter(pk=jobs["never"].pk).update(min_gpus=9, max_gpus=9)
    Api(world.user).post(f"jobs/{jobs['held'].number}/hold")
    world.round()
    words = {
        "resources": ("resources", "more k1 must become free for 4 × k1", "Resources"),
        "priority": ("priority", f"#{jobs['resources'].number} and others of higher priority are ahead", "Priority"),
        "quota": ("quota", "Project Speech may hold 0 GPUs", "AssocGrpGRES"),
        "dependency": ("dependency", f"#{running.number}", "Dependency"),
        "held": ("HELD", "Held by ana@example.org", "JobHeldUser"),
        "never": ("never", "It needs at least 9 × k1 and there are 8", "BadConstraints"),
    }
    for key, (token, text, slurm) in words.items():
        found = why(world, jobs[key])
        assert found["code"] == token, found
        assert text in found["text"]
        assert found["slurm"] == slurm
        assert found["would_change"], token
        assert found["preemption"] is None
    assert why(world, jobs["quota"])["detail"]["level"] == "project Speech"
    assert why(world, jobs["quota"])["detail"]["limit"] == "GPUs at once"
    assert why(world, jobs["resources"])["detail"]["missing"] == 3


def test_a_limit_further_up_is_named_with_its_level(world: World) -> None:
    Quota.objects.create(project=Project.objects.get(key="lab"), kind="running_jobs", limit=1)
    world.train(world.submit(gpus=ONE))
    waiting = world.submit(project="speech", gpus=ONE)
    world.round()
    found = why(world, waiting)
    assert (found["code"], found["detail"]["level"], found["detail"]["limit"]) == (
        "quota_jobs",
        "project Lab",
        "running jobs",
    )
    assert found["text"].startswith("Project Lab may have 1 job running, and 1 goes before")


def test_nobody_is_told_to_pass_where_the_policy_lets_nobody(world: World) -> None:
    world.train(world.submit(gpus={"min": 7, "max": 7}))
    world.submit(gpus=FOUR)
    waiting = world.submit(gpus=FOUR)
    for kind, said in (("easy", "may let it pass"), ("none", "the policy does not backfill")):
        world.cluster.policy_parameters = {**world.cluster.policy_parameters, "backfill": kind}
        world.cluster.save()
        world.round()
        assert said in why(world, waiting)["would_change"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It starts when 1 × k1 are free: when a job ends.", "It starts when 1 × k1 is free: when a job ends."),
        ("leaves 1 more GPUs.", "leaves 1 more GPU."),
        ("when 1 GPUs of partition p are free", "when 1 GPU of partition p is free"),
        ("when 11 GPUs of partition p are free", "when 11 GPUs of partition p are free"),
    ],
)
def test_one_gpu_is_one(text: str, said: str) -> None:
    assert _one_gpu(text) == said


def test_an_arrays_own_limit_has_slurms_word_in_lists_too(world: World) -> None:
    first = world.submit(gpus=ONE, array={"indices": "0-2", "max_running": 1})
    world.round()
    assert first.array is not None
    listed = Api(world.user).get("jobs", array=str(first.array.number)).json["results"]
    assert [job["reason"]["slurm"] for job in listed] == ["JobArrayTaskLimit", "JobArrayTaskLimit", None]
    found = why(world, Job.objects.get(number=listed[0]["number"]))
    assert found["slurm"] == "JobArrayTaskLimit"
    assert found["array"] == {"number": first.array.number, "index": 2, "size": 3}


@pytest.mark.parametrize(("change", "word"), [({"drained": True}, "drained"), ({"lost": True}, "lost")])
def test_nodes_that_are_away_are_named(world: World, change: dict[str, bool], word: str) -> None:
    drain("b", **change)
    waiting = world.submit(gpus={"min": 6, "max": 6})
    world.round()
    found = why(world, waiting)
    assert (found["code"], found["slurm"]) == ("node_unavailable", "ReqNodeNotAvail")
    assert f"4 are in service; out of service: b ({word})" in found["text"]
    drain("b", drained=False, lost=False)
    world.round()
    assert world.state(waiting) is State.LAUNCHING


@pytest.mark.parametrize("policy", ["fifo_gang", "f_scheduling", "shortest_remaining_time", "static_partition"])
def test_other_policies_say_never_too(world: World, policy: str) -> None:
    world.cluster.policy_name = policy
    world.cluster.save()
    job = world.submit(gpus=ONE)
    Job.objects.filter(pk=job.pk).update(min_gpus=9, max_gpus=9)
    world.round()
    assert why(world, job)["code"] == "never"


def test_what_is_said_is_as_old_as_the_latest_round(world: World) -> None:
    job = world.submit(gpus={"min": 8, "max": 8})
    drain("b")
    world.round()
    before = why(world, job)["checked_at"]
    world.round()
    assert why(world, job)["checked_at"] > before


# Who took its GPUs ------------------------------------------------------------------------------------


def leave(world: World, job: Job, step: int = 30) -> None:
    world.checkpoint(job, step, reason="request")
    world.gone(job)


def test_a_reclaimed_job_says_who_has_its_gpus_at_which_level_and_until_when(world: World) -> None:
    Guarantee.objects.create(project=Project.objects.get(key="speech"), gpus=4)
    borrower = world.submit(gpus={"min": 8, "max": 8})
    world.train(borrower)
    owner = world.submit(project="speech", gpus=FOUR)
    world.round()
    for _ in range(2):  # it is remembered while it waits
        leave(world, borrower)
        world.round()
        found = why(world, borrower)
        gone = found["preemption"]
        assert (gone["kind"], gone["code"]) == ("preempted", "reclaimed")
        assert gone["level"] == "guarantee of project Speech"
        assert "project Speech reclaimed 4 of its 4 guaranteed GPUs" in gone["text"]
        assert gone["by"] == [
            {"number": owner.number, "name": owner.name, "project": "Speech", "within": "project Lab, above both"}
        ]
        assert (gone["gpus_now"], gone["gpus_before"]) == (0, 8)
        assert gone["back_at"] is not None
    assert found["code"] == "resources"  # what it waits for now is another matter
    likely = timezone.now() + timedelta(hours=3)
    at = likely.timestamp()
    said = ExpectedStart(timezone.now().timestamp(), at, at, at)
    cache.set(f"expected-start/{borrower.pk}", said, 600)
    gone = why(world, borrower)["preemption"]
    assert (gone["back_at"][:16], gone["back_basis"]) == (
        f"{likely:%Y-%m-%dT%H:%M}",
        "the middle of its expected starts",
    )
    world.ready(owner)
    world.gone(owner, "finished", step=1000)
    world.round()
    assert why(world, borrower)["preemption"] is None  # it has them again


def test_a_shrunk_job_says_so_while_it_runs(world: World) -> None:
    world.cluster.policy_name = "f_scheduling"
    world.cluster.save()
    first = world.submit(gpus={"min": 1, "max": 4})
    world.train(first)
    others = [world.submit(gpus={"min": 3, "max": 3}) for _ in range(2)]
    world.round()
    leave(world, first)
    world.round()
    world.ready(first)
    found = why(world, first)["preemption"]
    assert found["kind"] == "shrunk"
    assert (found["gpus_before"], found["gpus_now"]) == (4, 2)
    taker = others[0] if found["by"][0]["number"] == others[0].number else others[1]
    shown = Api(world.user).get(f"jobs/{taker.number}").json["expected_end_at"]
    assert found["back_basis"] == "when the jobs that got them are expected to end"
    assert abs(datetime.fromisoformat(found["back_at"]) - datetime.fromisoformat(shown)) < timedelta(seconds=5)
    assert found["level"] == "policy f_scheduling"
    assert {taker["number"] for taker in found["by"]} <= {job.number for job in others}
    assert found["by"][0]["within"] == "your own project"


def test_a_level_of_service_is_named(world: World) -> None:
    low = Qos.objects.create(name="low", is_default=True)
    Qos.objects.create(name="high", priority=9).preempts.add(low)
    job = world.submit(gpus={"min": 8, "max": 8})
    world.train(job)
    world.submit(gpus=ONE, qos="high")
    world.round()
    assert why(world, job)["preemption"]["level"] == "level of service high"


def test_what_others_do_is_not_told_by_name(world: World) -> None:
    stranger = User.objects.create_user("other@example.org", "x")
    Membership.objects.create(project=Project.objects.create(key="secret", name="Secret"), user=stranger)
    Guarantee.objects.create(project=Project.objects.get(key="secret"), gpus=2)
    borrower = world.submit(gpus={"min": 8, "max": 8})
    world.train(borrower)
    world.submit(project="secret", gpus=TWO, user=stranger, name="stealth")
    world.round()
    (taker,) = why(world, borrower)["preemption"]["by"]
    assert (taker["name"], taker["project"], taker["within"]) == (None, "Secret", "the cluster")
    assert Displacement.objects.count() == 1


def test_long_names_stop_no_round_and_only_the_newest_loss_is_kept(world: World) -> None:
    User.objects.filter(pk=world.user.pk).update(first_name="N" * 150)
    Project.objects.filter(pk=world.project.pk).update(name="P" * 120)
    job = world.submit(gpus=TWO)
    world.train(job)
    limit = Quota.objects.create(
        project=world.project, user=world.user, kind="gpu_hours", period="month", limit=0, hard=True
    )
    for _ in range(2):
        assert world.round() is not None
        assert world.state(job) is State.CHECKPOINTING
        world.gone(job)
        Quota.objects.filter(pk=limit.pk).update(limit=10**9)
        world.round()
        world.ready(job)
        world.unprotect(job)
        Quota.objects.filter(pk=limit.pk).update(limit=0)
    assert Displacement.objects.count() == 1


def test_a_parked_job_says_when_its_period_ends(world: World) -> None:
    job = world.submit(gpus=TWO)
    world.train(job)
    Quota.objects.create(project=world.project, kind="gpu_hours", period="month", limit=0, hard=True)
    world.round()
    Job.objects.filter(pk=job.pk).update(submitted_at=timezone.now() - timedelta(hours=1))
    leave(world, job)
    world.round()
    found = why(world, job)
    assert (found["code"], found["preemption"]["level"]) == ("quota_period", "budget of project Vision")
    assert found["preemption"]["by"] == []
    assert found["preemption"]["back_at"] is not None
    assert found["preemption"]["back_basis"] == "when the budget's period ends"


def test_after_a_rename_a_round_comes_and_says_the_new_name(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    Quota.objects.create(project=world.project, kind="running_jobs", limit=0)
    job = world.submit(gpus=TWO)
    world.round()
    assert why(world, job)["text"].startswith("Project Vision may have 0 jobs running")
    with django_capture_on_commit_callbacks() as after:
        Membership.objects.update(role="manager")
        assert Api(world.user).patch("projects/vision", {"name": "Seeing"}).status == 200
    assert wake.schedule_round in after
    world.round()
    assert why(world, job)["text"].startswith("Project Seeing may have 0 jobs running")
