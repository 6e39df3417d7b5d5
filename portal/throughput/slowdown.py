"""A job's speed compared with running alone: S = f(R) / f(U), and its final slowdown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from portal.jobs.models import Dependency, Job
from scheduling.throughput.curves import Profile


def alone_steps_per_s(known: Mapping[str, Profile], types: Mapping[str, int], max_gpus: int | None) -> float:
    """f_M(U): the best single-type gang that the cluster could give to the job, up to its `max_gpus`."""
    most = {kind: min(types.get(kind, 0), max_gpus or types.get(kind, 0)) for kind in known}
    return max((p.curve.at(most[kind]) for kind, p in known.items()), default=0.0)


def source_at(profile: Profile, count: int) -> str:
    """The source of the job's throughput on this many GPUs."""
    number = profile.numbers.get(count)
    return number.source if number else profile.curve.source


def steps_per_s_at(profile: Profile | None, count: int) -> float | None:
    """None during its trial there: nothing is known."""
    if profile is None or source_at(profile, count) == "trial":
        return None
    return profile.curve.at(count) or None


def relative_throughput(
    steps_per_s: float | None, known: Mapping[str, Profile], types: Mapping[str, int], max_gpus: int | None
) -> float | None:
    """1: as fast as alone. None if one of the two speeds is unknown."""
    alone = alone_steps_per_s(known, types, max_gpus)
    if not steps_per_s or not alone or _on_trial(known):
        return None
    return min(1.0, steps_per_s / alone)


def _on_trial(known: Mapping[str, Profile]) -> bool:
    return all(profile.curve.source == "trial" for profile in known.values())


def final_slowdown(
    job: Job, known: Mapping[str, Profile], types: Mapping[str, int], ended_at: datetime
) -> float | None:
    """Time from when it could have started to its end, over its steps at the speed that it would have alone.

    As in simulations. None if that speed is unknown.
    """
    alone, since = alone_steps_per_s(known, types, job.max_gpus), _since(job)
    steps = job.total_steps - (job.resume_step or 0)
    if not alone or _on_trial(known) or since is None:
        return None
    return max(0.0, (ended_at - since).total_seconds()) * alone / steps


def _since(job: Job) -> datetime | None:
    """Its submission; time on hold, or waiting for dependencies, does not count as unfair.

    None for a job that ran alone among those of its name, or that was both on hold and waiting for dependencies: its
    earliest start is not stored.
    """
    waited_for = list(job.dependencies.values_list("kind", "on__run__ended_at"))
    if any(kind == Dependency.Kind.SINGLETON for kind, _ in waited_for) or (waited_for and job.eligible_at):
        return None
    return max([job.eligible_at or job.submitted_at, *(at for _, at in waited_for if at is not None)])
