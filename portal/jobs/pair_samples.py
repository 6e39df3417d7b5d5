"""How fast a run trains beside one other on a GPU that both have parts of.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class PairSample(models.Model):
    """Measured steps per second of a launch while exactly one other run trained beside it: the median after warm-up.

    Workloads are named as policies see them: a program with its batch size, or a command's job. What emulated devices
    say is read on emulated clusters only.
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
