"""Nodes get no work until their check has passed: joining, returning, faults, and what administrators do."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.cluster import inventory as administration
from portal.cluster import node_checks
from portal.execution import executors, observe
from portal.execution.checks import node_tasks
from portal.jobs.models import Cluster, Hold, Job, JobEvent, Node, NodeCheck, Run
from scheduling.executors.base import ExitInfo, Finding
from scheduling.executors.local.executor import LocalExecutor
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
GOOD = [Finding("free space", True, "plenty"), Finding("devices", True, "not known", known=False)]
BAD = [Finding("free space", False, "3 MiB", "make room"), Finding("devices", True, "6 answer")]


class Checked(World):
    """A world whose nodes are checked first, as the portal's are."""

    def inventory(self) -> None:
        administration.record_inventory(
            cluster=self.cluster, nodes=self.node_infos(), now=timezone.now(), check_first=True
        )

    def round(self) -> Any:
        node_checks.request_due_checks(cluster_id=self.cluster.pk, now=timezone.now())
        return super().round()

    def examine(self, findings: list[Finding], name: str = "a") -> None:
        """The check that waits for it is carried out, with this result."""
        (check,) = [one for one in node_checks.due(self.cluster.pk, timezone.now()) if one.node.name == name]
        claimed = node_checks.claim(check, timezone.now())
        assert claimed is not None
        assert node_checks.conclude(claimed, findings, timezone.now())

    def lose(self, name: str) -> None:
        self.reachable[name] = False
        self.inventory()

    def bring_back(self, name: str) -> None:
        self.reachable[name] = True
        self.inventory()


@pytest.fixture
def world() -> Checked:
    return Checked({"a": 2, "b": 2})


@pytest.fixture
def sound(world: Checked) -> Checked:
    for name in world.nodes:
        world.examine(GOOD, name)
    return world


@pytest.fixture
def boss(world: Checked) -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


def node(name: str = "a") -> Node:
    return Node.objects.get(name=name)


def health(api: Api, name: str = "a") -> Any:
    return api.get(f"nodes/{name}").json["check"]


def kinds(name: str = "a") -> list[str]:
    rows = JobEvent.objects.filter(detail__node=name).order_by("pk")
    return list(rows.values_list("kind", flat=True))


def fails_on(world: World, name: str, info: ExitInfo, project: str = "vision") -> Job:
    """A job that ran on this node alone has ended so."""
    others = Node.objects.exclude(name=name).filter(drained=False)
    drained = list(others.values_list("pk", flat=True))
    others.update(drained=True)
    job = world.submit(gpus={"min": 1, "max": 1}, retry={"limit": 0, "on": []}, project=project)
    world.round()
    assert set(Hold.objects.filter(run__job=job).values_list("accelerator__node__name", flat=True)) == {name}
    world.processes_gone(world.run(job), info)
    assert world.state(job) is State.FAILED
    Node.objects.filter(pk__in=drained).update(drained=False)
    return job


