"""Guarantees of projects. Import the model from accounts.models."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

RECLAIM_WITHIN_S = 300


class Guarantee(models.Model):
    """GPUs that a project and all its subprojects get together whenever they ask for them.

    Others may borrow them meanwhile; docs/guarantees.md describes reclaiming.
    """

    project = models.OneToOneField("accounts.Project", on_delete=models.CASCADE, related_name="guarantee")
    gpus = models.PositiveIntegerField(validators=[MinValueValidator(1)], help_text="Of all types together.")
    #: {accelerator type: GPUs}: how many of them are of one type.
    by_type = models.JSONField(default=dict, blank=True)
    reclaim_within_s = models.PositiveIntegerField(
        default=RECLAIM_WITHIN_S,
        validators=[MaxValueValidator(86_400)],
        help_text="Seconds after which protection keeps borrowers no longer.",
    )

    class Meta:
        ordering = ["id"]
        constraints = [models.CheckConstraint(condition=Q(gpus__gte=1), name="guarantee_of_something")]

    def __str__(self) -> str:
        return f"{self.project}: {self.gpus} GPUs"
