"""Partitions: sets of nodes that jobs name, with access rules and limits of one job.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator
from django.db import models

from accounts.models import KEY, Project


class Partition(models.Model):
    """A node belongs to it if its name or its accelerator type is listed. Partitions may overlap."""

    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="partitions")
    name = models.CharField(max_length=40, validators=[KEY])
    priority = models.PositiveIntegerField(default=0, validators=[MaxValueValidator(1_000_000)])
    nodes = ArrayField(models.CharField(max_length=120), default=list)
    accelerator_types = ArrayField(models.CharField(max_length=60), default=list)
    #: Who may use it: everybody, or users who may submit to one of these projects or their subprojects.
    for_everybody = models.BooleanField(default=True)
    projects = models.ManyToManyField(Project, blank=True, related_name="partitions")
    #: Of one job; empty: no limit.
    max_gpus = models.PositiveIntegerField(null=True, blank=True)
    max_duration_s = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["-priority", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_partition_per_name")]

    def __str__(self) -> str:
        return self.name

    def has(self, node: str, accelerator_type: str) -> bool:
        return node in self.nodes or accelerator_type in self.accelerator_types