class TestJoining:
    def test_a_new_node_gets_work_once_its_check_has_passed(self, world: Checked, boss: Api) -> None:
        job = world.submit(gpus={"min": 2, "max": 2})
        world.round()
        run = world.run(job)
        assert (run.state, run.reason_token) == (State.WAITING_FOR_INITIAL_RESOURCE, "node_unavailable")
        assert "a (being checked), b (being checked)" in run.reason_text
        assert boss.get("nodes/a").json["schedulable"] is False
        seen = health(boss)
        assert (seen["state"], seen["open"]["cause"], seen["last"]) == ("checking", "joined", None)
        world.examine(GOOD, "b")
        world.round()
        assert world.state(job) is State.LAUNCHING
        assert set(Hold.objects.values_list("accelerator__node__name", flat=True)) == {"b"}
        assert kinds("b") == ["node_joined", "node_checked"]
        seen = health(boss, "b")
        assert (seen["state"], seen["open"], seen["last"]["passed"]) == (None, None, True)
        assert [one["result"] for one in seen["last"]["items"]] == ["passed", "unknown"]
        check_invariants(world)

    def test_a_failed_check_keeps_it_from_work_says_why_and_is_repeated_ever_later(
        self, world: Checked, boss: Api
    ) -> None:
        world.examine(GOOD, "b")
        for _ in range(2):
            world.inventory()  # seeing it again changes nothing
            world.examine(BAD)
            Node.objects.filter(name="a").update(next_check_at=timezone.now())
            world.round()
        seen = health(boss)
        assert (seen["state"], seen["failures"], seen["open"]["cause"]) == ("failed", 2, "again")
        assert seen["last"]["items"][0] == {
            "subject": "free space", "result": "failed", "seen": "3 MiB", "fix": "make room"
        }  # fmt: skip
        job = world.submit(gpus={"min": 4, "max": 4})
        world.round()
        assert "a (failed its check)" in world.run(job).reason_text
        assert kinds() == ["node_joined", "node_check_failed"]  # not again for the same reasons
        assert "free space: 3 MiB" in JobEvent.objects.get(kind="node_check_failed").text
        world.examine(GOOD)
        world.round()
        assert world.state(job) is State.LAUNCHING

    def test_the_wait_for_the_next_check_doubles_up_to_an_hour(self, world: Checked) -> None:
        waits = []
        for _ in range(9):
            world.examine(BAD)
            at, ended_at = node().next_check_at, NodeCheck.objects.filter(node=node())[0].ended_at
            assert at is not None
            assert ended_at is not None
            waits.append((at - ended_at).seconds)
            Node.objects.filter(name="a").update(next_check_at=timezone.now())
            world.round()
        assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
        assert NodeCheck.objects.filter(node=node()).count() <= node_checks.KEPT

    def test_nothing_is_repeated_before_its_time(self, world: Checked) -> None:
        world.examine(BAD)
        world.round()
        assert not NodeCheck.objects.filter(node=node(), ended_at=None).exists()

    def test_of_nodes_from_before_nothing_is_asked(self, world: Checked) -> None:
        Node.objects.create(cluster=world.cluster, name="old", accelerator_type="k1")
        world.round()
        assert node("old").schedulable
        assert not NodeCheck.objects.filter(node__name="old").exists()


class TestReturning:
    def test_a_node_that_was_lost_is_checked_before_it_is_used_again(self, sound: Checked) -> None:
        sound.lose("a")
        assert not node_checks.due(sound.cluster.pk, timezone.now())
        sound.bring_back("a")
        job = sound.submit(gpus={"min": 4, "max": 4})
        sound.round()
        assert "a (being checked)" in sound.run(job).reason_text
        assert NodeCheck.objects.get(ended_at=None).cause == "returned"
        sound.examine(GOOD)
        sound.round()
        assert sound.state(job) is State.LAUNCHING

    def test_what_a_check_of_before_the_loss_found_does_not_count(self, world: Checked) -> None:
        (check, _) = node_checks.due(world.cluster.pk, timezone.now())
        claimed = node_checks.claim(check, timezone.now())
        assert claimed
        world.lose("a")
        world.bring_back("a")
        assert not node_checks.conclude(claimed, GOOD, timezone.now())
        assert node().check_state == "checking"

    def test_lost_nodes_are_not_checked(self, world: Checked) -> None:
        world.lose("a")
        assert [check.node.name for check in node_checks.due(world.cluster.pk, timezone.now())] == ["b"]
        world.examine(BAD, "b")
        world.lose("b")
        Node.objects.update(next_check_at=timezone.now())
        world.round()
        assert not node_checks.due(world.cluster.pk, timezone.now())


