"""What the start and `doctor` say of the environment: old names of settings, removed ones, misspelled ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from django.conf import settings

from portal.config.keep import keys_said
from portal.config.old_names import READ_UNTIL, REMOVED, RENAMED, Renamed
from portal.config.settings_table import SETTINGS

PREFIX = "EVENKEEL_"


def _names(*names: str) -> frozenset[str]:
    return frozenset(PREFIX + name for name in names)


#: What the processes of a run find in their environment; docs/contracts.md. A portal may be started from one.
RUN_VARIABLES = _names(
    "ARRAY_ID", "ARRAY_INDEX", "ARRAY_SIZE", "ARTIFACT_DIR", "BATCH_SIZE", "CHECKPOINT_DIR", "CHECKPOINT_EVERY",
    "CHECKPOINT_KEEP", "DATA_DIR", "DISTRIBUTED_TIMEOUT_S", "EPOCH", "GPU_MEMORY_MIB", "GPU_SHARE_PERCENT", "JOB_ID",
    "NODE", "NODES", "PACE_STEPS_PER_S", "RENDEZVOUS_DIR", "RUN_ID", "SDK_DIR", "SECRETS_DIR", "TOKEN_FILE",
    "TOTAL_STEPS",
)  # fmt: skip
#: Of the command line, the build, Docker Compose, the front end's server, tests and benchmarks.
TOOL_VARIABLES = _names(
    "APP_PASSWORD", "CLIENT", "DB_PASSWORD", "LOCAL", "MOCK", "MOCK_MEMBER", "MOCK_SIGNED_OUT", "PEER_GAVEL",
    "PEER_LIMIT_S", "PEER_PYTHON", "PORTAL", "PUBLISH", "RAY", "REDIS_PASSWORD", "S3", "SHARED", "TEST_RAY",
    "TEST_ROOT", "TEST_SESSION", "TEST_WORKER", "TOKEN", "URL",
)  # fmt: skip
_RENAMED = {old.name: old for old in RENAMED}
_KNOWN = SETTINGS.keys() | RUN_VARIABLES | TOOL_VARIABLES


@dataclass(frozen=True, slots=True)
class Note:
    seen: str
    fix: str

    def __str__(self) -> str:
        return f"{self.seen}; {self.fix}."


def environment_notes() -> list[Note]:
    """Of this process."""
    clusters = settings.EVENKEEL_CLUSTERS
    executors = {engine.executor for engine in clusters.values()} or {settings.EVENKEEL_EXECUTOR}
    return list(notes_on(os.environ, executors, {name: engine.said for name, engine in clusters.items()}))


def notes_on(
    environment: Mapping[str, str], executors: Collection[str], clusters: Mapping[str, Collection[str]]
) -> Iterator[Note]:
    """`clusters`: the settings that EVENKEEL_CLUSTERS has for each of them."""
    for name in sorted(name for name in environment if name.startswith(PREFIX)):
        if name in _RENAMED:
            yield _renamed(_RENAMED[name], environment, executors)
        elif name in REMOVED:
            yield Note(f"{name} is no longer a setting and is ignored: {REMOVED[name]}", "unset it")
        elif name not in _KNOWN and not _is_data_of_a_run(name, environment):
            yield _unknown(name)
    for cluster, said in clusters.items():
        for name in sorted(_RENAMED.keys() & set(said)):
            yield _deprecated(f"cluster {cluster!r}: {name}", f"write {_RENAMED[name].new} instead")


def _renamed(old: Renamed, environment: Mapping[str, str], executors: Collection[str]) -> Note:
    if old.of and old.of not in executors:
        return Note(f"{old.name} is ignored: no cluster's executor is {old.of}", "unset it")
    if old.key and old.key in keys_said():
        return Note(f"{old.name} is ignored: {old.new} has {old.key}", "unset it")
    if old.new in environment and not old.key:
        return Note(f"{old.name} is ignored: {old.new} is set", "unset it")
    if old.key:
        return _deprecated(old.name, f"add {old.key}={environment[old.name].strip()}{old.unit} to {old.new} instead")
    return _deprecated(old.name, f"set {old.new} instead")


def _deprecated(name: str, fix: str) -> Note:
    return Note(f"{name} is deprecated and will be read until version {READ_UNTIL}", fix)


def _is_data_of_a_run(name: str, environment: Mapping[str, str]) -> bool:
    """EVENKEEL_DATA_IMAGENET, where this process belongs to a run that has data."""
    return name.startswith("EVENKEEL_DATA_") and "EVENKEEL_DATA_DIR" in environment


def _unknown(name: str) -> Note:
    near = get_close_matches(name, SETTINGS, n=1, cutoff=0.75)
    fix = f"did you mean {near[0]}? Otherwise unset it" if near else "unset it, or see docs/operations.md"
    return Note(f"{name} is not a setting and is ignored", fix)
