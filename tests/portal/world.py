"""A cluster in the database whose nodes are played by the test: it says what executors and runners would see."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, F, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.ledger import PriceBook, product_sum
from accounts.models import LedgerEntry, Membership, Project, Rate, UsageDay, User
from portal.accounting.hold_costs import held, product_of
from portal.cluster import inventory as administration
from portal.jobfile.parsing import parse_job_file
from portal.jobs.models import Accelerator, Assignment, Cluster, Command, Hold, Job, Run
from portal.lifecycle import launch_queue
from portal.reporting import acceptance, observation, reports, timeouts
from portal.rounds import tasks
from portal.submission.submit import submit_job
from scheduling.domain import Plan
from scheduling.executors.base import AcceleratorInfo, ExitInfo, Fact, NodeInfo
from scheduling.lifecycle import HOLDING, LIVE, TERMINAL, State

CURVES = {"fast": [10.0, 18.0, 24.0, 28.0], "slow": [1.0, 1.5, 1.8, 2.0]}


class World:
    def __init__(
        self, gpus: dict[str, int] | None = None, policy: str = "f_scheduling", *, emulated: bool = True
    ) -> None:
        self.emulated = emulated
        self.cluster = Cluster.objects.create(name="test", policy_name=policy)
        self.user = User.objects.create_user("ana@example.org", "correct horse battery")
        self.project = Project.objects.create(key="vision", name="Vision")
        Membership.objects.create(project=self.project, user=self.user)
        Rate.objects.create(
            accelerator_type="k1", price_micro_per_hour=1_234_567, valid_from=datetime(2020, 1, 1, tzinfo=UTC)
        )
        self.nodes = gpus or {"a": 4}
        self.reachable = dict.fromkeys(self.nodes, True)
        self.seq = 0
        self.inventory()

    def node_infos(self) -> list[NodeInfo]:
        return [
            NodeInfo(
                name,
                tuple(AcceleratorInfo(i, "k1", f"{name}-{i}", 1000, self.emulated) for i in range(count)),
                8,
                1000,
                self.reachable[name],
            )
            for name, count in self.nodes.items()
        ]

    def inventory(self) -> None:
        nodes = self.node_infos()
        administration.record_inventory(cluster=self.cluster, nodes=nodes, now=timezone.now())

    def submit(self, curve: str = "fast", steps: int = 1000, user: User | None = None, **keys: Any) -> Job:
        document = {"command": "train", "project": "vision", "total_steps": steps, "throughput": {"k1": CURVES[curve]}}
        job, _ = submit_job(user=user or self.user, job_file=parse_job_file(document | keys))
        return job

    def round(self) -> Plan | None:
        self.cluster.refresh_from_db()
        now = timezone.now()
        acceptance.accept_waiting(cluster_id=self.cluster.pk, problem_of=lambda run: None, now=now)
        timeouts.advance_clock(cluster_id=self.cluster.pk, now=now)
        plan = tasks.plan_and_commit(self.cluster, now)
        launch_queue.launch_ready(cluster_id=self.cluster.pk, now=timezone.now())
        return plan

    def run(self, job: Job) -> Run:
        return Run.objects.select_related("job").get(job=job, job__run=F("pk"))

    def state(self, job: Job) -> State:
        return State(self.run(job).state)

    def gpus(self, job: Job) -> int:
        return Assignment.objects.filter(run=self.run(job), during__upper_inf=True).count()

    def report(self, job: Job, epoch: int | None = None, **body: Any) -> str | None:
        run = self.run(job)
        self.seq += 1
        report = reports.Report(
            epoch=run.epoch if epoch is None else epoch, seq=self.seq, sent_at=timezone.now().timestamp(), **body
        )
        return reports.record_report(run_id=run.pk, report=report, now=timezone.now()).command

    def ready(self, job: Job) -> None:
        self.report(job, ready_at=timezone.now().timestamp(), sdk=True)

    def unprotect(self, job: Job) -> None:
        Run.objects.filter(pk=self.run(job).pk).update(protected_until=timezone.now() - timedelta(seconds=1))

    def checkpoint(self, job: Job, step: int, reason: str = "interval") -> None:
        at = timezone.now().timestamp()
        self.report(job, step=step, checkpoint={"step": step, "at": at, "reason": reason, "seconds": 0.1})

    def gone(self, job: Job, reason: str = "stopped", **info: Any) -> None:
        """The processes of the run's open holds are seen to be gone."""
        run = self.run(job)
        self.processes_gone(run, ExitInfo(reason, **info))

    def processes_gone(self, run: Run, info: ExitInfo | None) -> None:
        epochs = Hold.objects.filter(run=run, during__upper_inf=True).values_list("epoch", flat=True).distinct()
        for epoch in list(epochs):
            kind = "exited" if info else "absent"
            observation.record_fact(Fact(str(run.pk), epoch, kind, timezone.now().timestamp(), info))

    def train(self, job: Job) -> None:
        """From queued to training and out of protection."""
        self.round()
        self.ready(job)
        self.unprotect(job)

    def open_commands(self) -> set[tuple[str, int]]:
        return set(Command.objects.filter(closed_at=None).values_list("verb", "epoch"))


