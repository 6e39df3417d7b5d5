"""How long a launch is expected to train, for engines that use it for planning."""

from __future__ import annotations

from portal.jobs.models import Job, Run
from portal.throughput import profiles
from portal.throughput.expected_end import SPREAD

#: An engine's limit is this many spreads beyond the expected end.
_SPREADS = 2.0


def stands_a_limit(job: Job, run: Run) -> bool:
    """The job resumes from a checkpoint if its engine ends it too early: it is known to use the SDK."""
    uses_sdk = job.model_type_id is not None if run.uses_sdk is None else run.uses_sdk
    return bool(uses_sdk) and job.can_restart(run)


def expected_s(run: Run, accelerator_type: str, count: int) -> float | None:
    """From its checkpoint to its end on these GPUs, with a margin; None if unknown, or if ending it too early would
    lose work."""
    job = run.job
    if not stands_a_limit(job, run):
        return None
    measured = profiles.measured_numbers(profiles.workloads_of(job), job.cluster_id)
    profile = profiles.profiles_of(job, {accelerator_type: count}, measured).get(accelerator_type)
    if profile is None or profile.curve.source == "trial" or (speed := profile.curve.at(count)) <= 0:
        return None
    margin = 1.0 + _SPREADS * SPREAD.get(profile.curve.source, 0.3)
    return max(0, job.total_steps - run.checkpoint_step) / speed * margin
