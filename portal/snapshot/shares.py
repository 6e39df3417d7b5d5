"""Fair-share inputs from the database: members, usage, and since when GPUs are held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min
from django.db.models.functions import Lower

from accounts.fair_share import decayed_usage
from accounts.models import Membership, Project
from portal.jobs.models import Cluster, Hold
from portal.snapshot import site_shares
from scheduling.domain import Gang, Job

#: Equal shares for members, each like a subproject of weight 1.
MEMBER_SHARES = 1.0


@dataclass(frozen=True)
class ShareInputs:
    """In the form of scheduling.domain.Snapshot: projects by key, users by id; no user is the empty text."""

    members: Mapping[str, Mapping[str, float]]
    usage: Mapping[str, Mapping[str, Mapping[str, float]]]
    usage_at: float


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs of a run, and since when it holds them (POSIX seconds)."""

    gang: Gang
    since: float


def user_key(user_id: int | None) -> str:
    return str(user_id) if user_id else ""


def share_inputs(now: datetime) -> ShareInputs:
    decayed = decayed_usage(now)
    keys = dict(Project.objects.values_list("pk", "key"))
    members: dict[str, dict[str, float]] = defaultdict(dict)
    active = Membership.objects.filter(user__is_active=True, project__archived_at=None).exclude(role="viewer")
    for project, user in active.order_by("project_id", "user_id").values_list("project_id", "user_id"):
        members[keys[project]][user_key(user)] = MEMBER_SHARES
    usage: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for (project, user), by_type in decayed.gpu_s.items():
        usage[keys[project]][user_key(user)] = by_type
    return ShareInputs(dict(members), dict(usage), decayed.at.timestamp())


def site_factors(cluster: Cluster, inputs: ShareInputs, jobs: Iterable[Job]) -> dict[str, dict[str, float]]:
    """The factors of the site's own scheduler for members, users with usage and users with jobs."""
    people = {
        (project, user) for side in (inputs.members, inputs.usage) for project, all_ in side.items() for user in all_
    }
    return site_shares.factors_of(cluster, people | {(job.project, job.user) for job in jobs})


def held_now(cluster: Cluster) -> dict[Any, Held]:
    """By run."""
    rows = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True).order_by()
    grouped = rows.values_list("run_id", "accelerator__node__accelerator_type")
    return {
        run: Held(Gang(kind, count), since.timestamp())
        for run, kind, count, since in grouped.annotate(count=Count("pk"), since=Min(Lower("during")))
    }
