"""Base of learned co-placement policies: a trained network places fractional jobs, one GPU at a time.

For each GPU that can be shared, the first queued jobs that may use it fill the slots. Combinations that would exceed
the device's memory or PCIe at any moment, or `oversubscription` times its time or cores, are excluded. The network
scores the remaining ones with the largest immediate gain, and the best is placed, until placing no further job is best.
`unslowed_worth` is the value of leaving a job alone on its GPU. A job without a history is assumed to use its GPU share
and memory constantly. Memory also suffices if sharing makes runs take up to `stretch` times as long. Jobs that ask for
whole GPUs go to the first node that fits; they precede the fractional jobs that are behind them in the queue. For the
first job that has waited for `patience_s`, fractional or on whole GPUs of one node, the GPUs that will be empty soonest
are reserved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import WHOLE, Allocation, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import counted, span
from scheduling.errors import InvalidInput
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.learned.colocation import ColocationSearch, held_back
from scheduling.policies.learned.images import MOST_OVERSUBSCRIPTION, MOST_WORTH, Bounds, Profile, Sight
from scheduling.policies.learned.network import Model, load
from scheduling.policies.learned.starvation import Reservation, Waiting, is_part, reserve_for_starved
from scheduling.policies.packing.base import PackingPolicy, Planned

MODELS = Path(__file__).parent / "models"
#: Reasons of the job for which GPUs are reserved, and of those that would fit there.


class Parameters(BaseParameters):
    model: str = Field(
        default="",
        max_length=500,
        description="Path of a file that train-placement wrote; empty: the one that comes with the policy.",
    )
    stretch: float = Field(
        default=1.75,
        ge=1.0,
        le=10.0,
        description="Memory suffices though runs that share take so many times as long, or oversubscription times.",
    )
    oversubscription: float = Field(
        default=1.25,
        ge=1.0,
        le=MOST_OVERSUBSCRIPTION,
        description="What jobs on one GPU are expected to use of its time, in which they take turns, may come to so "
        "many times what there is; of its memory never to more. Parts that they ask for never come to more than a GPU.",
    )
    unslowed_worth: float = Field(
        default=0.4,
        ge=0.0,
        le=MOST_WORTH,
        description="What it is worth to leave a job alone on its GPU, in mean run lengths: 0 packs tightly.",
    )
    look_again_s: float = Field(
        default=30.0,
        ge=1.0,
        le=3_600.0,
        description="Seconds after which jobs that were held back are looked at again.",
    )
    patience_s: float = Field(
        default=14_400.0,
        ge=0.0,
        le=2_592_000.0,
        description="Seconds of waiting after which the GPUs that will be empty soonest are kept for a job.",
    )

    @field_validator("model")
    @classmethod
    def _can_be_read(cls, value: str) -> str:
        if value:
            try:
                load(Path(value))
            except InvalidInput as error:
                raise ValueError(str(error)) from None
        return value


class LearnedPolicy(PackingPolicy):
    """Subclasses define `name`, `title` and `profile`."""

    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.PLACEMENTS, needs=Needs.HISTORIES, places_gpu_parts=True)
    profile: ClassVar[Profile]

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self.model: Model = load(Path(self.parameters.model) if self.parameters.model else MODELS / f"{self.name}.npz")
        oversubscription = self.parameters.oversubscription
        self.bounds = Bounds(max(self.parameters.stretch, oversubscription), oversubscription)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        found = super().allocate(snapshot)
        parts = {job.id for job in snapshot.jobs if job.gpu_milli < WHOLE}
        # Reservations for whole GPUs change only when jobs end.
        if not any(
            r.token == ReasonCode.HELD_BACK or (r.token == ReasonCode.KEPT_FOR and key in parts)
            for key, r in found.reasons.items()
        ):
            return found
        # Moments on which all rounds agree, so that wake-ups do not add up.
        every = self.parameters.look_again_s
        return replace(found, next_wake_at=(snapshot.now // every + 1) * every)

    def plan(self, snapshot: Snapshot, node_capacity: NodeCapacity, wanted: Mapping[str, Demand]) -> Planned:
        jobs = {job.id: job for job in snapshot.jobs}
        queue = [Waiting(jobs[key], demand) for key, demand in wanted.items()]
        trial, parts = node_capacity.copy(), [one for one in queue if one.is_part]
        joining = ColocationSearch(self, trial, _holding(snapshot), parts)
        found = dict[str, tuple[int, ...]]()
        kept = reserve_for_starved(queue, snapshot, trial, self.parameters.patience_s, joining)
        if kept:
            one = kept.one
            started = joining.start(one) if one.is_part else self._start(one, trial, found)
            if started:
                kept = None
            else:
                trial.keep(one.demand, kept.gpus)
        for one in queue if parts else ():
            if one.is_part:
                break
            if one.job.id not in found and one is not (kept and kept.one):
                self._start(one, trial, found)
        joining.run()
        found |= joining.found
        if not kept:
            return Planned(found, joining.reasons())
        reasons = joining.reasons() | self._waits_for_kept(kept, node_capacity, trial, snapshot.now, queue, found)
        return Planned(found, reasons, (kept.one.demand, kept.gpus))

    def _start(self, one: Waiting, node_capacity: NodeCapacity, found: dict[str, tuple[int, ...]]) -> bool:
        rows = node_capacity.fitting(one.demand)
        if len(rows):
            found[one.job.id] = self.choose(node_capacity, one.demand, rows, None)
            node_capacity.book(one.demand, found[one.job.id])
        return bool(len(rows))

    def _waits_for_kept(
        self,
        kept: Reservation,
        node_capacity: NodeCapacity,
        after: NodeCapacity,
        now: float,
        queue: Sequence[Waiting],
        found: Mapping[str, tuple[int, ...]],
    ) -> dict[str, Reason]:
        """Reasons of the job with a reservation, and of those that would fit there."""
        first, node = kept.one, node_capacity.nodes[node_capacity.place[kept.gpus[0]][0]].name
        what, waited = f"{counted(len(kept.gpus), 'GPU')} of {node}", span(first.waited_s(now))
        when = f", to be empty in about {span(kept.empty_in_s)}" if 0 < kept.empty_in_s < math.inf else ""
        text = f"It has waited for {waited} and has reserved {what}{when}."
        reasons = {first.job.id: Reason(ReasonCode.KEPT_FOR, text, {"node": node})}
        # Jobs on whole GPUs, which are placed later, do not wait because of the reservation.
        given, without = dict(found), node_capacity.copy()
        for one in queue:
            if one.job.id not in given and one is not first and not one.is_part:
                self._start(one, after, given)
        for one in queue:
            if one.job.id in given:
                without.book(one.demand, given[one.job.id])
        then = f"; that is to be empty in about {span(kept.empty_in_s)}" if when else ""
        text = f"It would fit on {what}, reserved for #{first.job.number}, which has waited for {waited}"
        left = [one for one in queue if one.job.id not in given and one is not first]
        barred = {d for d in {one.demand for one in left} if not len(after.fitting(d)) and len(without.fitting(d))}
        reasons |= {
            one.job.id: Reason(ReasonCode.KEPT_FROM, f"{text}{then}.", {"node": node, "by": first.job.id})
            for one in left
            if one.demand in barred
        }
        return reasons

    def pick(self, seen: Sight) -> int:
        """The best of the actions."""
        return int(seen.actions[np.argmax(self.model.scores(seen.inputs))])

    def _place(
        self, node_capacity: NodeCapacity, demand: Demand, planned: tuple[int, ...] | None, memory: Any
    ) -> tuple[int, ...] | None:
        if planned is None and is_part(demand):
            return None
        return super()._place(node_capacity, demand, planned, memory)

    def why_not(self, node_capacity: NodeCapacity, demand: Demand) -> Reason:
        if not is_part(demand) or not len(node_capacity.fitting(demand)):
            return super().why_not(node_capacity, demand)
        return held_back("None of the GPUs considered first can take it now.", self.parameters.look_again_s)

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return node_capacity.tightest(int(rows[0]), demand)

    def order(self, field: RoundView, queue: Sequence[Job]) -> Sequence[Job]:
        return queue


def _holding(snapshot: Snapshot) -> dict[int, list[Job]]:
    """By GPU."""
    found: dict[int, list[Job]] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.number):
        for gpu in job.gpu_ids:
            found.setdefault(gpu, []).append(job)
    return found
