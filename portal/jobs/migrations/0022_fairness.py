"""How evenly jobs were slowed, over time; and the slowdown of each that did all its steps, null for earlier ones:
how fast those would have been alone was kept nowhere."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0013_project_priority"),
        ("jobs", "0021_rounds_counted"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="slowdown",
            field=models.FloatField(null=True),
        ),
        migrations.CreateModel(
            name="FairnessSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("step_s", models.PositiveIntegerField(default=60)),
                ("samples", models.PositiveIntegerField(default=1)),
                ("known_samples", models.PositiveIntegerField()),
                ("holding", models.FloatField()),
                ("waiting", models.FloatField()),
                ("lowest", models.FloatField(null=True)),
                ("median", models.FloatField(null=True)),
                ("mean", models.FloatField(null=True)),
                ("highest", models.FloatField(null=True)),
                ("slowdown", models.FloatField(null=True)),
                ("variance", models.FloatField(null=True)),
                ("bound", models.FloatField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="fairness_samples",
                        to="accounts.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="fairness_samples",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["step_s", "at"], name="fairness_sample_age")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "user", "at", "step_s"),
                        name="one_fairness_sample_per_time",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("user", None), ("project__isnull", False), _connector="OR"),
                        name="fairness_of_a_user_in_one",
                    ),
                ],
            },
        ),
    ]
