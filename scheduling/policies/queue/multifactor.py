"""Multifactor priority with fair share and backfill: jobs that have waited longest and whose owners used least go
first.

Objective: none; the order of priority decides, with gangs of one size. Priority = site + weighted age, project, fair
share, job size, partition, QoS and resources - nice (spec, multifactor-priority; as in Slurm). Constraints: running
jobs keep their GPUs, unless a QoS may preempt them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.domain.reason_codes import ReasonCode
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.queue.backfill import Backfill, Kind
from scheduling.policies.queue.preemption import preempt_for_qos
from scheduling.priority.fair_share import Form
from scheduling.priority.multifactor import Weights
from scheduling.priority.scoring import Formula, Scores, score

DAY_S = 86_400.0


class Parameters(BaseParameters):
    weight_age: float = Field(default=10_000, ge=0, le=1e9, description="Points for having waited max_age_days.")
    weight_assoc: float = Field(default=0, ge=0, le=1e9, description="Points in the project of highest priority.")
    weight_fair_share: float = Field(default=3_000, ge=0, le=1e9, description="Points for having used nothing.")
    weight_job_size: float = Field(default=0, ge=0, le=1e9, description="Points for asking for the whole cluster.")
    weight_partition: float = Field(default=0, ge=0, le=1e9, description="Points in the partition of highest priority.")
    weight_qos: float = Field(default=0, ge=0, le=1e9, description="Points for the highest QoS.")
    weight_resources: dict[str, float] = Field(
        default_factory=dict,
        max_length=100,
        description='Points for asking for all there is of "gpu", or of an accelerator type.',
    )
    max_age_days: float = Field(default=7, gt=0, le=3_650, description="Waiting longer than this adds nothing.")
    fair_share: Form = Field(default="classic", description="Slurm's classic form, or Fair Tree.")
    site_fair_share: bool = Field(
        default=False, description="The factor of users that the cluster's Slurm has (sshare) replaces ours."
    )
    half_life_days: float | None = Field(
        default=7, ge=0.05, le=3_650, description="Half-life of usage; without it usage never decays."
    )
    usage_reset: Literal["never", "daily", "weekly", "monthly", "quarterly", "yearly"] = Field(
        default="never", description="When all usage is reset."
    )
    dampening: float = Field(default=1, gt=0, le=1_000, description="Classic form: usage counts so many times less.")
    favor_small: bool = Field(default=False, description="The job size factor favours small jobs.")
    billing_weights: dict[str, float] = Field(
        default_factory=dict,
        max_length=100,
        description="What a GPU-hour of an accelerator type counts as usage; 1 where nothing is said.",
    )
    backfill: Kind = Field(
        default="easy",
        description="Whose expected start others may not delay: no backfill, the first waiting job, or all.",
    )
    backfill_depth: int = Field(
        default=1_000, ge=1, le=100_000, description="Jobs of the queue that a round considers."
    )
    default_duration_s: float = Field(
        default=DAY_S,
        gt=0,
        le=3_650 * DAY_S,
        description="Assumed for jobs without a known speed, time limit or deadline.",
    )
    gang: Literal["min", "max"] = Field(default="min", description="Which of a job's own limits is its gang.")

    def formula(self) -> Formula:
        return Formula(
            weights=Weights(
                age=self.weight_age,
                assoc=self.weight_assoc,
                fair_share=self.weight_fair_share,
                job_size=self.weight_job_size,
                partition=self.weight_partition,
                qos=self.weight_qos,
                resources=self.weight_resources,
            ),
            form=self.fair_share,
            half_life_s=None if self.half_life_days is None else self.half_life_days * DAY_S,
            max_age_s=self.max_age_days * DAY_S,
            favor_small=self.favor_small,
            dampening=self.dampening,
            billing=self.billing_weights,
            use_site_factors=self.site_fair_share,
        )


#: Named sets of parameters.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "neuron": {},
    "slurm": {
        "weight_age": 0,
        "weight_fair_share": 0,
        "fair_share": "fair_tree",
        "backfill": "conservative",
        "backfill_depth": 500,
    },
}


class Multifactor:
    name: ClassVar[str] = "multifactor"
    title: ClassVar[str] = "Multifactor priority with fair share and backfill"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    presets: Mapping[str, Mapping[str, Any]] = PRESETS
    capabilities = Capabilities(
        Answer.COUNTS,
        needs=Needs.FAIR_SHARE,
        preempts=True,
        respects_guarantees=True,
        runs_to_completion=True,
    )

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def scores_of(self, snapshot: Snapshot, jobs: Sequence[Job]) -> Scores:
        return score(snapshot, jobs, self.parameters.formula())

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        # running jobs are only ranked where they may be preempted
        ranked = snapshot.jobs if any(level.preempts for level in snapshot.qos.values()) else field.queued
        scores = self.scores_of(snapshot, ranked)
        totals = scores.priorities.total.tolist()
        rank = {ranked[n].id: (place, int(totals[n])) for place, n in enumerate(scores.order)}
        queue = sorted(field.queued, key=lambda job: rank[job.id])
        looked, rest = queue[: self.parameters.backfill_depth], queue[self.parameters.backfill_depth :]
        field, out = preempt_for_qos(snapshot, field, looked, self._sizes(field), rank)
        filling = Backfill(
            snapshot,
            field,
            FreeCapacity(snapshot, field),
            self.parameters.backfill,
            self.parameters.default_duration_s,
            self.parameters.gang,
        )
        filling.run([job for job in looked if job.id not in out])
        known = {**field.reasons, **filling.reasons, **out, **_beyond(rest, self.parameters.backfill_depth)}
        keeps = Reason(ReasonCode.KEEPS, "It keeps its GPUs until it ends, unless a higher QoS needs them.")
        known |= dict.fromkeys((job.id for job in field.running), keeps)
        behind = filling.waits_behind
        reasons = LazyReasons((*known, *behind), lambda key: filling.behind(key) if key in behind else known[key])
        return Allocation(
            counts=filling.free_capacity.counts,
            reasons=reasons,
            figures={"free_gpus": float(sum(filling.free_capacity.free.values())), "waiting": float(len(queue))},
        )

    def _sizes(self, field: RoundView) -> Any:
        return lambda job: [Gang(name, count) for name, count in self.start_sizes(field, job).items()]

    def start_sizes(self, field: RoundView, job: Job) -> dict[str, int]:
        whole = self.parameters.gang == "max" and job.max_gpus is not None
        return {name: span.high if whole else span.low for name, span in field.spans(job).items()}

    def in_order(self, snapshot: Snapshot, jobs: Sequence[Job]) -> list[Job]:
        order = self.scores_of(snapshot, snapshot.jobs).order
        place = {snapshot.jobs[n].id: number for number, n in enumerate(order)}
        return sorted(jobs, key=lambda job: place[job.id])


def _beyond(jobs: list[Job], depth: int) -> dict[str, Reason]:
    text = f"{depth:,} higher-priority jobs are queued; this job is considered once some of them start."
    return {job.id: Reason(ReasonCode.PRIORITY, text) for job in jobs}
