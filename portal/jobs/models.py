"""Jobs, their runs, the accelerators they hold, and what was decided: columns and constraints.

State changes happen in `portal.jobs.services` only.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, DateTimeRangeField, RangeOperators
from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import connection, models
from django.db.models import F, Func, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Lower
from django.utils import timezone

from accounts.models import Project
from portal.jobs.activity import IdleRule as IdleRule
from portal.jobs.activity import RunActivity as RunActivity
from portal.jobs.displacements import Displacement as Displacement
from portal.jobs.failing_items import FailingItem as FailingItem
from portal.jobs.failing_items import FailureCount as FailureCount
from portal.jobs.fairness_history import FairnessSample as FairnessSample
from portal.jobs.job_arrays import JobArray as JobArray
from portal.jobs.job_templates import JobTemplate as JobTemplate
from portal.jobs.node_checks import NodeCheck as NodeCheck
from portal.jobs.node_sets import Partition as Partition
from portal.jobs.node_windows import NodeWindow as NodeWindow
from portal.jobs.pair_samples import PairSample as PairSample
from portal.jobs.resource_series import ResourceProfile as ResourceProfile
from portal.jobs.resource_series import ResourceSeries as ResourceSeries
from portal.jobs.saved_views import SavedView as SavedView
from portal.jobs.service_levels import Qos as Qos
from portal.jobs.share_history import ShareSample as ShareSample
from portal.jobs.start_samples import StartSample as StartSample
from scheduling.lifecycle import LIVE, WAITING, State

STATE_CHOICES = [(s.value, s.value) for s in State]
LIVE_VALUES = sorted(s.value for s in LIVE)
_FIRST_WAIT = (State.WAITING_FOR_INITIAL_CONTACT, State.WAITING_FOR_INITIAL_RESOURCE)


class Cluster(models.Model):
    """One set of accelerators under one policy; rounds are single-file per cluster."""

    name = models.CharField(max_length=60, unique=True)
    executor = models.CharField(max_length=30, default="local")
    policy_name = models.CharField(max_length=60, default="f_scheduling")
    policy_parameters = models.JSONField(default=dict, blank=True)
    policy_memory = models.JSONField(default=dict, blank=True, editable=False)
    round_epoch = models.BigIntegerField(default=0, editable=False)
    last_round_at = models.DateTimeField(null=True, editable=False)
    last_round_s = models.FloatField(null=True, editable=False)
    #: All rounds that were ever decided, and how long that took: for monitoring.
    rounds = models.BigIntegerField(default=0, editable=False)
    rounds_s = models.FloatField(default=0.0, editable=False)
    next_wake_at = models.DateTimeField(null=True, editable=False)
    figures = models.JSONField(default=dict, blank=True, editable=False)
    last_error = models.TextField(blank=True, default="", editable=False)
    #: Since when its engine has not answered; null: it does. Nothing is planned meanwhile.
    engine_away_since = models.DateTimeField(null=True, editable=False)
    #: When it last answered again: states that lasted while it was away have their whole time from then on.
    engine_back_at = models.DateTimeField(null=True, editable=False)
    isolation = models.CharField(max_length=200, blank=True, default="", editable=False)
    #: What its engine allows one launch (scheduling.executors.base.EngineLimits), as it was last seen.
    engine_limits = models.JSONField(default=dict, blank=True, editable=False)
    #: Of jobs that name none.
    default_partition = models.ForeignKey(Partition, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    #: In the file of clusters; the first is the default one.
    position = models.PositiveSmallIntegerField(default=0, editable=False)
    #: It is no longer in that file: no rounds, no submissions.
    retired_at = models.DateTimeField(null=True, editable=False)
    #: The folder in which its jobs' files lay at the last start.
    job_files = models.CharField(max_length=4_096, blank=True, default="", editable=False)

    class Meta:
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return self.name


class PolicyChange(models.Model):
    """Who chose which policy when; the newest one is in force."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="policy_changes")
    name = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    effective_round = models.BigIntegerField(null=True)
    undone = models.BooleanField(default=False)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} at {self.changed_at:%F %T}"


class CheckState(models.TextChoices):
    CHECKING = "checking"
    FAILED = "failed"


