"""Runs of jobs, commands to executors, and checkpoints."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from portal.jobs.models.job import FIRST_WAIT, LIVE_VALUES, STATE_CHOICES, Job
from scheduling.lifecycle import WAITING, State


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
    #: While it launches: the progress of fetching its data, as last reported by its runner.
    fetching = models.CharField(max_length=200, blank=True, default="")
    #: Why its engine has not begun the launch, or suspended it, in words, and since when; empty: it runs.
    engine_waits = models.CharField(max_length=200, blank=True, default="", editable=False)
    engine_waits_since = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    not_before = models.DateTimeField(null=True)
    #: Of a retry: how the previous attempt ended, in a few words, and how many attempts there may be; None: not
    #: counted.
    retry_why = models.CharField(max_length=200, blank=True, default="")
    retry_of = models.PositiveSmallIntegerField(null=True)
    epoch = models.PositiveIntegerField(default=0)
    #: The job's total_steps when this epoch was launched: reaching it is not the end once the job has grown.
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
    #: Name -> address of pages of its program elsewhere (TensorBoard, MLflow, ...).
    links = models.JSONField(default=dict, blank=True)
    exit = models.JSONField(null=True)
    ended_at = models.DateTimeField(null=True)
    #: Seconds spent queued, launching and running in previous states.
    queueing_s = models.FloatField(default=0.0)
    launching_s = models.FloatField(default=0.0)
    running_s = models.FloatField(default=0.0)
    #: Of a run that did all its steps: how much longer it took than alone, from its submission
    #: (portal.throughput.slowdown).
    slowdown = models.FloatField(null=True)
    #: Names of its reported metrics, limited (portal.reporting.metric_limits), and whether there were more.
    metric_names = models.JSONField(default=list, blank=True)
    metrics_dropped = models.BooleanField(default=False)
    #: It ended so long ago that few points of its metrics are kept (portal.history.metrics).
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
        """A retry that holds nothing yet."""
        return bool(self.retry_why) and self.epoch == 0 and State(self.state) in WAITING

    @property
    def had_gpus(self) -> bool:
        """False: its job never had a GPU, so there are no assignments, occupancy, costs or measurements of it."""
        waits_first = self.state in FIRST_WAIT and self.first_started_at is None
        return not (waits_first and self.attempt == 1 and self.epoch == 0)


class Command(models.Model):
    """A command for an executor. Sent at least once; closed by an observation."""

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
    """Files of a moved job that still belong to its former project; the row is deleted once they are handed over."""

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="handover")
    asked_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    error = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return f"files of job {self.job_id}"


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
