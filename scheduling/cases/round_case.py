"""A round's allocation problem as a `policy-case/1` document: the problem that a time-sharing policy was, or would be,
asked to solve.

Rounds ask such a policy only when something has changed, and only after jobs were evicted from lost and drained nodes
and nodes were divided into pools. So the round is planned again with a stand-in policy that records its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from scheduling.domain import POOL_MARK, Allocation, Entity, Job, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.base import Parameters, Policy
from scheduling.policies.time_shares.programs.groups import participants, reach_of, room_of, steps_per_s
from scheduling.policies.time_shares.programs.last_answer import MEMORY, last_shares


class _Shown(Exception):
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


class _Witness:
    """Stands in for a time-sharing policy: records its input and ends the round."""

    name = title = "witness"
    Parameters = Parameters

    def __init__(self, policy: Policy) -> None:
        self.parameters, self.capabilities = policy.parameters, policy.capabilities

    def allocate(self, snapshot: Snapshot) -> Allocation:
        raise _Shown(snapshot)


def problem_of(snapshot: Snapshot, policy: Policy) -> Snapshot | None:
    """The policy's input in this round, if the policy is asked; None if there is no candidate."""
    anew = {key: value for key, value in snapshot.memory.items() if key != MEMORY}
    try:
        plan_round(replace(snapshot, memory=anew), cast("Policy", _Witness(policy)))
    except _Shown as shown:
        return replace(shown.snapshot, memory=snapshot.memory)
    return None


def case_of(snapshot: Snapshot, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`name` and its parameters are those of the round; of a policy of another kind only the name enters the answer."""
    timed = policy_class(name).capabilities.shares_time
    asked = load_policy(name, dict(parameters)) if timed else load_policy("max_min_fairness", {})
    problem = problem_of(snapshot, asked)
    if problem is None:
        problem = replace(snapshot, jobs=())
    jobs, absent = participants(problem)
    largest, capacity = room_of(problem, {job.id for job in jobs})
    kinds = {kind: _plain(kind) for kind in sorted(capacity)}
    reach = reach_of(problem, capacity, largest)
    entries = [_job(job, problem.now, kinds, reach, largest) for job in jobs]
    return {
        "schema": "policy-case/1",
        "policies": sorted(known for known in POLICIES if policy_class(known).capabilities.shares_time),
        "policy": name,
        "parameters": dict(parameters),
        "cluster_spec": {kinds[kind]: max(0, gpus) for kind, gpus in sorted(capacity.items())},
        "worker_types": list(kinds.values()),
        "jobs": entries,
        "pair_throughputs": _pairs(problem, jobs, kinds),
        "entities": _entities(problem, {job.project for job in jobs}),
        "prices": {kinds.get(kind, _plain(kind)): price for kind, price in problem.prices.items()},
        "memory": _memory(problem, {job.id: job.number for job in jobs}, kinds) if timed else {},
        "left_out": _left_out(problem, len(absent)),
    }


def _plain(kind: str) -> str:
    """A pool's name with a readable mark."""
    return kind.replace(POOL_MARK, ":").rstrip(":/")


def _job(
    job: Job, now: float, kinds: Mapping[str, str], reach: Mapping[str, int], largest: Mapping[str, int]
) -> dict[str, Any]:
    speeds = {said: steps_per_s(job, kind, reach[kind], largest[kind]) for kind, said in kinds.items()}
    entry = {
        "job_id": job.number,
        "job_type": _workload(job),
        "scale_factor": job.min_gpus,
        "throughputs": {kind: speed for kind, speed in speeds.items() if speed > 0},
        "steps_remaining": job.remaining_steps,
        "steps_done": job.done_steps,
        "time_since_start_s": max(0.0, now - job.submitted_at),
        "priority_weight": job.weight,
        "priority": job.priority,
        "entity": job.project,
    }
    return entry | ({"deadline_s": job.deadline - now} if job.deadline is not None else {})


def _workload(job: Job) -> str:
    """The bar separates the members of a pair."""
    return job.workload.replace("|", "/")


def _pairs(problem: Snapshot, jobs: Iterable[Job], kinds: Mapping[str, str]) -> dict[str, Any]:
    here = {job.workload for job in jobs}
    return {
        f"{one.replace('|', '/')}|{other.replace('|', '/')}|{gang}": {
            kinds[kind]: list(both) for kind, both in speeds.items() if kind in kinds
        }
        for (one, other, gang), speeds in sorted(problem.pairs.items())
        if one in here and other in here
    }


def _entities(problem: Snapshot, projects: set[str]) -> dict[str, Any]:
    """Projects of the jobs, and all projects above them."""
    found: dict[str, Any] = {}
    for project in sorted(projects):
        key: str | None = project
        while key and key not in found:
            entity = problem.entities.get(key, Entity())
            found[key] = {"weight": entity.weight, "parent": entity.parent, "inner": entity.inner}
            key = entity.parent
    return found


def _memory(problem: Snapshot, numbers: Mapping[str, int], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The policy's memory, by the jobs' numbers."""
    kept = problem.memory.get(MEMORY)
    if not kept:
        return {}
    own = {str(numbers.get(key, key)): value for key, value in dict(kept.get("policy", {})).items()}
    shares = {
        str(numbers[key]): {kinds[kind]: share for kind, share in by_type.items() if kind in kinds}
        for key, by_type in last_shares(problem).items()
        if key in numbers
    }
    return {"policy": own, "shares": shares}


def _left_out(problem: Snapshot, absent: int) -> list[str]:
    """Sentences on what such a case cannot express."""
    said = [f"{absent} jobs that take no part: they keep their GPUs, or may not start."] if absent else []
    if problem.limits:
        said.append(f"{len(problem.limits)} limits: rounds keep them whatever the fractions are.")
    if problem.guarantees:
        said.append(f"{len(problem.guarantees)} guarantees: rounds keep them whatever the fractions are.")
    return said