class Node(models.Model):
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=120)
    accelerator_type = models.CharField(max_length=60)
    emulated = models.BooleanField(default=False)
    cpus = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)
    drained = models.BooleanField(default=False)
    drained_at = models.DateTimeField(null=True)
    #: Whoever is still there then leaves or is stopped; None: they leave when there is room elsewhere.
    drain_deadline_at = models.DateTimeField(null=True)
    drain_reason = models.CharField(max_length=200, blank=True, default="")
    drained_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    #: The event of its deadline was written.
    drain_came_due = models.BooleanField(default=False, editable=False)
    lost = models.BooleanField(default=False)
    #: The engine's word for a node of which it cannot say whether it is up, and since when; empty: it can.
    unclear = models.CharField(max_length=60, blank=True, default="", editable=False)
    unclear_since = models.DateTimeField(null=True, editable=False)
    #: What jobs of its engine that are not ours hold of it (scheduling.executors.base.Taken), as far as there are any.
    taken = models.JSONField(default=list, blank=True, editable=False)
    #: It is powered down: so long a launch there waits for it, as its engine has it.
    boot_s = models.FloatField(default=0.0, editable=False)
    last_seen_at = models.DateTimeField(null=True)
    #: Nothing new is placed there: its first check is awaited, or the last one failed. Empty: neither.
    check_state = models.CharField(max_length=10, choices=CheckState, blank=True, default="")
    check_failures = models.PositiveIntegerField(default=0, editable=False)  # in a row
    next_check_at = models.DateTimeField(null=True)
    #: Runs that failed before do not count against it.
    faults_from = models.DateTimeField(null=True, editable=False)
    check_waived_at = models.DateTimeField(null=True)
    check_waived_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    #: All that there ever were: for monitoring.
    checks_passed = models.PositiveIntegerField(default=0, editable=False)
    checks_failed = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_node_per_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def schedulable(self) -> bool:
        return not (self.drained or self.lost or self.check_state or self.unclear)

    @property
    def withheld(self) -> str:
        """Why nothing new is placed there, where that is for a check or for what its engine cannot say."""
        if self.unclear and not self.check_state:
            return f"its engine says {self.unclear}"
        return {"": "", CheckState.CHECKING: "being checked", CheckState.FAILED: "failed its check"}[self.check_state]


