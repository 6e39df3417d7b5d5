"""Previews: the next round's own answer to a job that nobody submitted, and the forecast beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery.exceptions import Retry
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Membership, Project, Quota, User
from portal.cluster.policy import set_policy
from portal.core import task_queue
from portal.forecasts import basis, preview_tasks, previews
from portal.forecasts.basis import basis_of
from portal.jobfile.parsing import parse_job_file
from portal.jobs.models import Cluster, Job, JobEvent, Run
from portal.reporting import acceptance
from tests.portal.api_calls import Api
from tests.portal.world import CURVES, World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_old_answers() -> None:
    cache.clear()


def preview(world: World, user: User | None = None, steps: int = 1000, **keys: Any) -> dict[str, Any]:
    cache.clear()
    document = {"command": "train", "project": "vision", "total_steps": steps, "throughput": {"k1": CURVES["fast"]}}
    found = previews.preview_job(user or world.user, parse_job_file(document | keys))
    assert isinstance(found, dict)
    return found


def forecast(world: World, said: dict[str, Any], user: User | None = None) -> dict[str, Any]:
    """As a worker would make it."""
    assert said["forecast"]
    preview_tasks.foresee_preview(said["forecast"])
    found = previews.forecast_of(user or world.user, said["forecast"])
    assert found
    assert found["status"] == "done"
    return dict(found["forecast"])


def settle(world: World, job: Job) -> None:
    """It trains, and the rounds know that it may be resized."""
    world.train(job)
    world.round()


def at(text: str) -> float:
    return (datetime.fromisoformat(text) - timezone.now()).total_seconds()


def test_it_starts_now_where_gpus_are_free() -> None:
    world = World()
    said = preview(world, steps=2_800)
    assert (said["verdict"], said["starting"], said["position"]) == ("now", 1, None)
    assert said["allocation"]["count"] == 4
    assert said["allocation"]["gpus"] == [{"node": "a", "index": i} for i in range(4)]
    assert not said["allocation"]["from_others"]
    assert said["effects"] == []
    assert said["throughput"]["k1"]["steps_per_s"] == CURVES["fast"]
    seen = forecast(world, said)
    assert seen["gang"] == {"type": "k1", "count": 4, "share_percent": 100}
    assert abs(at(seen["start"]["p90_at"])) < 10
    assert at(seen["end"]["at"]) == pytest.approx(100, abs=10)
    assert seen["end"]["duration_s"] == 100
    assert seen["cost"]["amount"] == "0.137174"  # 4 GPUs for 100 s at 1.234567 an hour


def test_a_preview_says_what_the_next_round_then_does() -> None:
    world = World()
    running = world.submit("slow", steps=100_000)
    settle(world, running)
    said = preview(world, steps=50_000)
    assert said["verdict"] == "now"
    job = world.submit(steps=50_000)
    world.round()
    assert world.gpus(job) == said["allocation"]["count"]
    assert world.gpus(running) == said["effects"][0]["after"]["count"]


def test_effects_say_whose_slowdown_changes_by_how_much() -> None:
    world = World()
    running = world.submit(steps=100_000)
    settle(world, running)
    assert world.gpus(running) == 4
    said = preview(world, steps=100_000)
    assert said["allocation"]["from_others"]
    [effect] = said["effects"]
    assert effect["job"] == {"number": running.number, "name": "command", "project": "Vision"}
    count = effect["after"]["count"]
    assert count == 4 - said["allocation"]["count"]
    assert (effect["before"]["count"], effect["slowdown_before"]) == (4, 1.0)
    assert effect["slowdown_after"] == pytest.approx(28 / CURVES["fast"][count - 1], abs=1e-4)
    assert said["variance"]["before"] == 0.0
    assert said["variance"]["bound"] is not None
    lasts_s = 100_000 / CURVES["fast"][said["allocation"]["count"] - 1]
    lost_s = lasts_s * (1 - CURVES["fast"][count - 1] / 28)
    assert effect["later_s"] == pytest.approx(lost_s, rel=0.05)


def test_it_waits_for_who_is_ahead_and_the_forecast_says_until_when() -> None:
    world = World(policy="fifo_gang")
    first = world.submit(steps=28_000, gpus={"min": 4, "max": 4})
    world.train(first)
    said = preview(world, gpus={"min": 2, "max": 2}, steps=1_800)
    assert (said["verdict"], said["position"], said["allocation"], said["starting"]) == ("later", 1, None, 0)
    assert said["reason"]["code"] == "no_room"
    assert said["would_change"] == "It starts when 2 × k1 are free: when a job ends or shrinks."
    seen = forecast(world, said)
    assert at(seen["start"]["p50_at"]) == pytest.approx(1_000, rel=0.15)
    assert seen["start"]["run_time"] == "steps"
    assert seen["gang"] == {"type": "k1", "count": 2, "share_percent": 100}
    assert at(seen["end"]["at"]) - at(seen["start"]["p50_at"]) == pytest.approx(100)
    assert at(seen["end"]["low_at"]) < at(seen["end"]["at"]) < at(seen["end"]["high_at"])


def test_the_forecast_says_who_starts_later_for_it() -> None:
    world = World(policy="fifo_gang")
    set_policy(actor=None, cluster=world.cluster, name="shortest_job_first", parameters={})
    world.train(world.submit(steps=28_000, gpus={"min": 4, "max": 4}))
    behind = world.submit(steps=56_000, gpus={"min": 4, "max": 4}, name="behind")
    said = preview(world, steps=28_000, gpus={"min": 4, "max": 4})
    assert said["position"] == 2  # by priority and arrival; the policy lets it pass
    seen = forecast(world, said)
    [delayed] = seen["delayed"]
    assert delayed["job"] == {"number": behind.number, "name": "behind", "project": "Vision"}
    assert delayed["later_s"] == pytest.approx(1_000, rel=0.2)
    assert at(delayed["start_before_at"]) == pytest.approx(1_000, rel=0.15)
    assert seen["others_delayed"] == 1


def test_who_is_ahead_is_not_delayed(world_of_three: tuple[World, Job]) -> None:
    world, waiting = world_of_three
    said = preview(world, steps=28_000, gpus={"min": 4, "max": 4})
    assert said["position"] == 2
    seen = forecast(world, said)
    assert (seen["delayed"], seen["others_delayed"]) == ([], 0)
    assert at(seen["start"]["p50_at"]) == pytest.approx(2_000, rel=0.2)
    assert waiting.number < world.submit().number


@pytest.fixture
def world_of_three() -> tuple[World, Job]:
    """One job runs for 1,000 s on all GPUs, one waits for it."""
    world = World(policy="fifo_gang")
    world.train(world.submit(steps=28_000, gpus={"min": 4, "max": 4}))
    waiting = world.submit(steps=28_000, gpus={"min": 4, "max": 4})
    world.round()
    return world, waiting


@pytest.mark.parametrize(
    ("keys", "token"),
    [({"gpus": {"min": 64}}, "never"), ({"gpus": {"types": ["k9"]}}, "never")],
)
def test_it_never_starts_where_nothing_can_run_it(keys: dict[str, Any], token: str) -> None:
    said = preview(World(), **keys)
    assert said["position"] is None
    assert (said["verdict"], said["reason"]["code"], said["forecast"]) == ("never", token, None)
    assert said["would_change"]


def test_a_hard_limit_that_refuses_it_is_never_with_the_limits_words() -> None:
    world = World()
    Quota.objects.create(project=world.project, kind="running_jobs", limit=0, hard=True)
    said = preview(world)
    assert (said["verdict"], said["reason"]["code"], said["forecast"]) == ("never", "refused", None)
    assert said["reason"]["text"] == said["estimate"]["refused_by"][0]


def test_a_soft_limit_makes_it_wait() -> None:
    world = World()
    Quota.objects.create(project=world.project, kind="gpus", limit=2, hard=False)
    world.train(world.submit(gpus={"min": 2, "max": 2}))
    said = preview(world, gpus={"min": 1})
    assert (said["verdict"], said["reason"]["code"]) == ("later", "quota")


def test_a_dependency_makes_it_wait_with_no_place_in_the_queue() -> None:
    world = World()
    first = world.submit()
    said = preview(world, dependencies=[{"type": "afterok", "job": first.number}])
    assert (said["verdict"], said["reason"]["code"], said["position"]) == ("later", "dependency", None)
    assert forecast(world, said)["start"]["reason"]["code"] == "dependency"


def test_one_that_runs_alone_waits_for_the_earlier_one_of_its_name(world: World) -> None:
    alone: dict[str, Any] = {"name": "nightly", "dependencies": [{"type": "singleton"}]}
    assert preview(world, **alone)["verdict"] == "now"
    world.submit(name="nightly")
    assert preview(world, **alone)["reason"]["code"] == "dependency"


def test_all_of_an_array_wait_for_what_it_depends_on(world: World) -> None:
    first = world.submit()
    after = [{"type": "afterok", "job": first.number}]
    said = preview(world, gpus={"min": 1, "max": 1}, array={"indices": "0-3"}, dependencies=after)
    assert (said["verdict"], said["starting"]) == ("later", 0)


def test_what_is_refused_starts_nowhere_and_changes_nothing(world: World) -> None:
    settle(world, world.submit(steps=100_000))
    Quota.objects.create(project=world.project, kind="running_jobs", limit=3, hard=True)
    said = preview(world, gpus={"min": 1, "max": 1}, array={"indices": "0-9"})
    assert (said["verdict"], said["starting"], said["allocation"], said["effects"]) == ("never", 0, None, [])
    assert said["variance"]["before"] == said["variance"]["after"]


def test_what_is_made_ready_first_is_said(world: World) -> None:
    assert not preview(world)["prepares"]
    assert preview(world, environment={"requirements": "einops==0.8.1"})["prepares"]


def test_a_user_keeps_the_newest_questions(world: World) -> None:
    ids = [preview_again(world)["forecast"] for _ in range(previews.MOST_KEPT + 2)]
    kept = [previews.question_of(one) is not None for one in ids]
    assert kept == [False, False, *[True] * previews.MOST_KEPT]


def preview_again(world: World) -> dict[str, Any]:
    return previews.preview_job(
        world.user, parse_job_file({"command": "x", "project": "vision", "total_steps": 9, "throughput": {"k1": [1.0]}})
    )


@pytest.fixture
def world() -> World:
    return World()


def test_jobs_of_an_array_start_as_far_as_there_is_room() -> None:
    world = World(policy="fifo_gang")
    said = preview(world, gpus={"min": 1, "max": 1}, array={"indices": "0-9"})
    assert (said["verdict"], said["jobs"], said["starting"]) == ("now", 10, 4)
    limited = preview(world, gpus={"min": 1, "max": 1}, array={"indices": "0-9", "max_running": 2})
    assert limited["starting"] == 2


def test_jobs_of_other_projects_are_shown_without_their_names() -> None:
    world = World()
    running = world.submit(steps=100_000, name="secret")
    settle(world, running)
    other = User.objects.create_user("other@example.org", "x")
    Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=other)
    said = preview(world, user=other, project="speech", steps=100_000)
    assert said["effects"][0]["job"] == {"number": running.number, "name": None, "project": "Vision"}


def test_the_queue_knows_nothing_of_it() -> None:
    world = World()
    world.train(world.submit(steps=100_000))
    counted = [model.objects.count() for model in (Job, Run, JobEvent)]
    epoch = Cluster.objects.get().round_epoch
    said = preview(world)
    forecast(world, said)
    assert [model.objects.count() for model in (Job, Run, JobEvent)] == counted
    assert Cluster.objects.get().round_epoch == epoch
    assert world.submit().number == Job.objects.order_by("number").first().number + 1  # type: ignore[union-attr]


def test_the_forecast_is_its_askers_alone() -> None:
    world = World()
    said = preview(world)
    stranger = User.objects.create_user("other@example.org", "x")
    assert previews.forecast_of(stranger, said["forecast"]) is None
    assert previews.forecast_of(world.user, said["forecast"]) == {"status": "pending", "forecast": None}


def test_one_forecast_is_worked_out_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    said = preview(world)

    @contextlib.contextmanager
    def busy() -> Iterator[bool]:
        yield False

    monkeypatch.setattr(preview_tasks, "preview_lock", busy)
    with pytest.raises(Retry):
        preview_tasks.foresee_preview(said["forecast"])
    assert previews.forecast_of(world.user, said["forecast"]) == {"status": "pending", "forecast": None}
    monkeypatch.undo()
    assert forecast(world, said)["futures"] > 0


def test_a_snapshot_serves_several_previews_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    first = basis_of(world.cluster)
    assert basis_of(world.cluster) == first
    later = timezone.now() + timedelta(seconds=6)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert basis_of(world.cluster).at == later


def test_a_snapshot_that_takes_long_is_renewed_beside_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis, "_TIMES_MADE", 1e9)
    world = World()
    asked: list[Any] = []
    monkeypatch.setattr(task_queue, "send", lambda _name, *arguments, **_: asked.append(arguments))
    first = basis_of(world.cluster)
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=6))
    assert basis_of(world.cluster) == first
    assert basis_of(world.cluster) == first
    assert asked == [(world.cluster.pk,)]
    preview_tasks.renew_basis(*asked[0])
    assert basis_of(world.cluster).at > first.at
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=40))
    assert basis_of(world.cluster).at == now + timedelta(seconds=40)


def test_a_snapshot_serves_as_much_longer_as_it_took_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    first, now = basis_of(world.cluster), timezone.now()
    for took_s, serves_s in ((0.01, 1), (0.2, 4), (5.0, 15)):
        known = replace(first, at=now, took_s=took_s)
        monkeypatch.setattr(basis, "_newest", lambda _, known=known: known)
        monkeypatch.setattr(timezone, "now", lambda late_s=serves_s - 0.1: now + timedelta(seconds=late_s))
        assert basis_of(world.cluster) == known
        monkeypatch.setattr(timezone, "now", lambda late_s=serves_s + 0.1: now + timedelta(seconds=late_s))
        assert basis_of(world.cluster).at > now


def test_another_policy_makes_another_snapshot_at_once() -> None:
    world = World()
    assert basis_of(world.cluster).policy[0] == "f_scheduling"
    set_policy(actor=None, cluster=world.cluster, name="fifo_gang", parameters={})
    assert basis_of(Cluster.objects.get()).policy[0] == "fifo_gang"


def test_over_http() -> None:
    world = World()
    api = Api(world.user)
    said = api.post("jobs/preview", {"command": "train", "total_steps": 100, "throughput": {"k1": [1.0]}})
    assert said.status == 200
    answer = api.get(f"previews/{said.json['forecast']}")
    assert answer.json == {"status": "pending", "forecast": None}
    wrong = api.post("jobs/preview", {"command": "train", "total_steps": 0})
    assert (wrong.status, wrong.fields) == (400, ["total_steps"])


class TestPolicies:
    def test_another_policy_is_shown_beside_the_one_in_force(self) -> None:
        world = World()
        first, second = world.submit(steps=100_000), world.submit("slow", steps=100_000)
        world.train(first)
        settle(world, second)
        said = previews.preview_policy(world.user, world.cluster, "fifo_gang", {})
        assert said["affected"] == 0  # who runs keeps what it has
        assert {said[name] for name in ("starting", "waiting", "preempted", "grown", "shrunk", "moved")} == {0}
        third = world.submit(steps=100_000)
        acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
        said = previews.preview_policy(world.user, world.cluster, "fifo_gang", {})
        assert (said["waiting"], said["grown"]) == (1, 1)  # f_scheduling would make room for it
        [effect] = [one for one in said["effects"] if one["job"]["number"] == third.number]
        assert (effect["before"]["count"], effect["after"]) == (1, None)

    def test_parameters_alone_may_change_the_plan(self) -> None:
        world = World()
        fast, slow = world.submit(steps=100_000), world.submit("slow", steps=100_000)
        world.train(fast)
        settle(world, slow)
        world.unprotect(slow)
        world.round()
        before = (world.gpus(fast), world.gpus(slow))
        said = previews.preview_policy(world.user, world.cluster, "f_scheduling", {"v_bound": 0.0001, "min_gain": 0.0})
        set_policy(
            actor=None, cluster=world.cluster, name="f_scheduling", parameters={"v_bound": 0.0001, "min_gain": 0.0}
        )
        world.round()
        after = (world.gpus(fast), world.gpus(slow))
        assert said["affected"] == sum(one != other for one, other in zip(before, after, strict=True))
        assert said["variance"]["bound"] == 0.0001

    def test_nothing_changes_and_wrong_parameters_are_named(self) -> None:
        world = World()
        root = User.objects.create_superuser("root@example.org", "x")
        api = Api(root)
        assert api.post("policy/preview", {"name": "fifo_gang", "parameters": {}}).status == 200
        assert Cluster.objects.get().policy_name == "f_scheduling"
        assert api.get("policy").json["changed_at"] is None
        wrong = api.post("policy/preview", {"name": "f_scheduling", "parameters": {"v_bound": -1}})
        assert (wrong.status, wrong.fields) == (400, ["parameters.v_bound"])
        assert api.post("policy/preview", {"name": "nothing"}).fields == ["name"]
        assert Api(world.user).post("policy/preview", {"name": "fifo_gang"}).status == 403
