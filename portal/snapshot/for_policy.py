"""Completes a snapshot with what a policy needs beyond the common part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from portal.core.times import from_posix
from portal.jobs.models import Cluster, Job, Run
from portal.snapshot.shares import held_now, share_inputs, site_factors
from portal.throughput.pairs import pairs_for
from portal.throughput.usage_profiles import with_histories
from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Needs


def missing_needs(snapshot: Snapshot, needs: Needs) -> Needs:
    """The needs that the snapshot has no data for."""
    there = Needs.PRICES
    if snapshot.usage_at:
        there |= Needs.FAIR_SHARE
    if snapshot.pairs:
        there |= Needs.PAIRS
    if any(job.history is not None for job in snapshot.jobs):
        there |= Needs.HISTORIES
    return needs & ~there


def complete(snapshot: Snapshot, cluster: Cluster, needs: Needs, rows: Sequence[Job] | None = None) -> Snapshot:
    """With everything in `needs`, as of the snapshot's moment. `rows`: the jobs of the snapshot, in its order, if the
    caller has them."""
    missing = missing_needs(snapshot, needs)
    if Needs.FAIR_SHARE in missing:
        snapshot = _with_fair_share(snapshot, cluster)
    if Needs.PAIRS in missing:
        types = Counter[str]()
        for node in snapshot.nodes:
            types[node.type] += len(node.gpu_ids)
        pending = [job for job in snapshot.jobs if not job.held]
        snapshot = replace(snapshot, pairs=pairs_for(pending, types, cluster.pk))
    if Needs.HISTORIES in missing:
        jobs = _rows_of(snapshot) if rows is None else rows
        snapshot = replace(snapshot, jobs=with_histories(snapshot.jobs, jobs))
    return snapshot


def _with_fair_share(snapshot: Snapshot, cluster: Cluster) -> Snapshot:
    inputs, jobs = share_inputs(from_posix(snapshot.now)), snapshot.jobs
    if any(job.gpu_ids for job in jobs) and all(job.held_since is None for job in jobs):
        held = held_now(cluster)
        job_of = dict(Run.objects.filter(pk__in=list(held), job__cluster=cluster).values_list("pk", "job_id"))
        since = {str(job_of[run]): one.since for run, one in held.items() if run in job_of}
        jobs = tuple(replace(job, held_since=since.get(job.id)) for job in jobs)
    return replace(
        snapshot,
        jobs=jobs,
        members=inputs.members,
        usage=inputs.usage,
        usage_at=inputs.usage_at,
        site_factors=site_factors(cluster, inputs, jobs),
    )


def _rows_of(snapshot: Snapshot) -> list[Job]:
    rows = Job.objects.select_related("model_type").in_bulk([UUID(job.id) for job in snapshot.jobs])
    return [rows[UUID(job.id)] for job in snapshot.jobs]
