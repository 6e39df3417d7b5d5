"""A project's weight on one cluster, if it differs from its general one. Import the model from accounts.models."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.money import Rate


class ClusterShare(models.Model):
    """Clusters are identified by their names here."""

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="cluster_shares")
    cluster = models.CharField(max_length=60)
    weight = models.FloatField(validators=[MinValueValidator(0.001), MaxValueValidator(1000.0)])

    class Meta:
        ordering = ["cluster"]
        constraints = [models.UniqueConstraint(fields=["project", "cluster"], name="one_share_per_cluster")]

    def __str__(self) -> str:
        return f"{self.project} on {self.cluster}: {self.weight:g}"


def weights_of(project_id: int) -> dict[str, float]:
    """By cluster."""
    return dict(ClusterShare.objects.filter(project=project_id).values_list("cluster", "weight"))


def rename_cluster(before: str, after: str) -> None:
    """Its references change to the new name."""
    ClusterShare.objects.filter(cluster=before).update(cluster=after)
    Rate.objects.filter(cluster=before).update(cluster=after)
