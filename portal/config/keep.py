"""EVENKEEL_KEEP: how long, or how much of it, the portal keeps what it collects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from portal.config import env
from portal.config.old_names import RENAMED

NAME = "EVENKEEL_KEEP"
MIB = 1 << 20
_DAYS = {"d": 1}
_SIZES = {"MiB": 1, "GiB": 1 << 10, "TiB": 1 << 20}
_ITEM = re.compile(r"(?P<key>[a-z_]+)=(?P<count>[0-9]{1,10})(?P<unit>[A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Kept:
    """One key. In days, or in MiB of which the oldest goes first."""

    key: str
    default: int
    maximum: int
    help: str
    by_size: bool = False

    @property
    def units(self) -> dict[str, int]:
        return _SIZES if self.by_size else _DAYS

    @property
    def unit(self) -> str:
        return "MiB" if self.by_size else "d"


_TEN_YEARS, _CENTURY = 3_660, 36_500
_TIB_IN_MIB = 2**20
KEYS = (
    Kept("events", 90, _TEN_YEARS, "job events, which go by whole months once all of one is older"),
    Kept("samples", 14, _TEN_YEARS, "points of the overview's charts"),
    Kept(
        "metrics",
        30,
        _TEN_YEARS,
        "so long after a run's end the points of its metrics are thinned to 200, evenly; a live run has at most 4,000",
    ),
    Kept(
        "shares",
        400,
        _TEN_YEARS,
        "history of fair shares: quarters of an hour of the last day, hours of two weeks, then days",
    ),
    Kept(
        "fairness",
        400,
        _TEN_YEARS,
        "history of relative throughput: minutes of three hours, quarters of an hour of a day, hours of two weeks, "
        "then days",
    ),
    Kept(
        "resources",
        90,
        _TEN_YEARS,
        "series and profiles of [what programs use](packing.md#what-programs-use), after their last point",
    ),
    Kept("bundles", 30, _CENTURY, "uploaded code of which no job was made"),
    Kept("artifacts", 30, _CENTURY, "artifacts, where the job file says nothing else"),
    Kept("checkpoints", 30, _CENTURY, "checkpoints of ended jobs"),
    Kept("final_checkpoints", 365, _CENTURY, "the last one of each"),
    Kept("decisions", 256, _TIB_IN_MIB, "recorded decisions", by_size=True),
    Kept("simulations", 512, _TIB_IN_MIB, "results of simulations ([policy-lab.md](policy-lab.md))", by_size=True),
    Kept("shadows", 64, _TIB_IN_MIB, "what policies in shadow evaluation would have decided", by_size=True),
    Kept(
        "environments",
        102_400,
        2**30,
        "built environments all together, the least recently used first",
        by_size=True,
    ),
)
_BY_KEY = {one.key: one for one in KEYS}


@dataclass(frozen=True, slots=True)
class Keep:
    events_days: int
    samples_days: int
    metrics_days: int
    shares_days: int
    fairness_days: int
    resources_days: int
    bundles_days: int
    artifacts_days: int
    checkpoints_days: int
    final_checkpoints_days: int
    decisions_bytes: int
    simulations_bytes: int
    shadows_bytes: int
    environments_bytes: int


def read_keep() -> Keep:
    counts = {one.key: one.default for one in KEYS} | dict(_of_old_names()) | dict(_of_setting())
    return Keep(
        **{
            f"{key}_bytes" if _BY_KEY[key].by_size else f"{key}_days": count * MIB if _BY_KEY[key].by_size else count
            for key, count in counts.items()
        }
    )


def keys_said() -> frozenset[str]:
    """Those that EVENKEEL_KEEP itself has."""
    return frozenset(key for key, _ in _of_setting())


def _of_old_names() -> Iterator[tuple[str, int]]:
    for old in RENAMED:
        if old.key and (raw := env.said(old.name)) is not None:
            yield _counted(old.name, old.key, raw.strip(), old.unit, unit_said=False)


def _of_setting() -> Iterator[tuple[str, int]]:
    seen = set()
    for item in re.split(r"[\s,]+", env.text(NAME).strip(", \t\n")):
        if not item:
            continue
        found = _ITEM.fullmatch(item)
        if found is None:
            raise env.BadSetting(f"{NAME} must be {env.allowed(NAME)}, separated by commas, not {item!r}")
        key = found["key"]
        if key not in _BY_KEY:
            near = get_close_matches(key, _BY_KEY, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise env.BadSetting(f"{NAME}: there is no {key!r}, but {', '.join(_BY_KEY)}{hint}")
        if key in seen:
            raise env.BadSetting(f"{NAME}: {key} is there twice")
        seen.add(key)
        yield _counted(f"{NAME}: {key}", key, found["count"], found["unit"])


def _counted(where: str, key: str, count: str, unit: str, *, unit_said: bool = True) -> tuple[str, int]:
    kept = _BY_KEY[key]
    number = int(count) * kept.units.get(unit, 0) if count.isascii() and count.isdigit() else 0
    if 1 <= number <= kept.maximum:
        return key, number
    if not unit_said:
        raise env.BadSetting(f"{where} must be a whole number from 1 to {kept.maximum:,}, not {count!r}")
    bounds, units = f"from 1{kept.unit} to {kept.maximum}{kept.unit}", " or ".join(kept.units)
    raise env.BadSetting(f"{where} must be {bounds}, in {units}, not {count + unit!r}")
