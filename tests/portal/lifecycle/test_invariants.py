"""Random histories through `plan_round` and the database services; DESIGN.md's invariants after each event."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from accounts.models import Project, User
from portal.cluster import policy as administration
from portal.cluster.drains import drain_node, resume_node
from portal.jobfile.patch import JobPatch
from portal.jobs.models import Hold, Job, Node, Run
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.lifecycle.locking import JobConflict
from portal.lifecycle.suspend import hold_job, release_job
from portal.reporting.reports import StaleEpoch
from portal.submission.edit import patch_job
from portal.submission.transfer import move_job
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import HOLDING, LIVE, TRAINING, WAITING, State
from tests.portal.world import World, check_invariants

picks = st.integers(0, 10_000)


class _RollBack(Exception):
    pass


class History(RuleBasedStateMachine):
    """What may happen to a cluster, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.best_checkpoint: dict[Any, int] = {}

    @initialize(policy=st.sampled_from(["f_scheduling", "fifo_gang", "static_partition", "fgd", "max_min_fairness"]))
    def start(self, policy: str) -> None:
        self.world = World({"a": 4, "b": 3}, policy)
        Project.objects.create(key="speech", name="Speech")
        self.root = User.objects.create_superuser("root@example.org", "x")

    def teardown(self) -> None:
        self.atomic.__exit__(_RollBack, _RollBack(), None)

    def pick(self, states: Any, which: int) -> Job | None:
        jobs = list(Job.objects.filter(run__state__in=[s.value for s in states]).order_by("number"))
        return jobs[which % len(jobs)] if jobs else None

    @rule(
        curve=st.sampled_from(["fast", "slow"]),
        low=st.integers(1, 3),
        extra=st.integers(0, 4),
        restartable=st.booleans(),
        limit=st.integers(0, 2),
    )
    @precondition(lambda self: Job.objects.count() < 12)
    def arrive(self, curve: str, low: int, extra: int, restartable: bool, limit: int) -> None:
        self.world.submit(
            curve,
            gpus={"min": low, "max": low + extra},
            restartable=restartable,
            retry={"limit": limit, "backoff_s": 0},
        )

    @rule(
        share=st.sampled_from([0.1, 0.34, 0.5, 0.7]),
        memory=st.sampled_from([None, 300, 1000]),
        restartable=st.booleans(),
    )
    @precondition(lambda self: Job.objects.count() < 12)
    def arrive_for_a_part(self, share: float, memory: int | None, restartable: bool) -> None:
        gpus = {"share": share} | ({} if memory is None else {"memory": memory})
        self.world.submit(gpus=gpus, restartable=restartable, retry={"limit": 1, "backoff_s": 0})

    @rule()
    def a_round(self) -> None:
        self.world.round()

    @rule(which=picks)
    def becomes_ready(self, which: int) -> None:
        if job := self.pick([State.LAUNCHING], which):
            self.world.ready(job)

    @rule(which=picks)
    def protection_passes(self, which: int) -> None:
        if job := self.pick([State.RUNNING_PROTECTED], which):
            self.world.unprotect(job)

    @rule(which=picks, steps=st.integers(1, 300))
    def trains(self, which: int, steps: int) -> None:
        if job := self.pick(TRAINING, which):
            self.world.report(job, step=self.world.run(job).step + steps)

    @rule(which=picks)
    def checkpoints(self, which: int) -> None:
        if job := self.pick([State.RUNNING, State.CHECKPOINTING], which):
            run = self.world.run(job)
            reason = "request" if State(run.state) is State.CHECKPOINTING else "interval"
            self.world.checkpoint(job, run.step, reason)

    @rule(which=picks)
    def leaves_as_told(self, which: int) -> None:
        if job := self.pick([State.STOPPING, State.CHECKPOINTING], which):
            self.world.gone(job, "stopped")

    @rule(which=picks)
    def finishes(self, which: int) -> None:
        if job := self.pick(TRAINING, which):
            self.world.gone(job, "done", step=job.total_steps)

    @rule(which=picks, reason=st.sampled_from(["user_error", "signal", "out_of_memory", "runner_lost", "time_limit"]))
    def dies(self, which: int, reason: str) -> None:
        if job := self.pick(HOLDING, which):
            self.world.gone(job, reason)

    @rule(which=picks)
    def is_cancelled(self, which: int) -> None:
        if job := self.pick(list(State), which):
            try:
                cancel_job(user=self.world.user, job=job)
            except JobHasEnded:
                assert self.world.state(job) not in LIVE

    @rule(which=picks, administrator=st.booleans())
    def is_held(self, which: int, administrator: bool) -> None:
        if job := self.pick(list(State), which):
            with contextlib.suppress(JobHasEnded, JobConflict):
                hold_job(actor=self.root if administrator else self.world.user, job=job)

    @rule(which=picks, administrator=st.booleans())
    def is_released(self, which: int, administrator: bool) -> None:
        if job := self.pick(list(State), which):
            with contextlib.suppress(JobHasEnded, PermissionError, JobConflict):
                release_job(actor=self.root if administrator else self.world.user, job=job)

    @rule(which=picks, more=st.integers(1, 500), nice=st.integers(0, 3))
    def is_patched(self, which: int, more: int, nice: int) -> None:
        if job := self.pick(list(State), which):
            with contextlib.suppress(JobConflict):
                patch_job(actor=self.root, job=job, patch=JobPatch(total_steps=job.total_steps + more, nice=nice))

    @rule(which=picks, there=st.booleans())
    def is_moved(self, which: int, there: bool) -> None:
        if job := self.pick(list(State), which):
            held = Hold.objects.filter(run__job=job, during__upper_inf=True).exists()
            try:
                move_job(actor=self.root, job=job, key="speech" if there else "vision")
            except JobConflict:
                assert held or self.world.state(job) is State.STANDBY
            else:
                job.refresh_from_db()
                assert not held or job.project.key == ("speech" if there else "vision")

    @rule()
    def leftover_processes_go(self) -> None:
        ended = Run.objects.filter(holds__during__upper_inf=True).exclude(state__in=[s.value for s in LIVE])
        for run in ended.distinct():
            self.world.processes_gone(run, ExitInfo("signal", signal=9))

    @rule(which=picks)
    def a_stale_report_comes(self, which: int) -> None:
        job = self.pick(HOLDING, which)
        if job and self.world.run(job).epoch > 1:
            with pytest.raises(StaleEpoch):
                self.world.report(job, epoch=self.world.run(job).epoch - 1, step=10**6)

    @rule(node=st.sampled_from(["a", "b"]), reachable=st.booleans())
    def a_node_comes_or_goes(self, node: str, reachable: bool) -> None:
        self.world.reachable[node] = reachable
        self.world.inventory()

    @rule(node=st.sampled_from(["a", "b"]), deadline_s=st.sampled_from([None, 0, 20, 3_600]))
    def a_node_is_drained(self, node: str, deadline_s: int | None) -> None:
        """A deadline of 0 s has just come."""
        now = timezone.now()
        deadline = None if deadline_s is None else now + timedelta(seconds=max(1, deadline_s))
        drain_node(actor=None, node=Node.objects.get(name=node), now=now, deadline_at=deadline)
        if deadline_s == 0:
            Node.objects.filter(name=node).update(drain_deadline_at=now)

    @rule(node=st.sampled_from(["a", "b"]))
    def a_node_is_resumed(self, node: str) -> None:
        resume_node(actor=None, node=Node.objects.get(name=node), now=timezone.now())

    @rule(
        policy=st.sampled_from(
            ["f_scheduling", "fifo_gang", "static_partition", "f_scheduling_exact", "hierarchical", "fgd", "tetris"]
        )
    )
    def the_policy_changes(self, policy: str) -> None:
        administration.set_policy(actor=None, cluster=self.world.cluster, name=policy, parameters={})

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        check_invariants(self.world)
        for job_id, step, checkpoint in Job.objects.values_list("pk", "run__step", "run__checkpoint_step"):
            best = self.best_checkpoint.get(job_id, 0)
            assert checkpoint >= best
            assert step >= best
            self.best_checkpoint[job_id] = checkpoint

    @invariant()
    def what_is_held_gets_nothing(self) -> None:
        """A held job holds GPUs only until its processes have left."""
        leaving = [State.CHECKPOINTING, State.STOPPING]
        held = Run.objects.filter(job__run=F("pk")).exclude(job__hold_kind="")
        for run in held.filter(state__in=[s.value for s in LIVE]):
            assert State(run.state) in {*WAITING, *leaving}
            assert not run.assignments.filter(during__upper_inf=True).exists()

    @invariant()
    def nothing_waits_for_free_gpus_that_nobody_plans(self) -> None:
        """After a round a lone restartable job on an idle, healthy cluster is always started."""
        if not hasattr(self, "world") or Hold.objects.filter(during__upper_inf=True).exists():
            return
        jobs = Job.objects.filter(run__state__in=[s.value for s in LIVE])
        healthy = all(self.world.reachable.values()) and not Node.objects.filter(drained=True).exists()
        if jobs.count() == 1 and not jobs.get().hold_kind and healthy and jobs.get().min_gpus == 1:
            self.world.round()
            assert self.world.state(jobs.get()) is State.LAUNCHING


@pytest.mark.django_db
def test_invariants_hold_over_random_histories() -> None:
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
