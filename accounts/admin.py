"""Administration of people, projects, prices and tokens. Every change leaves an audit entry."""

from __future__ import annotations

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
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, AuthenticationForm, UserChangeForm, UserCreationForm

from accounts import attempts
from accounts.audit import record_audit
from accounts.models import ApiToken, AuditEntry, Invitation, Membership, Project, Quota, Rate, User
from accounts.origin import address_of
from accounts.people import LastAdministrator, check_another
from accounts.pricing import amount
from accounts.projects import BadPlace, check_place
from accounts.services import RateNotAfter, check_follows, set_rate
from accounts.tokens import revoke_token

M = TypeVar("M", bound=Model)
HOUR_US = 3_600 * 10**6


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


class PersonForm(UserChangeForm):  # type: ignore[misc]
    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.is_superuser and not (values.get("is_superuser") and values.get("is_active")):
            try:
                check_another(self.instance)
            except LastAdministrator as error:
                raise forms.ValidationError(str(error)) from None
        return values


@admin.register(User)
class UserAdmin(DjangoUserAdmin, AuditedAdmin[User]):  # type: ignore[type-arg]
    form = PersonForm
    add_form = NewUserForm
    change_password_form = AdminPasswordChangeForm
    ordering = ("email",)
    list_display = ("email", "first_name", "last_name", "kind", "is_superuser", "is_active", "last_login")
    list_filter = ("is_superuser", "is_staff", "is_active")
    search_fields = ("email", "first_name", "last_name")
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined", "kind", "project", "admin_by_directory", "deactivated_at")
    fieldsets = (
        (None, {"fields": ("email", "password", "first_name", "last_name")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "admin_by_directory")}),
        ("Service account", {"fields": ("kind", "project")}),
        ("Dates", {"fields": ("last_login", "date_joined", "deactivated_at")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),)


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


class MembershipInline(TabularInline):  # type: ignore[misc]
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


class QuotaInline(TabularInline):  # type: ignore[misc]
    model = Quota
    extra = 0


@admin.register(Project)
class ProjectAdmin(AuditedAdmin[Project]):
    form = ProjectForm
    list_display = ("key", "name", "parent", "created_at", "archived_at")
    search_fields = ("key", "name")
    inlines = (MembershipInline, QuotaInline)

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        return ("key",) if obj else ()  # accounts on nodes are named after it


class RateForm(forms.ModelForm):  # type: ignore[type-arg]
    """A new price ends the one before, so the rule of one open price per type is kept by the service."""

    class Meta:
        model = Rate
        fields = ("accelerator_type", "price_micro_per_gpu_hour", "valid_from")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        try:
            check_follows(values.get("accelerator_type", ""), values.get("valid_from"))
        except RateNotAfter as error:
            self.add_error("valid_from", str(error))
        return values


@admin.register(Rate)
class RateAdmin(ReadOnlyAdmin):
    """Prices are never changed, only followed by others: what was held stays charged as it was."""

    form = RateForm
    list_display = ("accelerator_type", "price", "valid_from", "valid_to")
    list_filter = ("accelerator_type",)

    @admin.display(description="Price of a GPU-hour", ordering="price_micro_per_gpu_hour")
    def price(self, rate: Rate) -> str:
        return str(amount(rate.price_micro_per_gpu_hour * HOUR_US))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("accounts.add_rate")

    def save_model(self, request: HttpRequest, obj: Rate, form: Any, change: bool) -> None:
        set_rate(actor=actor_of(request), rate=obj)


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Never the secret nor its digest. People make tokens themselves; here they are revoked."""

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
    """As slow to guess at as the portal's own sign-in."""

    def clean(self) -> dict[str, Any]:
        address, email = address_of(self.request), str(self.cleaned_data.get("username"))
        if seconds := attempts.wait_s(address, email):
            raise forms.ValidationError(f"Too many attempts. Try again in {seconds} s.")
        values: dict[str, Any] = super().clean()
        attempts.forget(address, email)
        return values


@admin.register(Invitation)
class InvitationAdmin(ReadOnlyAdmin):
    """Never the digest of the link's secret. Managers invite; here invitations are looked at."""

    list_display = ("email", "project", "role", "created_by", "created_at", "expires_at", "accepted_at", "revoked_at")
    list_select_related = ("project", "created_by")
    search_fields = ("email", "project__key", "created_by__email")
    fields = (
        "email", "project", "role", "created_by", "created_at", "expires_at", "accepted_at", "accepted_by",
        "revoked_at",
    )  # fmt: skip


class SessionAdmin(ReadOnlyAdmin):
    """Where people are signed in, without the key that would make one of them."""

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
            session.end()
            record_audit(actor=actor_of(request), action="session.end", target=session.user.email)
        self.message_user(request, "Ended: these browsers are signed out.", messages.SUCCESS)


class SocialAccountAdmin(ReadOnlyAdmin):
    """Who signs in by the directory as whom."""

    list_display = ("user", "provider", "uid", "date_joined", "last_login")
    list_select_related = ("user",)
    search_fields = ("user__email", "uid")
    fields = ("user", "provider", "uid", "date_joined", "last_login")


admin.site.login_form = SignInForm
for model in (Group, EmailAddress, SocialAccount, SocialApp, SocialToken, UserSession):
    admin.site.unregister(model)
admin.site.register(UserSession, SessionAdmin)
admin.site.register(SocialAccount, SocialAccountAdmin)
