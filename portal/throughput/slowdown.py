"""How fast a job is beside what it would be alone: S = f(R) / f(U), and its slowdown when all is done."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from portal.jobs.models import Dependency, Job
from scheduling.throughput.curves import Profile


def alone_steps_per_s(known: Mapping[str, Profile], types: Mapping[str, int], max_gpus: int | None) -> float:
    """f_M(U): the best single-type gang that the cluster could give the job, which takes no more than `max_gpus`."""
    most = {kind: min(types.get(kind, 0), max_gpus or types.get(kind, 0)) for kind in known}
    return max((p.curve.at(most[kind]) for kind, p in known.items()), default=0.0)


def source_at(profile: Profile, count: int) -> str:
    """What is known of a job on so many GPUs rests on this."""
    number = profile.numbers.get(count)
    return number.source if number else profile.curve.source


def steps_per_s_at(profile: Profile | None, count: int) -> float | None:
    """None where it is on trial there: nothing is known."""
    if profile is None or source_at(profile, count) == "trial":
        return None
    return profile.curve.at(count) or None


def relative_throughput(
    steps_per_s: float | None, known: Mapping[str, Profile], types: Mapping[str, int], max_gpus: int | None
) -> float | None:
    """1: as fast as alone. None where it is not known how fast it is, or would be."""
    alone = alone_steps_per_s(known, types, max_gpus)
    if not steps_per_s or not alone or _on_trial(known):
        return None
    return min(1.0, steps_per_s / alone)


def _on_trial(known: Mapping[str, Profile]) -> bool:
    return all(profile.curve.source == "trial" for profile in known.values())


def final_slowdown(
    job: Job, known: Mapping[str, Profile], types: Mapping[str, int], ended_at: datetime
) -> float | None:
    """From when it could have started to its end, over its steps at the speed that it would have alone.

    As simulations have it. None where that speed is not known.
    """
    alone, since = alone_steps_per_s(known, types, job.max_gpus), _since(job)
    steps = job.total_steps - (job.resume_step or 0)
    if not alone or _on_trial(known) or since is None:
        return None
    return max(0.0, (ended_at - since).total_seconds()) * alone / steps


def _since(job: Job) -> datetime | None:
    """Its submission; time in which it was held, or waited for other jobs to end, is nobody's unfairness.

    None for one that ran alone among those of its name, or that was held and waited for others: when it could have
    started is kept nowhere.
    """
    waited_for = list(job.dependencies.values_list("kind", "on__run__ended_at"))
    if any(kind == Dependency.Kind.SINGLETON for kind, _ in waited_for) or (waited_for and job.eligible_at):
        return None
    return max([job.eligible_at or job.submitted_at, *(at for _, at in waited_for if at is not None)])
