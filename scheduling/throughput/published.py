"""The published throughput table that comes with the package: reference rows besides local measurements.

Its kinds are measured workloads, not programs that can be submitted. Licence and source are in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scheduling.domain import Curve
from scheduling.throughput.curves import envelope, factors_by_count

FILE = Path(__file__).parent / "profiles" / "published" / "gavel.json"
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Published:
    """By (type, gang): `alone[k]`, `spread[k]` (the gang spans nodes) and `colocated[k, partner]` in steps/s.

    NaN: not measured, 0: does not fit.
    """

    title: str
    source: str
    licence: str
    unit: str
    kinds: tuple[str, ...]
    types: tuple[str, ...]
    gangs: tuple[int, ...]
    alone: Mapping[tuple[str, int], Floats]
    spread: Mapping[tuple[str, int], Floats]
    colocated: Mapping[tuple[str, int], Floats]

    def retained(self, kind: str, gang: int) -> Floats:
        """The fraction of each row's throughput beside each column's: 1 all, 0 does not fit, NaN unknown."""
        alone = self.alone[kind, gang][:, None]
        # a workload that does not fit alone fits beside no other
        share = np.where(alone == 0, 0.0 * self.colocated[kind, gang], np.nan)
        return np.asarray(np.divide(self.colocated[kind, gang], alone, out=share, where=alone > 0))


@cache
def published_table(file: Path = FILE) -> Published:
    """Read once, on first use."""
    data = json.loads(file.read_text())
    kinds = tuple(data["kinds"])
    alone, spread, colocated = dict[tuple[str, int], Floats](), dict[tuple[str, int], Floats](), {}
    for kind, gangs in data["types"].items():
        for gang, entry in gangs.items():
            key = kind, int(gang)
            alone[key], spread[key] = (np.array(entry[name], dtype=float) for name in ("alone", "spread"))
            rows = [row or [None] * len(kinds) for row in entry["colocated"]]
            colocated[key] = np.array(rows, dtype=float)
    types = tuple(data["types"])
    gangs = tuple(sorted({gang for _, gang in alone}))
    return Published(
        title=data["title"],
        source=data["source"],
        licence=data["licence"],
        unit=data["unit"],
        kinds=kinds,
        types=types,
        gangs=gangs,
        alone=alone,
        spread=spread,
        colocated=colocated,
    )


def slug(kind: str) -> str:
    """ "ResNet-50 (batch size 64)" -> "resnet-50-64": the name under which its program may be registered."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower().replace("batch size", "")).strip("-")


@cache
def kind_numbers() -> Mapping[str, int]:
    """The index of each kind by its name in the table and by its slug."""
    kinds = published_table().kinds
    return {kind: n for n, kind in enumerate(kinds)} | {slug(kind): n for n, kind in enumerate(kinds)}


@cache
def published_curves() -> Mapping[str, Mapping[str, Curve]]:
    """{kind: {accelerator type: curve}}, in the catalogue's form; counts in between have the next smaller's value."""
    table = published_table()
    return {
        kind: {name: curve for name in table.types if (curve := _curve(table, name, n))}
        for n, kind in enumerate(table.kinds)
    }


@cache
def published_by_slug() -> Mapping[str, Mapping[str, Curve]]:
    return {slug(kind): curves for kind, curves in published_curves().items()}


def _curve(table: Published, kind: str, number: int) -> Curve | None:
    together = _points(table.alone, table, kind, number)
    if not any(together.values()):
        return None
    apart = _points(table.spread, table, kind, number)
    ratios = {gang: apart[gang] / together[gang] for gang in apart if together.get(gang) and apart[gang] > 0}
    return Curve(envelope(together), "catalogue", 1.0, factors_by_count(ratios))


def _points(values: Mapping[tuple[str, int], Floats], table: Published, kind: str, number: int) -> dict[int, float]:
    found = {gang: float(values[kind, gang][number]) for gang in table.gangs}
    return {gang: value for gang, value in found.items() if not np.isnan(value)}
