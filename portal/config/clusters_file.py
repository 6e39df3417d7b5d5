"""EVENKEEL_CLUSTERS: a YAML file that names the clusters of one portal; docs/clusters.md describes it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evenkeel.yaml_loader import YamlProblem, load

from portal.config import env
from portal.config.engines import EXECUTORS, Engine, read_engine

MOST = 16
_MOST_BYTES = 256 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
#: In a job file they leave the choice to the portal.
RESERVED = frozenset({"auto", "earliest", "cheapest"})
_KEYS = ("name", "executor", "settings")
_SECRET = "EVENKEEL_CHECKPOINT_SECRET"  # noqa: S105 - its name  # nosec B105


def read_clusters(data: Path) -> dict[str, Engine]:
    """Engines by the names of their clusters, in the file's order; empty if no file is configured."""
    path = env.text("EVENKEEL_CLUSTERS")
    if not path:
        return {}
    entries = _entries(_load(Path(path).expanduser()))
    if any(_SECRET in (entry.get("settings") or {}) for entry in entries):
        _refuse_readable(Path(path).expanduser())
    engines: dict[str, Engine] = {}
    for number, entry in enumerate(entries, 1):
        name = _name(entry, number)
        if name in engines:
            raise env.BadSetting(f"EVENKEEL_CLUSTERS: cluster {name!r} is there twice")
        engines[name] = _engine(name, entry, data)
    _refuse_shared_places(engines)
    return engines


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise env.BadSetting(f"EVENKEEL_CLUSTERS may have {_MOST_BYTES // 1024} KiB: {path}")
        return load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS cannot be read: {error.strerror}: {path}") from None
    except UnicodeDecodeError:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS is not UTF-8 text: {path}") from None
    except YamlProblem as problem:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS cannot be read: {path}, {problem}") from None


def _entries(document: Any) -> list[dict[str, Any]]:
    found = document.get("clusters") if isinstance(document, dict) else None
    if not isinstance(found, list) or set(document) != {"clusters"}:
        raise env.BadSetting("EVENKEEL_CLUSTERS must hold one list, clusters: [{name, executor, settings}]")
    if not 1 <= len(found) <= MOST:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS must name 1 to {MOST} clusters, not {len(found)}")
    for number, entry in enumerate(found, 1):
        if not isinstance(entry, dict):
            raise env.BadSetting(f"EVENKEEL_CLUSTERS: cluster {number} must be name, executor and settings")
    return found


def _name(entry: dict[str, Any], number: int) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise env.BadSetting(
            f"EVENKEEL_CLUSTERS: cluster {number}: name must be small letters, digits and hyphens, 40 at most, "
            f"not {name!r}"
        )
    if name in RESERVED:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS: {name!r} cannot name a cluster: in job files it means any of them")
    return name


def _engine(name: str, entry: dict[str, Any], data: Path) -> Engine:
    where = f"EVENKEEL_CLUSTERS: cluster {name!r}"
    if unknown := sorted(str(key) for key in entry if key not in _KEYS):
        raise env.BadSetting(f"{where} has a key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    executor = entry.get("executor")
    if executor not in EXECUTORS:
        raise env.BadSetting(f"{where}: executor must be {' or '.join(EXECUTORS)}, not {executor!r}")
    values = dict(_settings(where, entry.get("settings")))
    with env.before_environment(values) as given:
        try:
            engine = read_engine(executor, data / "clusters" / name, data / "run" / "accounts.json")
        except env.BadSetting as error:
            raise env.BadSetting(f"{where}: {error}") from None
    for key in sorted(values.keys() - given.asked):
        near = get_close_matches(key, given.asked, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise env.BadSetting(f"{where}: settings: {key} says nothing to a cluster of executor {executor}{hint}")
    return replace(engine, said=frozenset(values))


def _settings(where: str, given: Any) -> Iterator[tuple[str, str]]:
    if given is None:
        return
    if not isinstance(given, dict):
        raise env.BadSetting(f"{where}: settings must be names and values, as EVENKEEL_RAY_ADDRESS: 10.0.0.1:6379")
    for key, value in given.items():
        if isinstance(value, bool):
            yield str(key), str(int(value))
        elif isinstance(value, (str, int, float)):
            yield str(key), str(value)
        else:
            raise env.BadSetting(f"{where}: settings: {key} must be a text or a number, not {value!r}")


def _refuse_shared_places(engines: dict[str, Engine]) -> None:
    """An executor ends unknown runs below its folder: it would end the other cluster's."""
    places: dict[Path, str] = {}
    with_gpus = ""
    for name, engine in engines.items():
        place = engine.job_files.resolve()
        if place in places:
            raise env.BadSetting(
                f"EVENKEEL_CLUSTERS: clusters {places[place]!r} and {name!r} would both keep their jobs in {place}; "
                "give each a folder of its own: EVENKEEL_LOCAL_DIR or EVENKEEL_SHARED_DIR"
            )
        places[place] = name
        if engine.executor == "local" and not engine.emulated:
            if with_gpus:
                raise env.BadSetting(
                    f"EVENKEEL_CLUSTERS: clusters {with_gpus!r} and {name!r} would both give away the GPUs of this "
                    "machine; declare virtual ones for one of them: EVENKEEL_VIRTUAL_ACCELERATORS"
                )
            with_gpus = name


def _refuse_readable(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise env.BadSetting(f"EVENKEEL_CLUSTERS holds {_SECRET} and may be read by others: chmod 600 {path}")
