"""Priorities and shares over the API, and the live policy that goes by them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts import fair_share
from accounts.models import FairShareClock, Membership, Project, User
from portal.cluster.policy import set_policy
from portal.jobs.models import Job
from portal.lifecycle.suspend import hold_job, release_job
from portal.snapshot.take import take_snapshot
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger(world: World) -> Api:
    """Somebody of another project, which the same cluster serves."""
    project = Project.objects.create(key="speech", name="Speech")
    user = User.objects.create_user("eve@example.org", "x")
    Membership.objects.create(project=project, user=user)
    return Api(user)


@pytest.fixture
def team(world: World) -> World:
    """Under the policy."""
    set_policy(actor=None, cluster=world.cluster, name="multifactor", parameters={})
    world.cluster.refresh_from_db()
    return world


def colleague(world: World, email: str = "bo@example.org") -> User:
    user = User.objects.create_user(email, "correct horse battery")
    Membership.objects.create(project=world.project, user=user)
    return user


def use(world: World, user: User, hours: float) -> None:
    """A job of theirs that held all four GPUs until now."""
    job = world.submit(user=user, gpus={"min": 4})
    world.train(job)
    run = world.run(job)
    started = timezone.now() - timedelta(hours=hours)
    for hold in run.holds.all():
        hold.during = (started, None)
        hold.save()
    world.gone(job, "done", step=1000)


class TestPriorities:
    def test_they_say_every_factor_and_add_up(self, team: World, api: Api) -> None:
        team.train(team.submit(gpus={"min": 4}))
        job = team.submit(gpus={"min": 2}, nice=7)
        Job.objects.filter(pk=job.pk).update(submitted_at=timezone.now() - timedelta(days=3.5))
        (row,) = api.get("priorities").json["results"]
        factors = {factor["name"]: factor for factor in row["factors"]}
        assert factors["age"]["factor"] == pytest.approx(0.5, abs=1e-4)
        assert factors["age"]["points"] == pytest.approx(5_000, abs=1)
        assert 0 < factors["fair_share"]["factor"] <= 1
        assert factors["job_size"]["factor"] == 0.5
        assert row["priority"] == int(sum(factor["points"] for factor in row["factors"]) - 7)
        assert (row["rank"], row["nice"], row["site"]) == (1, 7, 0)

    def test_site_and_nice_are_said_apart(self, team: World, api: Api) -> None:
        root = User.objects.create_superuser("root@example.org", "x")
        team.train(team.submit(gpus={"min": 4}))
        job = team.submit(user=root, gpus={"min": 2}, priority=700, nice=20)

        def parts() -> tuple[int, int, int]:
            row = api.get(f"jobs/{job.number}/priority").json
            assert api.get("priorities").json["results"][0]["site"] == row["site"]
            return row["site"], row["nice"], row["priority"] - int(sum(one["points"] for one in row["factors"]))

        assert parts() == (700, 20, 680)
        assert Api(root).patch(f"jobs/{job.number}", {"nice": 50}).status == 200
        assert parts() == (700, 50, 650)
        assert Api(root).patch(f"jobs/{job.number}", {"priority": -10, "nice": 5}).status == 200
        assert parts() == (-10, 5, -15)

    def test_the_course_of_a_job_rises_to_the_cap(self, team: World, api: Api) -> None:
        team.train(team.submit(gpus={"min": 4}))
        job = team.submit(gpus={"min": 2})
        answer = api.get(f"jobs/{job.number}/priority").json
        course = [point["priority"] for point in answer["course"]]
        assert course == sorted(course)
        assert course[0] == answer["priority"]
        assert course[-1] - course[0] == pytest.approx(10_000, abs=2)
        assert (answer["rank"], answer["waiting"], answer["in_force"]) == (1, 1, True)

    def test_only_what_waits_has_one(self, team: World, api: Api) -> None:
        team.train(job := team.submit(gpus={"min": 4}))
        answer = api.get(f"jobs/{job.number}/priority").json
        assert (answer["rank"], answer["priority"], answer["factors"], answer["course"]) == (None, None, [], [])
        assert api.get("priorities").json["results"] == []

    def test_others_are_counted_and_not_shown(self, team: World, api: Api, stranger: Api) -> None:
        team.train(team.submit(gpus={"min": 4}))
        eve = User.objects.get(email="eve@example.org")
        theirs = Project.objects.get(memberships__user=eve)
        team.submit(user=eve, project=theirs.key, gpus={"min": 4}, name="secret")
        mine = team.submit(gpus={"min": 4})
        Job.objects.filter(pk=mine.pk).update(submitted_at=timezone.now() + timedelta(seconds=1))
        (row,) = api.get("priorities").json["results"]
        assert (row["number"], row["rank"]) == (mine.number, 2)
        assert stranger.get(f"jobs/{mine.number}/priority").status == 404
        assert stranger.get("priorities?project=vision").status == 404

    def test_pages(self, team: World, api: Api) -> None:
        team.train(team.submit(gpus={"min": 4}))
        jobs = [team.submit() for _ in range(5)]
        first = api.get("priorities?limit=2").json
        assert first["previous"] is None
        second = api.get(f"priorities?{first['next'].partition('?')[2]}").json
        numbers = [row["number"] for page in (first, second) for row in page["results"]]
        assert numbers == [job.number for job in jobs[:4]]
        assert [row["rank"] for row in second["results"]] == [3, 4]
        assert second["previous"]

    def test_under_another_policy_they_say_so(self, world: World, api: Api) -> None:
        assert api.get("priorities").json["in_force"] is False
        assert api.get("shares").json["in_force"] is False

    def test_places_in_the_queue_are_those_of_the_priorities(self, team: World, api: Api) -> None:
        use(team, team.user, hours=3)
        bo = colleague(team)
        team.train(team.submit(user=bo, gpus={"min": 4}, nice=3))
        first, second = team.submit(gpus={"min": 4}), team.submit(user=bo, gpus={"min": 4}, nice=2_000 // 2)
        team.round()
        places = {row["number"]: row["rank"] for row in api.get("priorities").json["results"]}
        for job in (first, second):
            assert api.get(f"jobs/{job.number}").json["queue_position"] == places[job.number]
        behind = max(places, key=lambda number: places[number])
        ahead = api.get(f"jobs/{behind}/explanation").json["ahead"]
        assert [one["number"] for one in ahead] == [number for number in places if number != behind]


class TestShares:
    def test_usage_of_the_ledger_and_of_now(self, team: World, api: Api) -> None:
        bo = colleague(team)
        use(team, bo, hours=2)
        team.train(team.submit(gpus={"min": 4}))
        rows = {(row["user"] or {}).get("email"): row for row in api.get("shares?project=vision").json["results"]}
        assert rows["bo@example.org"]["usage_gpu_hours"] == pytest.approx(8, rel=0.01)
        assert rows[None]["usage_gpu_hours"] == pytest.approx(8, rel=0.01)
        assert rows["bo@example.org"]["factor"] < rows["ana@example.org"]["factor"]
        assert rows["ana@example.org"]["norm_shares"] == rows["bo@example.org"]["norm_shares"]
        assert rows[None]["is_user"] is False

    def test_only_projects_of_mine(self, team: World, api: Api, stranger: Api) -> None:
        mine = {row["project"]["key"] for row in api.get("shares").json["results"]}
        theirs = {row["project"]["key"] for row in stranger.get("shares").json["results"]}
        assert "vision" in mine
        assert not mine & theirs
        assert stranger.get("shares?project=vision").status == 404

    def test_fair_tree_gives_users_a_factor_and_projects_the_share_over_the_use(self, team: World, api: Api) -> None:
        set_policy(actor=None, cluster=team.cluster, name="multifactor", parameters={"fair_share": "fair_tree"})
        use(team, team.user, hours=2)
        project, person = api.get("shares?project=vision").json["results"]
        assert project["factor"] is None
        assert project["level_fs"] > 0
        assert person["factor"] == 1.0

    def test_the_tree_is_in_order(self, team: World, api: Api) -> None:
        below = Project.objects.create(key="alpha", name="Alpha", parent=team.project, share_weight=3)
        Project.objects.create(key="beta", name="Beta", parent=below)
        rows = api.get("shares").json["results"]
        assert [(row["project"]["key"], row["level"]) for row in rows if not row["is_user"]] == [
            ("vision", 0),
            ("alpha", 1),
            ("beta", 2),
        ]
        alpha = next(row for row in rows if row["project"]["key"] == "alpha")
        # Ana's one share beside alpha's three.
        assert alpha["norm_shares"] == pytest.approx(3 / 4 * rows[0]["norm_shares"])

    def test_the_number_of_queries_does_not_grow(
        self, team: World, api: Api, django_assert_max_num_queries: Any
    ) -> None:
        api.get("shares")
        for n in range(5):
            colleague(team, f"c{n}@example.org")
            team.submit()
        with django_assert_max_num_queries(22):
            api.get("shares")
        with django_assert_max_num_queries(22):
            api.get("priorities")


class TestLive:
    def test_who_used_less_starts_first(self, team: World) -> None:
        bo = colleague(team)
        use(team, bo, hours=5)
        theirs, mine = team.submit(user=bo, gpus={"min": 4}), team.submit(gpus={"min": 4})
        team.round()
        assert team.run(mine).state != team.run(theirs).state
        assert team.run(theirs).reason_token == "resources"
        assert team.run(mine).reason_token == "started"

    def test_a_choice_sets_the_half_life(self, team: World) -> None:
        set_policy(
            actor=None,
            cluster=team.cluster,
            name="multifactor",
            parameters={"half_life_days": 2, "usage_reset": "monthly"},
        )
        clock = FairShareClock.objects.get()
        assert (clock.half_life_s, clock.reset) == (2 * 86_400, "monthly")
        set_policy(actor=None, cluster=team.cluster, name="multifactor", parameters={"half_life_days": None})
        assert FairShareClock.objects.get().half_life_s is None

    def test_time_held_back_does_not_count_as_waiting(self, team: World) -> None:
        team.train(team.submit(gpus={"min": 4}))
        job = team.submit()
        held_at = timezone.now() - timedelta(hours=3)
        Job.objects.filter(pk=job.pk).update(submitted_at=held_at - timedelta(hours=1))
        hold_job(actor=team.user, job=job)
        Job.objects.filter(pk=job.pk).update(held_at=held_at)
        release_job(actor=team.user, job=job)
        view = take_snapshot(team.cluster, timezone.now()).snapshot
        seen = next(one for one in view.jobs if one.number == job.number)
        assert view.now - (seen.eligible_at or 0) == pytest.approx(3_600, abs=30)

    def test_the_snapshot_says_what_is_left_of_a_time_limit(self, team: World) -> None:
        job = team.submit(max_duration="2h")
        seen = next(
            one for one in take_snapshot(team.cluster, timezone.now()).snapshot.jobs if one.number == job.number
        )
        assert seen.time_limit_s == 7_200

    def test_other_policies_pay_nothing_for_it(self, world: World) -> None:
        view = take_snapshot(world.cluster, timezone.now()).snapshot
        assert (view.members, view.usage) == ({}, {})
        assert not FairShareClock.objects.exists()
        assert fair_share.decayed_usage(timezone.now()).gpu_s == {}


class TestLevels:
    """Levels of service."""

    @pytest.fixture
    def admin(self, team: World) -> Api:
        return Api(User.objects.create_superuser("root@example.org", "x"))

    @pytest.fixture
    def levels(self, admin: Api) -> Api:
        assert admin.put("qos/normal", {"is_default": True}).status == 201
        assert admin.put("qos/high", {"priority": 100, "preempts": ["normal"]}).status == 201
        return admin

    def test_made_changed_listed_and_removed(self, levels: Api, api: Api) -> None:
        assert [row["name"] for row in api.get("qos").json["results"]] == ["high", "normal"]
        answer = levels.put("qos/high", {"priority": 50, "max_gpus_per_user": 2})
        assert (answer.status, answer.json["priority"], answer.json["preempts"]) == (200, 50, [])
        assert levels.delete("qos/high").status == 204
        assert api.get("qos/high").status == 404

    def test_wrong_input_names_the_field(self, levels: Api) -> None:
        assert levels.put("qos/new", {"preempts": ["nothing"]}).fields == ["preempts"]
        assert levels.put("qos/new", {"preempts": ["new"]}).fields == ["preempts", "preempts"]
        assert levels.put("qos/urgent", {"preempts": ["high"]}).status == 201
        for name, preempts in (("normal", "high"), ("normal", "urgent")):  # high puts out normal, urgent puts out high
            assert levels.put(f"qos/{name}", {"preempts": [preempts]}).fields == ["preempts"]
        assert levels.get("qos/normal").json["preempts"] == []
        assert levels.put("qos/new", {"projects": ["nothing"]}).fields == ["projects"]
        assert levels.put("qos/Not a name", {}).fields == ["level"]
        assert levels.get("qos/new").status == 404

    def test_jobs_get_the_default_or_what_they_may_ask_for(self, team: World, levels: Api, api: Api) -> None:
        levels.put("qos/board", {"for_everybody": False, "projects": ["speech"]})
        job = team.submit()
        assert api.get(f"jobs/{job.number}").json["qos"] == "normal"
        body = {"project": "vision", "command": "x", "total_steps": 10}
        assert api.post("jobs", body | {"qos": "high"}).json["qos"] == "high"
        refused = api.post("jobs", body | {"qos": "board"})
        assert (refused.status, refused.fields) == (400, ["qos"])
        assert "high, normal" in refused.json["errors"][0]["message"]
        assert api.post("jobs", body | {"qos": "nothing"}).fields == ["qos"]
        changed = api.patch(f"jobs/{job.number}", {"qos": "high"})
        assert changed.json["qos"] == "high"
        assert api.patch(f"jobs/{job.number}", {"qos": "board"}).fields == ["qos"]
        assert levels.delete("qos/high").status == 409

    def test_a_project_below_may_ask_for_it_too(self, team: World, levels: Api, api: Api) -> None:
        below = Project.objects.create(key="alpha", name="Alpha", parent=team.project)
        levels.put("qos/board", {"for_everybody": False, "projects": ["vision"]})
        assert team.submit(project=below.key, qos="board").qos is not None

    def test_others_do_not_see_which_projects(self, levels: Api, stranger: Api, api: Api) -> None:
        levels.put("qos/board", {"for_everybody": False, "projects": ["vision"]})
        assert api.get("qos/board").json["projects"] == ["vision"]
        assert stranger.get("qos/board").json["projects"] == []

    def test_a_higher_level_puts_out_a_lower_one_with_its_checkpoint(self, team: World, levels: Api) -> None:
        team.train(low := team.submit(gpus={"min": 4}))
        team.round()  # no protection: nothing was launched for long
        run = team.run(low)
        run.state, run.protected_until = "RUNNING", None
        run.save()
        team.submit(gpus={"min": 4}, qos="high")
        team.round()
        assert team.run(low).state == "CHECKPOINTING"
        assert team.run(low).reason_token == "preempted"
        assert "level high" in team.run(low).reason_text

    def test_a_level_may_have_its_jobs_ended_when_they_are_put_out(self, team: World, levels: Api) -> None:
        assert levels.put("qos/normal", {"is_default": True, "preempt_mode": "gently"}).fields == ["preempt_mode"]
        levels.put("qos/normal", {"is_default": True, "preempt_mode": "cancel"})
        team.train(low := team.submit(gpus={"min": 4}))
        team.unprotect(low)
        team.round()
        team.submit(gpus={"min": 4}, qos="high")
        team.round()
        assert (team.run(low).state, team.run(low).reason_token) == ("CANCELLED", "preempted")
        assert ("kill", 1) in team.open_commands()
        check_invariants(team)

    def test_its_limits_make_jobs_wait_and_name_the_level(self, team: World, levels: Api) -> None:
        levels.put("qos/normal", {"is_default": True, "max_gpus_per_user": 2})
        first, second = team.submit(gpus={"min": 2}), team.submit(gpus={"min": 2})
        bo = team.submit(user=colleague(team), gpus={"min": 2})
        team.round()
        assert team.run(first).reason_token == "started"
        assert team.run(second).reason_token == "quota"
        assert "user of level normal may hold 2 GPUs" in team.run(second).reason_text
        why = Api(team.user).get(f"jobs/{second.number}/explanation").json
        assert why["slurm"] == "QOSMaxGRESPerUser"
        assert team.run(bo).reason_token == "started"

    def test_level_counts_in_the_priority(self, team: World, levels: Api, api: Api) -> None:
        set_policy(actor=None, cluster=team.cluster, name="multifactor", parameters={"weight_qos": 500})
        team.train(team.submit(gpus={"min": 4}))
        job = team.submit(gpus={"min": 4}, qos="high")
        factors = {one["name"]: one["points"] for one in api.get(f"jobs/{job.number}/priority").json["factors"]}
        assert factors["qos"] == 500
