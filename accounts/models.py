"""People, projects, their limits and costs. Knows jobs only as plain ids."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from accounts.cluster_shares import ClusterShare as ClusterShare
from accounts.guarantee import Guarantee as Guarantee
from accounts.mail_address import checked, normalized
from accounts.money import BudgetNotice as BudgetNotice
from accounts.money import Discount as Discount
from accounts.money import FairShareClock as FairShareClock
from accounts.money import FairShareUsage as FairShareUsage
from accounts.money import LedgerEntry as LedgerEntry
from accounts.money import Quota as Quota
from accounts.money import Rate as Rate
from accounts.money import Resource as Resource
from accounts.money import UsageDay as UsageDay
from accounts.text import one_line, shown

#: Maximum depth of the project tree.
MAX_DEPTH = 12
KEY = RegexValidator(r"^[a-z][a-z0-9-]{0,39}\Z", "Lower-case letters, digits and dashes; starts with a letter.")


class UserManager(BaseUserManager["User"]):
    use_in_migrations = True

    @classmethod
    def normalize_email(cls, email: str | None) -> str:
        """Addresses that differ by case, or by the spelling of the domain, belong to one person."""
        return normalized(email or "")

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=self.normalize_email(username))

    def _create(self, email: str, password: str | None, **extra: Any) -> User:
        user = self.model(email=self.normalize_email(email), **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_user(self, email: str, password: str | None = None, **extra: Any) -> User:
        return self._create(email, password, **extra)

    def create_superuser(self, email: str, password: str | None = None, **extra: Any) -> User:
        return self._create(email, password, **{"is_staff": True, "is_superuser": True} | extra)


class Proof(models.TextChoices):
    """How an address was proved to belong to its account: only these ways prove it, not an administrator's word."""

    MAIL = "mail", "A message sent to it"
    IDENTITY_PROVIDER = "identity_provider", "The identity provider"


class AccountSource(models.TextChoices):
    """Who set a Unix account."""

    ADMINISTRATOR = "administrator", "An administrator"
    SAME_NAME = "same_name", "The local part of the address, confirmed by an administrator"
    IDENTITY_PROVIDER = "identity_provider", "The identity provider"


