"""Nodes that are drained, at once or by a deadline: who may, what is said beforehand, and what becomes of jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.cluster.drains import drain_node
from portal.jobs.models import Displacement, Job, JobEvent, Node, Run
from portal.lifecycle.suspend import hold_job
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
HOUR_S = 3_600
#: At 18 steps/s on two GPUs.
SHORT, LONG = 18 * 1_800, 18 * 7_200
TWO = {"min": 2, "max": 2}


@pytest.fixture
def world() -> World:
    return World({"a": 2, "b": 2})


@pytest.fixture
def boss(world: World) -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


def node_of(job: Job) -> str:
    run = Run.objects.get(job=job)
    names = run.assignments.filter(during__upper_inf=True).values_list("accelerator__node__name", flat=True)
    (name,) = set(names)
    return str(name)


def comes_due(name: str) -> None:
    Node.objects.filter(name=name).update(drain_deadline_at=timezone.now())


def training(world: World, **keys: Any) -> Job:
    job = world.submit(gpus=TWO, **keys)
    world.train(job)
    return job


def drain_of(api: Api, name: str) -> Any:
    (node,) = [node for node in api.get("nodes").json if node["name"] == name]
    return node["drain"]


class TestAsking:
    def test_a_drain_says_until_when_why_and_by_whom(self, boss: Api) -> None:
        answer = boss.post("nodes/a/drain", {"within_s": HOUR_S, "reason": "new fans"})
        assert answer.status == 200
        drain = answer.json["drain"]
        deadline = datetime.fromisoformat(drain["deadline_at"])
        assert abs((deadline - timezone.now()).total_seconds() - HOUR_S) < 60
        assert (drain["state"], drain["reason"], drain["by"], drain["jobs"]) == (
            "drained",
            "new fans",
            "root@example.org",
            [],
        )
        assert (answer.json["drained"], answer.json["schedulable"]) == (True, False)
        event = JobEvent.objects.get(kind="node_drained")
        assert f"a is drained by {deadline:%F %H:%M} UTC (new fans) by root@example.org" == event.text
        entry = AuditEntry.objects.get(action="node.drained")
        assert (entry.target, entry.detail["reason"]) == ("a", "new fans")

    def test_the_same_again_changes_nothing_and_another_deadline_does(self, boss: Api) -> None:
        deadline = (timezone.now() + timedelta(hours=1)).isoformat()
        for _ in range(2):
            boss.post("nodes/a/drain", {"deadline_at": deadline})
        assert AuditEntry.objects.filter(action="node.drained").count() == 1
        since = drain_of(boss, "a")["since_at"]
        assert boss.post("nodes/a/drain").json["drain"]["deadline_at"] is None
        assert AuditEntry.objects.filter(action="node.drained").count() == 2
        assert drain_of(boss, "a")["since_at"] == since

    def test_resuming_takes_it_back(self, boss: Api, world: World) -> None:
        boss.post("nodes/a/drain", {"within_s": HOUR_S, "reason": "new fans"})
        answer = boss.post("nodes/a/resume").json
        assert (answer["schedulable"], answer["drain"]) == (True, None)
        node = Node.objects.get(name="a")
        assert (node.drain_deadline_at, node.drain_reason, node.drained_by) == (None, "", None)
        boss.post("nodes/a/resume")
        assert AuditEntry.objects.filter(action="node.resumed").count() == 1

    def test_what_the_engine_drained_is_resumed_there(self, boss: Api, world: World) -> None:
        node = Node.objects.get(name="a")
        reason = f"{node.cluster.executor}: new fans"
        drain_node(actor=None, node=node, now=timezone.now(), reason=reason)
        answer = boss.post("nodes/a/resume")
        assert answer.status == 409
        assert "(new fans): resume it there" in answer.json["detail"]
        boss.post("nodes/a/drain", {"reason": "ours, too"})
        assert boss.post("nodes/a/resume").json["drain"] is None

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"deadline_at": "2020-01-01T00:00Z"}, "deadline_at"),
            ({"deadline_at": "2190-01-01T00:00Z"}, "deadline_at"),
            ({"deadline_at": "tomorrow"}, "deadline_at"),
            ({"deadline_at": "2030-01-01T00:00"}, "deadline_at"),
            ({"within_s": 0}, "within_s"),
            ({"within_s": 1e12}, "within_s"),
            ({"deadline_at": "2030-01-01T00:00Z", "within_s": 60}, "within_s"),
            ({"reason": "x" * 201}, "reason"),
            ({"reasn": "fans"}, "reasn"),
        ],
    )
    def test_every_error_names_its_field_and_nothing_is_written(
        self, boss: Api, body: dict[str, Any], field: str
    ) -> None:
        refused = boss.post("nodes/a/drain", body)
        assert (refused.status, refused.fields) == (400, [field])
        assert not Node.objects.get(name="a").drained

    def test_only_administrators_drain_and_preview(self, api: Api, boss: Api) -> None:
        assert api.post("nodes/a/drain", {"within_s": 60}).status == 403
        assert api.get("nodes/a/drain-preview").status == 403
        assert boss.get("nodes/nothing/drain-preview").status == 404
        assert boss.get("nodes/a/drain-preview?deadline_at=2020-01-01T00:00Z").fields == ["deadline_at"]


class TestSaying:
    def test_a_preview_says_what_becomes_of_each(self, boss: Api, world: World) -> None:
        short, rigid = training(world, steps=SHORT), training(world, steps=LONG, restartable=False)

        def preview(job: Job, query: str) -> Any:
            found = boss.get(f"nodes/{node_of(job)}/drain-preview{query}").json
            (row,) = found["jobs"]
            assert (row["job"]["number"], row["gpus"]) == (job.number, 2)
            return row

        row = preview(short, f"?within_s={HOUR_S}")
        assert row["outcome"] == "ends"
        assert row["text"] == f"#{short.number} is expected to end 30 min before the deadline."
        row = preview(short, "?within_s=600")
        assert row["outcome"] == "moves"
        assert "20 min after the deadline: it moves with a checkpoint" in row["text"]
        row = preview(rigid, f"?within_s={HOUR_S}")
        assert row["outcome"] == "lost"
        assert row["text"] == (
            f"#{rigid.number} cannot be restarted and is expected to end 60 min after the deadline: it will be lost."
        )
        assert row["expected_end_at"] is not None
        assert preview(rigid, "")["outcome"] == "ends"
        assert preview(short, "")["outcome"] == "moves"
        assert not Node.objects.filter(drained=True).exists()

    def test_nodes_show_who_is_still_there_until_nobody_is(self, boss: Api, world: World) -> None:
        job = training(world, steps=SHORT)
        name = node_of(job)
        drain = boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S}).json["drain"]
        assert (drain["state"], [row["outcome"] for row in drain["jobs"]]) == ("draining", ["ends"])
        world.gone(job, "done", step=SHORT)
        drain = drain_of(boss, name)
        assert (drain["state"], drain["jobs"]) == ("drained", [])

    def test_of_jobs_of_others_no_more_is_said_than_that_they_are_there(self, boss: Api, world: World) -> None:
        job = training(world, steps=SHORT)
        boss.post(f"nodes/{node_of(job)}/drain", {"within_s": HOUR_S})
        stranger = User.objects.create_user("bo@example.org", "x")
        Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=stranger)
        (row,) = drain_of(Api(stranger), node_of(job))["jobs"]
        assert row == {
            "job": {"number": job.number, "name": None, "project": "Vision"},
            "gpus": 2,
            "outcome": None,
            "expected_end_at": None,
            "text": None,
        }

    def test_statements_do_not_grow_with_drained_nodes_or_jobs(self, boss: Api, world: World) -> None:
        def statements(call: Callable[[], object]) -> int:
            with CaptureQueriesContext(connection) as captured:
                call()
            return len(captured)

        first, second = training(world, steps=LONG), training(world, steps=LONG)
        assert node_of(second) != node_of(first)
        boss.post(f"nodes/{node_of(first)}/drain", {"within_s": HOUR_S})
        one = statements(lambda: boss.get("nodes"))
        boss.post(f"nodes/{node_of(second)}/drain", {"within_s": HOUR_S})
        assert statements(lambda: boss.get("nodes")) == one


class TestRounds:
    def test_nobody_starts_there_and_who_ends_in_time_is_left_alone(self, boss: Api, world: World) -> None:
        job = training(world, steps=SHORT)
        name = node_of(job)
        boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S, "reason": "new fans"})
        other = world.submit(gpus={"min": 1, "max": 1})
        world.round()
        assert world.state(job) is State.RUNNING
        assert world.run(job).reason_token == "node_drained_ends"
        assert node_of(other) != name
        check_invariants(world)

    def test_who_does_not_moves_with_the_reason_and_the_node_is_drained_then(
        self, boss: Api, api: Api, world: World
    ) -> None:
        job = training(world, steps=LONG)
        name = node_of(job)
        boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S, "reason": "new fans"})
        world.round()
        assert world.state(job) is State.CHECKPOINTING
        why = api.get(f"jobs/{job.number}/explanation").json
        assert why["code"] == "node_drained"
        assert "(new fans)" in why["text"]
        moved = JobEvent.objects.get(job=job, kind="REALLOCATED").text
        assert re.search(r" goes from 2 × \S+ to 2 × \S+: .*\(new fans\)", moved)
        (row,) = drain_of(boss, name)["jobs"]
        assert "on its way off" in row["text"]
        world.checkpoint(job, 10, "request")
        world.gone(job)
        world.round()
        assert node_of(job) != name
        assert drain_of(boss, name)["state"] == "drained"
        check_invariants(world)

    def test_who_moves_from_a_lost_node_at_once_is_told_so_in_its_events(self, world: World) -> None:
        job = training(world, steps=LONG)
        Node.objects.filter(name=node_of(job)).update(lost=True)
        world.round()
        moved = JobEvent.objects.get(job=job, kind="REALLOCATED").text
        assert "a node that it ran on was lost, so it moves to other GPUs" in moved

    def test_where_there_is_no_room_it_stays_until_the_deadline_and_queues_then(self, boss: Api, world: World) -> None:
        job, other = training(world, steps=LONG), training(world, steps=LONG, restartable=False)
        name = node_of(job)
        boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S})
        plan = world.round()
        assert world.state(job) is State.RUNNING
        assert world.run(job).reason_token == "node_drained_waits"
        assert plan is not None
        assert plan.next_wake_at is not None
        assert plan.next_wake_at <= timezone.now().timestamp() + HOUR_S
        comes_due(name)
        world.round()
        world.checkpoint(job, 10, "request")
        world.gone(job)
        world.round()
        assert world.state(job) is State.WAITING_FOR_RESOURCE
        assert Displacement.objects.get(run__job=job).level == "node"
        assert world.state(other) is State.RUNNING
        check_invariants(world)

    def test_what_cannot_be_restarted_is_stopped_at_the_deadline(self, boss: Api, api: Api, world: World) -> None:
        job = training(world, steps=LONG, restartable=False)
        name = node_of(job)
        boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S, "reason": "new fans"})
        world.round()
        assert world.run(job).reason_token == "node_drained_lost"
        comes_due(name)
        world.round()
        assert world.state(job) is State.CANCELLED
        assert "(new fans), and it could not write a checkpoint" in api.get(f"jobs/{job.number}").json["reason"]["text"]
        assert ("KILL", world.run(job).epoch) in {(verb.upper(), epoch) for verb, epoch in world.open_commands()}
        check_invariants(world)

    def test_a_resumed_node_keeps_who_is_there(self, boss: Api, world: World) -> None:
        job = training(world, steps=LONG, restartable=False)
        name = node_of(job)
        boss.post(f"nodes/{name}/drain", {"within_s": 60})
        boss.post(f"nodes/{name}/resume")
        world.round()
        assert world.state(job) is State.RUNNING
        assert not world.run(job).reason_token.startswith("node_drained")

    def test_the_moment_it_comes_due_is_an_event_once(self, boss: Api, world: World) -> None:
        boss.post("nodes/a/drain", {"within_s": HOUR_S})
        world.inventory()
        assert not JobEvent.objects.filter(kind="node_drain_due").exists()
        comes_due("a")
        for _ in range(2):
            world.inventory()
        assert JobEvent.objects.get(kind="node_drain_due").detail == {"node": "a", "cluster": "test"}
        boss.post("nodes/a/drain", {"within_s": HOUR_S})
        comes_due("a")
        world.inventory()
        assert JobEvent.objects.filter(kind="node_drain_due").count() == 2

    def test_a_held_job_is_on_its_way_anyhow(self, boss: Api, world: World) -> None:
        job = training(world, steps=LONG)
        name = node_of(job)
        hold_job(actor=world.user, job=job)
        boss.post(f"nodes/{name}/drain", {"within_s": HOUR_S})
        comes_due(name)
        world.round()
        assert world.state(job) is State.CHECKPOINTING
        check_invariants(world)
