"""/api/v1/ (docs/contracts.md "REST")."""

from django.urls import path, re_path, register_converter

from portal.api import (
    artifacts,
    audit,
    browsers,
    bulk,
    bundles,
    clusters,
    environments,
    estimates,
    invitations,
    jobs,
    logs,
    looks,
    members,
    people,
    prices,
    projects,
    quotas,
    reports,
    secrets,
    service_accounts,
    sessions,
    storage,
    tokens,
    usage,
)
from portal.api.schema import SchemaView, unknown


class NameConverter:
    regex = r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(NameConverter, "name")

urlpatterns = [
    path("session", sessions.SessionView.as_view()),
    path("jobs", jobs.JobsView.as_view()),
    path("jobs/bulk", bulk.BulkView.as_view()),
    path("jobs/estimate", estimates.EstimateView.as_view()),
    path("jobs/<str:job>", jobs.JobView.as_view()),
    path("jobs/<str:job>/cancel", jobs.CancelView.as_view()),
    path("jobs/<str:job>/hold", jobs.HoldView.as_view()),
    path("jobs/<str:job>/release", jobs.ReleaseView.as_view()),
    path("jobs/<str:job>/resubmit", jobs.ResubmitView.as_view()),
    path("jobs/<str:job>/move", jobs.MoveView.as_view()),
    path("jobs/<str:job>/events", jobs.JobEventsView.as_view()),
    path("jobs/<str:job>/artifacts", artifacts.ArtifactsView.as_view()),
    path("jobs/<str:job>/artifacts/<int:artifact>", artifacts.ArtifactView.as_view()),
    path("jobs/<str:job>/logs", logs.LogsView.as_view()),
    path("jobs/<str:job>/metrics", looks.MetricsView.as_view()),
    path("jobs/<str:job>/timeline", looks.JobTimelineView.as_view()),
    path("jobs/<str:job>/cost", looks.CostView.as_view()),
    path("jobs/<str:job>/explanation", looks.ExplanationView.as_view()),
    path("live/<str:stream>", clusters.LiveView.as_view()),
    path("timeline", looks.TimelineView.as_view()),
    path("history", looks.HistoryView.as_view()),
    path("events", clusters.EventsView.as_view()),
    path("model-types", clusters.ModelTypesView.as_view()),
    path("accelerator-types", clusters.AcceleratorTypesView.as_view()),
    path("projects", projects.ProjectsView.as_view()),
    path("projects/<str:project>/bundles", bundles.BundlesView.as_view()),
    path("projects/<str:project>/bundles/<str:sha256>", bundles.BundleView.as_view()),
    path("projects/<str:project>/environments", environments.EnvironmentsView.as_view()),
    path("projects/<str:project>/environments/<str:digest>", environments.EnvironmentView.as_view()),
    path("projects/<str:project>/environments/<str:digest>/log", environments.BuildLogView.as_view()),
    path("projects/<str:project>/secrets", secrets.SecretsView.as_view()),
    path("projects/<str:project>/secrets/<str:secret>", secrets.SecretView.as_view()),
    path("projects/<str:project>/storage", storage.StorageView.as_view()),
    path("projects/<str:project>", projects.ProjectView.as_view()),
    path("projects/<str:project>/archive", projects.ArchiveView.as_view()),
    path("projects/<str:project>/restore", projects.RestoreView.as_view()),
    path("projects/<str:project>/members", members.MembersView.as_view()),
    path("projects/<str:project>/members/<int:person>", members.MemberView.as_view()),
    path("projects/<str:project>/invitations", invitations.InvitationsView.as_view()),
    path("projects/<str:project>/invitations/<int:invitation>", invitations.InvitationView.as_view()),
    path("projects/<str:project>/service-accounts", service_accounts.ServiceAccountsView.as_view()),
    path("projects/<str:project>/service-accounts/<int:account>", service_accounts.ServiceAccountView.as_view()),
    path("projects/<str:project>/service-accounts/<int:account>/tokens", service_accounts.ServiceTokensView.as_view()),
    path("invitations/look", invitations.LookView.as_view()),
    path("invitations/accept", invitations.AcceptView.as_view()),
    path("people", people.PeopleView.as_view()),
    path("people/<int:person>", people.PersonView.as_view()),
    path("nodes", clusters.NodesView.as_view()),
    path("nodes/<name:name>/drain", clusters.DrainView.as_view()),
    path("nodes/<name:name>/resume", clusters.ResumeView.as_view()),
    path("policies", clusters.PoliciesView.as_view()),
    path("policy", clusters.PolicyView.as_view()),
    path("policy/undo", clusters.UndoPolicyView.as_view()),
    path("policy/history", clusters.PolicyHistoryView.as_view()),
    path("projects/<str:project>/quotas", quotas.ProjectQuotasView.as_view()),
    path("quotas", quotas.QuotasView.as_view()),
    path("quotas/<int:quota>", quotas.QuotaView.as_view()),
    path("rates", prices.RatesView.as_view()),
    path("discounts", prices.DiscountsView.as_view()),
    path("usage", usage.UsageView.as_view()),
    path("usage/export", usage.UsageExportView.as_view()),
    path("tokens", tokens.TokensView.as_view()),
    path("tokens/<int:token>", tokens.TokenView.as_view()),
    path("tokens/<int:token>/rotate", tokens.RotateView.as_view()),
    path("sessions", browsers.BrowsersView.as_view()),
    path("sessions/<int:browser>", browsers.BrowserView.as_view()),
    path("audit", audit.AuditView.as_view()),
    path("audit/export", audit.AuditExportView.as_view()),
    path("runs/<uuid:run>/reports", reports.ReportsView.as_view()),
    path("schema", SchemaView.as_view()),
    re_path(r"^.*$", unknown),
]
