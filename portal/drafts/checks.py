"""Checks of a draft against its cluster."""

from __future__ import annotations

from datetime import datetime

from portal.core.problems import FieldProblem, Problems
from portal.drafts.resume_from import Start
from portal.jobs.models import Cluster
from portal.storage import checkpoints


def check_deadline(deadline: datetime | None, now: datetime, *, again: bool = False) -> None:
    """Raises Problems if it has passed. `again`: it may be the old job's deadline, which was not set just now."""
    if deadline is None or deadline > now:
        return
    how = " with the key deadline of the changes (--set deadline=...)" if again else ""
    message = (
        f"{deadline:%Y-%m-%d %H:%M:%S %Z} has passed: it is {now:%Y-%m-%d %H:%M:%S} UTC. "
        f"Set a time that is still to come{how}, or null for none."
    )
    raise Problems([FieldProblem("deadline", message, "past")])


def check_start(start: Start | None, cluster: Cluster) -> None:
    """Its checkpoint must be accessible: on the same cluster, or in a store that both have."""
    if start is None or start.job.cluster_id == cluster.pk:
        return
    store, own = (checkpoints.configured(pk) for pk in (start.job.cluster_id, cluster.pk))
    if store is None or own is None or store.url != own.url:
        text = f"the checkpoint of #{start.job.number} lies on cluster {start.job.cluster}, not on {cluster}"
        raise Problems([FieldProblem("resume_from.job", text, "other_cluster")])
