"""Limits, prices and the ledger: columns and constraints. Import them from accounts.models."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Cast
from django.utils import timezone


class Quota(models.Model):
    """How much of one resource a project (with its subprojects), a user, or a user within a project may use.

    A soft limit makes jobs wait, a hard one refuses them; docs/quotas-and-cost.md says what each counts.
    """

    class Kind(models.TextChoices):
        GPUS = "gpus", "GPUs at once"
        RUNNING_JOBS = "running_jobs", "running jobs"
        QUEUED_JOBS = "queued_jobs", "queued jobs"
        GPU_HOURS = "gpu_hours", "GPU-hours"
        MONEY = "money", "money"

    class Period(models.TextChoices):
        DAY = "day"
        WEEK = "week"
        MONTH = "month"

    project = models.ForeignKey(
        "accounts.Project", null=True, blank=True, on_delete=models.CASCADE, related_name="quotas"
    )
    user = models.ForeignKey("accounts.User", null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.GPUS)
    accelerator_type = models.CharField(max_length=60, blank=True, default="", help_text="Empty: all types together.")
    period = models.CharField(max_length=10, choices=Period, blank=True, default="")
    limit = models.BigIntegerField(
        validators=[MinValueValidator(0)],
        help_text="GPUs, jobs, seconds of one GPU (3,600 are a GPU-hour), or millionths of the currency.",
    )
    hard = models.BooleanField(default=False, help_text="Refuse at submission; otherwise jobs wait.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind", "accelerator_type", "period"],
                condition=Q(user=None),
                name="one_quota_per_project_and_kind",
            ),
            models.UniqueConstraint(
                fields=["user", "kind", "accelerator_type", "period"],
                condition=Q(project=None),
                name="one_quota_per_user_and_kind",
            ),
            models.UniqueConstraint(
                fields=["project", "user", "kind", "accelerator_type", "period"],
                condition=Q(project__isnull=False, user__isnull=False),
                name="one_quota_per_member_and_kind",
            ),
            models.CheckConstraint(
                condition=Q(project__isnull=False) | Q(user__isnull=False), name="quota_sits_somewhere"
            ),
            models.CheckConstraint(condition=Q(limit__gte=0), name="quota_not_negative"),
            models.CheckConstraint(
                condition=Q(kind__in=["gpu_hours", "money"], period__in=["day", "week", "month"])
                | Q(kind__in=["gpus", "running_jobs", "queued_jobs"], period=""),
                name="quota_period_where_it_counts",
            ),
            models.CheckConstraint(condition=Q(kind="gpus") | Q(accelerator_type=""), name="quota_type_of_gpus_only"),
        ]

    def __str__(self) -> str:
        where = " in ".join(str(level) for level in (self.user, self.project) if level)
        return f"{where}: {self.limit} {self.get_kind_display()}"


class BudgetNotice(models.Model):
    """Records that people were notified, once in a period, that a percentage of a budget was reached.

    A hard budget's notice of 100 % closes it for the period: jobs were suspended so that it was not exceeded.
    """

    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="notices")
    period_start = models.DateTimeField()
    percent = models.PositiveSmallIntegerField()
    #: The budget at that time: after a raise the notice no longer counts.
    limit = models.BigIntegerField(default=0)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["quota", "period_start", "percent"], name="one_notice_per_period")
        ]

    def __str__(self) -> str:
        return f"{self.quota}: {self.percent} % from {self.period_start:%F}"


class Resource(models.TextChoices):
    """Billed resources, each by the hour."""

    GPU = "gpu", "GPU"
    CPU = "cpu", "CPU"
    MEMORY = "memory", "GiB of memory"


class Rate(models.Model):
    """Price of one hour of a GPU of a type, a CPU or a GiB of memory, in millionths of the currency, while valid."""

    resource = models.CharField(max_length=10, choices=Resource, default=Resource.GPU)
    accelerator_type = models.CharField(max_length=60, blank=True, default="", help_text="Of GPUs only.")
    #: Its name. While a cluster's own price is valid, it precedes the general one.
    cluster = models.CharField(max_length=60, blank=True, default="", help_text="Empty: of all clusters.")
    price_micro_per_hour = models.BigIntegerField(validators=[MinValueValidator(0)])
    valid_from = models.DateTimeField(default=timezone.now)
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["resource", "accelerator_type", "valid_from"]
        constraints = [
            models.CheckConstraint(condition=Q(price_micro_per_hour__gte=0), name="rate_not_negative"),
            models.CheckConstraint(
                condition=Q(valid_to=None) | Q(valid_to__gt=models.F("valid_from")), name="rate_interval_not_empty"
            ),
            models.CheckConstraint(
                condition=(Q(resource="gpu") & ~Q(accelerator_type="")) | (~Q(resource="gpu") & Q(accelerator_type="")),
                name="rate_type_of_gpus_only",
            ),
            models.UniqueConstraint(
                fields=["resource", "accelerator_type", "cluster"],
                condition=Q(valid_to=None),
                name="one_open_rate_per_type",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.accelerator_type or self.get_resource_display()} from {self.valid_from:%Y-%m-%d}"


class Discount(models.Model):
    """The reduction for a project and its subprojects, while valid; the nearest level with one applies."""

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="discounts")
    percent_hundredths = models.PositiveIntegerField(
        validators=[MaxValueValidator(10_000)], help_text="Hundredths of a percent: 2,500 is a quarter off."
    )
    valid_from = models.DateTimeField(default=timezone.now)
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["project", "valid_from"]
        constraints = [
            models.CheckConstraint(condition=Q(percent_hundredths__lte=10_000), name="discount_at_most_all"),
            models.CheckConstraint(
                condition=Q(valid_to=None) | Q(valid_to__gt=models.F("valid_from")), name="discount_interval_not_empty"
            ),
            models.UniqueConstraint(fields=["project"], condition=Q(valid_to=None), name="one_open_discount"),
        ]

    def __str__(self) -> str:
        return f"{self.project} {self.percent_hundredths / 100:g} % from {self.valid_from:%Y-%m-%d}"


EXACT = models.DecimalField(max_digits=60, decimal_places=0)


class LedgerEntry(models.Model):
    """One resource held for one interval at one price.

    All factors are stored as integers and sums are over their product, so rounding happens on display only: see
    accounts.pricing for its unit.
    """

    project = models.ForeignKey("accounts.Project", on_delete=models.PROTECT, related_name="ledger")
    user = models.ForeignKey("accounts.User", null=True, on_delete=models.SET_NULL, related_name="ledger")
    job_id = models.UUIDField(db_index=True)
    run_id = models.UUIDField()
    hold_id = models.BigIntegerField()
    resource = models.CharField(max_length=10, choices=Resource, default=Resource.GPU)
    accelerator_type = models.CharField(max_length=60)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    quantity = models.BigIntegerField(default=100, help_text="Hundredths of a GPU, CPUs, or MiB.")
    held_us = models.BigIntegerField()
    price_micro_per_hour = models.BigIntegerField()
    kept_hundredths = models.PositiveIntegerField(default=10_000, help_text="What a discount leaves of the price.")
    product = models.GeneratedField(
        expression=Cast("quantity", EXACT)
        * Cast("held_us", EXACT)
        * Cast("price_micro_per_hour", EXACT)
        * Cast("kept_hundredths", EXACT)
        * Case(When(resource="gpu", then=Value(256)), When(resource="cpu", then=Value(25_600)), default=Value(25)),
        output_field=EXACT,
        db_persist=True,
    )

    class Meta:
        indexes = [models.Index(fields=["project", "from_at"]), models.Index(fields=["to_at"])]
        constraints = [
            models.UniqueConstraint(fields=["hold_id", "resource", "from_at"], name="one_entry_per_hold_and_start"),
            models.CheckConstraint(condition=Q(held_us__gte=0), name="ledger_time_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.from_at:%F %T}"


class UsageDay(models.Model):
    """The ledger rolled up by job and calendar day of the site: updated in the transaction that writes the entries."""

    day = models.DateField()
    project = models.ForeignKey("accounts.Project", on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey("accounts.User", null=True, on_delete=models.SET_NULL, related_name="+")
    job_id = models.UUIDField()
    accelerator_type = models.CharField(max_length=60)
    gpu_us_hundredths = models.BigIntegerField(help_text="Microseconds of hundredths of a GPU.")
    product = models.DecimalField(max_digits=60, decimal_places=0)
    #: For the time with reported utilisation, in the same unit: all of it, and the utilised part.
    measured_us_hundredths = models.BigIntegerField(default=0, db_default=0)
    used_us_hundredths = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        indexes = [models.Index(fields=["day", "project"], name="usage_by_day_and_project")]
        constraints = [
            models.UniqueConstraint(fields=["job_id", "day", "accelerator_type", "project"], name="one_usage_per_day")
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.day}"


class FairShareClock(models.Model):
    """One row: the half-life of usage, and the horizon of the sums (accounts.fair_share)."""

    class Reset(models.TextChoices):
        NEVER = "never"
        DAILY = "daily"
        WEEKLY = "weekly"
        MONTHLY = "monthly"
        QUARTERLY = "quarterly"
        YEARLY = "yearly"

    half_life_s = models.FloatField(null=True, validators=[MinValueValidator(1.0)])
    reset = models.CharField(max_length=10, choices=Reset, default=Reset.NEVER)
    horizon = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="one_fair_share_clock")]

    def __str__(self) -> str:
        return f"up to {self.horizon:%F %T}"


class FairShareUsage(models.Model):
    """GPU-seconds of ended occupancy, decayed to the clock's horizon. User 0: jobs without an owner."""

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="fair_share_usage")
    user_id = models.BigIntegerField(default=0)
    accelerator_type = models.CharField(max_length=60)
    gpu_s = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user_id", "accelerator_type"], name="one_fair_share_sum")
        ]

    def __str__(self) -> str:
        return f"{self.gpu_s:.0f} GPU-seconds of {self.accelerator_type}"
