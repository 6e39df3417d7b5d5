"""What the engine's own accounting (QOS, associations, partitions) leaves to jobs, for rounds and at submission."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from psycopg2.extras import DateTimeTZRange

from accounts import slurm_names
from accounts.models import User
from portal.core.problems import FieldProblem
from portal.core.times import from_posix
from portal.jobfile.schema import JobFile
from portal.jobs.identity import runs_as_person
from portal.jobs.models import Cluster, Hold, Job
from scheduling import domain
from scheduling.capacity.engine_bounds import NO_BOUNDS, Bounds, Shared, bounds_of, nodes_with

#: The engine records a launch a moment after the portal does, and its end possibly a while later.
BEFORE_S, AFTER_S = 20.0, 2.0
Limits = dict[str, domain.Limit]
Bound = dict[object, tuple[str, ...]]


class SiteLimits:
    """Of one cluster, as its engine was last seen. All jobs of a project and person have the same."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.table = cluster.engine_limits.get("table") or {}
        self._names = slurm_names.of_all_projects("pk") if self.table else {}
        self._as_person = bool(self.table) and runs_as_person(cluster.pk)
        self._accounts = dict[int | None, str]()
        self._known = dict[tuple[int, str], Bounds]()

    def of(self, project_id: int, owner_id: int | None) -> Bounds:
        if not self.table:
            return NO_BOUNDS
        key = (project_id, self._account(owner_id))
        if key not in self._known:
            names = {**self.table.get("given", {}), **self._names.get(project_id, {})}
            self._known[key] = bounds_of(self.table, names, key[1])
        return self._known[key]

    def _account(self, owner_id: int | None) -> str:
        """The account under which the launch is sent."""
        if not self._as_person:
            return str(self.table.get("sender", ""))
        if not self._accounts:
            self._accounts = dict(User.objects.exclude(unix_account="").values_list("pk", "unix_account"))
        return self._accounts.get(owner_id, "")

    # For rounds

    def added_to(self, limits: Limits, bound: Bound, jobs: Iterable[Job]) -> tuple[Limits, Bound]:
        """Adds the engine's limits: on jobs together, minus other jobs' use, and on single jobs that the engine would
        never start."""
        if not self.table:
            return limits, bound
        found, keys, shared = dict(limits), dict(bound), dict[str, Shared]()
        for job in jobs:
            bounds = self.of(job.project_id, job.owner_id)
            mine = [one.key for one in bounds.shared]
            shared |= {one.key: one for one in bounds.shared}
            if bounds.gpus is not None and bounds.gpus < job.min_gpus:
                mine.append(f"slurm-job-{job.pk}")
                found[mine[-1]] = domain.Limit(
                    "gpus", bounds.gpus, level=bounds.gpus_says, text=bounds.gpus_says, word="QOSMaxGRESPerJob"
                )
            elif job.max_gpus is not None and job.max_gpus < bounds.least:
                mine.append(f"slurm-job-{job.pk}")
                text = f"{bounds.least_says}, and this one takes at most {job.max_gpus}"
                found[mine[-1]] = domain.Limit("gpus", 0, level=bounds.least_says, text=text, word="QOSMinGRES")
            keys[job.pk] = (*keys.get(job.pk, ()), *mine)
        ours = self._ours() if any(one.used for one in shared.values()) else {}
        return found | {key: _limit(one, ours.get(key, 0)) for key, one in shared.items()}, keys

    def _ours(self) -> Mapping[str, int]:
        """How much of each our own jobs used when the engine reported its use."""
        at = from_posix(float(self.table.get("at", 0.0)))
        moment = DateTimeTZRange(at - timedelta(seconds=BEFORE_S), at + timedelta(seconds=AFTER_S))
        rows = Hold.objects.filter(run__job__cluster=self.cluster, during__overlap=moment).order_by()
        columns = (
            "run__job__project_id",
            "run__job__owner_id",
            "run_id",
            "accelerator_id",
            "accelerator__node__accelerator_type",
        )
        held: dict[str, set[object]] = defaultdict(set)
        for project_id, owner_id, run_id, gpu_id, kind in rows.values_list(*columns):
            for one in self.of(project_id, owner_id).shared:
                if one.type in (None, kind):
                    held[one.key].add(gpu_id if one.kind == "gpus" else run_id)
        return {key: len(there) for key, there in held.items()}

    def bounded(
        self, views: Sequence[domain.Job], jobs: Sequence[Job], nodes: Iterable[domain.Node]
    ) -> tuple[domain.Job, ...]:
        """With the most GPUs that each job may have, and on how many nodes."""
        if not self.table:
            return tuple(views)
        sizes = defaultdict[str, list[int]](list)
        for node in nodes:
            sizes[node.type].append(len(node.gpu_ids))
        every = {str(job.pk): self.of(job.project_id, job.owner_id) for job in jobs}
        known = self.constraints(jobs)
        asks = {str(job.pk): asked for job in jobs if (asked := constraint_of(job.spec)) in known}
        found = (_bounded(view, every[view.id], sizes) for view in views)
        return tuple(replace(view, constraint=asks[view.id]) if view.id in asks else view for view in found)

    def constraints(self, jobs: Iterable[Job]) -> dict[str, frozenset[str]]:
        """Constraints of jobs, and the nodes that meet them, as far as they are understood."""
        features = self.table.get("features", {})
        asked = {constraint_of(job.spec) for job in jobs} - {""} if features else set()
        found = {one: nodes_with(one, features) for one in sorted(asked)}
        return {one: nodes for one, nodes in found.items() if nodes is not None}


