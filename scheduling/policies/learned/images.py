"""Input of a decision: for each resource an image of what the jobs of a device will occupy over time.

An image is time x units, stored as the height of each column in fractions of the device, rounded up to a unit. All
images of a decision have the same time scale: the longest run considered about fills their width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, Literal

import numpy as np

from scheduling.domain.usage_history import RESOURCES, ResourceHistory

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Profile = Literal["series", "max", "mean"]
#: Columns of an image, and of the network's input made from it: the maximum of several.
BINS = 96
SHOWN_BINS = 24
#: Rows: the number of units of each resource of a device.
UNITS = 100
_DEPTH = len(RESOURCES)
_GPU, _MEMORY = RESOURCES.index("gpu"), RESOURCES.index("gpu_memory")
#: Cores are only busy while the device is: turns in its time are also turns on its cores.
_TURNS = [_GPU, RESOURCES.index("gpu_cores")]
_TOLERANCE = 1e-6
#: Time scales in each doubling.
_SCALES = 4
#: Numbers of jobs on a device and in the backlog beyond this are equivalent.
_MANY = 8, 32
SCALARS = 16
#: Actions that a network scores besides placing nothing: those with the largest immediate gain.
CONSIDERED = 32
#: A job with this much `crowding` or more counts as fully crowded.
CROWDED = 0.04
#: Worth of leaving a job alone, in mean run lengths: networks are trained up to this.
MOST_WORTH = 0.6
#: The most that may be requested of a device's time, as a fraction of it.
MOST_OVERSUBSCRIPTION = 2.0
#: Input values of a network for each action.
INPUTS = 3 * _DEPTH * SHOWN_BINS + SCALARS
#: Among them: the time saved, the jobs crowded, and what that is worth.
SAVED, CROWDS, PRICE = INPUTS - 4, INPUTS - 3, INPUTS - 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """What jobs may request together: `oversubscription` times a device's time, in which they take turns, and likewise
    its cores; never more than its memory, even if runs take `stretch` times as long, or its PCIe."""

    stretch: float
    oversubscription: float

    def room(self) -> Floats:
        """[row of an image, 1], in fractions of the device."""
        found: Floats = np.ones((_DEPTH + 1, 1))
        found[_TURNS] = self.oversubscription
        return found + _TOLERANCE


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """What a job will use while it runs alone, as the network sees it: [resource, sample], each of `interval_s`."""

    levels: Floats
    interval_s: float

    @property
    def duration_s(self) -> float:
        return float(self.levels.shape[1] * self.interval_s)


@lru_cache(maxsize=4096)
def stretched(usage: Usage, duration_s: float) -> Usage:
    """The same, stretched to this length. A pending job is the same in every decision, so its images are drawn once."""
    return Usage(usage.levels, duration_s / usage.levels.shape[1])


@lru_cache(maxsize=4096)
def constant(share: float, memory: float, duration_s: float) -> Usage:
    """Constant use of the device's time and cores, and of its memory."""
    return Usage(np.array([[share], [memory], [share], [0.0]]), duration_s)


@lru_cache(maxsize=4096)
def usage_of(history: ResourceHistory, profile: Profile) -> Usage:
    """The whole series, or one sample of its maximum or mean."""
    levels = np.array([getattr(history, name) for name in RESOURCES], dtype=float)
    if profile == "max":
        return Usage(levels.max(axis=1, keepdims=True), history.duration_s)
    if profile == "mean":
        return Usage(levels.mean(axis=1, keepdims=True), history.duration_s)
    return Usage(levels, history.interval_s)


@dataclass(slots=True)
class Placed:
    """A job and the completed part of its run, in seconds."""

    usage: Usage
    done_s: float = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.usage.duration_s - self.done_s)


def image(placed: Placed, width_s: float, stretch: float) -> Floats:
    """[resource, and memory a second time; column of `width_s`]: the most that it uses in that time.

    The last row is memory use if the run may take up to `stretch` times as long, from any moment on.
    """
    return (_image_of_new if placed.done_s == 0 else _image)(placed.usage, placed.done_s, width_s, stretch)


def _image(usage: Usage, done: float, width_s: float, stretch: float) -> Floats:
    count = usage.levels.shape[1]
    levels = np.concatenate([usage.levels, np.zeros((_DEPTH, 1))], axis=1)  # nothing after its end
    edges = np.arange(BINS + 1) * width_s
    last = np.clip(np.ceil((done + edges[1:]) / usage.interval_s - _TOLERANCE), 1, count).astype(int)
    found = np.zeros((_DEPTH + 1, BINS))
    found[:_DEPTH] = _most(levels, (done + edges[:-1]) / usage.interval_s, last)
    found[_DEPTH] = _most(levels[_MEMORY : _MEMORY + 1], (done + edges[:-1] / stretch) / usage.interval_s, last)[0]
    return np.ceil(found * UNITS - _TOLERANCE) / UNITS