def check_invariants(world: World) -> None:
    """DESIGN.md's invariants, on the rows as they are."""
    _held_once(Hold.objects.all())
    _held_once(Assignment.objects.all())
    live = Run.objects.filter(state__in=[s.value for s in LIVE])
    assert not live.values("job").annotate(n=Count("pk")).filter(n__gt=1)
    assert Job.objects.filter(run=None).count() == 0
    for run in Run.objects.all():
        assert run.step >= run.checkpoint_step
        held = set(Hold.objects.filter(run=run, during__upper_inf=True).values_list("accelerator", flat=True))
        planned = set(Assignment.objects.filter(run=run, during__upper_inf=True).values_list("accelerator", flat=True))
        state = State(run.state)
        if state in HOLDING:
            assert held, f"{state} holds nothing"
        if state in TERMINAL or state in (State.WAITING_FOR_RESOURCE, State.WAITING_FOR_INITIAL_RESOURCE):
            assert not planned, f"{state} has assignments"
        if state in (State.LAUNCHING, State.RUNNING, State.RUNNING_PROTECTED):
            assert held == planned, f"{state} holds {held}, planned {planned}"
        if state is State.STANDBY:
            assert planned
            assert not held
    _counters_equal_rows()
    _ledger_equals_holds()


def _counters_equal_rows() -> None:
    sums = {"share": Coalesce(Sum("share_percent"), 0), "memory": Coalesce(Sum("memory_mib"), 0)}
    for gpu in Accelerator.objects.all():
        held = gpu.holds.filter(during__upper_inf=True).aggregate(**sums)
        planned = gpu.assignments.filter(during__upper_inf=True).aggregate(**sums)
        assert (gpu.free_share_percent, gpu.held_memory_mib) == (100 - held["share"], held["memory"])
        assert (gpu.unplanned_share_percent, gpu.planned_memory_mib) == (100 - planned["share"], planned["memory"])


def _held_once(rows: Any) -> None:
    """At no time more than all of a GPU, and of its memory."""
    changes: dict[int, list[tuple[datetime, int, int]]] = defaultdict(list)
    for gpu, during, share, memory in rows.values_list("accelerator", "during", "share_percent", "memory_mib"):
        changes[gpu].append((during.lower, share, memory))
        if during.upper is not None:
            changes[gpu].append((during.upper, -share, -memory))
    size = dict(Accelerator.objects.values_list("pk", "memory_mib"))
    for gpu, at_times in changes.items():
        share = memory = 0
        for _, more, mib in sorted(at_times):  # at one time whoever leaves goes first
            share, memory = share + more, memory + mib
            assert share <= 100
            assert memory <= size[gpu]


def _ledger_equals_holds() -> None:
    ended = Hold.objects.exclude(during__upper_inf=True).filter(pk__in=LedgerEntry.objects.values("hold_id"))
    assert ended.count() == Hold.objects.exclude(during__upper_inf=True).count()
    expected = product_of(PriceBook(datetime(2020, 1, 1, tzinfo=UTC)), held(ended, timezone.now()))
    assert product_sum(LedgerEntry.objects.all()) == expected
    assert (UsageDay.objects.aggregate(n=Sum("product"))["n"] or 0) == expected
