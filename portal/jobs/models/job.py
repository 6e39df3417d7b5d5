"""Jobs, arrays of jobs and dependencies."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import connection, models
from django.db.models import F, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Lower
from django.utils import timezone

from accounts.models import Project
from portal.jobs.models.cluster import Cluster, ModelType
from portal.jobs.models.partition import Partition
from portal.jobs.models.service_level import Qos
from scheduling.lifecycle import LIVE, State

if TYPE_CHECKING:
    from portal.jobs.models.run import Run

STATE_CHOICES = [(s.value, s.value) for s in State]
LIVE_VALUES = sorted(s.value for s in LIVE)
FIRST_WAIT = (State.WAITING_FOR_INITIAL_CONTACT, State.WAITING_FOR_INITIAL_RESOURCE)


class HoldKind(models.TextChoices):
    """Who may release a job on hold: anybody who may change it, administrators, or by raising its max_cost."""

    USER = "user"
    ADMIN = "admin"
    COST = "cost"
    IDLE = "idle"


class JobArray(models.Model):
    """Its number comes from the jobs' sequence, so that no job has the same one; its jobs are named by number and
    index: 57_3."""

    number = models.BigIntegerField(unique=True, editable=False)
    indices = models.CharField(max_length=4_000)
    size = models.PositiveIntegerField()
    first_index = models.PositiveIntegerField()
    #: The most of its jobs that hold GPUs at once; empty: no limit.
    max_running = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"#{self.number}"


class Job(models.Model):
    """A submitted job. Everything that changes while it runs is on its live run."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(unique=True, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="jobs")
    #: Why the portal chose this cluster, if it had the choice.
    cluster_choice = models.CharField(max_length=500, blank=True, default="")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="jobs")
    name = models.CharField(max_length=120)
    spec = models.JSONField()
    model_type = models.ForeignKey(ModelType, null=True, on_delete=models.PROTECT, related_name="jobs")
    total_steps = models.BigIntegerField(validators=[MinValueValidator(1)])
    batch_size = models.PositiveIntegerField()
    min_gpus = models.PositiveIntegerField(default=1)
    max_gpus = models.PositiveIntegerField(null=True)  # its own, or its partition's if it has none
    gpu_share_percent = models.PositiveSmallIntegerField(default=100)  # of each GPU; below 100 the job has one
    gpu_memory_mib = models.PositiveIntegerField(default=0)  # of each GPU; 0: none requested
    max_duration_s = models.FloatField(null=True)  # of each node; 0: none requested
    accelerator_types = ArrayField(models.CharField(max_length=60), default=list)
    qos = models.ForeignKey(Qos, null=True, on_delete=models.PROTECT, related_name="jobs")
    array = models.ForeignKey(JobArray, null=True, on_delete=models.PROTECT, related_name="jobs")
    array_index = models.PositiveIntegerField(null=True)
    partition = models.ForeignKey(Partition, null=True, on_delete=models.PROTECT, related_name="jobs")
    priority = models.IntegerField(default=0, validators=[MinValueValidator(-1000), MaxValueValidator(1000)])
    #: Its owner's statement whether it can be stopped and resumed; None: it can, unless it runs without the SDK.
    restartable = models.BooleanField(null=True)
    labels = models.JSONField(default=dict)
    retry_limit = models.PositiveSmallIntegerField(default=3)
    submitted_at = models.DateTimeField(default=timezone.now)
    #: Since when its waiting counts, if later than its submission: time on hold does not count.
    eligible_at = models.DateTimeField(null=True)
    source = models.CharField(max_length=20, default="api")
    #: Empty: not on hold. A job on hold is not scheduled; its run waits, or is about to.
    hold_kind = models.CharField(max_length=10, choices=HoldKind, blank=True, default="")
    held_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    held_at = models.DateTimeField(null=True)
    hold_text = models.CharField(max_length=300, blank=True, default="")
    #: The last notice about its deadline: none, that it will be missed, or that it was missed.
    deadline_told = models.CharField(max_length=10, blank=True, default="")
    resubmit_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="resubmissions")
    #: The checkpoint from which the first run resumes.
    resume_job = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    resume_step = models.BigIntegerField(null=True)
    #: The newest run; its state is the job's.
    run = models.OneToOneField("Run", null=True, on_delete=models.SET_NULL, related_name="+")
    #: Text for searches by part of the name or of a label: casting labels in each search took most of its time.
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
        """Whether it can be stopped and resumed: by its owner's statement, else unless it runs without the SDK."""
        return run.uses_sdk is not False if self.restartable is None else self.restartable


class Dependency(models.Model):
    """A condition that must be satisfied before a job queues; Slurm's words."""

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


def next_job_numbers(count: int) -> list[int]:
    """From a database sequence: concurrent submissions share no lock; a rollback leaves a gap."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('job_number_seq') FROM generate_series(1, %s)", [count])
        return sorted(int(row[0]) for row in cursor.fetchall())
