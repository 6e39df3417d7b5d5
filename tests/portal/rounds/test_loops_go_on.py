"""One failing item never stops a loop: a failure is planted in each loop of each task of the registry.

A new task fails `test_every_task_is_known` until it is planted here, or said to have no loop.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.core.cache import cache
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Project, Quota
from portal.cluster import node_checks
from portal.execution import executors
from portal.execution import handover as handover_module
from portal.jobs.loops import LoopName
from portal.jobs.models import (
    Cluster,
    ClusterSample,
    Decision,
    FailingItem,
    FailureCount,
    Handover,
    Job,
    MetricPoint,
    Node,
    NodeCheck,
    Run,
    RunActivity,
)
from portal.lab.models import Simulation
from portal.lifecycle.cancel import cancel_job
from portal.live import publish, streams
from portal.material.models import Artifact, Bundle, Environment, RunMaterial
from portal.notices import waiting as long_waits
from portal.notices.models import Delivery, Outbox
from portal.rollouts.models import Rollout, ShadowDecision
from portal.rounds import tasks
from portal.rounds.plan import plan_cluster
from portal.snapshot import take
from portal.storage import handovers
from scheduling.domain import Plan
from scheduling.executors.base import Fact, Finding, Progress
from scheduling.lifecycle import State
from tests.cases import in_turn
from tests.portal.cluster.test_clusters import second
from tests.portal.notices.outbox import destination
from tests.portal.world import World

pytestmark = pytest.mark.django_db

#: Tasks that process one item, or nothing that could fail for one item alone, and why.
NO_LOOP = {
    "evenkeel.send_command": "one command; each failure is its own, with a back-off in its row",
    "evenkeel.warm_up": "one call of the executor",
    "evenkeel.hand_over_all": "one message per row",
    "evenkeel.note_audit_head": "one row",
    "evenkeel.prune_start_samples": "two statements over all rows",
    "evenkeel.renew_preview_basis": "one snapshot; take_snapshot leaves out jobs that cannot be read",
    "evenkeel.foresee_preview": "one preview",
    "evenkeel.foresee_what_if": "one question",
    "evenkeel.examine_cluster": "one examination, which says what failed",
    "evenkeel.take_spooled": "the reports of one run, each of which fails alone: portal/execution/test_spooled.py",
    "evenkeel.discard": "one call of the executor",
    "evenkeel.replay_round": "one replay",
    "evenkeel.shadow_round": "one round of one candidate, which says what failed",
}

Fail = Callable[[], NoReturn]
Patch = pytest.MonkeyPatch


class Planted:
    """What a plant needs: a cluster, patches, and how the failing item fails."""

    def __init__(self, patch: Patch, fail: Fail) -> None:
        self.patch, self.fail, self.world = patch, fail, World({"a": 4, "b": 4})
        self.executor = Executor(self.world)
        patch.setattr(executors, "executor_for", lambda cluster: self.executor)

    def refuse(self, target: str, is_bad: Callable[..., bool] = lambda *_, **__: True) -> None:
        """`target` fails where `is_bad` says so of its arguments."""
        place, _, name = target.rpartition(".")
        owner: Any = importlib.import_module(place)
        real = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_bad(*args, **kwargs):
                self.fail()
            return real(*args, **kwargs)

        self.patch.setattr(owner, name, wrapped)

    def refuse_delete(self, bad: Any) -> None:
        real = QuerySet.delete

        def delete(rows: QuerySet[Any]) -> Any:
            if rows.model is type(bad) and rows.filter(pk=bad.pk).exists():
                self.fail()
            return real(rows)

        self.patch.setattr(QuerySet, "delete", delete)

    def two_jobs(self, **keys: Any) -> tuple[Job, Job]:
        """A bad one, which comes first, and a good one."""
        bad, good = self.world.submit(name="bad", **keys), self.world.submit(name="good", **keys)
        return bad, good

    def two_training(self, **keys: Any) -> tuple[Job, Job]:
        jobs = self.two_jobs(gpus={"min": 1, "max": 1}, **keys)
        self.world.round()
        for job in jobs:
            self.world.ready(job)
            self.world.unprotect(job)
        self.world.round()
        return jobs

    def two_ended(self) -> tuple[Run, Run]:
        jobs = self.two_training()
        for job in jobs:
            self.world.gone(job, "done")
        runs = [self.world.run(job) for job in jobs]
        return runs[0], runs[1]

    def plant(self, loop: LoopName, key: object) -> None:
        """What has to be on record afterwards."""
        self.expected = (loop, str(key))


class Executor:
    """Sees what the test has it see."""

    single_trust_mode = False
    supports_artifacts = True
    isolation_problem = None

    def __init__(self, world: World) -> None:
        self.world, self.facts, self.gone = world, list[Fact](), list[str]()

    def __getattr__(self, name: str) -> bool:
        if not name.startswith("supports_"):
            raise AttributeError(name)
        return False

    def inventory(self) -> list[Any]:
        return self.world.node_infos()

    def refresh(self) -> bool:
        return False

    def observe(self, known: object, renewed_at: object) -> list[Fact]:
        return self.facts

    def prepare(self, preparation: object) -> Progress:
        return Progress("done", detail={"files": []})

    def discard(self, owner: str, paths: list[str]) -> None:
        self.gone += paths

    def reap_orphans(self, known: object) -> list[tuple[str, int]]:
        return []

    def check_node(self, wish: object) -> list[Finding]:
        return [Finding("free space", True, "plenty")]


#: Yields once, what the task is called with each time; None: once, without arguments.
Plant = Callable[[Planted], Iterator[Any]]
PLANTS: dict[str, list[Plant]] = defaultdict(list)


def in_task(name: str) -> Callable[[Plant], Plant]:
    """The plant is set up until its `yield`, then the task runs, then it looks whether the others were processed."""

    def keep(plant: Plant) -> Plant:
        PLANTS[name].append(plant)
        return plant

    return keep


# How it fails -----------------------------------------------------------------------------------------


def by_runtime_error() -> NoReturn:
    raise RuntimeError("postgres://evenkeel:t0ps3cret@db/evenkeel does not like it\nsecond line")


def by_recursion() -> NoReturn:
    by_recursion()


def by_memory() -> NoReturn:
    raise MemoryError


def by_key() -> NoReturn:
    raise KeyError("nice")


def by_bytes() -> NoReturn:
    b"\xff".decode()
    raise AssertionError


def by_text_that_cannot_be_stored() -> NoReturn:
    raise ValueError("a NUL \0 and half a character \udc80")


def by_the_database() -> NoReturn:
    """A statement that breaks the transaction around it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")
    raise AssertionError


