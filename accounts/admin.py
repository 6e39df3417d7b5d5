"""Django admin of people, projects, prices and tokens. Every change is audited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, AuthenticationForm, UserChangeForm, UserCreationForm

from accounts import attempts, quotas
from accounts.addresses import Unproved, check_proved
from accounts.audit import record_audit
from accounts.models import (
    ApiToken,
    AuditEntry,
    Discount,
    Invitation,
    Membership,
    Project,
    Quota,
    Rate,
    Resource,
    User,
)
from accounts.origin import address_of
from accounts.people import (
    LastAdministrator,
    NotForServiceAccounts,
    deactivate_user,
    reactivate_user,
    set_administrator,
)
from accounts.pricing import from_micro
from accounts.projects import BadPlace, check_place
from accounts.rates import NotInThePast, check_start, set_discount, set_rate
from accounts.sessions import end_session
from accounts.tokens import revoke_token

M = TypeVar("M", bound=Model)


def actor_of(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


class AuditedAdmin(ModelAdmin, Generic[M]):  # type: ignore[misc]
    """Adds to Django's own log one entry in the portal's audit log for each change."""

    def log_addition(self, request: HttpRequest, obj: M, message: Any) -> Any:
        self._audit(request, "create", obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: M, message: Any) -> Any:
        self._audit(request, "change", obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            self._audit(request, "delete", obj, None)
        return super().log_deletions(request, queryset)

    def _audit(self, request: HttpRequest, verb: str, obj: M, message: Any) -> None:
        action = f"{obj._meta.model_name}.{verb}"
        record_audit(actor=actor_of(request), action=action, target=str(obj), detail={"changes": message or []})


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class NewUserForm(UserCreationForm):  # type: ignore[misc]
    class Meta:
        model = User
        fields = ("email",)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, AuditedAdmin[User]):  # type: ignore[type-arg]
    """Rights and activity change by actions, which revoke tokens and sessions and keep one administrator. Accounts are
    never deleted: records refer to them."""

    form = UserChangeForm
    add_form = NewUserForm
    change_password_form = AdminPasswordChangeForm
    ordering = ("email",)
    list_display = (
        "email", "first_name", "last_name", "kind", "is_superuser", "is_active", "address_proved_by", "last_login",
    )  # fmt: skip
    list_filter = ("is_superuser", "is_staff", "is_active")
    search_fields = ("email", "first_name", "last_name")
    filter_horizontal = ()
    readonly_fields = (
        "is_active", "is_staff", "is_superuser", "last_login", "date_joined", "kind", "project", "admin_by_directory",
        "deactivated_at", "address_proved_at", "address_proved_by", "invited_by", "invited_into",
    )  # fmt: skip
    actions = ("deactivate", "reactivate", "grant_administration", "revoke_administration")
    fieldsets = (
        (None, {"fields": ("email", "password", "first_name", "last_name")}),
        (
            "Rights",
            {
                "fields": ("is_active", "is_staff", "is_superuser", "admin_by_directory"),
                "description": "Changed by the actions of the list: deactivate, reactivate, make administrator.",
            },
        ),
        ("Address", {"fields": ("address_proved_at", "address_proved_by", "invited_by", "invited_into")}),
        ("Service account", {"fields": ("kind", "project")}),
        ("Dates", {"fields": ("last_login", "date_joined", "deactivated_at")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Deactivate: tokens and sessions end, jobs stay", permissions=["change"])
    def deactivate(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        now = timezone.now()
        self._each(request, queryset, lambda actor, user: deactivate_user(actor=actor, user=user, now=now))

    @admin.action(description="Reactivate", permissions=["change"])
    def reactivate(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._each(request, queryset, lambda actor, user: reactivate_user(actor=actor, user=user))

    @admin.action(description="Make administrator of the cluster", permissions=["change"])
    def grant_administration(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        def grant(actor: User, user: User) -> None:
            check_proved(user, confirmed=False)
            set_administrator(actor=actor, user=user, administrator=True)

        self._each(request, queryset, grant)

    @admin.action(description="Make administrator no longer", permissions=["change"])
    def revoke_administration(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._each(
            request, queryset, lambda actor, user: set_administrator(actor=actor, user=user, administrator=False)
        )

    def _each(self, request: HttpRequest, people: QuerySet[User], change: Callable[[User, User], None]) -> None:
        done = 0
        for user in people:
            try:
                change(actor_of(request), user)
                done += 1
            except Unproved as error:
                self.message_user(request, f"{user.email}: {error} The page People asks and does it.", messages.ERROR)
            except (LastAdministrator, NotForServiceAccounts) as error:
                self.message_user(request, f"{user.email}: {error}", messages.ERROR)
        if done:
            self.message_user(request, f"Done for {done}.", messages.SUCCESS)


class ProjectForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Project
        fields = ("key", "name", "parent")

    def clean_parent(self) -> Project | None:
        parent: Project | None = self.cleaned_data["parent"]
        try:
            check_place(self.instance if self.instance.pk else None, parent)
        except BadPlace as error:
            raise forms.ValidationError(str(error)) from None
        return parent


class MembershipForm(forms.ModelForm):  # type: ignore[type-arg]
    """Asks before a role is given to an account whose address was never proved."""

    confirm_unproved = forms.BooleanField(
        required=False, label="Confirmed", help_text="The account is theirs although its address was never proved."
    )

    class Meta:
        model = Membership
        fields = ("user", "role")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        user = values.get("user")
        if user is not None and {"user", "role"} & set(self.changed_data):
            try:
                check_proved(user, confirmed=bool(values.get("confirm_unproved")))
            except Unproved as error:
                self.add_error("confirm_unproved", str(error))
        return values


class MembershipInline(TabularInline):  # type: ignore[misc]
    model = Membership
    form = MembershipForm
    extra = 0
    autocomplete_fields = ("user",)


class QuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    """The database decides which kinds have periods and types; here the errors are shown by field."""

    class Meta:
        model = Quota
        fields = ("project", "user", "kind", "accelerator_type", "period", "limit", "hard")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        over_periods = values.get("kind") in (Quota.Kind.GPU_HOURS, Quota.Kind.MONEY)
        if over_periods != bool(values.get("period")):
            self.add_error("period", "GPU-hours and money are limited per day, week or month; other kinds are not.")
        if values.get("accelerator_type") and values.get("kind") != Quota.Kind.GPUS:
            self.add_error("accelerator_type", "Only GPUs at once are limited by type.")
        return values


class QuotaInline(TabularInline):  # type: ignore[misc]
    model = Quota
    form = QuotaForm
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(Quota)
class QuotaAdmin(AuditedAdmin[Quota]):
    form = QuotaForm
    list_display = ("level", "name", "shown_limit", "hard")
    list_filter = ("kind", "period", "hard")
    list_select_related = ("project", "user")
    search_fields = ("project__key", "project__name", "user__email")
    autocomplete_fields = ("project", "user")

    @admin.display(description="Level")
    def level(self, quota: Quota) -> str:
        return quotas.level_of(quota)

    @admin.display(description="Limits")
    def name(self, quota: Quota) -> str:
        return quotas.name_of(quota)

    @admin.display(description="Limit", ordering="limit")
    def shown_limit(self, quota: Quota) -> str:
        return quotas.shown(quota, quota.limit)


@admin.register(Project)
class ProjectAdmin(AuditedAdmin[Project]):
    form = ProjectForm
    list_display = ("key", "name", "parent", "created_at", "archived_at")
    search_fields = ("key", "name")
    inlines = (MembershipInline, QuotaInline)

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        return ("key",) if obj else ()  # accounts on nodes are named after it


def _from_now_on(form: forms.ModelForm) -> None:  # type: ignore[type-arg]
    """The page of a read-only row has no such field."""
    if field := form.fields.get("valid_from"):
        field.required, field.initial = False, None
        field.help_text = "Empty: from now on. Never in the past."


class RateForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new price ends the previous one, so the service keeps the rule of one open price per type."""

    class Meta:
        model = Rate
        fields = ("resource", "accelerator_type", "price_micro_per_hour", "valid_from")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _from_now_on(self)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        resource, kind = values.get("resource", ""), values.get("accelerator_type", "")
        if (resource == Resource.GPU) != bool(kind):
            self.add_error("accelerator_type", "Name the type of GPUs; CPUs and memory have none.")
        try:
            check_start(Rate, values.get("valid_from"), timezone.now(), resource=resource, accelerator_type=kind)
        except NotInThePast as error:
            self.add_error("valid_from", str(error))
        return values


