"""Maintenance windows and reservations: who may set them, and what they do to jobs and rounds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.cluster.policy import set_policy
from portal.jobs.models import Cluster, Job, NodeWindow
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World({"a": 4, "b": 2})


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root@example.org", "x")


@pytest.fixture
def admin(root: User) -> Api:
    return Api(root)


def body(start_s: float, end_s: float, **parts: Any) -> dict[str, Any]:
    now = timezone.now()
    times = {"start_at": iso(now + timedelta(seconds=start_s)), "end_at": iso(now + timedelta(seconds=end_s))}
    return {"kind": "maintenance", "nodes": ["a"], "reason": "new switches"} | times | parts


def iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def begin(window: int) -> None:
    """Its time has come."""
    NodeWindow.objects.filter(pk=window).update(start_at=timezone.now() - timedelta(seconds=1))


class TestSetting:
    def test_it_is_set_listed_and_taken_back(self, admin: Api, api: Api) -> None:
        made = admin.post("windows", body(60, 3600))
        assert made.status == 201
        assert (made.json["state"], made.json["created_by"]) == ("coming", "root@example.org")
        number = made.json["id"]
        assert [row["id"] for row in api.get("windows?past=false").json["results"]] == [number]
        assert api.get("windows?past=true").json["results"] == []
        begin(number)
        assert api.get(f"windows/{number}").json["state"] == "in_force"
        assert admin.delete(f"windows/{number}").status == 204
        assert [row["state"] for row in api.get("windows?past=true").json["results"]] == ["removed"]
        assert admin.delete(f"windows/{number}").status == 409
        actions = list(
            AuditEntry.objects.filter(target=f"window {number}").order_by("pk").values_list("action", flat=True)
        )
        assert actions == ["window.add", "window.remove"]

    def test_only_administrators_set_them(self, api: Api, admin: Api) -> None:
        assert api.post("windows", body(60, 3600)).status == 403
        number = admin.post("windows", body(60, 3600)).json["id"]
        assert api.delete(f"windows/{number}").status == 403

    @pytest.mark.parametrize(
        ("parts", "field"),
        [
            ({"start_at": "2030-01-01T10:00Z", "end_at": "2030-01-01T10:00Z"}, "end_at"),
            ({"start_at": "2020-01-01T10:00Z", "end_at": "2020-01-02T10:00Z"}, "end_at"),
            ({"start_at": "2190-01-01T10:00Z", "end_at": "2190-01-02T10:00Z"}, "start_at"),
            ({"end_at": "2190-01-01T10:00Z"}, "end_at"),
            ({"nodes": []}, "nodes"),
            ({"nodes": ["nothing"]}, "nodes"),
            ({"accelerator_types": ["h9"]}, "accelerator_types"),
            ({"all_nodes": True}, "all_nodes"),
            ({"projects": ["vision"]}, "kind"),
            ({"kind": "reservation"}, "projects"),
            ({"kind": "reservation", "projects": ["nothing"]}, "projects"),
            ({"kind": "reservation", "users": ["who@example.org"]}, "users"),
            ({"kind": "party"}, "kind"),
            ({"start_at": "2030-01-01T10:00:00"}, "start_at"),
        ],
    )
    def test_every_error_names_its_field(self, admin: Api, world: World, parts: dict[str, Any], field: str) -> None:
        refused = admin.post("windows", body(60, 3600, **parts))
        assert refused.status == 400
        assert refused.fields == [field]

    def test_two_of_one_kind_do_not_overlap_on_a_node(self, admin: Api, world: World) -> None:
        first = admin.post("windows", body(60, 3600)).json["id"]
        refused = admin.post("windows", body(1800, 7200, nodes=[], accelerator_types=["k1"]))
        assert refused.fields == ["start_at"]
        message = refused.json["errors"][0]["message"]
        assert f"maintenance window {first} is on a from" in message
        assert "may not overlap" in message
        assert admin.post("windows", body(1800, 7200, nodes=["b"])).status == 201
        reserved = body(1800, 7200, kind="reservation", projects=["vision"])
        assert admin.post("windows", reserved).status == 201
        assert admin.post("windows", reserved).fields == ["start_at"]
        assert admin.post("windows", body(7200, 9000)).status == 201

    def test_of_whom_it_is_for_others_read_nothing(self, admin: Api, api: Api, world: World) -> None:
        reserved = body(60, 3600, kind="reservation", projects=["vision"], users=["ANA@example.org"])
        number = admin.post("windows", reserved).json["id"]
        speech = Project.objects.create(key="speech", name="Speech")
        stranger = User.objects.create_user("bo@example.org", "x")
        Membership.objects.create(project=speech, user=stranger)
        mine, theirs = (who.get(f"windows/{number}").json for who in (api, Api(stranger)))
        assert (mine["projects"], mine["users"]) == (["vision"], ["ana@example.org"])
        assert (theirs["projects"], theirs["users"]) == ([], [])


class TestRounds:
    @pytest.mark.parametrize("policy", ["f_scheduling", "multifactor", "fifo", "max_min_fairness"])
    def test_a_job_waits_for_its_end_with_the_reason_and_starts_once_it_is_taken_back(
        self, admin: Api, api: Api, world: World, policy: str
    ) -> None:
        set_policy(actor=None, cluster=Cluster.objects.get(), name=policy, parameters={})
        number = admin.post("windows", body(120, 7200, nodes=[], all_nodes=True)).json["id"]
        long, short = world.submit(steps=100_000), world.submit(steps=100)
        plan = world.round()
        assert world.gpus(long) == 0
        assert world.gpus(short) > 0
        found = api.get(f"jobs/{long.number}/explanation").json
        assert (found["code"], found["slurm"]) == ("maintenance", "ReqNodeNotAvail")
        assert "new switches" in found["text"]
        assert "max_duration" in found["would_change"]
        assert plan is not None
        assert plan.next_wake_at is not None
        assert plan.next_wake_at <= timezone.now().timestamp() + 120
        assert admin.delete(f"windows/{number}").status == 204
        world.round()
        assert world.gpus(long) > 0
        check_invariants(world)

    def test_a_time_limit_lets_a_job_run_before_it(self, admin: Api, world: World) -> None:
        admin.post("windows", body(600, 7200, nodes=[], all_nodes=True))
        job = world.submit(steps=10**9, max_duration="5m")
        world.round()
        assert world.gpus(job) > 0

    def test_when_it_begins_jobs_leave_by_checkpoint_and_move(self, admin: Api, world: World) -> None:
        job = world.submit(steps=10**6, gpus={"min": 2, "max": 2})
        world.train(job)
        on = self.node(job)
        number = admin.post("windows", body(60, 7200, nodes=[on])).json["id"]
        world.round()
        assert world.state(job) is State.RUNNING
        begin(number)
        world.round()
        assert world.state(job) is State.CHECKPOINTING
        assert world.run(job).reason_token == "maintenance"
        world.checkpoint(job, 10, "request")
        world.gone(job)
        world.round()
        assert self.node(job) != on
        check_invariants(world)

    def test_where_there_is_no_other_room_they_queue(self, admin: Api, api: Api, world: World) -> None:
        job = world.submit(steps=10**6, gpus={"min": 3, "max": 4})
        world.train(job)
        number = admin.post("windows", body(60, 7200)).json["id"]
        begin(number)
        world.round()
        world.checkpoint(job, 10, "request")
        world.gone(job)
        world.round()
        assert world.state(job) is State.WAITING_FOR_RESOURCE
        assert api.get(f"jobs/{job.number}/explanation").json["code"] == "maintenance"
        NodeWindow.objects.filter(pk=number).update(end_at=timezone.now())
        world.round()
        assert world.gpus(job) >= 3

    def test_a_reservation_is_for_those_it_names_and_below(self, admin: Api, api: Api, world: World) -> None:
        below = Project.objects.create(key="below", name="Below", parent=world.project)
        other = Project.objects.create(key="speech", name="Speech")
        for project in (below, other):
            Membership.objects.create(project=project, user=world.user)
        number = admin.post(
            "windows", body(60, 7200, nodes=[], all_nodes=True, kind="reservation", projects=["vision"])
        ).json["id"]
        begin(number)
        mine = world.submit(project="below", steps=10**6, gpus={"min": 1, "max": 1})
        theirs = world.submit(project="speech", gpus={"min": 1, "max": 1})
        world.round()
        assert world.gpus(mine) == 1
        assert world.gpus(theirs) == 0
        found = api.get(f"jobs/{theirs.number}/explanation").json
        assert (found["code"], found["slurm"]) == ("reservation", "Reservation")

    def node(self, job: Job) -> str:
        run = Job.objects.get(pk=job.pk).run
        assert run is not None
        nodes = run.assignments.filter(during__upper_inf=True).values_list("accelerator__node__name", flat=True)
        (name,) = set(nodes)
        return str(name)
