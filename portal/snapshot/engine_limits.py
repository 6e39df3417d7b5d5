"""A cluster's engine limits for a launch, as last seen: a launch that cannot fit is refused before it is sent there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property

from accounts import slurm_names
from accounts.models import Project, User
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from portal.jobs.models import Accelerator, Cluster, Job, Run
from portal.snapshot.site_limits import SiteLimits, problems_of
from portal.throughput.launch_times import stands_a_limit
from scheduling.capacity.engine_bounds import nodes_with
from scheduling.domain import NodeBounds
from scheduling.executors.base import EngineLimits
from scheduling.lifecycle import LIVE, State
from scheduling.throughput.curves import Profile


def note_limits(cluster: Cluster, limits: EngineLimits) -> None:
    """Store them if they have changed."""
    content = {name: value for name, value in asdict(limits).items() if value}
    if cluster.engine_limits != content:
        cluster.engine_limits = content
        Cluster.objects.filter(pk=cluster.pk).update(engine_limits=content)


def limits_of(cluster: Cluster) -> EngineLimits:
    return EngineLimits(**cluster.engine_limits)


class OwnPartitions:
    """Which projects name a partition of Slurm's: the stored limits, which are those of the cluster's partition, do not
    apply to them. Queried once for all jobs that are described together, if one of them needs it."""

    def __contains__(self, project_id: object) -> bool:
        return project_id in self._projects

    @cached_property
    def _projects(self) -> frozenset[int]:
        return frozenset(pk for pk, names in slurm_names.of_all_projects("pk").items() if names.get("partition"))


def check_limits(file: JobFile, cluster: Cluster, project: Project, user: User) -> int | None:
    """The most GPUs that a launch may have there; None: no limit. Raises Problems for what no launch may have."""
    limits, bounds = limits_of(cluster), SiteLimits(cluster).of(project.pk, user.pk)
    if limits == EngineLimits():
        return None
    problems = _constraint_problems(file, limits)
    if not slurm_names.effective(project).get("partition"):  # the stored limits are those of the cluster's partition
        if limits.memory_mib is not None and (file.memory or 0) > limits.memory_mib:
            text = f"{limits.where} gives a job at most {limits.memory_mib:,} MiB of a node, not {file.memory:,}"
            problems.append(FieldProblem("memory", text, "engine"))
        if bounds.nodes is None and limits.max_nodes is not None:
            bounds = replace(bounds, nodes=NodeBounds(limits.where, limits.max_nodes))
    found, most = problems_of(bounds, file, largest_nodes(cluster.pk) if bounds.nodes is not None else {})
    if problems := [*problems, *found]:
        raise Problems(problems)
    return most


def _constraint_problems(file: JobFile, limits: EngineLimits) -> list[FieldProblem]:
    asked, features = file.slurm.constraint if file.slurm else None, limits.table.get("features")
    if not asked or not features or nodes_with(asked, features) != frozenset():
        return []
    text = f"no node has {asked}; they have {', '.join(sorted(features)[:20])}"
    return [FieldProblem("slurm.constraint", text, "engine")]


def largest_nodes(cluster_id: int) -> dict[str, int]:
    """GPUs of the largest node of each type."""
    sizes: dict[tuple[str, int], int] = {}
    present = Accelerator.objects.filter(node__cluster=cluster_id, present=True, node__lost=False)
    for kind, node in present.values_list("node__accelerator_type", "node_id"):
        sizes[kind, node] = sizes.get((kind, node), 0) + 1
    largest: dict[str, int] = {}
    for (kind, _), size in sizes.items():
        largest[kind] = max(size, largest.get(kind, 0))
    return largest


def time_warnings(
    job: Job, run: Run, profiles: Mapping[str, Profile], counts: Mapping[str, int], own: OwnPartitions
) -> list[str]:
    """Warns that a launch is ended before the job is done, and what that means. `counts`: the cluster's GPUs by
    type."""
    limits = limits_of(job.cluster)
    if limits.max_duration_s is None or State(run.state) not in LIVE:
        return []
    expected_s = _shortest_s(job, run, profiles, counts)
    longest_s = min((one for one in (expected_s, job.max_duration_s) if one is not None), default=0.0)
    if longest_s <= limits.max_duration_s or job.project_id in own:
        return []
    allowed = f"{limits.where} lets a launch run for {_words(limits.max_duration_s)}"
    if stands_a_limit(job, run):
        return [
            f"{allowed}, and it needs about {_words(longest_s)}: it stops there with a checkpoint and continues later."
        ]
    if run.uses_sdk is None and job.restartable is not False:
        unless = "unless its program writes checkpoints with the SDK"
    elif job.can_restart(run):
        return [f"{allowed}, and it may need {_words(longest_s)}: its program is ended there and started again."]
    else:
        unless = "because its program cannot resume from a checkpoint"
    advice = "Let it write checkpoints, make it shorter, or ask an administrator for a partition with a longer limit."
    return [f"{allowed}, and it may need {_words(longest_s)}: it fails there as time_limit {unless}. {advice}"]


def _shortest_s(job: Job, run: Run, profiles: Mapping[str, Profile], counts: Mapping[str, int]) -> float | None:
    """The rest of it, on the fastest GPUs."""
    speeds = [
        profile.curve.at(min(counts.get(kind, 0), job.max_gpus or counts.get(kind, 0)))
        for kind, profile in profiles.items()
        if profile.curve.source != "trial" and counts.get(kind)
    ]
    fastest = max(speeds, default=0.0)
    return max(0, job.total_steps - run.step) / fastest if fastest > 0 else None


def _words(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
