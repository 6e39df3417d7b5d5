"""One device in time steps, for training: jobs run as their profiles say, and do not slow each other.

Interference is left out on purpose: the learner does not see it (spec co-placement, "What must hold").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.learning.images import Placed, Sight, Usage, combinations, sight

#: Between two looks at the queue where nothing ends.
STEP_S = 30.0
#: Jobs of a device at once.
MOST_TOGETHER = 8
#: A job whose crowding is so much counts as wholly crowded.
CROWDED = 0.04
#: Chooses one of `Sight.actions`, by its place there.
Choose = Callable[[Sight], int]


@dataclass(slots=True)
class Decision:
    """One that was not forced: when, what was seen, and the place of what was chosen."""

    at_s: float
    sight: Sight
    chosen: int


@dataclass(slots=True)
class Episode:
    """`ends_s` by job, in the order given; `crowding`: of each the mean over its run of what it uses of the device's
    time by what the others beside it use."""

    decisions: list[Decision] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    crowding: list[float] = field(default_factory=list)

    @property
    def makespan_s(self) -> float:
        return max(self.ends_s)

    def crowded(self) -> np.ndarray:
        """By job from 0, alone or nearly, to 1."""
        return np.asarray(np.minimum(np.array(self.crowding) / CROWDED, 1.0))


def play(jobs: Sequence[Usage], choose: Choose, slots: int, stretch: float) -> Episode:
    """All jobs wait from the start, in this order; the first `slots` of those that wait can be chosen from."""
    episode = Episode(ends_s=[0.0] * len(jobs), crowding=[0.0] * len(jobs))
    waiting, running, now = list(range(len(jobs))), dict[int, Placed](), 0.0
    members = combinations(slots)
    while waiting or running:
        while waiting:
            shown = waiting[:slots]
            room = members.sum(axis=1) <= MOST_TOGETHER - len(running)
            seen = sight(
                list(running.values()),
                [Placed(jobs[n]) for n in shown],
                len(waiting) - len(shown),
                slots,
                stretch,
                room,
            )
            place = 0
            if len(seen.actions) > 1:
                place = choose(seen)
                episode.decisions.append(Decision(now, seen, place))
            action = int(seen.actions[place])
            if action == 0:
                break
            for number, job in enumerate(shown):
                if action >> number & 1:
                    running[job] = Placed(jobs[job])
                    waiting.remove(job)
        now = _pass(running, jobs, now, episode, wait=bool(waiting))
    return episode


def _pass(running: dict[int, Placed], jobs: Sequence[Usage], now: float, episode: Episode, *, wait: bool) -> float:
    """To the next end, or where somebody waits by a step at most."""
    seconds = min(one.left_s for one in running.values())
    if wait:
        seconds = min(seconds, STEP_S)
    now += seconds
    if len(running) > 1:
        used = {job: _used(one, seconds) for job, one in running.items()}
        total = sum(used.values())
        for job, share in used.items():
            episode.crowding[job] += share * (total - share) * seconds / jobs[job].duration_s
    for job, one in list(running.items()):
        one.done_s += seconds
        if one.left_s <= 1e-6:
            episode.ends_s[job] = now
            del running[job]
    return now


def _used(one: Placed, seconds: float) -> float:
    """Of the device's time, on average over the next seconds."""
    usage = one.usage
    first, last = int(one.done_s / usage.interval_s), math.ceil((one.done_s + seconds) / usage.interval_s - 1e-9)
    return float(usage.levels[0, first : max(last, first + 1)].mean())


@dataclass(frozen=True, slots=True)
class Weights:
    """Of what is to be small: mean slowdown, makespan by the sum of lengths, part of the jobs that are crowded."""

    slowdown: float = 1.0
    makespan: float = 90.0
    crowding: float = 12.0


def costs(episode: Episode, jobs: Sequence[Usage], at_s: np.ndarray, weights: Weights) -> np.ndarray:
    """Minus the return by moment: from the slowdown the rest of each job's time in the system by its length, from the
    makespan what is left of it, and of the crowding that of jobs that have not ended."""
    ends, lengths = np.array(episode.ends_s), np.array([job.duration_s for job in jobs])
    left = np.maximum(ends[None, :] - at_s[:, None], 0.0)
    slow = (left / lengths[None, :]).mean(axis=1)
    crowd = ((left > 0) * episode.crowded()[None, :]).mean(axis=1)
    span = left.max(axis=1) / lengths.sum()
    return np.asarray(weights.slowdown * slow + weights.makespan * span + weights.crowding * crowd)
