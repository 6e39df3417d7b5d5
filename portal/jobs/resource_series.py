"""What runs use of their GPUs over time, and what is known of an application from that.

Import the models from portal.jobs.models.
"""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q


class ResourceSeries(models.Model):
    """Of one launch. Rows are [seconds since `began_at`, gpu, gpu_memory, gpu_cores, pcie], parts of one device, the
    mean over its devices; None: not known (portal.jobs.series)."""

    run = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="resources", db_index=False)
    epoch = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    gpus = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    emulated = models.BooleanField(default=False)
    source = models.CharField(max_length=20)
    began_at = models.DateTimeField()
    newest_at = models.DateTimeField()
    #: Between the packed rows; it doubles whenever they become too many.
    interval_s = models.FloatField()
    #: The newest rows, as they came, until there are enough of them to be packed; and what is between those.
    tail = models.JSONField(default=list)
    sample_s = models.FloatField()
    packed = models.BinaryField(default=bytes)
    in_profile = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "epoch"], name="one_series_per_epoch")]
        # A usual index would be written to at each report; this one knows ranges of pages, which is enough to prune.
        indexes = [BrinIndex(fields=["newest_at"], name="resources_newest_brin")]

    def __str__(self) -> str:
        return f"{self.run_id} epoch {self.epoch}"


class ResourceProfile(models.Model):
    """Of one application on one kind of device: sums over all launches, and the newest one's course.

    `workload` as for measured throughput; what emulated devices say is kept apart and read on emulated clusters only.
    """

    workload = models.CharField(max_length=120)
    batch_size = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    gpus = models.PositiveIntegerField()
    share_percent = models.PositiveSmallIntegerField(default=100)
    emulated = models.BooleanField(default=False)
    launches = models.PositiveIntegerField(default=0)
    #: Resource -> [sum of part times seconds, seconds, highest part].
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