def constraint_of(spec: Mapping[str, Any]) -> str:
    return str((spec.get("slurm") or {}).get("constraint") or "")


def _limit(one: Shared, ours: int) -> domain.Limit:
    beside = max(0, one.used - ours)
    most = max(0, one.most - beside)
    return domain.Limit(one.kind, most, one.type, one.level, text=one.says, beside=beside, word=one.word)


def _bounded(view: domain.Job, bounds: Bounds, sizes: Mapping[str, Sequence[int]]) -> domain.Job:
    """`sizes`: GPUs of each node, by type."""
    if bounds.nodes is None and bounds.gpus is None and bounds.least == 1:
        return view
    most = [one for one in (view.max_gpus, bounds.gpus) if one is not None]
    rule = bounds.nodes
    if rule is not None and (rule.most is not None or rule.of_each is not None) and sizes:
        kinds = view.types or tuple(sizes)
        held = (sorted((rule.hold(size) for size in sizes.get(kind, ())), reverse=True) for kind in kinds)
        most.append(max((sum(one[: rule.most]) for one in held), default=0))
    least = max(view.min_gpus, rule.least if rule else 1)
    if view.max_gpus is None or view.max_gpus >= bounds.least:
        least = max(least, bounds.least)
    return replace(view, on_nodes=rule, min_gpus=least, max_gpus=max(view.min_gpus, min(most)) if most else None)


# At submission


def problems_of(bounds: Bounds, file: JobFile, largest: Mapping[str, int]) -> tuple[list[FieldProblem], int | None]:
    """Parts of a job file that no launch may have, and the most GPUs that one may. `largest`: GPUs of the largest node
    of each type."""
    least, problems, mosts = file.gpus.min, list[FieldProblem](), list[int]()
    if bounds.nodes is not None:
        sizes = [size for kind, size in largest.items() if not file.gpus.types or kind in file.gpus.types]
        if bounds.nodes.most is not None and sizes:
            mosts.append(bounds.nodes.most * bounds.nodes.hold(max(sizes)))
            if least > mosts[-1]:
                which = "which has" if bounds.nodes.most == 1 else "which have"
                text = f"{bounds.nodes.says}, {which} {mosts[-1]} GPUs, not {least}"
                problems.append(FieldProblem("gpus.min", text, "engine"))
        if (file.gpus.max or least) < bounds.nodes.least and file.gpus.max is not None:
            text = f"{bounds.nodes.says}: ask for at least {bounds.nodes.least} GPUs"
            problems.append(FieldProblem("gpus.max", text, "engine"))
    if file.gpus.max is not None and file.gpus.max < bounds.least:
        problems.append(FieldProblem("gpus.max", f"{bounds.least_says}, not with {file.gpus.max}", "engine"))
    together = [(one.most, one.says) for one in bounds.shared if one.type is None and one.kind == "gpus"]
    if bounds.gpus is not None:
        together.append((bounds.gpus, bounds.gpus_says))
        mosts.append(bounds.gpus)
    short = [f"{says}, not {least}" for most, says in together if most < least]
    short += [f"{one.says}: no job starts" for one in bounds.shared if one.kind == "running_jobs" and one.most < 1]
    problems += [FieldProblem("gpus.min", text, "engine") for text in short[:1]]
    return problems, min(mosts, default=None)