def by_a_constraint() -> NoReturn:
    Cluster.objects.create(name="test")
    raise AssertionError


FAILS: list[Fail] = [
    by_runtime_error, by_recursion, by_memory, by_key, by_bytes, by_text_that_cannot_be_stored, by_the_database,
    by_a_constraint,
]  # fmt: skip


# Rounds -----------------------------------------------------------------------------------------------

STEPS = {
    "observe": "portal.cluster.inventory.record_inventory",
    "ask for node checks": "portal.cluster.node_checks.request_due_checks",
    "end overdue states": "portal.reporting.timeouts.advance_clock",
    "end waits in the engine": "portal.lifecycle.engine_waits.end_long_waits",
    "enforce limits": "portal.lifecycle.job_limits.enforce",
    "enforce max_duration": "portal.lifecycle.job_limits.end_overdue",
    "give notice of budgets": "portal.accounting.budgets.give_notices",
    "cancel unschedulable jobs": "portal.rounds.tasks.cancel_unsatisfiable",
    "count runs": "portal.lifecycle.report_interval.note_runs",
    "note preemptions": "portal.lifecycle.commit_plan.record_preemptors",
    "store reasons": "portal.lifecycle.commit_plan._store_reasons",
    "note the round": "portal.lifecycle.commit_plan.note_round",
    "keep the decision": "portal.snapshot.decisions.store",
    "note jobs left out": "portal.lifecycle.commit_plan.note_skipped",
}


def _step(name: str, target: str) -> Plant:
    def plant(p: Planted) -> Iterator[None]:
        job = p.world.submit()
        p.refuse(target)
        yield
        assert p.world.state(job) is State.LAUNCHING
        p.plant(LoopName.ROUND, f"{p.world.cluster.pk}:{'inventory' if name == 'observe' else name}")

    plant.__name__ = f"step_{name.replace(' ', '_')}"
    return plant


for _name, _target in STEPS.items():
    in_task("evenkeel.run_round")(_step(_name, _target))


@in_task("evenkeel.run_round")
def executor_that_cannot_list_nodes(p: Planted) -> Iterator[None]:
    (job,) = p.two_training()[:1]
    p.executor.facts = [Fact(str(p.world.run(job).pk), 1, "absent", timezone.now().timestamp() + 1)]
    p.patch.setattr(p.executor, "inventory", p.fail)
    yield
    assert Run.objects.get(job=job, attempt=1).state == State.FAILED
    p.plant(LoopName.ROUND, f"{p.world.cluster.pk}:inventory")


@in_task("evenkeel.run_round")
def executor_that_cannot_observe(p: Planted) -> Iterator[None]:
    job = p.world.submit()
    p.patch.setattr(p.executor, "observe", lambda *_: p.fail())
    yield
    assert p.world.state(job) is State.LAUNCHING
    p.plant(LoopName.ROUND, f"{p.world.cluster.pk}:observe")


@in_task("evenkeel.run_round")
def node(p: Planted) -> Iterator[None]:
    p.world.nodes = {"a": 4, "b": 4, "c": 4, "d": 4}
    p.world.reachable = dict.fromkeys(p.world.nodes, True)
    p.refuse("portal.cluster.inventory._store_node", lambda cluster, node, *_: node.name == "c")
    yield
    assert set(Node.objects.values_list("name", flat=True)) == {"a", "b", "d"}
    p.plant(LoopName.INVENTORY, f"{p.world.cluster.pk}:c")


