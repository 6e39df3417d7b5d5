"""Policies on their way into force."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("jobs", "0028_training_and_waiting"),
        ("lab", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Rollout",
            fields=[
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, unique=True),
                ),
                ("policy", models.CharField(max_length=60)),
                ("parameters", models.JSONField(default=dict)),
                ("label", models.CharField(max_length=300)),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("shadow", "Shadow"),
                            ("live", "Live"),
                            ("kept", "Kept"),
                            ("rolled_back", "Rolled Back"),
                            ("cancelled", "Cancelled"),
                            ("superseded", "Superseded"),
                        ],
                        max_length=12,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("bounds", models.JSONField()),
                ("guard_s", models.PositiveIntegerField()),
                ("least_jobs", models.PositiveIntegerField()),
                ("least_s", models.PositiveIntegerField()),
                ("prediction", models.JSONField(null=True)),
                ("promoted_at", models.DateTimeField(null=True)),
                ("guard_until", models.DateTimeField(null=True)),
                (
                    "previous_policy",
                    models.CharField(blank=True, default="", max_length=60),
                ),
                ("previous_parameters", models.JSONField(default=dict)),
                ("before", models.JSONField(null=True)),
                ("limits", models.JSONField(default=dict)),
                ("problem", models.CharField(blank=True, default="", max_length=500)),
                ("ended_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, default="", max_length=500)),
                ("memory", models.JSONField(null=True)),
                ("shadow_round", models.BigIntegerField(null=True)),
                ("shadow_begun", models.BigIntegerField(null=True)),
                (
                    "shadow_error",
                    models.CharField(blank=True, default="", max_length=500),
                ),
                ("totals", models.JSONField(default=dict)),
                (
                    "change",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="jobs.policychange",
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rollouts",
                        to="jobs.cluster",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "ended_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "promoted_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "simulation",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="rollouts",
                        to="lab.simulation",
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
            },
        ),
        migrations.CreateModel(
            name="GuardCheck",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("values", models.JSONField()),
                ("broken", models.JSONField(default=list)),
                (
                    "rollout",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="checks",
                        to="rollouts.rollout",
                    ),
                ),
            ],
            options={
                "ordering": ["at"],
            },
        ),
        migrations.CreateModel(
            name="ShadowDecision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("round", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("last_round", models.BigIntegerField()),
                ("last_at", models.DateTimeField()),
                ("rounds", models.PositiveIntegerField(default=1)),
                ("seconds", models.FloatField()),
                ("different", models.PositiveIntegerField()),
                ("elsewhere", models.PositiveIntegerField()),
                ("live", models.JSONField()),
                ("candidate", models.JSONField()),
                ("digest", models.CharField(max_length=64)),
                ("packed", models.BinaryField()),
                ("size_bytes", models.PositiveIntegerField()),
                (
                    "rollout",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="decisions",
                        to="rollouts.rollout",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddConstraint(
            model_name="rollout",
            constraint=models.UniqueConstraint(
                condition=models.Q(("phase__in", ["shadow", "live"])),
                fields=("cluster",),
                name="one_unfinished_rollout",
            ),
        ),
        migrations.AddConstraint(
            model_name="rollout",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("phase", "live"), _negated=True),
                    models.Q(("guard_until__isnull", False), ("promoted_at__isnull", False)),
                    _connector="OR",
                ),
                name="live_rollout_has_a_guard",
            ),
        ),
        migrations.AddIndex(
            model_name="guardcheck",
            index=models.Index(fields=["rollout", "at"], name="guard_check_age"),
        ),
    ]
