"""The cluster as the multifactor sum sees it: only fields that it reads are filled in.

Under a policy other than `multifactor` its default parameters apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from portal.jobs.access import in_states
from portal.jobs.models import Cluster, Job, Run
from portal.snapshot.dependencies import waits_of
from portal.snapshot.rows import nodes_of, partitions_of, project_tree, qos_levels
from portal.snapshot.shares import held_now, share_inputs, site_factors, user_key
from scheduling import domain
from scheduling.lifecycle import LIVE, TRAINING, WAITING, State
from scheduling.policies import load_policy
from scheduling.policies.queue.multifactor import Multifactor
from scheduling.priority.scoring import Formula, Scores


@dataclass(frozen=True)
class PriorityInputs:
    snapshot: domain.Snapshot
    policy: Multifactor
    in_force: bool

    @property
    def formula(self) -> Formula:
        return self.policy.parameters.formula()


def gather_priority_inputs(cluster: Cluster, now: datetime) -> PriorityInputs:
    in_force = cluster.policy_name == Multifactor.name
    policy = load_policy(Multifactor.name, cluster.policy_parameters if in_force else {})
    assert isinstance(policy, Multifactor)
    inputs = share_inputs(now)
    nodes = nodes_of(cluster)
    partitions, name_of = partitions_of(cluster, nodes)
    jobs = tuple(_jobs(cluster, name_of))
    snapshot = domain.Snapshot(
        now=now.timestamp(),
        nodes=nodes,
        jobs=jobs,
        entities=project_tree(cluster.name),
        qos=qos_levels(),
        partitions=partitions,
        members=inputs.members,
        usage=inputs.usage,
        usage_at=inputs.usage_at,
        site_factors=site_factors(cluster, inputs, jobs) if in_force else {},
    )
    return PriorityInputs(snapshot, policy, in_force)


def _jobs(cluster: Cluster, partition_names: Mapping[int | None, str]) -> Iterable[domain.Job]:
    held, waits = held_now(cluster), waits_of(cluster.pk)
    columns = ("pk", "number", "project__key", "owner_id", "run_id", "run__state", "submitted_at", "eligible_at")
    rows = Job.objects.filter(in_states(LIVE), cluster=cluster).order_by("number")
    for row in rows.values(
        *columns,
        "run__not_before",
        "priority",
        "spec__nice",
        "min_gpus",
        "accelerator_types",
        "hold_kind",
        "qos__name",
        "partition_id",
        "gpu_share_percent",
    ):
        holds = held.get(row["run_id"])
        yield domain.Job(
            id=str(row["pk"]),
            number=row["number"],
            project=row["project__key"],
            state=State(row["run__state"]),
            submitted_at=row["submitted_at"].timestamp(),
            curves={},
            priority=row["priority"],
            nice=row["spec__nice"] or 0,
            min_gpus=row["min_gpus"],
            types=tuple(row["accelerator_types"]),
            user=user_key(row["owner_id"]),
            eligible_at=waits.eligible_at(row["pk"], row["eligible_at"]),
            not_before=row["run__not_before"].timestamp() if row["run__not_before"] else None,
            gang=holds.gang if holds else None,
            held_since=holds.since if holds else None,
            held=bool(row["hold_kind"]),
            waits_for=waits.sentence(row["pk"]),
            qos=row["qos__name"] or "",
            gpu_milli=10 * row["gpu_share_percent"],
            partition=partition_names.get(row["partition_id"], ""),
        )


def score_waiting(seen: PriorityInputs) -> tuple[Scores, list[domain.Job]]:
    """Of jobs that wait for GPUs; jobs on hold have no rank."""
    waiting = [job for job in seen.snapshot.jobs if job.state in WAITING and not job.held and not job.waits_for]
    return seen.policy.scores_of(seen.snapshot, waiting), waiting


def expected_ends(cluster: Cluster, now: datetime) -> dict[str, float]:
    """When training jobs end at their present speed (POSIX seconds); missing if unknown."""
    training = Run.objects.filter(job__cluster=cluster, state__in=[s.value for s in TRAINING], steps_per_s__gt=0)
    rows = training.values_list("job_id", "job__total_steps", "step", "steps_per_s")
    at = now.timestamp()
    return {str(job): at + max(0, total - step) / speed for job, total, step, speed in rows if speed}