@in_task("evenkeel.run_round")
def fact(p: Planted) -> Iterator[None]:
    bad, good = (p.world.run(job) for job in p.two_training())
    at = timezone.now().timestamp() + 1
    p.executor.facts = [Fact(str(run.pk), 1, "absent", at) for run in (bad, good)]
    p.refuse("portal.reporting.observation.record_fact", lambda fact: fact.run_id == str(bad.pk))
    yield
    assert (Run.objects.get(pk=bad.pk).state, Run.objects.get(pk=good.pk).state) == (State.RUNNING, State.FAILED)
    p.plant(LoopName.FACTS, bad.pk)


@in_task("evenkeel.run_round")
def fact_of_one_that_is_alive(p: Planted) -> Iterator[None]:
    _, good = p.two_jobs()
    p.world.round()
    good_run = p.world.run(good)
    facts = [Fact("no run", 1, "alive", timezone.now().timestamp())]
    p.executor.facts = [*facts, Fact(str(good_run.pk), 1, "alive", timezone.now().timestamp())]
    yield
    assert not good_run.commands.filter(closed_at=None).exists()
    p.plant(LoopName.FACTS, "no run")


@in_task("evenkeel.run_round")
def job_that_comes(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    p.refuse("portal.execution.preparation.why_not", lambda run, _: run.job_id == bad.pk)
    yield
    assert p.world.state(bad) is State.WAITING_FOR_INITIAL_CONTACT
    assert p.world.state(good) is State.LAUNCHING
    p.plant(LoopName.ACCEPT, p.world.run(bad).pk)


@in_task("evenkeel.run_round")
def run_that_cannot_move(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    p.refuse("portal.lifecycle.transitions._columns", lambda one, _: one.run.job_id == bad.pk)
    yield
    assert p.world.state(good) is State.LAUNCHING
    p.plant(LoopName.ACCEPT, p.world.run(bad).pk)


@in_task("evenkeel.run_round")
def overdue_run(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs(gpus={"min": 1, "max": 1})
    p.world.round()
    Run.objects.update(state_since=timezone.now() - timedelta(days=1))
    p.refuse("portal.reporting.timeouts._overdue", lambda run, *_: run.job_id == bad.pk)
    yield
    assert Run.objects.filter(job=good, attempt=1).get().state == State.FAILED
    assert p.world.state(bad) is State.LAUNCHING
    p.plant(LoopName.OVERDUE, p.world.run(bad).pk)


@in_task("evenkeel.run_round")
def limited_job(p: Planted) -> Iterator[None]:
    bad, good = p.two_training(max_cost=0.0001)
    p.refuse("portal.lifecycle.job_limits._suspend_if_spent", lambda job, _: job.pk == bad.pk)
    p.patch.setattr("portal.lifecycle.job_limits.so_far_products", lambda job, ctx: 10**30)
    yield
    assert [Job.objects.get(pk=job.pk).hold_kind for job in (bad, good)] == ["", "cost"]
    p.plant(LoopName.LIMITS, bad.pk)


@in_task("evenkeel.run_round")
def job_with_max_duration(p: Planted) -> Iterator[None]:
    bad, good = p.two_training(max_duration=60)
    Run.objects.update(state_since=timezone.now() - timedelta(days=1))
    p.refuse("portal.lifecycle.job_limits._is_overdue", lambda job, *_: job.pk == bad.pk)
    yield
    assert p.world.state(good) is State.FAILED
    assert p.world.state(bad) is State.RUNNING
    p.plant(LoopName.MAX_DURATION, bad.pk)


@in_task("evenkeel.run_round")
def budget(p: Planted) -> Iterator[None]:
    values = {"kind": "money", "limit": 1, "period": "month", "hard": False}
    other = Project.objects.create(key="speech", name="Speech")
    bad, good = (Quota.objects.create(project=project, **values) for project in (p.world.project, other))
    given = list[int]()
    p.patch.setattr("portal.accounting.budgets.Uses.used", lambda uses, quota: quota.limit * 2)
    p.patch.setattr("portal.accounting.budgets._give", lambda quota, *_: given.append(quota.pk))
    p.refuse("portal.accounting.budgets._give", lambda quota, *_: quota.pk == bad.pk)
    yield
    assert good.pk in given
    assert bad.pk not in given
    p.plant(LoopName.BUDGETS, bad.pk)


@in_task("evenkeel.run_round")
def unschedulable_job(p: Planted) -> Iterator[None]:
    first = p.world.submit(name="first")
    after = {"dependencies": [{"type": "afterok", "job": first.number}]}
    bad, good = p.two_jobs(**after)
    cancel_job(user=p.world.user, job=first)
    p.refuse("portal.lifecycle.cancel.cancel_job", lambda job, **_: job.pk == bad.pk)
    yield
    assert p.world.state(good) is State.CANCELLED
    assert p.world.state(bad) is not State.CANCELLED
    p.plant(LoopName.UNSCHEDULABLE, bad.pk)


def _is_left_out(p: Planted, bad: Job, good: Job) -> None:
    assert p.world.state(good) is State.LAUNCHING
    assert p.world.gpus(bad) == 0
    again = p.world.round()
    assert again is not None
    assert str(bad.pk) not in again.reasons
    run = p.world.run(bad)
    assert run.reason_token == "LEFT_OUT"
    assert "so the job is left out of scheduling rounds for now: " in run.reason_text
    FailingItem.objects.update(next_attempt_at=timezone.now())


@in_task("evenkeel.run_round")
def job_that_cannot_be_read(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    p.refuse("portal.snapshot.take.job_row", lambda job, *_: job.pk == bad.pk)
    yield
    _is_left_out(p, bad, good)
    p.plant(LoopName.SNAPSHOT, bad.pk)


@in_task("evenkeel.run_round")
def job_whose_limits_cannot_be_read(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    p.refuse("portal.accounting.quota_usage.limits_of", lambda jobs, *_: any(job.pk == bad.pk for job in jobs))
    yield
    _is_left_out(p, bad, good)
    p.plant(LoopName.SNAPSHOT, bad.pk)


@in_task("evenkeel.run_round")
def job_that_cannot_be_planned(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    p.refuse("portal.rounds.plan.plan_round", lambda seen, _: any(job.id == str(bad.pk) for job in seen.jobs))
    yield
    _is_left_out(p, bad, good)
    p.plant(LoopName.SNAPSHOT, bad.pk)


@in_task("evenkeel.run_round")
def running_job_that_cannot_be_read(p: Planted) -> Iterator[None]:
    bad, _ = p.two_training()
    other = p.world.submit(gpus={"min": 1, "max": 8})
    p.refuse("portal.snapshot.take.job_row", lambda job, *_: job.pk == bad.pk)
    yield
    assert p.world.gpus(bad) == 1
    assert 0 < p.world.gpus(other) <= 6
    assert p.world.state(bad) is State.RUNNING
    p.plant(LoopName.SNAPSHOT, bad.pk)


@in_task("evenkeel.run_round")
def move(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs(gpus={"min": 8, "max": 8})
    p.refuse("portal.lifecycle.commit_plan._transition", lambda run, m: run.job_id == bad.pk)
    yield
    assert p.world.gpus(bad) == 0
    p.world.round()
    p.world.round()
    assert p.world.gpus(good) == 8  # what is planned for the bad one in vain is the good one's
    p.plant(LoopName.MOVES, bad.pk)


@in_task("evenkeel.run_round")
def reason(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs(gpus={"min": 64})

    class Untold(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return p.fail() if key == str(bad.pk) else super().__getitem__(key)

    def planned(cluster: Cluster, now: Any, real: Any = plan_cluster) -> tuple[take.ClusterView, Plan]:
        view, plan = real(cluster, now)
        return view, replace(plan, reasons=Untold(plan.reasons))

    p.patch.setattr(tasks, "plan_cluster", planned)
    before = p.world.run(bad).reason_text
    yield
    assert "64" in p.world.run(good).reason_text
    assert p.world.run(bad).reason_text != p.world.run(good).reason_text or before
    p.plant(LoopName.REASONS, bad.pk)


@in_task("evenkeel.run_round")
def launch(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs(gpus={"min": 1, "max": 1})
    p.refuse("portal.lifecycle.launch_queue._launched", lambda run, *_: run.job_id == bad.pk)
    yield
    assert p.world.state(bad) is State.STANDBY
    assert p.world.state(good) is State.LAUNCHING
    p.plant(LoopName.LAUNCH, bad.pk)


@in_task("evenkeel.run_round")
def node_to_check(p: Planted) -> Iterator[None]:
    late = {"check_state": "failed", "next_check_at": timezone.now() - timedelta(seconds=1)}
    Node.objects.update(**late)
    p.refuse("portal.cluster.node_checks.open_check", lambda node, *_, **__: node.name == "a")
    p.patch.setattr(django_settings, "EVENKEEL_NODE_CHECKS", True)
    yield
    assert list(NodeCheck.objects.values_list("node__name", flat=True)) == ["b"]
    p.plant(LoopName.NODE_CHECKS, f"ask:{Node.objects.get(name='a').pk}")


# Other tasks of jobs ----------------------------------------------------------------------------------


@in_task("evenkeel.prepare_run")
def preparation(p: Planted) -> Iterator[tuple[Any, ...]]:
    bad, good = p.two_jobs()
    for job in (bad, good):
        RunMaterial.objects.update_or_create(run=p.world.run(job), defaults={"next_look_at": timezone.now()})
    p.refuse("portal.execution.preparation.wishes", lambda run: run.job_id == bad.pk)
    yield ((str(p.world.run(bad).pk),), (str(p.world.run(good).pk),))
    RunMaterial.objects.update(next_look_at=timezone.now())
    from portal.execution.preparation import due

    assert due(p.world.cluster.pk, timezone.now()) == [p.world.run(good).pk]
    p.plant(LoopName.PREPARE, p.world.run(bad).pk)


@in_task("evenkeel.hand_over")
def handover(p: Planted) -> Iterator[tuple[Any, ...]]:
    bad, good = p.two_jobs()
    for job in (bad, good):
        handovers.ask_for_handover(job, timezone.now() - timedelta(seconds=1))
    p.patch.setattr(handover_module, "give_files", lambda executor, job: None)
    p.refuse("portal.execution.handover.give_files", lambda executor, job: job == bad.pk)
    yield ((str(bad.pk),), (str(good.pk),))
    assert Handover.objects.get().job_id == bad.pk
    assert Handover.objects.get().error
    p.plant(LoopName.HANDOVERS, bad.pk)


@in_task("evenkeel.publish_live")
def project_stream(p: Planted) -> Iterator[None]:
    bad = Project.objects.create(key="aaa", name="Bad")
    _published(p)
    p.refuse("portal.live.streams._project", lambda project, *_: project.pk == bad.pk)
    yield
    assert {"cluster", "project:vision"} <= set(p.numbers)  # type: ignore[attr-defined]
    assert "project:aaa" not in p.numbers  # type: ignore[attr-defined]
    p.plant(LoopName.LIVE, "project:aaa")


@in_task("evenkeel.publish_live")
def job_of_a_stream(p: Planted) -> Iterator[None]:
    bad, good = p.two_jobs()
    _published(p)
    p.refuse("portal.live.streams.describe_job", lambda job, _: job.pk == bad.pk)
    yield
    assert set(streams.build(timezone.now())["project:vision"]["jobs"]) == {str(good.number)}
    p.plant(LoopName.LIVE, bad.pk)


@in_task("evenkeel.publish_live")
def stream_that_cannot_be_published(p: Planted) -> Iterator[None]:
    _published(p)
    p.refuse("portal.live.publish._store_and_send", lambda redis, stream, *_: stream == "cluster")
    yield
    assert "project:vision" in p.numbers  # type: ignore[attr-defined]
    p.plant(LoopName.LIVE, "publish:cluster")


def _published(p: Planted) -> None:
    p.numbers = set[str]()  # type: ignore[attr-defined]
    p.patch.setattr(publish, "is_watched", lambda: True)
    p.patch.setattr(publish.Published, "rest_left_s", lambda *_, **__: 0.0)
    p.patch.setattr(publish, "_store_and_send", lambda redis, stream, *_: p.numbers.add(stream) or 1)  # type: ignore[attr-defined]


def _of_clusters(task: str, target: str, loop: LoopName, what: str = "") -> None:
    def plant(p: Planted) -> Iterator[None]:
        other, done = second(p.world), list[str]()
        place, _, name = target.rpartition(".")

        def note(cluster: Cluster, *_: object, **__: object) -> None:
            done.append(cluster.name)

        p.patch.setattr(importlib.import_module(place), name, note)
        p.refuse(target, lambda cluster, *_, **__: cluster.pk == p.world.cluster.pk)
        yield
        assert done == [other.name]
        p.plant(loop, f"{p.world.cluster.pk}:{what}")

    plant.__name__ = f"cluster_of_{target.rpartition('.')[2]}"
    in_task(task)(plant)


_of_clusters("evenkeel.sample_cluster", "portal.rounds.pruning.sample", LoopName.SAMPLES, "load")
_of_clusters("evenkeel.sample_shares", "portal.rounds.fairness_tasks.sample_shares", LoopName.SAMPLES, "shares")
_of_clusters("evenkeel.sample_fairness", "portal.rounds.fairness_tasks.sample_fairness", LoopName.SAMPLES, "fairness")
_of_clusters("evenkeel.enforce_idle_rules", "portal.rounds.fairness_tasks._enforce_idle_rule", LoopName.IDLE)
_of_clusters("evenkeel.reap_orphans", "portal.execution.observe._reap_orphans", LoopName.ORPHANS)
_of_clusters(
    "evenkeel.read_site_shares", "portal.rounds.upkeep_tasks._read_site_shares", LoopName.SAMPLES, "site shares"
)
_of_clusters("evenkeel.foresee_starts", "portal.forecasts.start_tasks.foresee_cluster", LoopName.EXPECTED_STARTS)
_of_clusters("evenkeel.collect_artifacts", "portal.execution.material_tasks._collect_of", LoopName.ARTIFACTS)


@in_task("evenkeel.enforce_idle_rules")
def idle_run(p: Planted) -> Iterator[None]:
    bad, good = p.two_training()
    for job in (bad, good):
        values = {"epoch": 1, "accelerator_type": "k1", "gpu_hundredths": 100, "heard_at": timezone.now()}
        RunActivity.objects.update_or_create(run=p.world.run(job), defaults=values)
    looked = list[Any]()
    module = "portal.lifecycle.idle_jobs"
    p.patch.setattr(f"{module}._idle", lambda rows, rule: rows)
    p.patch.setattr(f"{module}._warn_or_suspend", lambda row, *_: looked.append(row.run.job_id))
    p.refuse(f"{module}._warn_or_suspend", lambda row, *_: row.run.job_id == bad.pk)
    yield
    assert looked == [good.pk]
    p.plant(LoopName.IDLE, p.world.run(bad).pk)


@in_task("evenkeel.check_nodes")
def node_check(p: Planted) -> Iterator[tuple[Any, ...]]:
    bad, good = (NodeCheck.objects.create(node=node, cause="asked") for node in Node.objects.order_by("name"))
    p.refuse("portal.cluster.node_checks.conclude", lambda check, *_: check.pk == bad.pk)
    yield ((p.world.cluster.pk,),)
    assert NodeCheck.objects.get(pk=good.pk).passed
    assert NodeCheck.objects.get(pk=bad.pk).ended_at is None
    later = timezone.now() + timedelta(hours=1)
    assert bad.pk not in {check.pk for check in node_checks.due(p.world.cluster.pk, later)}
    p.plant(LoopName.NODE_CHECKS, bad.pk)


@in_task("evenkeel.prune")
def pruning(p: Planted) -> Iterator[None]:
    old = timezone.now() - timedelta(days=4_000)
    values = dict.fromkeys(("gpus_total", "gpus_held", "gpus_training", "queued", "waiting", "spend_micro_per_hour"), 0)
    ClusterSample.objects.create(cluster=p.world.cluster, at=old, **values)
    p.refuse("portal.jobs.event_months.ensure")
    yield
    assert not ClusterSample.objects.filter(at=old).exists()
    p.plant(LoopName.PRUNING, ":partitions of events")


@in_task("evenkeel.prune")
def decision(p: Planted) -> Iterator[None]:
    for _ in range(2):
        p.world.submit()
        p.world.round()
    bad = Decision.objects.earliest("pk")
    p.patch.setattr(django_settings, "EVENKEEL_KEEP", replace(django_settings.EVENKEEL_KEEP, decisions_bytes=0))
    p.refuse_delete(bad)
    yield
    assert list(Decision.objects.all()) == [bad]
    p.plant(LoopName.PRUNING, f"decision:{bad.pk}")


@in_task("evenkeel.prune")
def metrics_of_a_run(p: Planted) -> Iterator[None]:
    bad, good = p.two_ended()
    for run in (bad, good):
        Run.objects.filter(pk=run.pk).update(ended_at=timezone.now() - timedelta(days=100))
        MetricPoint.objects.create(run=run, at=timezone.now(), step=1, values={}, epoch=1)
    p.refuse("portal.history.metrics._thin_ended", lambda runs: bad.pk in runs)
    yield
    assert [Run.objects.get(pk=run.pk).metrics_thinned for run in (bad, good)] == [False, True]
    p.plant(LoopName.PRUNING, f"metrics:{bad.pk}")


# Material ---------------------------------------------------------------------------------------------


@in_task("evenkeel.collect_artifacts")
def run_with_artifacts(p: Planted) -> Iterator[None]:
    bad, good = p.two_ended()
    p.refuse("portal.material.artifacts.collection_of", lambda run: run.pk == bad.pk)
    yield
    assert list(RunMaterial.objects.filter(collecting="done").values_list("run", flat=True)) == [good.pk]
    p.plant(LoopName.ARTIFACTS, bad.pk)


def _two_artifacts(p: Planted) -> tuple[Artifact, Artifact]:
    run, _ = p.two_ended()
    gone = {"expires_at": timezone.now(), "removed_at": timezone.now() - timedelta(days=1)}
    sizes = {"size_bytes": 1, "sha256": "0" * 64}
    return (
        Artifact.objects.create(run=run, path="bad", **sizes, **gone),
        Artifact.objects.create(run=run, path="good", **sizes, **gone),
    )


def artifact(p: Planted) -> Iterator[None]:
    bad, _ = _two_artifacts(p)
    p.refuse("portal.execution.material_tasks._remove_artifact", lambda one: one.pk == bad.pk)
    yield
    assert list(Artifact.objects.values_list("path", flat=True)) == ["bad"]
    p.plant(LoopName.REMOVAL, f"artifact:{bad.pk}")


in_task("evenkeel.remove_artifacts")(artifact)
in_task("evenkeel.clean_material")(artifact)


@in_task("evenkeel.clean_material")
def bundle(p: Planted) -> Iterator[None]:
    values = {"project": p.world.project, "size_bytes": 1, "unpacked_bytes": 1, "files": 1}
    bad, _ = (Bundle.objects.create(sha256=f"{i:064x}", **values) for i in (1, 2))
    Bundle.objects.update(last_used_at=timezone.now() - timedelta(days=4_000))
    p.refuse("portal.material.bundles.delete_bundle", lambda bundle, **_: bundle.pk == bad.pk)
    yield
    assert list(Bundle.objects.all()) == [bad]
    p.plant(LoopName.REMOVAL, f"bundle:{bad.pk}")


@in_task("evenkeel.clean_material")
def project_with_checkpoints(p: Planted) -> Iterator[None]:
    Project.objects.create(key="speech", name="Speech")
    counted = list[str]()
    p.patch.setattr("portal.material.checkpoints.recount", lambda project: counted.append(project.key))
    p.refuse("portal.material.checkpoints.warn", lambda project, _: project.key == "vision")
    yield
    assert counted == ["speech"]
    p.plant(LoopName.REMOVAL, f"project:{p.world.project.pk}")


@in_task("evenkeel.clean_material")
def environment(p: Planted) -> Iterator[None]:
    values = {"project": p.world.project, "cluster": p.world.cluster, "base": "b", "state": "ready", "size_bytes": 1}
    bad, _ = (Environment.objects.create(digest=f"{i:064x}", requirements="x", **values) for i in (1, 2))
    keep = replace(django_settings.EVENKEEL_KEEP, environments_bytes=0)
    p.patch.setattr(django_settings, "EVENKEEL_KEEP", keep)
    p.refuse("portal.execution.material_tasks.forget_environment", lambda one: one.pk == bad.pk)
    yield
    assert list(Environment.objects.all()) == [bad]
    p.plant(LoopName.REMOVAL, f"environment:{bad.pk}")


# Simulations and rollouts -----------------------------------------------------------------------------


def _two_simulations(p: Planted, **values: Any) -> tuple[Simulation, Simulation]:
    made = [
        Simulation.objects.create(cluster=p.world.cluster, created_by=p.world.user, spec={}, **values) for _ in range(2)
    ]
    return made[0], made[1]


@in_task("evenkeel.run_simulations")
def simulation(p: Planted) -> Iterator[tuple[Any, ...]]:
    bad, good = _two_simulations(p)
    ran = list[int]()
    p.patch.setattr("portal.lab.running._run", lambda row: ran.append(row.pk))
    p.refuse("portal.lab.running._run", lambda row: row.pk == bad.pk)
    yield ((), ())
    assert ran == [good.pk]
    p.plant(LoopName.SIMULATIONS, bad.pk)


@in_task("evenkeel.run_simulations")
def simulation_whose_worker_died(p: Planted) -> Iterator[None]:
    heard = timezone.now() - timedelta(days=1)
    bad, good = _two_simulations(p, state="running", attempts=3, heard_at=heard, claim=uuid4())
    p.refuse("portal.lab.running.finish", lambda mine, *_: mine.filter(pk=bad.pk).exists())
    yield
    assert [Simulation.objects.get(pk=one.pk).state for one in (bad, good)] == ["running", "failed"]
    p.plant(LoopName.SIMULATIONS, bad.pk)


@in_task("evenkeel.prune_simulations")
def simulation_to_prune(p: Planted) -> Iterator[None]:
    bad, _ = _two_simulations(p, state="succeeded", size_bytes=10)
    p.patch.setattr(django_settings, "EVENKEEL_KEEP", replace(django_settings.EVENKEEL_KEEP, simulations_bytes=0))
    p.refuse_delete(bad)
    yield
    assert list(Simulation.objects.all()) == [bad]
    p.plant(LoopName.PRUNING, f"simulation:{bad.pk}")


def _rollout(cluster: Cluster, phase: str) -> Rollout:
    values = {"policy": "fifo_gang", "label": "fifo_gang", "bounds": {}, "guard_s": 600, "least_jobs": 1, "least_s": 0}
    times = {"promoted_at": timezone.now(), "guard_until": timezone.now()} if phase == "live" else {}
    return Rollout.objects.create(cluster=cluster, phase=phase, **values, **times)


@in_task("evenkeel.guard_rollouts")
def rollout(p: Planted) -> Iterator[None]:
    checked = list[int]()
    bad, good = _rollout(p.world.cluster, "live"), _rollout(second(p.world), "live")
    p.patch.setattr("portal.rollouts.guarding.check", lambda row, _: checked.append(row.pk))
    p.refuse("portal.rollouts.guarding.check", lambda row, _: row.pk == bad.pk)
    yield
    assert checked == [good.pk]
    assert Rollout.objects.get(pk=bad.pk).problem
    p.plant(LoopName.ROLLOUTS, bad.pk)


@in_task("evenkeel.prune_rollouts")
def shadow_decision(p: Planted) -> Iterator[None]:
    of, now = _rollout(p.world.cluster, "shadow"), timezone.now()
    values = {
        "seconds": 0.1,
        "different": 0,
        "elsewhere": 0,
        "live": {},
        "candidate": {},
        "packed": b"",
        "size_bytes": 9,
    }
    bad, _ = (
        ShadowDecision.objects.create(rollout=of, round=i, at=now, last_round=i, last_at=now, **values) for i in (1, 2)
    )
    p.patch.setattr(django_settings, "EVENKEEL_KEEP", replace(django_settings.EVENKEEL_KEEP, shadows_bytes=0))
    p.refuse_delete(bad)
    yield
    assert list(ShadowDecision.objects.all()) == [bad]
    p.plant(LoopName.PRUNING, f"shadow:{bad.pk}")


# Notices ----------------------------------------------------------------------------------------------


def _two_told(p: Planted, **values: Any) -> tuple[Job, Job]:
    destination(p.world.user, **values)
    bad, good = p.two_jobs()
    Outbox.objects.all().delete()
    for job in (bad, good):
        cancel_job(user=p.world.user, job=job)
    p.patch.setattr("portal.notices.deliveries.send_all", lambda queues: [[] for _ in queues])
    return bad, good


def _job_of(payload: Mapping[str, Any]) -> str:
    return str(payload["data"]["job"]["name"])


@in_task("evenkeel.send_notices")
def event_in_the_outbox(p: Planted) -> Iterator[None]:
    _two_told(p)
    p.refuse("portal.notices.messages.addressed", lambda payload, _: _job_of(payload) == "bad")
    yield
    assert [_job_of(row.payload) for row in Delivery.objects.all()] == ["good"]
    p.plant(LoopName.OUTBOX, Outbox.objects.get().pk)


def _of_kind(kind: str) -> Plant:
    def plant(p: Planted) -> Iterator[None]:
        p.patch.setattr(django_settings, "EVENKEEL_EMAIL_URL", "smtp://mail.example.org")
        _two_told(p, kind=kind, url=None if kind == "email" else "https://hooks.slack.com/services/x")
        sent = list[str]()
        p.patch.setattr("portal.notices.transport.mailing.send", lambda some: _sent(sent, some))
        p.patch.setattr("portal.notices.deliveries.send_all", lambda queues: [[_good() for _ in q] for q in queues])
        writers = {"webhook": "as_json", "slack": "as_chat", "email": "as_mail"}

        def is_bad(given: Any, *_: object) -> bool:
            payloads = [given] if isinstance(given, dict) else [one.payload for one in given]
            return any(_job_of(payload) == "bad" for payload in payloads)

        p.refuse(f"portal.notices.messages.{writers[kind]}", is_bad)
        yield
        rows = {_job_of(row.payload): row for row in Delivery.objects.all()}
        assert (rows["good"].status, rows["bad"].status) == ("delivered", "waiting")
        assert rows["bad"].attempts == 1
        p.plant(LoopName.DELIVERIES, rows["bad"].pk)

    plant.__name__ = f"delivery_by_{kind}"
    return plant


def _good() -> Any:
    from portal.notices.transport.sending import Outcome

    return Outcome(True, 200)


def _sent(sent: list[str], some: Any) -> Any:
    sent += [_job_of(one.payload) for one in some]
    return _good()


for _kind in ("webhook", "slack", "email"):
    in_task("evenkeel.send_notices")(_of_kind(_kind))


@in_task("evenkeel.tell_long_waits")
def long_wait(p: Planted) -> Iterator[None]:
    bad, _ = p.two_jobs(gpus={"min": 64})
    p.world.round()
    made = destination(p.world.user, waiting_minutes=1)
    Job.objects.update(submitted_at=timezone.now() - timedelta(days=1))
    p.refuse("portal.notices.messages.of_waiting", lambda job, *_: job.pk == bad.pk)
    yield
    assert [_job_of(row.payload) for row in Delivery.objects.filter(event="job.waiting")] == ["good"]
    p.plant(LoopName.LONG_WAITS, f"{made.pk}:{bad.pk}")


@in_task("evenkeel.prune_notices")
def pruned_notices(p: Planted) -> Iterator[None]:
    done = list[int]()
    p.patch.setattr(long_waits, "forget_ended", lambda: done.append(1))
    p.refuse("portal.notices.pruning.prune")
    yield
    assert done
    p.plant(LoopName.PRUNING, ":deliveries")


# The tests --------------------------------------------------------------------------------------------

current_app.loader.import_default_modules()  # some tasks are imported by nothing else
TASKS = {name for name in current_app.tasks if name.startswith("evenkeel.")}
CASES = [(name, plant) for name, plants in sorted(PLANTS.items()) for plant in plants]


def test_every_task_is_known() -> None:
    assert {*PLANTS, *NO_LOOP} == TASKS, "plant a failing item in a new task's loops, or say that it has none"
    assert not PLANTS.keys() & NO_LOOP.keys()


def _run(name: str, plant: Plant, patch: Patch, fail: Fail) -> None:
    cache.clear()
    p = Planted(patch, fail)
    steps = plant(p)
    calls = next(steps) or ((),)
    before = FailingItem.objects.count()
    assert before == 0
    for arguments in calls:
        current_app.tasks[name].run(*arguments)
    rows = {(row.loop, row.key): row for row in FailingItem.objects.all()}
    counts = {row.loop: row.failures for row in FailureCount.objects.all()}
    with pytest.raises(StopIteration):
        next(steps)
    row = rows[p.expected]
    assert row.failures >= 1
    assert counts[p.expected[0]] >= 1
    assert row.next_attempt_at > row.last_at
    assert row.error
    assert "t0ps3cret" not in row.error


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_failing_item_stops_no_other(name: str, monkeypatch: Patch) -> None:
    @in_turn(("plant", "fail"), product(PLANTS[name], [by_runtime_error, by_the_database]))
    def each(patch: Patch, plant: Plant, fail: Fail) -> None:
        _run(name, plant, patch, fail)

    each(patch=monkeypatch)


@pytest.mark.parametrize("plant", [limited_job, job_that_cannot_be_read, move, node])
def test_whatever_it_fails_by(plant: Plant, monkeypatch: Patch) -> None:
    # A constraint that a move breaks is a conflict: the GPU may be another job's.
    @in_turn("fail", [fail for fail in FAILS if (plant, fail) != (move, by_a_constraint)])
    def each(patch: Patch, fail: Fail) -> None:
        _run("evenkeel.run_round", plant, patch, fail)

    each(patch=monkeypatch)


def test_each_loop_is_planted(monkeypatch: Patch) -> None:
    """By a report in tests/portal/reporting/test_reports_together.py."""
    planted = {LoopName.REPORTS}
    for _, plant in CASES:
        names = [constant for constant in _constants(plant) if constant in LoopName.__members__]
        planted |= {LoopName[name] for name in names}
    assert planted == set(LoopName)


def _constants(plant: Plant) -> Iterator[str]:
    code = plant.__code__
    yield from code.co_names
    cells = plant.__closure__ or ()
    yield from (cell.cell_contents.name for cell in cells if isinstance(cell.cell_contents, LoopName))
