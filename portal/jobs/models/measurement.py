"""Measurements of jobs: metrics, throughput, resources, starts."""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q

from portal.jobs.models.run import Run


class MetricPoint(models.Model):
    """Metrics that a run reported at a step; thinned when there are many, and long after its end. Found by the key's
    index."""

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


class StartSample(models.Model):
    """One forecast for one waiting job. Pruned by age and by number (portal.forecasts.inputs)."""

    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="start_samples")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="start_samples")
    made_at = models.DateTimeField()
    #: By the futures, before calibration.
    p10_s = models.FloatField()
    p50_s = models.FloatField()
    p90_s = models.FloatField()
    #: Until it got GPUs, or ended without; empty while it waits.
    waited_s = models.FloatField(null=True)
    started = models.BooleanField(default=False)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "-made_at"]),
            models.Index(fields=["job"], condition=Q(waited_s=None), name="start_sample_open"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} at {self.made_at:%F %T}"


class ResourceSeries(models.Model):
    """Of one launch. Rows are [seconds since `began_at`, gpu, gpu_memory, gpu_cores, pcie], fractions of one device,
    the mean over its devices; None: unknown (portal.core.series)."""

    run = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="resources", db_index=False)
    epoch = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    gpus = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    emulated = models.BooleanField(default=False)
    source = models.CharField(max_length=20)
    began_at = models.DateTimeField()
    newest_at = models.DateTimeField()
    #: Interval of the packed rows; it doubles whenever they become too many.
    interval_s = models.FloatField()
    #: The newest rows as reported, until they are packed.
    tail = models.JSONField(default=list)
    sample_s = models.FloatField()
    packed = models.BinaryField(default=bytes)
    in_profile = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "epoch"], name="one_series_per_epoch")]
        # a usual index would be updated at each report; BRIN stores ranges of pages, which is enough to prune
        indexes = [BrinIndex(fields=["newest_at"], name="resources_newest_brin")]

    def __str__(self) -> str:
        return f"{self.run_id} epoch {self.epoch}"


class ResourceProfile(models.Model):
    """One application on one kind of device: sums over all launches, and the series of the newest one.

    `workload` as for measured throughput; values of emulated devices are separate and used on emulated clusters only.
    """

    workload = models.CharField(max_length=120)
    batch_size = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    gpus = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    emulated = models.BooleanField(default=False)
    launches = models.PositiveIntegerField(default=0)
    #: Resource -> [sum of fraction times seconds, seconds, highest fraction].
    sums = models.JSONField(default=dict)
    interval_s = models.FloatField(default=1.0)
    history = models.BinaryField(default=bytes)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workload", "batch_size", "accelerator_type", "gpus", "share_percent", "emulated"],
                name="one_profile_per_device",
            ),
            models.CheckConstraint(condition=Q(share_percent__range=(1, 100)), name="profile_share_in_percent"),
        ]
        indexes = [models.Index(fields=["updated_at"], name="profile_updated")]

    def __str__(self) -> str:
        return f"{self.workload} on {self.gpus} x {self.accelerator_type}"


class PairSample(models.Model):
    """Measured steps per second of a launch while exactly one other run trained beside it: the median after warm-up.

    Workloads are named as policies see them: a program with its batch size, or a command's job. Values of emulated
    devices are used on emulated clusters only.
    """

    run = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="pair_samples")
    epoch = models.PositiveIntegerField()
    beside = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="+")
    workload = models.CharField(max_length=140)
    share_percent = models.PositiveSmallIntegerField()
    beside_workload = models.CharField(max_length=140)
    beside_share_percent = models.PositiveSmallIntegerField()
    accelerator_type = models.CharField(max_length=60)
    steps_per_s = models.FloatField()
    samples = models.PositiveIntegerField()
    emulated = models.BooleanField(default=False)
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "epoch", "beside"], name="one_pair_sample_per_neighbour"),
            models.CheckConstraint(
                condition=Q(share_percent__range=(1, 99), beside_share_percent__range=(1, 99)),
                name="pair_sample_is_of_parts",
            ),
        ]
        indexes = [models.Index(fields=["workload", "beside_workload", "accelerator_type"], name="pair_sample_names")]

    def __str__(self) -> str:
        return f"{self.workload} beside {self.beside_workload} on {self.accelerator_type}: {self.steps_per_s}"