class User(AbstractUser):
    """A person, or a service account that belongs to a project. `is_superuser` is a cluster administrator."""

    class Kind(models.TextChoices):
        PERSON = "person"
        SERVICE = "service", "Service account"

    username = None  # type: ignore[assignment]
    email = models.EmailField(unique=True)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.PERSON, editable=False)
    project = models.ForeignKey(
        "Project",
        null=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="service_accounts",
        help_text="Whose service account it is.",
    )
    admin_by_directory = models.BooleanField(default=False, editable=False)
    deactivated_at = models.DateTimeField(null=True, editable=False)
    address_proved_at = models.DateTimeField(null=True, editable=False)
    address_proved_by = models.CharField(
        max_length=20, choices=Proof, default="", blank=True, editable=False, help_text="Empty: never proved."
    )
    invited_by = models.ForeignKey(
        "self",
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Whose invitation made it.",
    )
    invited_into = models.ForeignKey("Project", null=True, editable=False, on_delete=models.SET_NULL, related_name="+")
    unix_account = models.CharField(
        max_length=32, default="", blank=True, editable=False, help_text="As whom jobs run, where they run as people."
    )
    unix_account_by = models.CharField(
        max_length=20, choices=AccountSource, default="", blank=True, editable=False, help_text="Empty: there is none."
    )
    #: Set on the copy of the user in a request with an API token (see accounts.tokens): its rights are then bounded by
    #: the token, and the copy is never saved.
    acting_token: ApiToken | None = None

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="person", project=None) | Q(kind="service", project__isnull=False),
                name="service_accounts_have_a_project",
            ),
            models.CheckConstraint(
                condition=Q(kind="person")
                | Q(kind="service", is_superuser=False, is_staff=False, password__startswith="!"),  # noqa: S106
                name="service_accounts_cannot_sign_in",
            ),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="addresses_are_in_lower_case"),
            models.UniqueConstraint(
                fields=["unix_account"], condition=~Q(unix_account=""), name="one_person_per_unix_account"
            ),
        ]

    def __str__(self) -> str:
        return self.get_full_name() or self.email

    def clean(self) -> None:
        super().clean()
        try:
            checked(self.email)
        except ValueError as error:
            raise ValidationError({"email": f"The address {error}."}) from error

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Raises ValueError if a new address is only another spelling of one."""
        if self.acting_token is not None:
            raise RuntimeError("a user as bounded by a token is not what the database should have")
        self.email = User.objects.normalize_email(self.email)
        changes = self._address_changes(kwargs.get("update_fields"))
        if changes or self._state.adding:
            checked(self.email)
        if changes:
            self.address_proved_at, self.address_proved_by = None, ""
            if kwargs.get("update_fields") is not None:
                kwargs["update_fields"] = {*kwargs["update_fields"], "address_proved_at", "address_proved_by"}
        # also those from a directory
        self.first_name, self.last_name = shown(self.first_name), shown(self.last_name)
        super().save(*args, **kwargs)

    def _address_changes(self, fields: Collection[str] | None) -> bool:
        """The proof of the previous address does not apply to a new one."""
        if self._state.adding or (fields is not None and "email" not in fields):
            return False
        before = User.objects.filter(pk=self.pk).values_list("email", flat=True).first()
        return before is not None and before != self.email


#: Of a project, like `priority` of a job.
MOST_PRIORITY = 1_000_000


#: Names of a project in Slurm.
SLURM_NAMES = ("account", "qos", "partition", "wckey", "reservation")


class Project(models.Model):
    """One place in the tree of projects. `ancestry` is maintained by triggers: the ids from the root down to the
    project itself. It is unknown on a newly created instance."""

    class InnerRule(models.TextChoices):
        FAIRNESS = "fairness", "Fairness"
        FIFO = "fifo", "First in, first out"

    key = models.CharField(max_length=40, unique=True, validators=[KEY])
    name = models.CharField(max_length=120)
    ancestry = ArrayField(models.BigIntegerField(), default=list, blank=True, editable=False)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="Membership", related_name="projects"
    )
    share_weight = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.001), MaxValueValidator(1000.0)],
        help_text="Its part of what the project above gets, against its siblings' weights (hierarchical policies).",
    )
    inner_rule = models.CharField(
        max_length=10, choices=InnerRule, default=InnerRule.FAIRNESS, help_text="How its own jobs divide its part."
    )
    priority = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(MOST_PRIORITY)],
        help_text="Against the other projects' (multifactor); without one, that of the project above.",
    )
    #: Its own SLURM_NAMES; others are inherited from the project above (accounts/slurm_names.py).
    slurm = models.JSONField(default=dict, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["key"]
        indexes = [GinIndex(fields=["ancestry"], name="project_ancestry")]
        constraints = [
            models.CheckConstraint(
                condition=Q(ancestry__len__lte=MAX_DEPTH),
                name="project_depth_bounded",
                violation_error_message=f"A tree of projects has {MAX_DEPTH} levels at most.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        super().clean()
        try:
            self.name = one_line(self.name)
        except ValueError as error:
            raise ValidationError({"name": f"The name {error}."}) from None


class Membership(models.Model):
    class Role(models.TextChoices):
        VIEWER = "viewer"
        MEMBER = "member"
        MANAGER = "manager"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    by_directory = models.BooleanField(
        default=False, editable=False, help_text="Follows the person's groups at each sign-in by OIDC."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user", "by_directory"], name="one_membership_per_project")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project} as {self.role}"


class Scope(models.TextChoices):
    """What a token may be used for, within its user's rights."""

    JOBS_READ = "jobs:read", "Read jobs and what concerns them"
    JOBS_WRITE = "jobs:write", "Submit and change jobs"
    ADMIN = "admin", "Administer: projects, people, tokens, the cluster"


class ApiToken(models.Model):
    """The secret has high entropy and is shown once; only its SHA-256 is stored, found by its prefix."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope), default=list, editable=False)
    project = models.ForeignKey(
        Project,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="tokens",
        help_text="It works in this project and below only.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    rotated_from = models.ForeignKey(
        "self", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="rotated_to"
    )
    last_used_address = models.GenericIPAddressField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} (ek_{self.prefix}_…)"


class Invitation(models.Model):
    """To a project, for one address, to be accepted once. Only the SHA-256 of the link's secret is stored."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="invitations_sent")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    mailed = models.BooleanField(
        default=False, editable=False, help_text="The link was sent to the address and shown to nobody else."
    )
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="invitations_accepted"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.email} to {self.project_id}"


class AuditEntry(models.Model):
    """Who did what to what, and from where. Append-only; the last three columns are the database's (see
    accounts.audit).

    Entries outlive accounts: nothing refers to the actor's row.
    """

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey(User, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    actor_email = models.CharField(max_length=254, default="", blank=True)
    action = models.CharField(max_length=60, db_index=True)
    target = models.CharField(max_length=200)
    detail = models.JSONField(default=dict)
    address = models.CharField(max_length=45, default="", blank=True)
    credential = models.CharField(max_length=40, default="", blank=True, help_text="Which token or session.")
    request_id = models.CharField(max_length=64, default="", blank=True)
    position = models.BigIntegerField(null=True, unique=True, editable=False)
    previous_hash = models.CharField(max_length=64, default="", editable=False)
    hash = models.CharField(max_length=64, default="", editable=False)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit log"

    def __str__(self) -> str:
        return f"{self.action} {self.target}"