@admin.register(Rate)
class RateAdmin(ReadOnlyAdmin):
    """Prices are never changed, only replaced: past occupancy keeps its price."""

    form = RateForm
    list_display = ("resource", "accelerator_type", "price", "valid_from", "valid_to")
    list_filter = ("resource", "accelerator_type")

    @admin.display(description="Price of an hour", ordering="price_micro_per_hour")
    def price(self, rate: Rate) -> str:
        return str(from_micro(rate.price_micro_per_hour))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("accounts.add_rate")

    def save_model(self, request: HttpRequest, obj: Rate, form: Any, change: bool) -> None:
        made = set_rate(
            actor=actor_of(request),
            resource=obj.resource,
            accelerator_type=obj.accelerator_type,
            price_micro_per_hour=obj.price_micro_per_hour,
            valid_from=form.cleaned_data["valid_from"],
        )
        obj.pk, obj.valid_from = made.pk, made.valid_from


class DiscountForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Discount
        fields = ("project", "percent_hundredths", "valid_from")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _from_now_on(self)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if project := values.get("project"):
            try:
                check_start(Discount, values.get("valid_from"), timezone.now(), project=project)
            except NotInThePast as error:
                self.add_error("valid_from", str(error))
        return values


@admin.register(Discount)
class DiscountAdmin(ReadOnlyAdmin):
    """Discounts are replaced, like prices."""

    form = DiscountForm
    list_display = ("project", "percent_hundredths", "valid_from", "valid_to")
    list_select_related = ("project",)
    autocomplete_fields = ("project",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("accounts.add_discount")

    def save_model(self, request: HttpRequest, obj: Discount, form: Any, change: bool) -> None:
        made = set_discount(
            actor=actor_of(request),
            project=obj.project,
            percent_hundredths=obj.percent_hundredths,
            valid_from=form.cleaned_data["valid_from"],
        )
        obj.pk, obj.valid_from = made.pk, made.valid_from


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Never the secret nor its digest. People create tokens themselves; here they are revoked."""

    list_display = ("name", "prefix", "user", "project", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = ("revoked_at",)
    list_select_related = ("user", "project")
    search_fields = ("name", "prefix", "user__email")
    fields = (
        "name", "prefix", "user", "scopes", "project", "created_at", "expires_at", "last_used_at",
        "last_used_address", "revoked_at",
    )  # fmt: skip
    actions = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("accounts.change_apitoken")

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset:
            revoke_token(actor=actor_of(request), token=token)
        self.message_user(request, "Revoked: these tokens no longer work.", messages.SUCCESS)


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_email", "action", "target", "address", "credential")
    list_filter: ClassVar[tuple[str, ...]] = ("action",)
    search_fields = ("target", "actor_email", "action", "address", "request_id")
    fields = (
        "at", "actor_email", "action", "target", "detail", "address", "credential", "request_id",
        "position", "previous_hash", "hash",
    )  # fmt: skip
    date_hierarchy = "at"
    show_full_result_count = False


class SignInForm(AuthenticationForm):  # type: ignore[misc]
    """Guessing is as slow as at the portal's own sign-in."""

    def clean(self) -> dict[str, Any]:
        address, email = address_of(self.request), str(self.cleaned_data.get("username"))
        if seconds := attempts.wait_s(address, email):
            raise forms.ValidationError(f"Too many attempts. Try again in {seconds} s.")
        values: dict[str, Any] = super().clean()
        attempts.forget(address, email)
        return values


@admin.register(Invitation)
class InvitationAdmin(ReadOnlyAdmin):
    """Never the digest of the link's secret. Managers invite; here invitations are only shown."""

    list_display = ("email", "project", "role", "created_by", "created_at", "expires_at", "accepted_at", "revoked_at")
    list_select_related = ("project", "created_by")
    search_fields = ("email", "project__key", "created_by__email")
    fields = (
        "email", "project", "role", "created_by", "created_at", "expires_at", "accepted_at", "accepted_by",
        "revoked_at",
    )  # fmt: skip


class SessionAdmin(ReadOnlyAdmin):
    """Sessions of people, without the key with which one could be hijacked."""

    list_display = ("user", "ip", "user_agent", "created_at", "last_seen_at")
    list_select_related = ("user",)
    search_fields = ("user__email", "ip")
    fields = ("user", "ip", "user_agent", "created_at", "last_seen_at")
    actions = ("end",)

    def has_end_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).is_superuser

    @admin.action(description="End", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[UserSession]) -> None:
        for session in queryset:
            end_session(actor=actor_of(request), session=session)
        self.message_user(request, "Ended: these browsers are signed out.", messages.SUCCESS)


class SocialAccountAdmin(ReadOnlyAdmin):
    """Which directory identities sign in to which accounts."""

    list_display = ("user", "provider", "uid", "date_joined", "last_login")
    list_select_related = ("user",)
    search_fields = ("user__email", "uid")
    fields = ("user", "provider", "uid", "date_joined", "last_login")


admin.site.login_form = SignInForm
for model in (Group, EmailAddress, SocialAccount, SocialApp, SocialToken, UserSession):
    admin.site.unregister(model)
admin.site.register(UserSession, SessionAdmin)
admin.site.register(SocialAccount, SocialAccountAdmin)