class TestFaults:
    def test_so_many_runs_that_failed_by_a_node_have_it_checked_and_jobs_on_it_stay(
        self, sound: Checked, boss: Api
    ) -> None:
        stays = sound.submit(gpus={"min": 1, "max": 1}, steps=10**6)
        sound.round()
        sound.ready(stays)
        sound.unprotect(stays)
        (name,) = set(Hold.objects.values_list("accelerator__node__name", flat=True))
        for _ in range(2):
            fails_on(sound, name, ExitInfo("runner_lost"))
            sound.round()
            assert node(name).schedulable
        fails_on(sound, name, ExitInfo("launch_failed", nodes_fault=True))
        sound.round()
        assert (node(name).check_state, NodeCheck.objects.get(ended_at=None).cause) == ("checking", "faults")
        assert "3 runs failed on it" in JobEvent.objects.get(kind="node_faulty").text
        sound.round()
        run = sound.run(stays)
        assert (run.state, run.reason_token) == (State.RUNNING, "node_withheld")
        assert f"No job starts on {name} (being checked)" in run.reason_text
        assert sound.gpus(stays) == 1
        sound.examine(BAD, name)
        sound.round()
        assert (sound.state(stays), node(name).check_state) == (State.RUNNING, "failed")
        check_invariants(sound)

    def test_runs_that_failed_before_it_passed_count_no_more(self, sound: Checked) -> None:
        for _ in range(3):
            fails_on(sound, "a", ExitInfo("runner_lost"))
        sound.round()
        sound.examine(GOOD)
        sound.round()
        assert node().schedulable
        fails_on(sound, "a", ExitInfo("runner_lost"))
        sound.round()
        assert node().schedulable

    @pytest.mark.parametrize(
        "info",
        [
            ExitInfo("runner_lost", message="the runner ended without leaving a record", alleged=True),
            ExitInfo("data_unavailable", nodes_fault=True, alleged=True),
        ],
    )
    def test_what_a_job_may_have_brought_about_counts_once_another_project_has_the_same(
        self, sound: Checked, info: ExitInfo
    ) -> None:
        for _ in range(5):
            fails_on(sound, "a", info)
        sound.round()
        below = Project.objects.create(key="vision-x", name="Vision X", parent=sound.project)
        Membership.objects.create(project=below, user=sound.user)
        fails_on(sound, "a", info, project="vision-x")  # the manager of a project can make others below it
        sound.round()
        assert node().schedulable
        Membership.objects.create(project=Project.objects.create(key="audio", name="Audio"), user=sound.user)
        fails_on(sound, "a", info, project="audio")
        sound.round()
        assert (node().check_state, NodeCheck.objects.get(ended_at=None).cause) == ("checking", "faults")

    @pytest.mark.parametrize(
        "info",
        [
            ExitInfo("user_error", exit_code=1),
            ExitInfo("out_of_memory"),
            ExitInfo("signal", signal=9),
            ExitInfo("launch_failed", message="the program could not be started: no such file"),
            ExitInfo("runner_lost", message="Slurm preempted it", nodes_fault=False),
        ],
    )
    def test_a_programs_own_failures_never_count(self, sound: Checked, info: ExitInfo) -> None:
        for _ in range(4):
            fails_on(sound, "a", info)
        sound.round()
        assert node().schedulable

    def test_failures_of_long_ago_do_not_count(self, sound: Checked) -> None:
        for _ in range(3):
            fails_on(sound, "a", ExitInfo("runner_lost"))
        Run.objects.update(ended_at=timezone.now() - timedelta(hours=2))
        sound.round()
        assert node().schedulable

    def test_so_many_have_to_have_failed(self, sound: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
        fails_on(sound, "a", ExitInfo("runner_lost"))
        sound.round()
        assert node().schedulable
        monkeypatch.setattr(node_checks, "FAULTS", 1)
        sound.round()
        assert node().check_state == "checking"


class TestAdministrators:
    def test_check_now_leaves_a_node_in_use_until_it_fails(self, sound: Checked, boss: Api) -> None:
        answer = boss.post("nodes/a/check")
        assert (answer.status, answer.json["schedulable"]) == (200, True)
        seen = answer.json["check"]["open"]
        assert (seen["cause"], seen["asked_by"]) == ("asked", "root@example.org")
        boss.post("nodes/a/check")
        assert NodeCheck.objects.filter(ended_at=None).count() == 1
        assert AuditEntry.objects.filter(action="node.check_asked", target="a").count() == 2
        sound.examine(BAD)
        assert node().check_state == "failed"
        boss.post("nodes/a/check")
        sound.examine(GOOD)
        assert node().schedulable
        assert (node().checks_passed, node().checks_failed) == (2, 1)

    def test_a_failed_node_can_be_used_anyway_until_it_is_lost(self, world: Checked, boss: Api) -> None:
        world.examine(BAD)
        seen = boss.post("nodes/a/use-anyway").json
        assert seen["schedulable"] is True
        assert seen["check"]["waived_by"] == "root@example.org"
        assert AuditEntry.objects.get(action="node.check_waived").detail == {"state": "failed its check"}
        assert kinds()[-1] == "node_check_waived"
        Node.objects.filter(name="b").update(drained=True)
        job = world.submit(gpus={"min": 2, "max": 2})
        world.round()
        assert world.state(job) is State.LAUNCHING
        assert not NodeCheck.objects.filter(node=node(), ended_at=None).exists()
        world.lose("a")
        world.bring_back("a")
        assert (node().check_state, node().check_waived_at) == ("checking", None)

    def test_one_that_is_being_checked_can_be_used_and_the_result_does_not_matter(
        self, world: Checked, boss: Api
    ) -> None:
        (check, _) = node_checks.due(world.cluster.pk, timezone.now())
        claimed = node_checks.claim(check, timezone.now())
        assert claimed
        boss.post("nodes/a/use-anyway")
        assert not node_checks.conclude(claimed, BAD, timezone.now())
        assert node().schedulable

    def test_using_a_node_that_is_in_use_says_nothing(self, sound: Checked, boss: Api) -> None:
        assert boss.post("nodes/a/use-anyway").status == 200
        assert not AuditEntry.objects.filter(action="node.check_waived").exists()

    def test_others_may_neither(self, world: Checked) -> None:
        api = Api(world.user)
        assert [api.post(f"nodes/a/{what}").status for what in ("check", "use-anyway")] == [403, 403]
        assert node().check_state == "checking"

    def test_turned_off_nothing_is_withheld(self, world: Checked, boss: Api, settings: Any) -> None:
        world.examine(BAD)
        settings.EVENKEEL_NODE_CHECKS = False
        world.round()
        assert node("a").schedulable
        assert node("b").schedulable
        boss.post("nodes/a/check")
        world.round()
        world.examine(BAD)
        world.round()
        assert node().schedulable
        assert health(boss)["last"]["passed"] is False


class TestWhoCarriesItOut:
    def test_a_check_that_a_worker_died_with_is_begun_anew_and_fails_in_the_end(self, world: Checked) -> None:
        world.examine(GOOD, "b")
        (check,) = node_checks.due(world.cluster.pk, timezone.now())
        dead = node_checks.claim(check, timezone.now())
        assert dead is not None
        assert node_checks.due(world.cluster.pk, timezone.now()) == []
        limit = timedelta(seconds=node_checks.TIMEOUT_S) + node_checks.MARGIN
        for attempt in range(2, node_checks.MAX_ATTEMPTS + 1):
            NodeCheck.objects.filter(ended_at=None).update(begun_at=timezone.now() - limit)
            (again,) = node_checks.due(world.cluster.pk, timezone.now())
            assert node_checks.claim(again, timezone.now()) is not None
            assert again.attempts == attempt
        assert not node_checks.conclude(dead, GOOD, timezone.now())  # it comes too late
        NodeCheck.objects.filter(ended_at=None).update(begun_at=timezone.now() - limit)
        (last,) = node_checks.due(world.cluster.pk, timezone.now())
        assert node_checks.claim(last, timezone.now()) is None
        assert node().check_state == "failed"
        assert "begun 3 times" in JobEvent.objects.get(kind="node_check_failed").text

    def test_only_one_has_a_check(self, world: Checked) -> None:
        (first, _), (second, _) = (node_checks.due(world.cluster.pk, timezone.now()) for _ in range(2))
        assert node_checks.claim(first, timezone.now()) is not None
        assert node_checks.claim(second, timezone.now()) is None

    def test_a_saying_of_nothing_is_no_pass(self, world: Checked) -> None:
        world.examine([])
        assert node().check_state == "failed"


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalExecutor:
    """A cluster with the local executor, whose nodes are what it says they are."""
    executor = LocalExecutor(tmp_path / "data", "one=k1:2,two=k1:2", isolation="none", warm_start=False)
    Cluster.objects.create(name="real")
    monkeypatch.setattr(executors, "executor_for", lambda name: executor)
    monkeypatch.setattr(executors, "executor_for", lambda name: executor)
    observe.observe(Cluster.objects.get(), executor)
    return executor


class TestReally:
    def test_sound_nodes_are_in_use_after_one_task(self, real: LocalExecutor) -> None:
        assert not any(one.schedulable for one in Node.objects.all())
        node_tasks.check_nodes(Cluster.objects.get().pk)
        assert all(one.schedulable for one in Node.objects.all())
        found = {row["subject"]: row["result"] for row in NodeCheck.objects.filter(node__name="one")[0].findings}
        assert found == {"job directory": "passed", "free space": "passed", "runner": "passed", "devices": "unknown"}

    def test_those_that_are_left_have_a_task_of_their_own(
        self, real: LocalExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int]] = []
        monkeypatch.setattr(node_tasks, "BATCH", 1)
        monkeypatch.setattr(node_tasks.check_nodes, "apply_async", lambda arguments, **_: asked.append(arguments))
        pk, count = Cluster.objects.get().pk, Node.objects.count()
        assert count > 1
        for number in range(count):
            assert sum(one.schedulable for one in Node.objects.all()) == number
            node_tasks.check_nodes(pk)
        assert asked == [(pk,)] * (count - 1)
        assert all(one.schedulable for one in Node.objects.all())

    def test_a_job_directory_that_cannot_be_written_and_a_full_disk_keep_them_from_work(
        self, real: LocalExecutor, tmp_path: Path, settings: Any
    ) -> None:
        (tmp_path / "data" / "jobs").rmdir()
        settings.NODE_CHECK_FREE_MIB = 10**9
        node_tasks.check_nodes(Cluster.objects.get().pk)
        assert {one.check_state for one in Node.objects.all()} == {"failed"}
        failed = NodeCheck.objects.filter(node__name="one")[0].findings
        assert [row["subject"] for row in failed if row["result"] == "failed"] == ["job directory", "free space"]

    def test_one_that_never_answers_has_failed_and_holds_up_no_other(
        self, real: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A named pipe in the way of one node's check: opening it takes until somebody reads."""
        monkeypatch.setattr(node_checks, "TIMEOUT_S", 1)
        os.mkfifo(tmp_path / "pipe")
        examine = real.check_node
        hung = threading.Event()

        def check_node(wish: Any) -> Any:
            if wish.node == "one":
                hung.set()
                (tmp_path / "pipe").write_text("")
            return examine(wish)

        monkeypatch.setattr(real, "check_node", check_node)
        node_tasks.check_nodes(Cluster.objects.get().pk)
        assert hung.is_set()
        assert (node("one").check_state, node("two").schedulable) == ("failed", True)
        (row,) = NodeCheck.objects.filter(node__name="one")[0].findings
        assert row["seen"] == "no answer within 1 s"
        (tmp_path / "pipe").read_text()  # the thread ends

    def test_an_engine_that_cannot_be_asked_fails_it_with_its_words(
        self, real: LocalExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(wish: Any) -> Any:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(real, "check_node", broken)
        node_tasks.check_nodes(Cluster.objects.get().pk)
        (row,) = NodeCheck.objects.filter(node__name="one")[0].findings
        assert "RuntimeError: a mistake" in row["seen"]