class Accelerator(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="accelerators")
    index = models.PositiveSmallIntegerField()
    uuid = models.CharField(max_length=80)
    memory_mib = models.PositiveIntegerField(default=0)
    #: False: the node no longer reports it; nothing is placed on it.
    present = models.BooleanField(default=True)
    #: Kept by triggers on Hold and Assignment, which refuse what there is not: what nobody holds, and what no plan has
    #: given away; and how much memory those who have parts hold, and are to have.
    free_share_percent = models.SmallIntegerField(default=100, editable=False)
    unplanned_share_percent = models.SmallIntegerField(default=100, editable=False)
    held_memory_mib = models.PositiveIntegerField(default=0, editable=False)
    planned_memory_mib = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["node", "index"]
        constraints = [
            models.UniqueConstraint(fields=["node", "index"], name="one_accelerator_per_index"),
            models.CheckConstraint(
                condition=Q(free_share_percent__gte=0, unplanned_share_percent__gte=0), name="accelerator_not_overfull"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"


class ModelType(models.Model):
    """A catalogue program. `curves`: accelerator type -> {"steps_per_s": [...], "source", "note"}."""

    name = models.SlugField(max_length=60, unique=True)
    title = models.CharField(max_length=120)
    description = models.TextField(blank=True, default="")
    argv = ArrayField(models.CharField(max_length=300))
    default_batch_size = models.PositiveIntegerField(default=64)
    curves = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class HoldKind(models.TextChoices):
    """Who may let a held job go on: anybody who may change it, administrators, or whoever raises its max_cost."""

    USER = "user"
    ADMIN = "admin"
    COST = "cost"
    IDLE = "idle"


class Job(models.Model):
    """What was asked for. Everything that changes while it runs is on its live run."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(unique=True, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="jobs")
    #: Why the portal chose that one, where the choice was left to it.
    cluster_choice = models.CharField(max_length=500, blank=True, default="")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="jobs")
    name = models.CharField(max_length=120)
    spec = models.JSONField()
    model_type = models.ForeignKey(ModelType, null=True, on_delete=models.PROTECT, related_name="jobs")
    total_steps = models.BigIntegerField(validators=[MinValueValidator(1)])
    batch_size = models.PositiveIntegerField()
    min_gpus = models.PositiveIntegerField(default=1)
    max_gpus = models.PositiveIntegerField(null=True)  # its own, or its partition's where it gives none
    gpu_share_percent = models.PositiveSmallIntegerField(default=100)  # of each GPU; below 100 it has one
    gpu_memory_mib = models.PositiveIntegerField(default=0)  # likewise; 0: nothing is claimed
    max_duration_s = models.FloatField(null=True)  # likewise
    accelerator_types = ArrayField(models.CharField(max_length=60), default=list)
    qos = models.ForeignKey(Qos, null=True, on_delete=models.PROTECT, related_name="jobs")
    array = models.ForeignKey(JobArray, null=True, on_delete=models.PROTECT, related_name="jobs")
    array_index = models.PositiveIntegerField(null=True)
    partition = models.ForeignKey(Partition, null=True, on_delete=models.PROTECT, related_name="jobs")
    priority = models.IntegerField(default=0, validators=[MinValueValidator(-1000), MaxValueValidator(1000)])
    #: Its owner's word whether it can be stopped and started again; None: it can unless it runs without the SDK.
    restartable = models.BooleanField(null=True)
    labels = models.JSONField(default=dict)
    retry_limit = models.PositiveSmallIntegerField(default=3)
    submitted_at = models.DateTimeField(default=timezone.now)
    #: Since when its waiting counts, where that is not since its submission: while it was held it did not.
    eligible_at = models.DateTimeField(null=True)
    source = models.CharField(max_length=20, default="api")
    #: Empty: not held. A held job is not scheduled; its run waits, or is on its way to that.
    hold_kind = models.CharField(max_length=10, choices=HoldKind, blank=True, default="")
    held_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    held_at = models.DateTimeField(null=True)
    hold_text = models.CharField(max_length=300, blank=True, default="")
    #: What was last told of its deadline: nothing, that it will be missed, or that it was.
    deadline_told = models.CharField(max_length=10, blank=True, default="")
    resubmit_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="resubmissions")
    #: The checkpoint at which the first run begins.
    resume_job = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    resume_step = models.BigIntegerField(null=True)
    #: The newest run; its state is the job's.
    run = models.OneToOneField("Run", null=True, on_delete=models.SET_NULL, related_name="+")
    #: What a search for a part of the name or of a label reads: casting labels in each search took most of its time.
    search_text = models.GeneratedField(
        expression=Lower(Concat("name", Value("\n"), Cast("labels", TextField()), output_field=TextField())),
        output_field=TextField(),
        db_persist=True,
    )

    class Meta:
        ordering = ["-number"]
        indexes = [
            models.Index(fields=["project", "-number"]),
            models.Index(fields=["owner", "-number"]),
            models.Index(fields=["model_type", "-number"]),
            models.Index(fields=["submitted_at"]),
            GinIndex(fields=["labels"], name="job_labels"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(min_gpus__gte=1), name="job_min_gpus_positive"),
            models.CheckConstraint(
                condition=Q(max_gpus=None) | Q(max_gpus__gte=F("min_gpus")), name="job_max_not_below_min"
            ),
            models.CheckConstraint(
                condition=Q(gpu_share_percent=100) | Q(gpu_share_percent__range=(1, 99), min_gpus=1, max_gpus=1),
                name="job_part_is_of_one_gpu",
            ),
            models.CheckConstraint(condition=Q(total_steps__gte=1), name="job_total_steps_positive"),
            models.CheckConstraint(condition=Q(hold_kind="") | Q(held_at__isnull=False), name="job_hold_has_a_time"),
            models.CheckConstraint(
                condition=Q(resume_step=None) | Q(total_steps__gt=F("resume_step")), name="job_goes_beyond_its_start"
            ),
            models.UniqueConstraint(
                fields=["array", "array_index"], condition=Q(array__isnull=False), name="one_job_per_array_index"
            ),
            models.CheckConstraint(
                condition=Q(array__isnull=True, array_index__isnull=True)
                | Q(array__isnull=False, array_index__isnull=False),
                name="job_of_an_array_has_an_index",
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.number} {self.name}"

    def can_restart(self, run: Run) -> bool:
        """Whether it can be stopped and started again: by its owner's word, else unless it runs without the SDK."""
        return run.uses_sdk is not False if self.restartable is None else self.restartable


class Dependency(models.Model):
    """Something that has to have happened before a job queues; Slurm's words."""

    class Kind(models.TextChoices):
        AFTER_OK = "afterok"
        AFTER_ANY = "afterany"
        AFTER_NOT_OK = "afternotok"
        SINGLETON = "singleton"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies")
    kind = models.CharField(max_length=12, choices=Kind)
    on = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="dependents")

    def __str__(self) -> str:
        return f"{self.job_id} {self.kind} {self.on_id or ''}"


class IdempotencyKey(models.Model):
    """One key, one job: a repeated submission finds the first one's job."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    body_digest = models.CharField(max_length=64)
    job = models.ForeignKey(Job, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_job_per_idempotency_key")]

    def __str__(self) -> str:
        return self.key


class Run(models.Model):
    """One attempt at a job. `epoch` counts its launches; reports and commands carry (run, epoch)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="runs")
    attempt = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=40, choices=STATE_CHOICES, default=State.WAITING_FOR_INITIAL_CONTACT)
    state_since = models.DateTimeField(default=timezone.now)
    reason_token = models.CharField(max_length=60, blank=True, default="")
    reason_text = models.TextField(blank=True, default="")
    reason_detail = models.JSONField(default=dict, blank=True)
    #: While it launches: how far its data is, as its runner said last.
    fetching = models.CharField(max_length=200, blank=True, default="")
    #: Why its engine has not begun the launch, or no longer runs it, in words, and since when; empty: it runs it.
    engine_waits = models.CharField(max_length=200, blank=True, default="", editable=False)
    engine_waits_since = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    not_before = models.DateTimeField(null=True)
    #: Of a retry: how the attempt before ended, in a few words, and how many attempts there may be; None: not counted.
    retry_why = models.CharField(max_length=200, blank=True, default="")
    retry_of = models.PositiveSmallIntegerField(null=True)
    epoch = models.PositiveIntegerField(default=0)
    #: The job's total_steps when this epoch was launched: an end at it is no end once the job has grown.
    launched_steps = models.BigIntegerField(null=True)
    step = models.BigIntegerField(default=0)
    checkpoint_step = models.BigIntegerField(default=0)
    has_trained = models.BooleanField(default=False)
    uses_sdk = models.BooleanField(null=True)
    first_started_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    protected_until = models.DateTimeField(null=True)
    launch_s = models.FloatField(default=0.0)
    checkpoint_s = models.FloatField(default=0.0)
    rescales = models.PositiveIntegerField(default=0)
    steps_per_s = models.FloatField(null=True)
    pace_steps_per_s = models.FloatField(null=True)
    pace_missed = models.BooleanField(default=False)
    emulated = models.BooleanField(default=False)
    last_report_at = models.DateTimeField(null=True)
    last_report_seq = models.BigIntegerField(default=-1)
    #: Name -> address of what its program shows elsewhere (TensorBoard, MLflow, ...).
    links = models.JSONField(default=dict, blank=True)
    exit = models.JSONField(null=True)
    ended_at = models.DateTimeField(null=True)
    #: Seconds spent queued, launching and running in the states already left.
    queueing_s = models.FloatField(default=0.0)
    launching_s = models.FloatField(default=0.0)
    running_s = models.FloatField(default=0.0)
    #: Of one that did all its steps: how much longer it took than alone, from its submission (portal.jobs.relative).
    slowdown = models.FloatField(null=True)
    #: Of what it reported so far, bounded (portal.jobs.services.metric_limits), and that there was more.
    metric_names = models.JSONField(default=list, blank=True)
    metrics_dropped = models.BooleanField(default=False)
    #: It ended so long ago that few points of its metrics are kept (portal.jobs.metric_history).
    metrics_thinned = models.BooleanField(default=False)

    class Meta:
        ordering = ["job", "-attempt"]
        constraints = [
            models.UniqueConstraint(fields=["job"], condition=Q(state__in=LIVE_VALUES), name="one_live_run_per_job"),
            models.UniqueConstraint(fields=["job", "attempt"], name="one_run_per_attempt"),
            models.CheckConstraint(condition=Q(step__gte=F("checkpoint_step")), name="run_step_not_behind_checkpoint"),
        ]
        indexes = [
            models.Index(fields=["state"], name="run_state"),
            models.Index(fields=["-ended_at"], name="run_ended"),
            models.Index(
                fields=["ended_at"],
                condition=Q(metrics_thinned=False, ended_at__isnull=False),
                name="run_with_all_metrics",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} attempt {self.attempt} {self.state}"

    @property
    def awaits_retry(self) -> bool:
        """It is a further attempt and holds nothing yet."""
        return bool(self.retry_why) and self.epoch == 0 and State(self.state) in WAITING

    @property
    def has_a_past(self) -> bool:
        """False: its job never had a GPU, so that no assignments, holds, costs or measurements of it can be found."""
        waits_first = self.state in _FIRST_WAIT and self.first_started_at is None
        return not (waits_first and self.attempt == 1 and self.epoch == 0)


def _gpu_range() -> Func:
    """An accelerator as an integer range: integer and time ranges share a GiST index without extensions."""
    return Func(F("accelerator_id"), F("accelerator_id"), Value("[]"), function="int8range")


class Assignment(models.Model):
    """GPUs planned for a run's launch `epoch`, from the commit of the plan until the next one."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="assignments")
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="assignments")
    epoch = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    memory_mib = models.PositiveIntegerField(default=0)  # of a part; who has the whole has all of it
    during = DateTimeRangeField()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="accelerator_assigned_once",
                expressions=[(_gpu_range(), RangeOperators.OVERLAPS), ("during", RangeOperators.OVERLAPS)],
                condition=Q(share_percent=100),
            ),
            models.CheckConstraint(condition=Q(share_percent__range=(1, 100)), name="assignment_share_in_percent"),
        ]
        indexes = [models.Index(fields=["run", "epoch"])]

    def __str__(self) -> str:
        return f"{self.accelerator_id} for {self.run_id}"


class Hold(models.Model):
    """A GPU occupied, from LAUNCHING until the processes were seen to be gone. The ledger bills these."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="holds")
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="holds")
    epoch = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    memory_mib = models.PositiveIntegerField(default=0)  # of a part; who has the whole has all of it
    during = DateTimeRangeField()

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="accelerator_held_once",
                expressions=[(_gpu_range(), RangeOperators.OVERLAPS), ("during", RangeOperators.OVERLAPS)],
                condition=Q(share_percent=100),
            ),
            models.CheckConstraint(condition=Q(share_percent__range=(1, 100)), name="hold_share_in_percent"),
        ]
        indexes = [
            models.Index(fields=["run", "epoch"]),
            models.Index(fields=["accelerator"], condition=Q(during__upper_inf=True), name="hold_open"),
            models.Index("accelerator", F("during__endswith"), name="hold_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.accelerator_id} by {self.run_id}"

    @property
    def started_at(self) -> datetime:
        assert self.during.lower is not None, "a hold always has a start"
        return self.during.lower


class Command(models.Model):
    """What an executor must be told. Sent at least once; closed by an observation."""

    class Verb(models.TextChoices):
        LAUNCH = "launch"
        CHECKPOINT_AND_STOP = "checkpoint_and_stop"
        KILL = "kill"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="commands")
    epoch = models.PositiveIntegerField()
    verb = models.CharField(max_length=30, choices=Verb)
    created_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    closed_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "epoch", "verb"], name="one_command_per_key")]
        indexes = [models.Index(fields=["next_attempt_at"], condition=Q(closed_at=None), name="command_open")]

    def __str__(self) -> str:
        return f"{self.verb} {self.run_id}/{self.epoch}"


