"""One decision: takes a snapshot, and has the cluster's policy plan it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from portal.jobs.loops import Loop, LoopName, of_job
from portal.jobs.models import Cluster, Job
from portal.snapshot.take import ClusterView, jobs_to_plan, snapshot_of
from scheduling.domain import Plan
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy


def plan_cluster(cluster: Cluster, now: datetime) -> tuple[ClusterView, Plan]:
    """A job for which no plan can be made is left out, and keeps its GPUs."""
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)

    def plan(jobs: Sequence[Job]) -> tuple[ClusterView, Plan]:
        view = snapshot_of(cluster, now, jobs)
        return view, plan_round(view.snapshot, policy)

    loop = Loop(LoopName.SNAPSHOT, cluster.pk)
    return loop.most(jobs_to_plan(loop, cluster), of_job, plan)
