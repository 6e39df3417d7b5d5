"""Prices and shares of single clusters, by their names."""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_project_priority")]

    operations = [
        migrations.RemoveConstraint("rate", "one_open_rate_per_type"),
        migrations.AddField(
            "rate",
            "cluster",
            models.CharField(blank=True, default="", help_text="Empty: of all clusters.", max_length=60),
        ),
        migrations.AddConstraint(
            "rate",
            models.UniqueConstraint(
                fields=("resource", "accelerator_type", "cluster"),
                condition=models.Q(valid_to=None),
                name="one_open_rate_per_type",
            ),
        ),
        migrations.CreateModel(
            "ClusterShare",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=60)),
                (
                    "weight",
                    models.FloatField(
                        validators=[
                            django.core.validators.MinValueValidator(0.001),
                            django.core.validators.MaxValueValidator(1000.0),
                        ]
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="cluster_shares",
                        to="accounts.project",
                    ),
                ),
            ],
            options={"ordering": ["cluster"]},
        ),
        migrations.AddConstraint(
            "clustershare", models.UniqueConstraint(fields=("project", "cluster"), name="one_share_per_cluster")
        ),
    ]
