"""Limits of every kind on every level; CPU and memory prices, discounts; the ledger's exact product and its roll-up."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Cast

EXACT = models.DecimalField(max_digits=60, decimal_places=0)
PRODUCT = (
    Cast("quantity", EXACT)
    * Cast("held_us", EXACT)
    * Cast("price_micro_per_hour", EXACT)
    * Cast("kept_hundredths", EXACT)
    * Case(When(resource="gpu", then=Value(256)), When(resource="cpu", then=Value(25_600)), default=Value(25))
)
RESOURCES = [("gpu", "GPU"), ("cpu", "CPU"), ("memory", "GiB of memory")]


def roll_up(apps, schema_editor):
    """Everything that was entered before there was a roll-up."""
    from accounts.usage import roll_up

    entries = apps.get_model("accounts", "LedgerEntry").objects.order_by("pk").iterator(chunk_size=2_000)
    batch = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == 2_000:
            roll_up(batch)
            batch = []
    roll_up(batch)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_people")]

    operations = [
        # Quotas
        migrations.RemoveConstraint(model_name="quota", name="one_quota_per_kind"),
        migrations.AlterModelOptions(name="quota", options={"ordering": ["id"]}),
        migrations.AddField(
            "quota",
            "user",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="quotas",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            "quota",
            "accelerator_type",
            models.CharField(blank=True, default="", help_text="Empty: all types together.", max_length=60),
        ),
        migrations.AddField(
            "quota",
            "period",
            models.CharField(
                blank=True, choices=[("day", "Day"), ("week", "Week"), ("month", "Month")], default="", max_length=10
            ),
        ),
        migrations.AlterField(
            "quota",
            "project",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="quotas",
                to="accounts.project",
            ),
        ),
        migrations.AlterField(
            "quota",
            "kind",
            models.CharField(
                choices=[
                    ("gpus", "GPUs at once"),
                    ("running_jobs", "running jobs"),
                    ("queued_jobs", "queued jobs"),
                    ("gpu_hours", "GPU-hours"),
                    ("money", "money"),
                ],
                default="gpus",
                max_length=20,
            ),
        ),
        migrations.AlterField(
            "quota",
            "limit",
            models.BigIntegerField(
                help_text="GPUs, jobs, seconds of one GPU (3,600 are a GPU-hour), or millionths of the currency.",
                validators=[django.core.validators.MinValueValidator(0)],
            ),
        ),
        migrations.AlterField(
            "quota",
            "hard",
            models.BooleanField(default=False, help_text="Refuse at submission; otherwise jobs wait."),
        ),
        migrations.AddConstraint(
            "quota",
            models.UniqueConstraint(
                condition=Q(("user", None)),
                fields=("project", "kind", "accelerator_type", "period"),
                name="one_quota_per_project_and_kind",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.UniqueConstraint(
                condition=Q(("project", None)),
                fields=("user", "kind", "accelerator_type", "period"),
                name="one_quota_per_user_and_kind",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.UniqueConstraint(
                condition=Q(("project__isnull", False), ("user__isnull", False)),
                fields=("project", "user", "kind", "accelerator_type", "period"),
                name="one_quota_per_member_and_kind",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=Q(("project__isnull", False), ("user__isnull", False), _connector="OR"),
                name="quota_sits_somewhere",
            ),
        ),
        migrations.AddConstraint(
            "quota", models.CheckConstraint(condition=Q(("limit__gte", 0)), name="quota_not_negative")
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=Q(kind__in=["gpu_hours", "money"], period__in=["day", "week", "month"])
                | Q(kind__in=["gpus", "running_jobs", "queued_jobs"], period=""),
                name="quota_period_where_it_counts",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=Q(("kind", "gpus"), ("accelerator_type", ""), _connector="OR"), name="quota_type_of_gpus_only"
            ),
        ),
        migrations.CreateModel(
            "BudgetNotice",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("period_start", models.DateTimeField()),
                ("percent", models.PositiveSmallIntegerField()),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "quota",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="notices", to="accounts.quota"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("quota", "period_start", "percent"), name="one_notice_per_period")
                ]
            },
        ),
        # Rates
        migrations.RemoveConstraint(model_name="rate", name="rate_not_negative"),
        migrations.RemoveConstraint(model_name="rate", name="one_open_rate_per_type"),
        migrations.RenameField("rate", "price_micro_per_gpu_hour", "price_micro_per_hour"),
        migrations.AddField("rate", "resource", models.CharField(choices=RESOURCES, default="gpu", max_length=10)),
        migrations.AlterField(
            "rate",
            "accelerator_type",
            models.CharField(blank=True, default="", help_text="Of GPUs only.", max_length=60),
        ),
        migrations.AlterModelOptions(name="rate", options={"ordering": ["resource", "accelerator_type", "valid_from"]}),
        migrations.AddConstraint(
            "rate", models.CheckConstraint(condition=Q(("price_micro_per_hour__gte", 0)), name="rate_not_negative")
        ),
        migrations.AddConstraint(
            "rate",
            models.CheckConstraint(
                condition=(Q(resource="gpu") & ~Q(accelerator_type="")) | (~Q(resource="gpu") & Q(accelerator_type="")),
                name="rate_type_of_gpus_only",
            ),
        ),
        migrations.AddConstraint(
            "rate",
            models.UniqueConstraint(
                condition=Q(("valid_to", None)), fields=("resource", "accelerator_type"), name="one_open_rate_per_type"
            ),
        ),
        migrations.CreateModel(
            "Discount",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "percent_hundredths",
                    models.PositiveIntegerField(
                        help_text="Hundredths of a percent: 2,500 is a quarter off.",
                        validators=[django.core.validators.MaxValueValidator(10000)],
                    ),
                ),
                ("valid_from", models.DateTimeField(default=django.utils.timezone.now)),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="discounts", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["project", "valid_from"],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(("percent_hundredths__lte", 10000)), name="discount_at_most_all"
                    ),
                    models.CheckConstraint(
                        condition=Q(("valid_to", None), ("valid_to__gt", F("valid_from")), _connector="OR"),
                        name="discount_interval_not_empty",
                    ),
                    models.UniqueConstraint(
                        condition=Q(("valid_to", None)), fields=("project",), name="one_open_discount"
                    ),
                ],
            },
        ),
        # The ledger
        migrations.RemoveConstraint(model_name="ledgerentry", name="one_entry_per_hold_and_start"),
        migrations.RemoveConstraint(model_name="ledgerentry", name="ledger_time_not_negative"),
        migrations.RenameField("ledgerentry", "gpu_us", "held_us"),
        migrations.RenameField("ledgerentry", "price_micro_per_gpu_hour", "price_micro_per_hour"),
        migrations.AddField(
            "ledgerentry", "resource", models.CharField(choices=RESOURCES, default="gpu", max_length=10)
        ),
        migrations.AddField(
            "ledgerentry",
            "quantity",
            models.BigIntegerField(default=100, help_text="Hundredths of a GPU, CPUs, or MiB."),
        ),
        migrations.AddField(
            "ledgerentry",
            "kept_hundredths",
            models.PositiveIntegerField(default=10000, help_text="What a discount leaves of the price."),
        ),
        migrations.AddField(
            "ledgerentry",
            "product",
            models.GeneratedField(db_persist=True, expression=PRODUCT, output_field=EXACT),
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.UniqueConstraint(fields=("hold_id", "resource", "from_at"), name="one_entry_per_hold_and_start"),
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.CheckConstraint(condition=Q(("held_us__gte", 0)), name="ledger_time_not_negative"),
        ),
        migrations.CreateModel(
            "UsageDay",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("job_id", models.UUIDField()),
                ("accelerator_type", models.CharField(max_length=60)),
                ("gpu_us_hundredths", models.BigIntegerField(help_text="Microseconds of hundredths of a GPU.")),
                ("product", models.DecimalField(decimal_places=0, max_digits=60)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["day", "project"], name="usage_by_day_and_project")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job_id", "day", "accelerator_type", "project"), name="one_usage_per_day"
                    )
                ],
            },
        ),
        migrations.RunPython(roll_up, migrations.RunPython.noop),
    ]
