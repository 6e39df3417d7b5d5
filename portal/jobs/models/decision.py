"""Stored decisions of rounds."""

from __future__ import annotations

from django.db import models

from portal.jobs.models.cluster import Cluster


class DecisionBase(models.Model):
    """A snapshot's text, compressed, against which later ones are stored as differences; found by its content."""

    digest = models.CharField(max_length=64, unique=True)
    text = models.BinaryField()
    size_bytes = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.digest[:12]


class Decision(models.Model):
    """A round's plan, and its snapshot as the difference from a base; retention is by bytes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="decisions")
    round = models.BigIntegerField()
    at = models.DateTimeField()
    policy_name = models.CharField(max_length=60)
    policy_parameters = models.JSONField(default=dict)
    plan = models.JSONField()
    base = models.ForeignKey(DecisionBase, on_delete=models.PROTECT, related_name="decisions")
    snapshot = models.BinaryField()
    size_bytes = models.PositiveIntegerField()
    seconds = models.FloatField()

    class Meta:
        ordering = ["-round"]
        constraints = [models.UniqueConstraint(fields=["cluster", "round"], name="one_decision_per_round")]

    def __str__(self) -> str:
        return f"round {self.round}"
