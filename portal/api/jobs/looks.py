"""Data of pages on a job and on the cluster over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import At, ClusterQuery, Query, Several, Word
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.shapes.clusters import History, Timeline
from portal.api.shapes.job_pages import Explanation
from portal.api.shapes.jobs import Cost, JobTimeline, Metrics, Resources
from portal.core.problems import FieldProblem
from portal.dashboard.costs import job_cost
from portal.dashboard.history import cluster_history
from portal.dashboard.metrics import job_metrics
from portal.dashboard.resources import job_resources
from portal.dashboard.timelines import cluster_timeline, job_timeline
from portal.jobs.access import access_job
from portal.readmodels.jobs.why_waiting import explain_job

LONGEST = timedelta(hours=24)


class MetricsQuery(Query):
    names: Annotated[list[Word], Several] = Field([], max_length=20, description="`a,b` or repeated; by default all.")
    points: int = Field(500, ge=2, le=2_000, description="Points of each series at most; extremes are kept.")


class MetricsView(APIView):
    @operation("get_job_metrics", Metrics, access=Access.VIEWER, tag="jobs", path=["job"], query=MetricsQuery)
    def get(self, request: Request, job: str, query: MetricsQuery) -> Response:
        """Metrics that the job reported, over all its runs."""
        return Response(job_metrics(access_job(signed_in(request), job), query.names, query.points, timezone.now()))


class ResourcesQuery(Query):
    points: int = Field(500, ge=2, le=2_000, description="Points of each series at most: means of equal intervals.")


class ResourcesView(APIView):
    @operation("get_job_resources", Resources, access=Access.VIEWER, tag="jobs", path=["job"], query=ResourcesQuery)
    def get(self, request: Request, job: str, query: ResourcesQuery) -> Response:
        """The job's use of its GPUs while it trained, and the known profile of its application by type of device."""
        return Response(job_resources(access_job(signed_in(request), job), query.points))


class JobTimelineView(APIView):
    @operation("get_job_timeline", JobTimeline, access=Access.VIEWER, tag="jobs", path=["job"])
    def get(self, request: Request, job: str, query: Query) -> Response:
        """The job's states, occupancy and rescales."""
        return Response(job_timeline(access_job(signed_in(request), job)))


class CostView(APIView):
    @operation("get_job_cost", Cost, access=Access.VIEWER, tag="jobs", path=["job"])
    def get(self, request: Request, job: str, query: Query) -> Response:
        """The job's past and expected cost, and the cost of its restarts."""
        return Response(job_cost(access_job(signed_in(request), job), timezone.now()))


class ExplanationView(APIView):
    @operation("explain_job", Explanation, access=Access.VIEWER, tag="jobs", path=["job"])
    def get(self, request: Request, job: str, query: Query) -> Response:
        """Why the job has its present state and GPUs."""
        return Response(explain_job(signed_in(request), access_job(signed_in(request), job)))


class TimelineQuery(ClusterQuery):
    from_at: At | None = Field(None, description="By default an hour before `to_at`.")
    to_at: At | None = Field(None, description="By default now.")


class TimelineView(APIView):
    @operation("get_timeline", Timeline, access=Access.SIGNED_IN, tag="cluster", query=TimelineQuery)
    def get(self, request: Request, query: TimelineQuery) -> Response:
        """Which job held which accelerator when: at most 24 hours and 20,000 entries."""
        from_at, to_at = _window(query, timezone.now())
        mine = set(visible_projects(signed_in(request)).values_list("pk", flat=True))
        return Response(cluster_timeline(named_cluster(query), mine, from_at, to_at))


def _window(query: TimelineQuery, now: datetime) -> tuple[datetime, datetime]:
    to_at = query.to_at or now
    from_at = query.from_at or to_at - timedelta(hours=1)
    if not from_at < to_at <= from_at + LONGEST:
        wrong = FieldProblem("from_at", "must be before to_at, by 24 hours at most", "range")
        raise Refused(400, f"from_at {wrong.message}", [wrong])
    return from_at, to_at


class HistoryQuery(ClusterQuery):
    minutes: int = Field(120, ge=1, le=14 * 24 * 60)


class HistoryView(APIView):
    @operation("get_history", History, access=Access.SIGNED_IN, tag="cluster", query=HistoryQuery)
    def get(self, request: Request, query: HistoryQuery) -> Response:
        """The cluster's last minutes in at most 500 points."""
        return Response(cluster_history(named_cluster(query), query.minutes, timezone.now()))
