"""GPUs that runs are assigned and occupy, and which jobs preempted them."""

from __future__ import annotations

from datetime import datetime

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value
from django.utils import timezone

from portal.jobs.models.node import Accelerator
from portal.jobs.models.run import Run


def _gpu_range() -> Func:
    """An accelerator as an integer range: integer and time ranges share a GiST index without extensions."""
    return Func(F("accelerator_id"), F("accelerator_id"), Value("[]"), function="int8range")


class Assignment(models.Model):
    """GPUs planned for a run's launch `epoch`, from the commit of the plan until the next one."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="assignments")
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="assignments")
    epoch = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    memory_mib = models.PositiveIntegerField(default=0)  # of a GPU share; a whole GPU includes all memory
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
    """A GPU occupied, from LAUNCHING until the processes are gone. The ledger bills these rows."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="holds")
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="holds")
    epoch = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    memory_mib = models.PositiveIntegerField(default=0)  # of a GPU share; a whole GPU includes all memory
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


class Displacement(models.Model):
    """Which jobs took a run's GPUs, written with that decision; the run's own reason says why it waits."""

    class Kind(models.TextChoices):
        PREEMPTED = "preempted"
        SHRUNK = "shrunk"

    run = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="displacements")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=10, choices=Kind)
    #: The reason of that decision.
    token = models.CharField(max_length=60)
    text = models.TextField()
    level = models.CharField(max_length=200)
    accelerator_type = models.CharField(max_length=60)
    gpus_before = models.PositiveIntegerField()
    gpus_after = models.PositiveIntegerField(default=0)
    #: Numbers of the jobs that got its GPUs; at most a few are stored.
    taken_by = ArrayField(models.BigIntegerField(), default=list)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.run_id} {self.kind} at {self.at:%F %T}"
