"""From groups back to jobs: the columns' values as time shares of single jobs and of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from scheduling.policies.time_shares.programs.groups import NO_PARTNER, ByJob, Fractions
from scheduling.policies.time_shares.programs.ungrouping.ungroup_pairs import split
from scheduling.solvers.lp import Floats

Shares = Mapping[tuple[str, ...], Mapping[str, float]]
_LEAST = 1e-12


class ByNumber(Mapping[tuple[str, ...], Mapping[str, float]]):
    """Shares of single jobs: `parts[job, type]`, 0 for none. Converted to a mapping on demand."""

    def __init__(self, jobs: Sequence[str], types: Sequence[str], parts: Floats) -> None:
        self.jobs, self.types, self.parts = jobs, types, parts

    @cached_property
    def _found(self) -> dict[tuple[str, ...], dict[str, float]]:
        found: dict[tuple[str, ...], dict[str, float]] = {}
        numbers, kinds = np.nonzero(self.parts)
        parts = self.parts[numbers, kinds].tolist()
        for number, kind, share in zip(numbers.tolist(), kinds.tolist(), parts, strict=True):
            found.setdefault((self.jobs[number],), {})[self.types[kind]] = share
        return found

    def __getitem__(self, key: tuple[str, ...]) -> Mapping[str, float]:
        return self._found[key]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def expand(found: Fractions, values: Floats | ByJob, demand: Floats | None = None) -> Shares:
    """The columns' values as shares of combinations of jobs: equal within a group, or such that each member reaches its
    `demand` (steps/s by job). Shares that are already by job are unchanged."""
    if isinstance(values, ByJob):
        return _of_jobs(found, values.shares)
    if not found.paired and (demand is None or even(found, demand)):
        return _of_jobs(found, _equal_parts(found, values))
    columns, entries = found.columns, found.entries
    parts: dict[tuple[int, int], Floats] = {}
    for group, members in enumerate(found.members):
        part, _ = split(found, group, values, None if demand is None else demand[members])
        for n, column in enumerate(entries.column[entries.of(group)].tolist()):
            parts[group, column] = part[:, n]
    shares: dict[tuple[str, ...], dict[str, float]] = {}
    names = [[found.jobs[job].id for job in members.tolist()] for members in found.members]
    for index in np.nonzero(values > _LEAST)[0].tolist():
        group, partner, kind = int(columns.group[index]), int(columns.partner[index]), found.types[columns.kind[index]]
        own_part, own = parts[group, index], names[group]
        if partner == NO_PARTNER:
            for job, share in zip(own, own_part.tolist(), strict=True):
                if share > _LEAST:
                    shares.setdefault((job,), {})[kind] = share
            continue
        within = partner == group
        theirs, others = own_part if within else parts[partner, index], names[partner]
        for one, other, share in _pair_up(own_part, theirs, within=within):
            _give(shares, (own[one], others[other]), kind, share)
    return shares


def even(found: Fractions, demand: Floats) -> bool:
    """Whether all members of a group need the same."""
    first = np.zeros(len(found.gang))
    first[found.group_of] = demand
    return bool((np.abs(demand - first[found.group_of]) <= 1e-12 * demand).all())


def _equal_parts(found: Fractions, values: Floats) -> Floats:
    parts = np.zeros((len(found.types), len(found.gang)))
    parts[found.columns.kind, found.columns.group] = values / found.count[found.columns.group]
    return np.asarray(parts[:, found.group_of])


def _of_jobs(found: Fractions, parts: Floats) -> Shares:
    return ByNumber([job.id for job in found.jobs], found.types, np.where(parts.T > _LEAST, parts.T, 0.0))


def _give(
    shares: dict[tuple[str, ...], dict[str, float]], combination: tuple[str, ...], kind: str, share: float
) -> None:
    if share > _LEAST:
        given = shares.setdefault(combination, {})
        given[kind] = given.get(kind, 0.0) + share


def _pair_up(one: Floats, other: Floats, *, within: bool) -> list[tuple[int, int, float]]:
    """Lay both sides' shares on a line and cut it at every border; a group paired with itself is offset by half."""
    ends_one, ends_other = np.cumsum(one), np.cumsum(other)
    length = min(ends_one[-1], ends_other[-1])
    turn = length / 2 if within else 0.0
    length -= turn
    cuts = np.unique(np.concatenate(([0.0], ends_one, ends_other - turn, [length])))
    cuts = cuts[(cuts >= 0) & (cuts <= length)]
    middle = (cuts[:-1] + cuts[1:]) / 2
    first, second = np.searchsorted(ends_one, middle), np.searchsorted(ends_other, middle + turn)
    lengths = np.diff(cuts)
    kept = (lengths > _LEAST) & ~(within & (first == second))
    return list(zip(first[kept].tolist(), second[kept].tolist(), lengths[kept].tolist(), strict=True))


def achieved(found: Fractions, shares: Mapping[tuple[str, ...], Mapping[str, float]]) -> dict[str, float]:
    """Effective throughput of each job, in steps/s."""
    number = {kind: n for n, kind in enumerate(found.types)}
    group = {job.id: int(g) for job, g in zip(found.jobs, found.group_of, strict=True)}
    columns = found.columns
    paired = {
        (int(columns.group[n]), int(columns.partner[n]), int(columns.kind[n])): n
        for n in np.nonzero(columns.partner != NO_PARTNER)[0]
    }
    reached = dict.fromkeys(group, 0.0)
    for combination, by_type in shares.items():
        for kind, share in by_type.items():
            if len(combination) == 1:
                reached[combination[0]] += share * found.throughput[group[combination[0]], number[kind]]
                continue
            one, other = (group[job] for job in combination)
            n = paired.get((one, other, number[kind]))
            if n is None:
                one, other, combination = other, one, combination[::-1]
                n = paired[one, other, number[kind]]
            reached[combination[0]] += share * columns.steps_per_s[n]
            reached[combination[1]] += share * columns.partner_steps_per_s[n]
    return reached
