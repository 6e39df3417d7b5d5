"""Throughputs of jobs that share GPUs: from the throughput file, else from the published table, like the live
engine."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduling.domain import Job
from scheduling.errors import InvalidInput
from scheduling.input_files import read_json
from scheduling.throughput.colocation import Pairs, pairs_of


def read_pairs(path: Path) -> Pairs:
    """From a file in the reference form: {type: {"('<model>', <gang>)": {"('<other>', <gang>)": [steps/s of
    each]}}}."""
    found: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
    try:
        for kind, entries in read_json(path).items():
            if not kind.endswith("_unconsolidated"):
                for key, values in entries.items():
                    _add(found, kind, key, values)
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: what it says of pairs cannot be read ({error})") from None
    return dict(found)


def _add(found: dict[tuple[str, str, int], dict[str, tuple[float, float]]], kind: str, key: str, values: Any) -> None:
    if not key.startswith("('"):
        return
    model, gang = literal_eval(key)
    for other, both in values.items():
        if other != "null" and min(both) > 0:
            found.setdefault((model, literal_eval(other)[0], int(gang)), {})[kind] = (float(both[0]), float(both[1]))


class PairBook:
    """Pairs for a round; recomputed only when the set of workloads changes."""

    def __init__(self, given: Pairs, types: Iterable[str]) -> None:
        self.given, self.types = given, tuple(types)
        self._seen: frozenset[tuple[str, int, bool]] | None = None
        self._known: Pairs = {}

    def of(self, jobs: Sequence[Job]) -> Pairs:
        counts = Counter((job.workload, job.min_gpus) for job in jobs)
        seen = frozenset((*key, count > 1) for key, count in counts.items())
        if seen != self._seen:
            self._seen, self._known = seen, self._look_up(jobs)
        return self._known

    def _look_up(self, jobs: Sequence[Job]) -> Pairs:
        def known(one: str, other: str, gang: int) -> Mapping[str, tuple[float, float]]:
            turned = self.given.get((other, one, gang), {})
            return self.given.get((one, other, gang)) or {kind: (b, a) for kind, (a, b) in turned.items()}

        return {key: known(*key) or estimated for key, estimated in pairs_of(jobs, self.types).items()}