_image_of_new = lru_cache(maxsize=4096)(_image)


def _most(levels: Floats, begin: Any, last: Any) -> Floats:
    """The maximum of the samples from `begin`, in samples, to `last`; 0 if it begins after the end."""
    count = levels.shape[1] - 1
    first = np.minimum(np.floor(begin + _TOLERANCE), count).astype(int)
    bounds = np.stack((first, np.maximum(last, first + 1)), axis=1).ravel()
    bounds = np.minimum(bounds, count)
    return np.asarray(np.maximum.reduceat(levels, bounds, axis=1)[:, ::2])


@dataclass(frozen=True, slots=True)
class Choices:
    """Of `slots` queued jobs, one action places at most `together`."""

    slots: int
    together: int

    def groups(self) -> Any:
        """[action, member]: the slots that it places; `slots` pads actions with fewer members. Action 0 places nothing;
        the others are all non-empty combinations, in the order of the numbers with these bits."""
        return _groups(self)

    def members(self) -> Floats:
        """[action, slot]: 1 if the action places it."""
        return _members(self)


@cache
def _groups(choices: Choices) -> Any:
    sizes = range(min(choices.together, choices.slots) + 1)
    groups = [group for size in sizes for group in combinations(range(choices.slots), size)]
    found = np.full((len(groups), choices.together), choices.slots)
    for number, group in enumerate(sorted(groups, key=lambda group: sum(1 << slot for slot in group))):
        found[number, : len(group)] = group
    return found


@cache
def _members(choices: Choices) -> Floats:
    return np.asarray((choices.groups()[:, :, None] == np.arange(choices.slots)).any(axis=1), dtype=float)


@dataclass(frozen=True, slots=True)
class Sight:
    """`legal`: the numbers of the legal actions; `actions`: those worth scoring, CONSIDERED besides placing nothing;
    `inputs`: [one of these, INPUTS]."""

    legal: Any
    actions: Any
    inputs: np.ndarray[Any, np.dtype[np.float32]]


def legal_actions(
    placed: Sequence[Placed], slots: Sequence[Placed], choices: Choices, bounds: Bounds, allowed: Mask | None = None
) -> tuple[Mask, Floats, Floats, float]:
    """(whether each action is legal, images of the jobs on the device and of the slots, the seconds that they cover).

    An action is legal if it keeps every resource within `bounds` at any time. An empty device does not stay empty.
    """
    horizon = max([1.0, *(one.left_s for one in (*placed, *slots))])
    width = _width(horizon)
    here: Floats = np.zeros((len(placed), _DEPTH + 1, BINS))
    for number, one in enumerate(placed):
        here[number] = image(one, width, bounds.stretch)
    each = _images(slots, choices.slots, width, bounds.stretch)
    groups, room = choices.groups(), bounds.room() - here.sum(axis=0)
    sizes = (groups < choices.slots).sum(axis=1)
    fits = (each <= room).all(axis=(1, 2))  # each job alone beside the present ones: otherwise no combination can
    fits[len(slots) : -1] = False
    legal: Mask = np.asarray(fits[groups].all(axis=1))
    if allowed is not None:
        legal &= allowed
    several = np.flatnonzero(legal & (sizes > 1))
    if len(several):
        legal[several] = (_sums(each, groups[several]) <= room).all(axis=(1, 2))
    if not placed:
        # A job whose history exceeds the device by itself runs alone.
        alone = (sizes == 1) & (groups[:, 0] < len(slots))
        legal |= alone if allowed is None else alone & allowed
    legal[0] = bool(placed) or not legal[1:].any()
    return legal, here, each, horizon


def first_short(placed: Sequence[Placed], slots: Sequence[Placed], bounds: Bounds) -> list[tuple[str, float]]:
    """By slot: (the resource that it would exceed first beside the jobs on the device, in how many seconds), from the
    images of `legal_actions`. For slots that fit the values are meaningless."""
    width = _width(max([1.0, *(one.left_s for one in (*placed, *slots))]))
    here = sum((image(one, width, bounds.stretch) for one in placed), np.zeros((_DEPTH + 1, BINS)))
    over = _images(slots, len(slots), width, bounds.stretch)[:-1] + here > bounds.room()
    found = []
    for one in over:
        column = int(one.any(axis=0).argmax())
        row = int(one[:, column].argmax())
        found.append((RESOURCES[_MEMORY if row == _DEPTH else row], column * width))
    return found


