"""What a decision looks at: for each resource an image of what the jobs of a device will occupy over time.

An image is time x units; it is kept as the height of each column, in parts of the device, rounded up to a unit. All
images of a decision have the same time scale: the longest run that is looked at about fills their width.
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
#: Columns of an image, and of what a network is shown of it: the most of several.
BINS = 96
SHOWN_BINS = 24
#: Rows: a device has so many units of each resource.
UNITS = 100
_DEPTH = len(RESOURCES)
_GPU, _MEMORY = RESOURCES.index("gpu"), RESOURCES.index("gpu_memory")
#: Cores are busy only while the device is: turns in its time are turns on them.
_TURNS = [_GPU, RESOURCES.index("gpu_cores")]
_TOLERANCE = 1e-6
#: Time scales in each doubling.
_SCALES = 4
#: Jobs of a device and of the backlog beyond this look alike.
_MANY = 8, 32
SCALARS = 16
#: Actions that a network scores beside holding: those that earn most at once.
CONSIDERED = 32
#: A job that is crowded so much (`crowding`) counts as wholly crowded.
CROWDED = 0.04
#: Of leaving a job alone, in mean run lengths: so much is trained for.
MOST_WORTH = 0.6
#: Of a device's time, in parts of it: so much may be asked for at most.
MOST_OVERSUBSCRIPTION = 2.0
#: Values that a network is given for each action.
INPUTS = 3 * _DEPTH * SHOWN_BINS + SCALARS
#: Among them: what is saved, who is crowded, and what that is worth.
SAVED, CROWDS, PRICE = INPUTS - 4, INPUTS - 3, INPUTS - 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """What jobs may ask for together: `oversubscription` times a device's time, in which they take turns, and its cores
    with it; never more than its memory, also where runs take `stretch` times as long, nor than its PCIe."""

    stretch: float
    oversubscription: float

    def room(self) -> Floats:
        """[row of an image, 1], in parts of the device."""
        found: Floats = np.ones((_DEPTH + 1, 1))
        found[_TURNS] = self.oversubscription
        return found + _TOLERANCE


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """What a job will use while it runs alone, as the learner is told: [resource, sample], each of `interval_s`."""

    levels: Floats
    interval_s: float

    @property
    def duration_s(self) -> float:
        return float(self.levels.shape[1] * self.interval_s)


@lru_cache(maxsize=4096)
def stretched(usage: Usage, duration_s: float) -> Usage:
    """The same, so long. Whoever waits is the same at every look, so that images of it are drawn once."""
    return Usage(usage.levels, duration_s / usage.levels.shape[1])


@lru_cache(maxsize=4096)
def constant(share: float, memory: float, duration_s: float) -> Usage:
    """Of the device's time and cores, and of its memory, all the time."""
    return Usage(np.array([[share], [memory], [share], [0.0]]), duration_s)


@lru_cache(maxsize=4096)
def usage_of(history: ResourceHistory, profile: Profile) -> Usage:
    """The whole series, or one sample of its greatest or mean values."""
    levels = np.array([getattr(history, name) for name in RESOURCES], dtype=float)
    if profile == "max":
        return Usage(levels.max(axis=1, keepdims=True), history.duration_s)
    if profile == "mean":
        return Usage(levels.mean(axis=1, keepdims=True), history.duration_s)
    return Usage(levels, history.interval_s)


@dataclass(slots=True)
class Placed:
    """A job and how much of its run is done, in seconds of it."""

    usage: Usage
    done_s: float = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.usage.duration_s - self.done_s)


def image(placed: Placed, width_s: float, stretch: float) -> Floats:
    """[resource and once more memory, column of `width_s`]: the most that it uses in that time.

    The last row is of memory if the run may take up to `stretch` times as long, from any moment on.
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
    """The greatest of the samples from `begin`, in samples, to `last`; 0 where it begins after the end."""
    count = levels.shape[1] - 1
    first = np.minimum(np.floor(begin + _TOLERANCE), count).astype(int)
    bounds = np.stack((first, np.maximum(last, first + 1)), axis=1).ravel()
    bounds = np.minimum(bounds, count)
    return np.asarray(np.maximum.reduceat(levels, bounds, axis=1)[:, ::2])


@dataclass(frozen=True, slots=True)
class Choices:
    """Of `slots` jobs that wait so many at most are placed `together` by one action."""

    slots: int
    together: int

    def groups(self) -> Any:
        """[action, member]: the slots that it places; `slots` where it has fewer members. Action 0 holds; the others
        are all non-empty combinations, in the order of the numbers whose bits they are."""
        return _groups(self)

    def members(self) -> Floats:
        """[action, slot]: 1 where the action places it."""
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
    """`legal`: the numbers of the legal actions; `actions`: of those that are worth a look, CONSIDERED beside holding;
    `inputs`: [one of these, INPUTS]."""

    legal: Any
    actions: Any
    inputs: np.ndarray[Any, np.dtype[np.float32]]


def legal_actions(
    placed: Sequence[Placed], slots: Sequence[Placed], choices: Choices, bounds: Bounds, allowed: Mask | None = None
) -> tuple[Mask, Floats, Floats, float]:
    """(by action whether it may be chosen, images of who is on the device, of the slots, seconds that they show).

    Legal is what keeps every resource within `bounds` at any time. An empty device is not kept empty.
    """
    horizon = max([1.0, *(one.left_s for one in (*placed, *slots))])
    width = _width(horizon)
    here: Floats = np.zeros((len(placed), _DEPTH + 1, BINS))
    for number, one in enumerate(placed):
        here[number] = image(one, width, bounds.stretch)
    each = _images(slots, choices.slots, width, bounds.stretch)
    groups, room = choices.groups(), bounds.room() - here.sum(axis=0)
    sizes = (groups < choices.slots).sum(axis=1)
    fits = (each <= room).all(axis=(1, 2))  # alone beside who is there: without that no combination can
    fits[len(slots) : -1] = False
    legal: Mask = np.asarray(fits[groups].all(axis=1))
    if allowed is not None:
        legal &= allowed
    several = np.flatnonzero(legal & (sizes > 1))
    if len(several):
        legal[several] = (_sums(each, groups[several]) <= room).all(axis=(1, 2))
    if not placed:
        # Whoever alone is more than its device, by its own history, runs alone.
        alone = (sizes == 1) & (groups[:, 0] < len(slots))
        legal |= alone if allowed is None else alone & allowed
    legal[0] = bool(placed) or not legal[1:].any()
    return legal, here, each, horizon


def first_short(placed: Sequence[Placed], slots: Sequence[Placed], bounds: Bounds) -> list[tuple[str, float]]:
    """By slot: (of which resource it would first use too much beside who is on the device, in how many seconds), by the
    images that `legal_actions` goes by. Of those that fit it says nothing of use."""
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
    """The images of groups: sums of those of their slots. By hand, as on few cores BLAS's threads cost more."""
    found: Floats = each[groups[:, 0]]
    for column in range(1, groups.shape[1]):
        found += each[groups[:, column]]
    return found