class Handover(models.Model):
    """Files of a moved job that are still its former project's; the row goes once they have changed hands."""

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="handover")
    asked_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    error = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return f"files of job {self.job_id}"


class JobEvent(models.Model):
    """What happened, for people and for streams. Never changed; in one partition per month (portal.jobs.partitions),
    whose database key is (id, at)."""

    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=40)
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="events")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="events")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    from_state = models.CharField(max_length=40, blank=True, default="")
    to_state = models.CharField(max_length=40, blank=True, default="")
    text = models.TextField()
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["job", "-id"]), models.Index(fields=["project", "-id"])]

    def __str__(self) -> str:
        return self.text


class Checkpoint(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints")
    step = models.BigIntegerField()
    at = models.DateTimeField()
    path = models.CharField(max_length=300)
    size_bytes = models.BigIntegerField(default=0)
    duration_s = models.FloatField(default=0.0)

    class Meta:
        ordering = ["-step"]
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="one_checkpoint_per_step")]

    def __str__(self) -> str:
        return f"{self.run_id} step {self.step}"


class MetricPoint(models.Model):
    """Metrics a run reported at a step; thinned when many, and long after its end. Found by the key's index."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metrics", db_index=False)
    epoch = models.PositiveIntegerField()
    step = models.BigIntegerField()
    at = models.DateTimeField()
    values = models.JSONField()

    class Meta:
        ordering = ["run", "at"]
        constraints = [models.UniqueConstraint(fields=["run", "epoch", "step"], name="one_metric_point_per_step")]

    def __str__(self) -> str:
        return f"{self.run_id} step {self.step}"


class ThroughputSample(models.Model):
    """Measured steps per second of one workload on one gang, by epoch: the median after warm-up."""

    workload = models.CharField(max_length=120, help_text="Model type, or job:<id> for a command")
    batch_size = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    count = models.PositiveIntegerField()
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False)
    epoch = models.PositiveIntegerField()
    steps_per_s = models.FloatField()
    samples = models.PositiveIntegerField()
    emulated = models.BooleanField(default=False)
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "epoch"], name="one_sample_per_epoch")]
        indexes = [models.Index(fields=["workload", "accelerator_type", "count"])]

    def __str__(self) -> str:
        return f"{self.workload} {self.count} x {self.accelerator_type}: {self.steps_per_s}"


class DecisionBase(models.Model):
    """A snapshot's text, compressed, that later ones are stored as differences from; found by its content."""

    digest = models.CharField(max_length=64, unique=True)
    text = models.BinaryField()
    size_bytes = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.digest[:12]


