"""Appends events; after the commit changes are published and the scheduler is woken."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.models import Project
from portal.core import wake
from portal.jobs.models import Cluster, Job, JobEvent, Node, Run


def append(
    *,
    kind: str,
    text: str,
    at: datetime,
    job: Job | None = None,
    run: Run | None = None,
    project: Project | None = None,
    from_state: str = "",
    to_state: str = "",
    detail: dict[str, Any] | None = None,
) -> JobEvent:
    """Append one event. Without a job it belongs to the whole cluster."""
    event = JobEvent(
        kind=kind,
        text=text,
        at=at,
        job=job,
        run=run,
        project_id=job.project_id if job else (project.pk if project else None),
        from_state=from_state,
        to_state=to_state,
        detail=detail or {},
    )
    store([event])
    return event


def store(rows: Iterable[JobEvent]) -> None:
    """In this order."""
    JobEvent.objects.bulk_create(rows)
    transaction.on_commit(wake.publish)


def about(node: Node) -> dict[str, Any]:
    """The detail of a node's event."""
    return {"node": node.name, "cluster": node.cluster.name}


def of_cluster(cluster: Cluster) -> Q:
    """Events of the cluster itself; those without a cluster belong to the portal, or are from when there was only
    one."""
    return Q(detail__cluster=cluster.name) | ~Q(detail__has_key="cluster")


def append_all(*, kind: str, said: Iterable[tuple[Job, str]], at: datetime) -> None:
    """One event for each of many jobs, each with its own sentence."""
    store(JobEvent(kind=kind, text=text, at=at, job=job, run=job.run, project_id=job.project_id) for job, text in said)
