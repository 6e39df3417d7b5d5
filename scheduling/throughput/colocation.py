"""How fast two workloads train on shared GPUs: from the published table, or estimated for workloads outside it.

A workload of the table is itself. Any other workload is a mixture of the table's kinds: weighted by the estimator's
votes if pairs with it were measured, otherwise equally, because throughputs alone turned out not to predict how a new
model shares a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from scheduling.domain import Job
from scheduling.throughput.estimator import RETAINED, Estimator, Floats
from scheduling.throughput.published import kind_numbers, published_table
from scheduling.throughput.reference_tables import family, retained

#: Distinct (workload, gang) combinations considered for pairs in one round, the most frequent ones.
MOST_WORKLOADS = 64
Pairs = dict[tuple[str, str, int], Mapping[str, tuple[float, float]]]
#: By workload: (type, kind of the table) -> the fraction of its throughput that it kept beside that kind.
Fingerprints = Mapping[str, Mapping[tuple[str, str], float]]


@dataclass(frozen=True, slots=True)
class Votes:
    """A workload as a mixture of the table's kinds."""

    weights: Floats
    source: str  # catalogue: it is one of the kinds | estimated


@cache
def estimator(gang: int) -> Estimator:
    kinds = [published_table().kinds[number] for number in _kinds(gang)]
    return Estimator(retained(gang)[np.ix_(_kinds(gang), _columns(gang))], RETAINED, [family(kind) for kind in kinds])


@cache
def _kinds(gang: int) -> tuple[int, ...]:
    """The kinds that the table has for `gang` GPUs."""
    return tuple(int(n) for n in np.nonzero(~np.isnan(retained(gang)).all(axis=1))[0])


@cache
def _columns(gang: int) -> tuple[int, ...]:
    width = len(published_table().kinds)
    return tuple(kind * width + n for kind in range(len(published_table().types)) for n in _kinds(gang))


def nearest_gang(gang: int) -> int:
    """The table's largest gang up to this size: sharing depends little on the size."""
    return max((known for known in published_table().gangs if known <= gang), default=1)


def votes_of(workload: str, gang: int, fingerprint: Mapping[tuple[str, str], float] | None = None) -> Votes:
    """`gang` is one of the table's."""
    table, kinds = published_table(), _kinds(gang)
    own = kind_numbers().get(workload)
    if own in kinds:
        return Votes((np.array(kinds) == own).astype(float), "catalogue")
    row = np.full(len(_columns(gang)), np.nan)
    for (kind, partner), value in (fingerprint or {}).items():
        number = kind_numbers().get(partner)
        if kind in table.types and number in kinds:
            row[table.types.index(kind) * len(kinds) + kinds.index(number)] = value
    return Votes(estimator(gang).complete(row).weights, "estimated")


def kept(gang: int, votes: Floats) -> Mapping[str, Floats]:
    """{type: [a, b]: the fraction of its throughput that a keeps beside b}, 0 if they do not fit.

    `votes` has one row per workload. "" stands for types outside the table: the mean of those in it.
    """
    kinds, table = list(_kinds(gang)), published_table()
    cells = estimator(gang).table.reshape(len(kinds), len(table.types), len(kinds))
    found = {}
    for number, kind in enumerate(table.types):
        share = cells[:, number, :]
        misfit = votes @ (share <= 0.0) @ votes.T
        found[kind] = np.where(misfit > 0.5, 0.0, votes @ share @ votes.T)
    found[""] = np.mean([found[kind] for kind in table.types], axis=0)
    return found


def pairs_of(jobs: Iterable[Job], types: Iterable[str], fingerprints: Fingerprints | None = None) -> Pairs:
    """The value of `Snapshot.pairs`: all pairs of workloads of the jobs with equal gangs, on `types`."""
    count, first = defaultdict[tuple[str, int], int](int), dict[tuple[str, int], Job]()
    for job in jobs:
        key = job.workload, job.min_gpus
        count[key] += 1
        first.setdefault(key, job)
    chosen = sorted(count, key=lambda key: (-count[key], key))[:MOST_WORKLOADS]
    by_gang = defaultdict[int, list[Job]](list)
    for key in sorted(chosen):
        by_gang[key[1]].append(first[key])
    found: Pairs = {}
    for gang, members in by_gang.items():
        found |= _of_gang(gang, members, list(types), fingerprints or {})
    # no job is its own partner
    return {key: speeds for key, speeds in found.items() if key[0] != key[1] or count[key[0], key[2]] > 1}


def _of_gang(gang: int, members: list[Job], types: list[str], fingerprints: Fingerprints) -> Pairs:
    known = nearest_gang(gang)
    votes = [votes_of(job.workload, known, fingerprints.get(job.workload)).weights for job in members]
    share = kept(known, np.array(votes))
    found: Pairs = {}
    for i, one in enumerate(members):
        for j, other in enumerate(members[i:], i):
            speeds = {kind: _speeds(one, other, kind, share.get(kind, share[""]), i, j) for kind in types}
            fitting = {kind: both for kind, both in speeds.items() if both[0] > 0 and both[1] > 0}
            if fitting:
                found[one.workload, other.workload, gang] = fitting
    return found


def _speeds(one: Job, other: Job, kind: str, share: Floats, i: int, j: int) -> tuple[float, float]:
    alone = [job.curves[kind].at(job.min_gpus) if kind in job.curves else 0.0 for job in (one, other)]
    return alone[0] * float(share[i, j]), alone[1] * float(share[j, i])
