"""Emulates one device in time steps, for training: jobs follow their profiles, and if they request more than the
device's time, all of them slow down equally.

Interference is omitted on purpose: the learner does not see it (spec co-placement, "What must hold").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.policies.learned.images import CROWDED, Bounds, Choices, Placed, Sight, Usage, sight, uses

#: Time between two decisions if no job ends.
STEP_S = 30.0
#: Jobs of a device at once.
MOST_TOGETHER = 8
#: Time between two evaluations of the jobs' use.
_CLOSELY_S = 5.0
#: Weight of the mean slowdown in the cost, besides the makespan in mean run lengths.
SLOWDOWN = 0.01


@dataclass(frozen=True, slots=True)
class Rules:
    """The allowed actions and the objective."""

    choices: Choices
    bounds: Bounds
    unslowed_worth: float


@dataclass(slots=True)
class Episode:
    """State of an episode, which lasts until no job waits or runs. `ends_s` by job, in the given order; `crowding`: for
    each job the mean over its run so far of its own device time multiplied by that of the other jobs on the device."""

    jobs: Sequence[Usage]
    waiting: list[int]
    running: dict[int, Placed] = field(default_factory=dict)
    now: float = 0.0
    ends_s: list[float] = field(default_factory=list)
    crowding: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, jobs: Sequence[Usage]) -> Episode:
        """All jobs wait at the start, in this order."""
        nothing = [0.0] * len(jobs)
        return cls(jobs, list(range(len(jobs))), ends_s=nothing, crowding=list(nothing))

    def copy(self) -> Episode:
        running = {job: Placed(one.usage, one.done_s) for job, one in self.running.items()}
        return Episode(self.jobs, list(self.waiting), running, self.now, list(self.ends_s), list(self.crowding))

    @property
    def makespan_s(self) -> float:
        return max(self.ends_s)

    @property
    def mean_s(self) -> float:
        return float(np.mean([job.duration_s for job in self.jobs]))

    def crowded(self) -> np.ndarray:
        """By job from 0, alone or nearly, to 1."""
        return np.asarray(np.minimum(np.array(self.crowding) / CROWDED, 1.0))

    def see(self, rules: Rules) -> Sight:
        shown = self.waiting[: rules.choices.slots]
        room = rules.choices.members().sum(axis=1) <= MOST_TOGETHER - len(self.running)
        return sight(
            list(self.running.values()),
            [Placed(self.jobs[n]) for n in shown],
            len(self.waiting) - len(shown),
            rules.choices,
            rules.bounds,
            rules.unslowed_worth,
            self.mean_s,
            room,
        )

    def act(self, rules: Rules, action: int) -> None:
        """Start the jobs of the action; if it starts none, time passes."""
        if action == 0:
            self._pass()
            return
        members = rules.choices.members()[action]
        taken = [job for number, job in enumerate(self.waiting[: rules.choices.slots]) if members[number]]
        self.running |= {job: Placed(self.jobs[job]) for job in taken}
        self.waiting = [job for job in self.waiting if job not in taken]
        while self.running and not self.waiting:
            self._pass()

    def _pass(self) -> None:
        """To the next end; while jobs wait, at most one step of the runs."""
        seconds = min(one.left_s for one in self.running.values())
        if self.waiting:
            seconds = min(seconds, STEP_S)
        took_s = seconds
        if len(self.running) > 1:
            took_s, beside = _beside(self.running, seconds)
            for job, more in zip(self.running, beside, strict=True):
                self.crowding[job] += more / self.jobs[job].duration_s
        self.now += took_s
        for job, one in list(self.running.items()):
            one.done_s += seconds
            if one.left_s <= 1e-6:
                self.ends_s[job] = self.now
                del self.running[job]


#: Chooses one of `Sight.actions`, by index.
Choose = Callable[[Episode, Sight], int]


def play(episode: Episode, choose: Choose, rules: Rules) -> Episode:
    """Play to the end."""
    while episode.waiting:
        seen = episode.see(rules)
        place = choose(episode, seen) if len(seen.legal) > 1 else 0
        episode.act(rules, int(seen.actions[place]))
    return episode


def _beside(running: dict[int, Placed], seconds: float) -> tuple[float, np.ndarray]:
    """(How long the next seconds of their runs take; by job, its device time multiplied by the others', over these)."""
    ends = [one.left_s for one in running.values() if one.left_s < seconds]
    moments = np.unique([*np.arange(0.0, seconds, _CLOSELY_S), *ends, seconds])
    use = uses(running.values(), moments)
    total, each_s = use.sum(axis=0), np.diff(moments)
    return float(np.maximum(total, 1.0) @ each_s), np.asarray((use * (total - use)) @ each_s)


def cost(episode: Episode, unslowed_worth: float) -> float:
    """To be minimised: the makespan in mean run lengths, the worth of the crowded jobs, and SLOWDOWN times the mean
    slowdown."""
    lengths = np.array([job.duration_s for job in episode.jobs])
    slowdown = float((np.array(episode.ends_s) / lengths).mean())
    crowded = float(episode.crowded().sum())
    return episode.makespan_s / episode.mean_s + unslowed_worth * crowded + SLOWDOWN * slowdown