def _images(slots: Sequence[Placed], most: int, width_s: float, stretch: float) -> Floats:
    """Of `most` slots and of an empty one; not to be written to. Of those who have not begun they are the same at every
    look."""
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
    """Of a column: one of few, so that images of those that wait are drawn once."""
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
    """What the network is shown: the device, the combination, the other slots, how long all of them are, what the
    combination saves and whom it crowds, how much time may be asked for, and what it is worth to leave somebody alone,
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
    """Places of those that earn most at once, and of holding, in order."""
    if len(legal) <= CONSIDERED + 1:
        return np.arange(len(legal))
    best = np.argsort(-at_once, kind="stable")[:CONSIDERED]
    return np.unique(np.append(best, 0)) if legal[0] == 0 else np.sort(best)


def _shown(images: Floats) -> Floats:
    return np.asarray(images.reshape(*images.shape[:-1], SHOWN_BINS, -1).max(axis=-1))


def _at_once(placed: Sequence[Placed], slots: Sequence[Placed], members: Floats, groups: Any) -> tuple[Floats, Floats]:
    """By action: (how much later all would have ended had its jobs run after the others, in seconds; how many more jobs
    are crowded). What is asked for beyond the device's time is waited for. What is known of the past is who is still
    there."""
    everybody, moments = (*placed, *slots), _moments(placed, slots)
    use, seconds = uses(everybody, moments), np.diff(moments)
    ahead = moments[:-1] >= 0.0
    saved_s = _saved_s(placed, slots, members, groups, use[:, ahead], seconds[ahead])
    return saved_s, _crowds(everybody, len(placed), members, use, seconds)


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
    """What those that are on a device ask for of its time together, beyond what there is, until all have ended."""
    if len(placed) < 2:
        return 0.0
    moments = _moments(placed, ())
    moments = moments[moments >= 0.0]
    return float(np.maximum(uses(placed, moments).sum(axis=0) - 1.0, 0.0) @ np.diff(moments))


def _crowds(everybody: Sequence[Placed], placed: int, members: Floats, use: Floats, seconds: Floats) -> Floats:
    """`placed` of everybody are there, the first."""
    length = np.array([one.usage.duration_s for one in everybody])
    there = np.ones((len(members) + 1, len(everybody)))
    there[0, placed:] = 0.0
    there[1:, placed:] = members[:, : len(everybody) - placed]
    of_two = (use * seconds) @ use.T
    beside = there @ of_two - of_two.diagonal()
    crowded = there * np.minimum(beside / length / CROWDED, 1.0)
    return np.asarray(crowded[1:].sum(axis=1) - crowded[0].sum())


def _moments(placed: Sequence[Placed], slots: Sequence[Placed]) -> Floats:
    """When to look, in seconds from now: from when two of those that are there were together to the last end, at every
    beginning and end, and more closely while the first of them all runs."""
    left = np.array([one.left_s for one in (*placed, *slots)])
    parts = [np.linspace(0.0, left.max(), BINS + 1), np.linspace(0.0, left.min(), SHOWN_BINS + 1), left]
    done = np.sort([one.done_s for one in placed])
    if len(done) > 1 and done[-2] > 0:
        parts += [-np.linspace(0.0, done[-2], BINS // 2 + 1), -done[:-1]]
    return np.asarray(np.unique(np.concatenate(parts)))


def uses(everybody: Iterable[Placed], moments: Floats) -> Floats:
    """[job, between two moments]: how much of the device's time each uses on average, 0 where it does not run. Moments
    are in seconds from now."""
    found = [np.interp(moments + one.done_s, *_used_until(one.usage)) for one in everybody]
    return np.asarray(np.diff(found, axis=1) / np.diff(moments))


@lru_cache(maxsize=4096)
def _used_until(usage: Usage) -> tuple[Floats, Floats]:
    """(Borders of its samples, how much of the device's time it has used by then), in seconds of its run."""
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
