"""One device in time steps, for training: jobs run as their profiles say, and do not slow each other.

Interference is left out on purpose: the learner does not see it (spec co-placement, "What must hold").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.learning.images import CROWDED, Choices, Placed, Sight, Usage, sight, uses

#: Between two looks at the queue where nothing ends.
STEP_S = 30.0
#: Jobs of a device at once.
MOST_TOGETHER = 8
#: Between two looks at what jobs use.
_CLOSELY_S = 5.0
#: What the mean slowdown counts beside the makespan in mean run lengths.
SLOWDOWN = 0.01
#: Chooses one of `Sight.actions`, by its place there.
Choose = Callable[[Sight], int]


@dataclass(slots=True)
class Decision:
    """One that was not forced: when, what was seen, and the place of what was chosen; how much earlier all will have
    ended by it, and how many more are crowded, if nobody else comes."""

    at_s: float
    sight: Sight
    chosen: int
    saved_s: float = 0.0
    crowds: float = 0.0


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


def play(jobs: Sequence[Usage], choose: Choose, choices: Choices, stretch: float, unslowed_worth: float) -> Episode:
    """All jobs wait from the start, in this order; the first `choices.slots` of those that wait can be chosen from."""
    episode = Episode(ends_s=[0.0] * len(jobs), crowding=[0.0] * len(jobs))
    waiting, running, now = list(range(len(jobs))), dict[int, Placed](), 0.0
    members, mean_s = choices.members(), float(np.mean([job.duration_s for job in jobs]))
    while waiting or running:
        while waiting:
            shown = waiting[: choices.slots]
            room = members.sum(axis=1) <= MOST_TOGETHER - len(running)
            seen = sight(
                list(running.values()),
                [Placed(jobs[n]) for n in shown],
                len(waiting) - len(shown),
                choices,
                stretch,
                unslowed_worth,
                mean_s,
                room,
            )
            decision = None
            if len(seen.legal) > 1:
                decision = Decision(now, seen, choose(seen))
                episode.decisions.append(decision)
            action = int(seen.actions[decision.chosen if decision else 0])
            if action == 0:
                break
            before = _foreseen(running, episode)
            taken = [job for number, job in enumerate(shown) if members[action, number]]
            running |= {job: Placed(jobs[job]) for job in taken}
            waiting = [job for job in waiting if job not in taken]
            if decision:
                after = _foreseen(running, episode)
                alone = sum(jobs[job].duration_s for job in taken)
                decision.saved_s, decision.crowds = alone - (after[0] - before[0]), after[1] - before[1]
        now = _pass(running, jobs, now, episode, wait=bool(waiting))
    return episode


def _foreseen(running: dict[int, Placed], episode: Episode) -> tuple[float, float]:
    """(Seconds until all have ended, how many of them are crowded by then) if nobody else comes."""
    if not running:
        return 0.0, 0.0
    last = max(one.left_s for one in running.values())
    crowding = [
        min((episode.crowding[job] + more / one.usage.duration_s) / CROWDED, 1.0)
        for (job, one), more in zip(running.items(), _beside(running, last), strict=True)
    ]
    return last, sum(crowding)


def _beside(running: dict[int, Placed], seconds: float) -> np.ndarray:
    """By job, over the next seconds: what it uses of the device's time by what the others use."""
    ends = [one.left_s for one in running.values() if one.left_s < seconds]
    moments = np.unique([*np.arange(0.0, seconds, _CLOSELY_S), *ends, seconds])
    use = uses(running.values(), moments)
    return np.asarray((use * (use.sum(axis=0) - use)) @ np.diff(moments))


def _pass(running: dict[int, Placed], jobs: Sequence[Usage], now: float, episode: Episode, *, wait: bool) -> float:
    """To the next end, or where somebody waits by a step at most."""
    seconds = min(one.left_s for one in running.values())
    if wait:
        seconds = min(seconds, STEP_S)
    now += seconds
    if len(running) > 1:
        for job, more in zip(running, _beside(running, seconds), strict=True):
            episode.crowding[job] += more / jobs[job].duration_s
    for job, one in list(running.items()):
        one.done_s += seconds
        if one.left_s <= 1e-6:
            episode.ends_s[job] = now
            del running[job]
    return now


def costs(episode: Episode, jobs: Sequence[Usage], at_s: np.ndarray, unslowed_worth: float) -> np.ndarray:
    """What is to be small, minus the undiscounted return, by moment: what is left of the makespan in mean run lengths,
    the worth of those crowded jobs that have not ended, and SLOWDOWN times the mean rest of each job's time in the
    system by its length."""
    ends, lengths = np.array(episode.ends_s), np.array([job.duration_s for job in jobs])
    left = np.maximum(ends[None, :] - at_s[:, None], 0.0)
    slow = (left / lengths[None, :]).mean(axis=1)
    crowd = ((left > 0) * episode.crowded()[None, :]).sum(axis=1)
    return np.asarray(left.max(axis=1) / lengths.mean() + unslowed_worth * crowd + SLOWDOWN * slow)


def returns(episode: Episode, jobs: Sequence[Usage], unslowed_worth: float) -> np.ndarray:
    """By decision: the rewards from it on.

    A decision's reward is what it saves, less whom it crowds, both as they were foreseen, and less what is added to the
    mean slowdown until the next one. What all together save is the sum of all lengths less the makespan: the makespan
    as a potential (Ng et al., ICML 1999), so that what a decision earns it earns at once.
    """
    at_s = np.array([decision.at_s for decision in episode.decisions])
    ends, lengths = np.array(episode.ends_s), np.array([job.duration_s for job in jobs])
    until = np.append(at_s[1:], episode.makespan_s)
    waited = (np.minimum(ends[None, :], until[:, None]) - at_s[:, None]).clip(0.0) / lengths[None, :]
    saved = np.array([decision.saved_s for decision in episode.decisions]) / lengths.mean()
    crowds = np.array([decision.crowds for decision in episode.decisions])
    found = saved - unslowed_worth * crowds - SLOWDOWN * waited.mean(axis=1)
    return np.asarray(found[::-1].cumsum()[::-1])
