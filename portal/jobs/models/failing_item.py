"""Items that fail in loops of the control plane, and the number of failures.

Import the models from portal.jobs.models; portal.jobs.loops writes them.
"""

from __future__ import annotations

from django.db import models


class FailingItem(models.Model):
    """One item of one loop: from its first failure until it succeeds. Without foreign keys: a failure must stay on
    record even if the job is gone."""

    loop = models.CharField(max_length=40)
    key = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    cluster = models.ForeignKey(
        "jobs.Cluster", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    since = models.DateTimeField()
    last_at = models.DateTimeField()
    next_attempt_at = models.DateTimeField()
    failures = models.PositiveIntegerField(default=1)
    error = models.CharField(max_length=400)

    class Meta:
        ordering = ["since", "pk"]
        constraints = [models.UniqueConstraint(fields=["loop", "key"], name="one_failure_per_item")]

    def __str__(self) -> str:
        return f"{self.loop}: {self.name}"


class FailureCount(models.Model):
    """The number of all failures, for monitoring: one row per loop and cluster."""

    loop = models.CharField(max_length=40)
    #: Empty: the loop covers more than one cluster.
    cluster_name = models.CharField(max_length=60, blank=True)
    failures = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["loop", "cluster_name"], name="one_failure_count")]

    def __str__(self) -> str:
        return f"{self.loop} of {self.cluster_name}: {self.failures}"
