"""What a round sees of each row: every column in its unit, whose GPUs are taken, and who is left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import ClusterShare, Guarantee, Project, Rate
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Accelerator, Assignment, Cluster, FailingItem, Hold, Job, Node, Partition, Qos, Run
from portal.jobs.models.service_level import PreemptMode
from portal.lifecycle.suspend import hold_job
from portal.snapshot.newcomers import arrivals_of
from portal.snapshot.rows import nodes_of, project_tree, qos_levels
from portal.snapshot.run_version import RunVersion
from portal.snapshot.take import ClusterView, jobs_to_plan, live_jobs, take_snapshot
from portal.throughput import profiles
from portal.throughput.job_profiles import job_profiles
from scheduling import domain
from scheduling.lifecycle import State
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids, launch, start
from tests.portal.lifecycle.test_services_exactly import queued
from tests.portal.world import World

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def world(db: None) -> World:
    return World()


def view(world: World, now: datetime | None = None) -> ClusterView:
    world.cluster.refresh_from_db()
    return take_snapshot(world.cluster, now or timezone.now())


def seen_of(world: World, job: Job) -> domain.Job:
    (found,) = [one for one in view(world).snapshot.jobs if one.id == str(job.pk)]
    return found


# Jobs -------------------------------------------------------------------------------------------------------


def test_a_job_is_seen_with_all_that_it_asked_for(world: World) -> None:
    job = world.submit(
        steps=1_000,
        gpus={"min": 2, "max": 3, "types": ["k1"]},
        priority=7,
        nice=2,
        cpus=3,
        memory=2048,
        deadline="2099-01-02T03:04:05+00:00",
        max_duration=600,
    )
    Run.objects.update(step=300, running_s=150.0, not_before=NOW, protected_until=NOW + SECOND)
    Job.objects.update(submitted_at=NOW - SECOND, eligible_at=NOW + 2 * SECOND)
    found = seen_of(world, job)
    assert (found.number, found.project, found.state) == (job.number, "vision", State.WAITING_FOR_INITIAL_CONTACT)
    assert (found.submitted_at, found.eligible_at) == (NOW.timestamp() - 1, NOW.timestamp() + 2)
    assert (found.priority, found.nice) == (5, 2)
    assert (found.min_gpus, found.max_gpus, found.types) == (2, 3, ("k1",))
    assert (found.remaining_steps, found.done_steps) == (700.0, 300.0)
    assert (found.not_before, found.protected_until) == (NOW.timestamp(), NOW.timestamp() + 1)
    assert (found.ran_s, found.time_limit_s) == (150.0, 450.0)
    assert found.deadline == datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert (found.cpu_milli, found.memory_mib) == (3_000, 2_048)
    assert (found.gpu_milli, found.gpu_memory_mib) == (1_000, 0)
    assert (found.user, found.qos, found.partition, found.held) == (str(world.user.pk), "", "", False)
    assert (found.gpu_ids, found.gang, found.held_since, found.waits_for) == ((), None, None, "")
    assert (found.has_trained, found.restart_cost_s) == (False, 0.0)
    assert found.curves["k1"].steps_per_s[:3] == (10.0, 18.0, 24.0)


def test_a_job_that_asked_for_nothing_more_is_bound_by_nothing(world: World) -> None:
    found = seen_of(world, world.submit())
    assert (found.priority, found.nice, found.cpu_milli, found.memory_mib) == (0, 0, 0, 0)
    assert (found.deadline, found.time_limit_s, found.eligible_at, found.not_before) == (None, None, None, None)
    assert (found.restartable, found.resizable, found.types) == (True, True, ())


@pytest.mark.parametrize(
    ("uses_sdk", "restartable", "restarts", "resizes"),
    [
        (None, None, True, True),
        (True, None, True, True),
        (False, None, False, True),
        (False, True, True, False),
        (False, False, False, True),
        (True, False, False, True),
        (True, True, True, True),
    ],
)
def test_who_runs_without_the_sdk_keeps_its_gpus_unless_its_owner_says_that_it_can_begin_again(
    world: World, uses_sdk: bool | None, restartable: bool | None, restarts: bool, resizes: bool
) -> None:
    job = world.submit()
    Run.objects.update(uses_sdk=uses_sdk)
    Job.objects.update(restartable=restartable)
    found = seen_of(world, job)
    assert (found.restartable, found.resizable) == (restarts, resizes)


@pytest.mark.parametrize(("trained", "cost_s"), [(False, 0.0), (True, 4.0 + 2.5 + 1.0)])
def test_a_restart_costs_a_checkpoint_the_stop_and_a_launch_once_it_has_trained(
    world: World, trained: bool, cost_s: float
) -> None:
    job = world.submit()
    Run.objects.update(has_trained=trained, launch_s=4.0, checkpoint_s=2.5)
    found = seen_of(world, job)
    assert (found.restart_cost_s, found.launch_s, found.checkpoint_s) == (cost_s, 4.0, 2.5)
    assert found.has_trained is trained


@pytest.mark.parametrize(("step", "left"), [(0, 1_000.0), (999, 1.0), (1_000, 0.0), (1_100, 0.0)])
def test_no_job_has_less_than_nothing_left_to_do(world: World, step: int, left: float) -> None:
    job = world.submit(steps=1_000)
    Run.objects.update(step=step)
    assert seen_of(world, job).remaining_steps == left


def test_a_part_of_a_gpu_is_seen_in_thousandths(world: World) -> None:
    job = world.submit(gpus={"min": 1, "max": 1})
    Job.objects.update(gpu_share_percent=25, gpu_memory_mib=512)
    found = seen_of(world, job)
    assert (found.gpu_milli, found.gpu_memory_mib) == (250, 512)


def test_a_held_job_takes_no_part(world: World) -> None:
    job = world.submit()
    hold_job(actor=world.user, job=job)
    assert seen_of(world, job).held


def test_a_job_without_an_owner_is_nobodys(world: World) -> None:
    job = world.submit()
    Job.objects.update(owner=None)
    assert seen_of(world, job).user == ""


# GPUs -------------------------------------------------------------------------------------------------------


def test_who_leaves_blocks_what_it_still_holds_and_has_what_it_is_to_have(world: World) -> None:
    job, other = queued(world), queued(world)
    first, second, third, _ = gpu_ids()
    commit(world, [start(job, first), start(other, third)])
    launch(world)
    found = view(world).snapshot
    assert found.blocked_gpu_ids == frozenset()
    world.ready(job)
    world.unprotect(job)
    commit(world, [change(job, "rescale", [second])])
    found = view(world).snapshot
    assert {one.number: one.gpu_ids for one in found.jobs} == {job.number: (second,), other.number: (third,)}
    assert found.blocked_gpu_ids == {first}
    assert {one.gang for one in found.jobs} == {domain.Gang("k1", 1)}


def test_gpus_of_a_job_that_could_not_be_read_are_nobodys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job, other = queued(world), queued(world)
    first, second = gpu_ids()[:2]
    commit(world, [start(job, first), start(other, second)])
    Job.objects.filter(pk=job.pk).update(spec={"deadline": "nonsense"})
    found = view(world)
    assert [one.id for one in found.snapshot.jobs] == [str(other.pk)]
    assert found.snapshot.blocked_gpu_ids == {first}
    assert set(found.seen) == {str(other.pk)}


@pytest.mark.parametrize(
    ("policy", "guaranteed", "known"),
    [("f_scheduling", False, False), ("f_scheduling", True, True), ("multifactor", False, True)],
)
def test_since_when_gpus_are_held_is_known_where_shares_or_guarantees_ask_for_it(
    db: None, policy: str, guaranteed: bool, known: bool
) -> None:
    world = World(policy=policy)
    job = queued(world)
    commit(world, [start(job, gpu_ids()[0])])
    launch(world)
    if guaranteed:
        Guarantee.objects.create(project=world.project, gpus=1)
    since = Hold.objects.get().started_at.timestamp()
    assert seen_of(world, job).held_since == (since if known else None)


def test_ended_holds_and_those_of_another_cluster_are_not_seen(world: World) -> None:
    job = queued(world)
    commit(world, [start(job, gpu_ids()[0])])
    launch(world)
    Job.objects.update(cluster=Cluster.objects.create(name="other"))
    assert view(world).snapshot.blocked_gpu_ids == frozenset()
    Job.objects.update(cluster=world.cluster)
    world.ready(job)
    world.gone(job, "done", step=1_000)
    assert Hold.objects.count() == Assignment.objects.count() == 1
    assert view(world).snapshot.blocked_gpu_ids == frozenset()


def test_a_gpu_that_its_node_reports_no_more_still_has_a_type(world: World) -> None:
    job = queued(world)
    gpu = gpu_ids()[0]
    commit(world, [start(job, gpu)])
    Accelerator.objects.filter(pk=gpu).update(present=False)
    found = seen_of(world, job)
    assert (found.gpu_ids, found.gang) == ((gpu,), domain.Gang("k1", 1))
    assert gpu not in view(world).snapshot.nodes[0].gpu_ids


# Nodes ------------------------------------------------------------------------------------------------------


def test_a_node_is_seen_with_what_all_on_it_share(world: World) -> None:
    (node,) = nodes_of(world.cluster)
    assert (node.name, node.type, node.gpu_ids) == ("a", "k1", tuple(gpu_ids()))
    assert (node.cpu_milli, node.memory_mib, node.gpu_memory_mib) == (8_000, 1_000, 1_000)
    assert (node.schedulable, node.lost, node.emulated, node.withheld, node.drain) == (True, False, True, "", None)


def test_what_is_not_known_of_a_node_binds_nobody(world: World) -> None:
    Node.objects.update(cpus=0, memory_mib=0)
    Accelerator.objects.update(memory_mib=0)
    (node,) = nodes_of(world.cluster)
    assert (node.cpu_milli, node.memory_mib, node.gpu_memory_mib) == (None, None, None)


@pytest.mark.parametrize(
    ("memories", "seen"), [((9, 7, 8, 9), 7), ((0, 7, 0, 8), 7), ((7, 0, 9, 0), 7), ((0, 0, 0, 0), None)]
)
def test_of_gpus_of_a_node_the_smallest_known_memory_counts(
    world: World, memories: tuple[int, ...], seen: int | None
) -> None:
    for pk, mib in zip(gpu_ids(), memories, strict=True):
        Accelerator.objects.filter(pk=pk).update(memory_mib=mib)
    (node,) = nodes_of(world.cluster)
    assert node.gpu_memory_mib == seen


@pytest.mark.parametrize(
    ("columns", "schedulable", "lost", "withheld", "drain"),
    [
        ({"lost": True}, False, True, "", None),
        ({"check_state": "checking"}, False, False, "being checked", None),
        ({"check_state": "failed"}, False, False, "failed its check", None),
        ({"drained": True}, False, False, "", domain.Drain(None, "")),
        (
            {"drained": True, "drain_deadline_at": NOW, "drain_reason": "fans"},
            False,
            False,
            "",
            domain.Drain(NOW.timestamp(), "fans"),
        ),
        ({"drain_deadline_at": NOW, "drain_reason": "fans"}, True, False, "", None),
    ],
)
def test_why_nothing_new_is_placed_on_a_node(
    world: World, columns: dict[str, Any], schedulable: bool, lost: bool, withheld: str, drain: domain.Drain | None
) -> None:
    Node.objects.update(**columns)
    (node,) = nodes_of(world.cluster)
    assert (node.schedulable, node.lost, node.withheld, node.drain) == (schedulable, lost, withheld, drain)


def test_nodes_without_gpus_and_those_of_other_clusters_are_none(world: World) -> None:
    Node.objects.create(cluster=world.cluster, name="empty", accelerator_type="k1")
    other = Node.objects.create(cluster=Cluster.objects.create(name="other"), name="b", accelerator_type="k1")
    Accelerator.objects.create(node=other, index=0, uuid="x")
    gone = gpu_ids()[1]
    Accelerator.objects.filter(pk=gone).update(present=False)
    (node,) = nodes_of(world.cluster)
    assert (node.name, gone in node.gpu_ids, len(node.gpu_ids)) == ("a", False, 3)


# The cluster ------------------------------------------------------------------------------------------------


def test_a_snapshot_is_of_its_moment_and_of_its_round(world: World) -> None:
    job = queued(world)
    Rate.objects.update(price_micro_per_hour=2_500_000)
    Cluster.objects.update(round_epoch=41, policy_memory={"a": 1})
    found = view(world, NOW)
    assert (found.snapshot.now, found.snapshot.seed, found.snapshot.memory) == (NOW.timestamp(), 41, {"a": 1})
    assert found.snapshot.prices == {"k1": 2.5}
    run = world.run(job)
    assert found.seen == {str(job.pk): RunVersion(run.pk, State.WAITING_FOR_INITIAL_RESOURCE, 0, world.project.pk)}


def test_a_project_weighs_on_a_cluster_what_was_said_of_that_cluster(world: World) -> None:
    below = Project.objects.create(key="speech", name="Speech", parent=world.project, share_weight=2.0, priority=3)
    ClusterShare.objects.create(project=below, cluster="test", weight=7.0)
    ClusterShare.objects.create(project=below, cluster="other", weight=9.0)
    assert project_tree("test")["speech"] == domain.Entity("vision", 7.0, below.inner_rule, 3)
    assert project_tree("other")["speech"].weight == 9.0
    assert project_tree("third")["speech"].weight == 2.0
    assert project_tree("test")["vision"].parent is None


def test_levels_say_whom_they_put_out_and_how(db: None) -> None:
    low = Qos.objects.create(name="low", priority=1, preempt_mode=PreemptMode.CANCEL)
    mid = Qos.objects.create(name="mid", priority=2)
    high = Qos.objects.create(name="high", priority=3)
    high.preempts.set([mid, low])
    found = qos_levels()
    assert found["high"] == domain.Qos(3, ("low", "mid"), cancelled_when_put_out=False)
    assert (found["low"].preempts, found["low"].cancelled_when_put_out) == ((), True)


def test_a_job_runs_in_its_partition_or_the_default_one(world: World) -> None:
    job, named = world.submit(), world.submit()
    other = Cluster.objects.create(name="other")
    Partition.objects.create(cluster=other, name="elsewhere", nodes=["a"])
    day = Partition.objects.create(cluster=world.cluster, name="day", nodes=["a", "z"], priority=4)
    kind = Partition.objects.create(cluster=world.cluster, name="kind", accelerator_types=["k9"])
    Job.objects.filter(pk=named.pk).update(partition=kind)
    assert (seen_of(world, job).partition, seen_of(world, named).partition) == ("", "kind")
    assert view(world).snapshot.partitions == {
        "day": domain.Partition(frozenset({"a"}), 4),
        "kind": domain.Partition(frozenset(), 0),
    }
    Cluster.objects.filter(pk=world.cluster.pk).update(default_partition=day)
    assert (seen_of(world, job).partition, seen_of(world, named).partition) == ("day", "kind")


# Who takes part ---------------------------------------------------------------------------------------------


def test_live_jobs_of_the_cluster_come_in_the_order_of_their_numbers(world: World) -> None:
    jobs = [world.submit() for _ in range(4)]
    Run.objects.filter(job=jobs[1]).update(state=State.CANCELLED)
    Job.objects.filter(pk=jobs[2].pk).update(cluster=Cluster.objects.create(name="other"))
    Job.objects.filter(pk=jobs[0].pk).update(number=10**6)
    assert [job.pk for job in live_jobs(world.cluster.pk)] == [jobs[3].pk, jobs[0].pk]


@pytest.mark.parametrize(
    ("loop", "minutes", "running", "kept"),
    [
        (LoopName.MOVES, 5, False, False),
        (LoopName.LAUNCH, 5, False, False),
        (LoopName.MOVES, 5, True, True),  # a running job keeps what it has
        (LoopName.MOVES, -5, False, True),
        (LoopName.REASONS, 5, False, True),
    ],
)
def test_a_job_that_rounds_failed_at_rests_while_it_waits(
    world: World, loop: LoopName, minutes: int, running: bool, kept: bool
) -> None:
    job, other = queued(world), queued(world)
    if running:
        commit(world, [start(job, gpu_ids()[0])])
        launch(world)
    until = timezone.now() + timedelta(minutes=minutes)
    columns = {
        "job": job,
        "cluster": world.cluster,
        "error": "x",
        "since": NOW,
        "last_at": NOW,
        "next_attempt_at": until,
    }
    FailingItem.objects.create(loop=loop, key=str(job.pk), **columns)
    found = jobs_to_plan(Loop(LoopName.SNAPSHOT, world.cluster.pk), world.cluster)
    assert [one.pk for one in found] == [job.pk, other.pk][0 if kept else 1 :]


def test_one_jobs_unreadable_curves_leave_those_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job, other = world.submit(), world.submit()
    real = profiles.profiles_of

    def read(one: Job, *more: Any) -> Any:
        if one.pk == job.pk:
            raise ValueError("odd")
        return real(one, *more)

    monkeypatch.setattr(profiles, "profiles_of", read)
    found = job_profiles([job, other], {"k1": 4})
    assert (found[job.pk], set(found[other.pk])) == ({}, {"k1"})


@pytest.mark.parametrize(("most", "numbers"), [(0, []), (2, [2, 1]), (9, [2, 1, 0])])
def test_the_newest_arrivals_hold_nothing_whatever_became_of_them(world: World, most: int, numbers: list[int]) -> None:
    jobs = [queued(world) for _ in range(3)]
    Run.objects.filter(job=jobs[1]).update(state=State.FINISHED)
    commit(world, [start(jobs[2], gpu_ids()[0])])
    away = world.submit()
    Job.objects.filter(pk=away.pk).update(cluster=Cluster.objects.create(name="other"))
    Job.objects.filter(pk=world.submit().pk).update(run=None)
    found = arrivals_of(world.cluster, nodes_of(world.cluster), most)
    assert [one.number for one in found] == [jobs[index].number for index in numbers]
    assert {(one.gpu_ids, one.gang, one.limits) for one in found} <= {((), None, ())}