def _sums(each: Floats, groups: Any) -> Floats:
    """The images of groups: sums of those of their slots. Without BLAS, whose threads cost more on few cores."""
    found: Floats = each[groups[:, 0]]
    for column in range(1, groups.shape[1]):
        found += each[groups[:, column]]
    return found


def _images(slots: Sequence[Placed], most: int, width_s: float, stretch: float) -> Floats:
    """Images of `most` slots and of an empty one; read-only. Those of jobs that have not started never change."""
    if not any(one.done_s for one in slots):
        return _images_of_new(tuple([one.usage for one in slots]), most, width_s, stretch)
    return _stack([image(one, width_s, stretch) for one in slots], most)


@lru_cache(maxsize=64)
def _images_of_new(usages: tuple[Usage, ...], most: int, width_s: float, stretch: float) -> Floats:
    return _stack([_image_of_new(usage, 0.0, width_s, stretch) for usage in usages], most)


def _stack(images: Sequence[Floats], most: int) -> Floats:
    found: Floats = np.zeros((most + 1, _DEPTH + 1, BINS))
    for number, one in enumerate(images):
        found[number] = one
    return found


def _width(horizon_s: float) -> float:
    """The width of a column: one of few, so that images of queued jobs are drawn once."""
    return float(2.0 ** (np.ceil(np.log2(horizon_s / BINS) * _SCALES - _TOLERANCE) / _SCALES))


def sight(
    placed: Sequence[Placed],
    slots: Sequence[Placed],
    backlog: int,
    choices: Choices,
    bounds: Bounds,
    unslowed_worth: float,
    mean_s: float,
    allowed: Mask | None = None,
) -> Sight:
    """Inputs of the network: the device, the combination, the other slots, the length of all of them, the time that the
    combination saves and the jobs that it crowds, how much time may be requested, and the worth of leaving a job alone,
    in run lengths of `mean_s`."""
    mask, here, each, horizon = legal_actions(placed, slots, choices, bounds, allowed)
    legal = np.flatnonzero(mask)
    if len(legal) == 1:
        return Sight(legal, legal, np.zeros((1, INPUTS), dtype=np.float32))
    members = choices.members()[legal]
    saved_s, crowds = _at_once(placed, slots, members, choices.groups()[legal])
    saved = saved_s / mean_s
    best = _worth_a_look(legal, saved - unslowed_worth * crowds)
    members = members[best]
    sums = _sums(each[:, :_DEPTH], choices.groups()[legal[best]])
    rest = each[:, :_DEPTH].sum(axis=0) - sums
    inputs = np.empty((len(best), INPUTS), dtype=np.float32)
    wide = _DEPTH * SHOWN_BINS
    inputs[:, :wide] = _shown(here[:, :_DEPTH].sum(axis=0)).ravel()
    inputs[:, wide : 2 * wide] = _shown(sums).reshape(len(best), wide)
    inputs[:, 2 * wide : 3 * wide] = _shown(rest).reshape(len(best), wide) / choices.slots
    inputs[:, 3 * wide : SAVED - 1] = _scalars(placed, slots, backlog, members, horizon)
    inputs[:, SAVED - 1] = bounds.oversubscription
    inputs[:, SAVED], inputs[:, CROWDS] = saved[best], crowds[best]
    inputs[:, PRICE] = inputs[:, CROWDS] * unslowed_worth
    inputs[:, INPUTS - 1] = unslowed_worth
    return Sight(legal, legal[best], inputs)


def _worth_a_look(legal: Any, at_once: Floats) -> Any:
    """Indices of the actions with the largest immediate gain, and of placing nothing, in order."""
    if len(legal) <= CONSIDERED + 1:
        return np.arange(len(legal))
    best = np.argsort(-at_once, kind="stable")[:CONSIDERED]
    return np.unique(np.append(best, 0)) if legal[0] == 0 else np.sort(best)


def _shown(images: Floats) -> Floats:
    return np.asarray(images.reshape(*images.shape[:-1], SHOWN_BINS, -1).max(axis=-1))


def _at_once(placed: Sequence[Placed], slots: Sequence[Placed], members: Floats, groups: Any) -> tuple[Floats, Floats]:
    """By action: (how much later all jobs would have ended had its jobs run after the others, in seconds; how many more
    jobs are crowded). Requests beyond the device's time are waited for. Of the past only the present jobs are known."""
    all_jobs, moments = (*placed, *slots), _moments(placed, slots)
    use, seconds = uses(all_jobs, moments), np.diff(moments)
    ahead = moments[:-1] >= 0.0
    saved_s = _saved_s(placed, slots, members, groups, use[:, ahead], seconds[ahead])
    return saved_s, _crowds(all_jobs, len(placed), members, use, seconds)


