"""Step 8: applies the placement if it keeps to the limits and is worth its restarts; otherwise all jobs keep their
GPUs.

Spec: f-scheduling, "When a new plan is applied".
"""

from __future__ import annotations

from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.quota_headroom import exceeds_quota
from scheduling.domain import Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.state import Placement, RoundState
from scheduling.policies.base import ElasticParameters, Policy


def accept_or_keep(state: RoundState) -> RoundState:
    field, placement = state.view, state.placement
    rejected = _beyond_limits(field, placement) or _not_worth_it(state.snapshot, field, state.policy, placement)
    return replace(state, placement=present(field), rejected=rejected) if rejected else state


def present(field: RoundView) -> Placement:
    """The present layout: all jobs keep their GPUs, and none starts."""
    holding = [job for job in field.running if job.gang is not None]
    return Placement({job.id: job.gpu_ids for job in holding}, {job.id: job.gang for job in holding if job.gang})


def _beyond_limits(field: RoundView, placement: Placement) -> Reason | None:
    """Why the placement exceeds a limit, checked on concrete accelerators."""
    if not field.limits or not exceeds_quota(field, placement.gangs):
        return None
    return Reason(ReasonCode.LIMITS, "This round's plan would have exceeded a quota, so nothing was changed.")


def _not_worth_it(snapshot: Snapshot, field: RoundView, policy: Policy, placement: Placement) -> Reason | None:
    """The paper's rule: a plan must start a job, or raise the throughput of the jobs that survive by enough."""
    if not policy.capabilities.elastic:
        return None
    changed = [job for job in field.running if placement.gpus.get(job.id) != job.gpu_ids]
    if not changed or any(job.id in placement.gpus for job in field.queued):
        return None
    survive = [job for job in field.running if job.id in placement.gpus]
    before = sum(field.steps_per_s(job, job.gang) for job in survive)
    after = sum(field.steps_per_s(job, placement.gangs[job.id]) for job in survive)
    gain = after - before
    settings = policy.parameters
    if not isinstance(settings, ElasticParameters):
        return None
    if settings.amortise:
        return _not_amortised(snapshot, field, placement, changed, gain)
    least = settings.min_gain
    if settings.min_gain_kind == "relative":
        least *= before
    else:
        least *= float(snapshot.settings.get("speedup", 1.0))  # an emulated speed-up multiplies min_gain, too
    if gain >= least:
        return None
    text = (
        f"Another plan would add {gain:.3g} steps/s and a change must add at least {least:.3g}, so nothing was changed."
    )
    return Reason(ReasonCode.MIN_GAIN, text, {"gain": gain, "min_gain": least})


def _not_amortised(
    snapshot: Snapshot, field: RoundView, placement: Placement, changed: list[Job], gain: float
) -> Reason | None:
    """Compare the steps gained until the next expected event with the steps lost to restarts."""
    speeds = {job.id: field.steps_per_s(job, job.gang) for job in field.running}
    ends = [job.remaining_steps / speeds[job.id] for job in field.running if speeds[job.id] and job.remaining_steps]
    seconds = snapshot.next_event_s if snapshot.next_event_s is not None else min(ends, default=0.0)
    lost = sum(field.steps_per_s(job, placement.gangs.get(job.id)) * job.restart_cost_s for job in changed)
    if gain * seconds > lost:
        return None
    text = (
        f"Another plan would gain {max(0.0, gain * seconds):.0f} steps until the next expected event "
        f"in {seconds:.0f} s and lose {lost:.0f} to restarts, so nothing was changed."
    )
    return Reason(ReasonCode.NOT_AMORTISED, text, {"gained_steps": gain * seconds, "lost_steps": lost})
