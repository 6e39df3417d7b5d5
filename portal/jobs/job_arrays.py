"""Arrays: jobs of one file that differ in their index, asked for, limited, shown and cancelled as one.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models


class JobArray(models.Model):
    """Its number is of the jobs' own sequence, so that no job has it; jobs are named by it and their index: 57_3."""

    number = models.BigIntegerField(unique=True, editable=False)
    indices = models.CharField(max_length=4_000)
    size = models.PositiveIntegerField()
    first_index = models.PositiveIntegerField()
    #: The most of its jobs that hold GPUs at once; empty: as many as there is room for.
    max_running = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"#{self.number}"
