"""The fair-share tree of a snapshot: projects and their members, with decayed usage and GPUs held now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduling.domain import WHOLE, Job, Snapshot, plain_type
from scheduling.priority.decay import decayed, held
from scheduling.priority.fair_share import Account, Leaf, Tree


def tree_of(
    snapshot: Snapshot,
    half_life_s: float | None,
    billing: Mapping[str, float],
    ends: Mapping[str, float] | None = None,
) -> Tree:
    """`billing`: weight of a GPU-second of a type; 1 by default. Users with a job or usage are in the tree, members or
    not. `ends`: when jobs released their GPUs, by id, if before `snapshot.now`."""
    users = {Leaf(project, user): shares for project, all_ in snapshot.members.items() for user, shares in all_.items()}
    usage: dict[Leaf, float] = {}
    left = decayed(1.0, snapshot.now - snapshot.usage_at, half_life_s)  # weight of each second
    for project, of_project in snapshot.usage.items():
        for user, by_type in of_project.items():
            usage[Leaf(project, user)] = left * _weighted(by_type, billing)
    now, ends = snapshot.now, ends or {}
    for job in snapshot.jobs:
        key = (job.project, job.user)  # equal to its leaf, and cheaper to make
        if job.held_since is not None and job.gang is not None:
            used = _held_now(job, now, half_life_s, billing, ends.get(job.id))
            usage[Leaf(*key)] = usage.get(key, 0.0) + used  # type: ignore[call-overload]
        elif key not in usage:
            usage[Leaf(*key)] = 0.0
    for leaf in usage:
        users.setdefault(leaf, 1.0)
    accounts = {key: Account(entity.weight, entity.parent) for key, entity in snapshot.entities.items()}
    for leaf in users:
        accounts.setdefault(leaf.account, Account())
    return Tree(accounts, users, usage)


def _weighted(by_type: Mapping[str, float], billing: Mapping[str, float]) -> float:
    if not billing:
        return sum(by_type.values())
    return sum(seconds * billing.get(kind, 1.0) for kind, seconds in by_type.items())


def _held_now(
    job: Job, now: float, half_life_s: float | None, billing: Mapping[str, float], end: float | None
) -> float:
    assert job.held_since is not None
    assert job.gang is not None
    until = now if end is None else min(now, end)
    weight = job.gang.count * job.gpu_milli / WHOLE
    if billing:
        weight *= billing.get(plain_type(job.gang.type), 1.0)
    return held(job.held_since, until, now, half_life_s) * weight


def leaves(jobs: Iterable[Job]) -> list[Leaf]:
    return [Leaf(job.project, job.user) for job in jobs]