class Decision(models.Model):
    """A round's plan, and its snapshot as the difference from a base; kept by bytes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="decisions")
    round = models.BigIntegerField()
    at = models.DateTimeField()
    policy_name = models.CharField(max_length=60)
    policy_parameters = models.JSONField(default=dict)
    plan = models.JSONField()
    base = models.ForeignKey(DecisionBase, on_delete=models.PROTECT, related_name="decisions")
    snapshot = models.BinaryField()
    size_bytes = models.PositiveIntegerField()
    seconds = models.FloatField()

    class Meta:
        ordering = ["-round"]
        constraints = [models.UniqueConstraint(fields=["cluster", "round"], name="one_decision_per_round")]

    def __str__(self) -> str:
        return f"round {self.round}"


class ClusterSample(models.Model):
    """One point of the overview's sparklines."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    gpus_total = models.PositiveIntegerField()
    gpus_held = models.PositiveIntegerField()
    #: Of those the GPUs, in parts, of runs that train; null in points from before it was noted, as `waiting` is.
    gpus_training = models.FloatField(null=True)
    queued = models.PositiveIntegerField()
    #: Of those the jobs that could start: not under a hold, with no dependency unmet.
    waiting = models.PositiveIntegerField(null=True)
    variance = models.FloatField(null=True)
    spend_micro_per_hour = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["cluster", "at"])]

    def __str__(self) -> str:
        return f"{self.at:%F %T}"


def next_job_numbers(count: int) -> list[int]:
    """From a database sequence: no lock is shared by parallel submissions; a roll-back leaves a gap."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('job_number_seq') FROM generate_series(1, %s)", [count])
        return sorted(int(row[0]) for row in cursor.fetchall())
