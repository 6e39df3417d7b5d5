"""Django admin of the cluster: nodes, policy, catalogue; jobs and decisions read-only."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from unfold.admin import TabularInline
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from accounts.admin import AuditedAdmin, ReadOnlyAdmin, actor_of
from accounts.cluster_shares import rename_cluster
from portal.cluster.drains import DrainedByEngine, drain_node, resume_node
from portal.cluster.policy import NothingToUndo, set_policy, undo_policy
from portal.jobs.models import Accelerator, Cluster, Decision, Job, ModelType, Node, PolicyChange, Run
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.readmodels.cluster.policy_help import parameters_help
from portal.readmodels.jobs.summary import people_state
from scheduling.errors import InvalidParameters
from scheduling.policies import POLICIES, load_policy


class AcceleratorInline(TabularInline):  # type: ignore[misc]
    model = Accelerator
    extra = 0
    fields = ("index", "uuid", "memory_mib", "present")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = ("name", "accelerator_type", "emulated", "drained", "lost", "last_seen_at")
    list_filter = ("accelerator_type", "drained", "lost")
    search_fields = ("name",)
    inlines = (AcceleratorInline,)
    actions = ("drain", "resume")

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("jobs.change_node")

    @admin.action(description="Drain: jobs move away, nothing new is placed", permissions=["drain"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset.filter(drained=False):  # other ones may have a deadline
            drain_node(actor=actor_of(request), node=node, now=timezone.now())
        self.message_user(request, "Drained.", messages.SUCCESS)

    @admin.action(description="Resume", permissions=["drain"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        resumed = 0
        for node in queryset:
            try:
                resume_node(actor=actor_of(request), node=node, now=timezone.now())
                resumed += 1
            except DrainedByEngine as error:
                self.message_user(request, str(error), messages.ERROR)
        if resumed:
            self.message_user(request, "Resumed.", messages.SUCCESS)


class ClusterForm(forms.ModelForm):  # type: ignore[type-arg]
    policy_name = forms.ChoiceField(choices=[(name, name) for name in POLICIES], widget=UnfoldAdminSelectWidget)
    policy_parameters = forms.JSONField(required=False, widget=UnfoldAdminTextareaWidget)

    class Meta:
        model = Cluster
        fields = ("name", "policy_name", "policy_parameters")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["policy_parameters"].help_text = parameters_help(self.instance)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        parameters = values.get("policy_parameters") or {}
        if not isinstance(parameters, dict):
            self.add_error("policy_parameters", 'Write an object: {"v_bound": 0.05}.')
        elif "policy_name" in values:
            try:
                values["policy_parameters"] = load_policy(values["policy_name"], parameters).parameters.model_dump(
                    mode="json"
                )
            except InvalidParameters as error:
                self.add_error("policy_parameters", [f"{name}: {text}" for name, text in error.problems.items()])
        return values


class PolicyChangeInline(TabularInline):  # type: ignore[misc]
    model = PolicyChange
    extra = 0
    fields = ("changed_at", "name", "parameters", "changed_by", "effective_round", "undone")
    max_num = 0
    can_delete = False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("changed_by").order_by("-id")


@admin.register(Cluster)
class ClusterAdmin(AuditedAdmin[Cluster]):
    """A round may be committed during an edit: only changed fields are written."""

    form = ClusterForm
    list_display = ("name", "executor", "policy_name", "round_epoch", "last_round_at")
    readonly_fields = ("executor", "round_epoch", "last_round_at", "last_round_s", "figures", "last_error")
    fields = ("name", "policy_name", "policy_parameters", *readonly_fields)
    inlines = (PolicyChangeInline,)
    actions_detail = ("undo_policy",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """With a file of clusters, the file defines the names."""
        return (*self.readonly_fields, "name") if settings.EVENKEEL_CLUSTERS else self.readonly_fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: bool) -> None:
        stored = Cluster.objects.get(pk=obj.pk)
        if stored.name != obj.name:
            rename_cluster(stored.name, obj.name)
            Cluster.objects.filter(pk=obj.pk).update(name=obj.name)
        wanted = form.cleaned_data["policy_name"], form.cleaned_data["policy_parameters"]
        if wanted != (stored.policy_name, stored.policy_parameters):
            set_policy(actor=actor_of(request), cluster=stored, name=wanted[0], parameters=wanted[1])

    @action(description="Undo the last policy change", url_path="undo-policy", permissions=["change"])  # type: ignore[untyped-decorator]
    def undo_policy(self, request: HttpRequest, object_id: str) -> HttpResponse:
        try:
            change = undo_policy(actor=actor_of(request), cluster=Cluster.objects.get(pk=object_id))
            self.message_user(request, f"{change.name} is in force again from the next round on.", messages.SUCCESS)
        except NothingToUndo as error:
            self.message_user(request, str(error), messages.WARNING)
        return HttpResponseRedirect(reverse("admin:jobs_cluster_change", args=[object_id]))


class ModelTypeForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = ModelType
        fields = ("name", "title", "description", "argv", "default_batch_size", "curves", "enabled")

    def clean_curves(self) -> dict[str, Any]:
        curves = self.cleaned_data["curves"] or {}
        example = '{"v100": {"steps_per_s": [10.1, 19.0]}}'
        if not isinstance(curves, dict):
            raise forms.ValidationError(f"Write an object: {example}.")
        for kind, entry in curves.items():
            values = entry.get("steps_per_s") if isinstance(entry, dict) else None
            if not isinstance(values, list) or not values or not all(_is_speed(value) for value in values):
                raise forms.ValidationError(f"{kind}: needs steps/s on 1, 2, ... GPUs, as in {example}.")
        return curves


def _is_speed(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


@admin.register(ModelType)
class ModelTypeAdmin(AuditedAdmin[ModelType]):
    form = ModelTypeForm
    list_display = ("name", "title", "default_batch_size", "enabled")
    list_filter = ("enabled",)
    search_fields = ("name", "title")


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("number", "name", "project", "owner", "state", "submitted_at")
    list_filter = ("project", "run__state")
    list_select_related = ("project", "owner", "run")
    search_fields = ("name", "=number", "owner__email")
    show_full_result_count = False
    actions = ("cancel",)

    @admin.display(ordering="run__state")
    def state(self, job: Job) -> str:
        return people_state(job.run) if job.run else ""

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).has_perm("jobs.change_job")

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        for job in queryset:
            try:
                cancel_job(user=actor_of(request), job=job)
            except JobHasEnded as error:
                self.message_user(request, str(error), messages.WARNING)
        self.message_user(request, "What still ran is cancelled.", messages.SUCCESS)


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    list_display = ("job", "attempt", "state", "epoch", "step", "state_since", "ended_at")
    list_filter = ("state",)
    list_select_related = ("job",)
    search_fields = ("=job__number", "job__name")
    show_full_result_count = False


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = ("round", "at", "policy_name", "size_bytes", "seconds")
    list_filter = ("policy_name",)
    fields = ("round", "at", "policy_name", "policy_parameters", "seconds", "size_bytes", "plan")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        found: QuerySet[Decision] = super().get_queryset(request).defer("snapshot")
        return found