def _saved_s(
    placed: Sequence[Placed], slots: Sequence[Placed], members: Floats, groups: Any, use: Floats, seconds: Floats
) -> Floats:
    left = np.zeros(members.shape[1])
    left[: len(slots)] = [one.left_s for one in slots]
    now = max((one.left_s for one in placed), default=0.0)
    longer = np.maximum((members * left).max(axis=1) - now, 0.0)
    each = np.zeros((members.shape[1] + 1, len(seconds)))
    each[: len(slots)] = use[len(placed) :]
    here = use[: len(placed)].sum(axis=0)
    late = np.maximum(here + _sums(each, groups) - 1.0, 0.0) - np.maximum(here - 1.0, 0.0)
    return np.asarray(members @ left - longer - late @ seconds)


def turns_s(placed: Sequence[Placed]) -> float:
    """The excess of the requested device time over the available time, until all jobs of the device have ended."""
    if len(placed) < 2:
        return 0.0
    moments = _moments(placed, ())
    moments = moments[moments >= 0.0]
    return float(np.maximum(uses(placed, moments).sum(axis=0) - 1.0, 0.0) @ np.diff(moments))


def _crowds(all_jobs: Sequence[Placed], placed: int, members: Floats, use: Floats, seconds: Floats) -> Floats:
    """The first `placed` of all jobs are on the device."""
    length = np.array([one.usage.duration_s for one in all_jobs])
    there = np.ones((len(members) + 1, len(all_jobs)))
    there[0, placed:] = 0.0
    there[1:, placed:] = members[:, : len(all_jobs) - placed]
    of_two = (use * seconds) @ use.T
    beside = there @ of_two - of_two.diagonal()
    crowded = there * np.minimum(beside / length / CROWDED, 1.0)
    return np.asarray(crowded[1:].sum(axis=1) - crowded[0].sum())


def _moments(placed: Sequence[Placed], slots: Sequence[Placed]) -> Floats:
    """Moments to evaluate, in seconds from now: from when two of the present jobs were together to the last end, at
    every start and end, and more often while the first of them all runs."""
    left = np.array([one.left_s for one in (*placed, *slots)])
    parts = [np.linspace(0.0, left.max(), BINS + 1), np.linspace(0.0, left.min(), SHOWN_BINS + 1), left]
    done = np.sort([one.done_s for one in placed])
    if len(done) > 1 and done[-2] > 0:
        parts += [-np.linspace(0.0, done[-2], BINS // 2 + 1), -done[:-1]]
    return np.asarray(np.unique(np.concatenate(parts)))


def uses(all_jobs: Iterable[Placed], moments: Floats) -> Floats:
    """[job, between two moments]: the mean fraction of the device's time that each uses, 0 while it does not run.
    Moments are in seconds from now."""
    found = [np.interp(moments + one.done_s, *_used_until(one.usage)) for one in all_jobs]
    return np.asarray(np.diff(found, axis=1) / np.diff(moments))


@lru_cache(maxsize=4096)
def _used_until(usage: Usage) -> tuple[Floats, Floats]:
    """(borders of its samples, device time that it has used by then), in seconds of its run."""
    borders = np.arange(usage.levels.shape[1] + 1) * usage.interval_s
    return borders, np.concatenate([[0.0], np.cumsum(usage.levels[_GPU]) * usage.interval_s])


def _scalars(
    placed: Sequence[Placed], slots: Sequence[Placed], backlog: int, members: Floats, horizon: float
) -> Floats:
    most = members.shape[1]
    lengths = np.zeros(most)
    lengths[: len(slots)] = [one.left_s / horizon for one in slots]
    here = [one.left_s / horizon for one in placed]
    size = members.sum(axis=1)
    short = np.zeros(most)
    short[: len(slots)] = min((one.left_s for one in slots), default=1.0) / np.array(
        [max(one.left_s, 1e-3) for one in slots] or [1.0] * len(slots)
    )
    found = np.empty((len(members), SCALARS - 5))
    found[:, 0] = size == 0
    found[:, 1] = size / most
    found[:, 2] = members @ lengths / np.maximum(size, 1)
    found[:, 3] = (members * lengths).max(axis=1)
    found[:, 4] = members @ short / most
    found[:, 5] = (1 - members) @ short / most
    found[:, 6] = max(here, default=0.0)
    found[:, 7] = min(here, default=0.0)
    found[:, 8] = min(len(placed), _MANY[0]) / _MANY[0]
    found[:, 9] = min(backlog, _MANY[1]) / _MANY[1]
    found[:, 10] = len(slots) / most
    return found
