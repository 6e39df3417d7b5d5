"""Names of settings that there were before: those that are still read, and those that became constants."""

from __future__ import annotations

from dataclasses import dataclass

#: The version from which the names of RENAMED are no longer read. Move them to REMOVED then.
READ_UNTIL = "0.3.0"


@dataclass(frozen=True, slots=True)
class Renamed:
    name: str
    new: str
    #: Only a cluster of this executor reads it.
    of: str = ""
    #: What it is called within the new one, a mapping, and the unit that its value had.
    key: str = ""
    unit: str = ""


RENAMED = (
    Renamed("EVENKEEL_RAY_EMULATED", "EVENKEEL_EMULATED", of="ray"),
    Renamed("EVENKEEL_RAY_SHARED_DIR", "EVENKEEL_SHARED_DIR", of="ray"),
    Renamed("EVENKEEL_SLURM_EMULATED", "EVENKEEL_EMULATED", of="slurm"),
    Renamed("EVENKEEL_SLURM_SHARED_DIR", "EVENKEEL_SHARED_DIR", of="slurm"),
    Renamed("EVENKEEL_ARTIFACT_KEEP_DAYS", "EVENKEEL_KEEP", key="artifacts", unit="d"),
    Renamed("EVENKEEL_BUNDLE_KEEP_DAYS", "EVENKEEL_KEEP", key="bundles", unit="d"),
    Renamed("EVENKEEL_CHECKPOINT_FINAL_KEEP_DAYS", "EVENKEEL_KEEP", key="final_checkpoints", unit="d"),
    Renamed("EVENKEEL_CHECKPOINT_KEEP_DAYS", "EVENKEEL_KEEP", key="checkpoints", unit="d"),
    Renamed("EVENKEEL_ENVIRONMENT_CACHE_MIB", "EVENKEEL_KEEP", key="environments", unit="MiB"),
    Renamed("EVENKEEL_KEEP_DECISIONS_MIB", "EVENKEEL_KEEP", key="decisions", unit="MiB"),
    Renamed("EVENKEEL_KEEP_EVENTS_DAYS", "EVENKEEL_KEEP", key="events", unit="d"),
    Renamed("EVENKEEL_KEEP_FAIRNESS_DAYS", "EVENKEEL_KEEP", key="fairness", unit="d"),
    Renamed("EVENKEEL_KEEP_METRICS_DAYS", "EVENKEEL_KEEP", key="metrics", unit="d"),
    Renamed("EVENKEEL_KEEP_RESOURCES_DAYS", "EVENKEEL_KEEP", key="resources", unit="d"),
    Renamed("EVENKEEL_KEEP_SAMPLES_DAYS", "EVENKEEL_KEEP", key="samples", unit="d"),
    Renamed("EVENKEEL_KEEP_SHADOWS_MIB", "EVENKEEL_KEEP", key="shadows", unit="MiB"),
    Renamed("EVENKEEL_KEEP_SHARES_DAYS", "EVENKEEL_KEEP", key="shares", unit="d"),
    Renamed("EVENKEEL_KEEP_SIMULATIONS_MIB", "EVENKEEL_KEEP", key="simulations", unit="MiB"),
)

#: What counts now, as the end of a sentence.
REMOVED = {
    "EVENKEEL_ARTIFACT_MAX_FILES": "a run keeps 1,000 artifacts at most",
    "EVENKEEL_ARTIFACT_MAX_MIB": "a run keeps 10,240 MiB of artifacts at most",
    "EVENKEEL_ARTIFACT_QUOTA_MIB": "a project without a limit of its own keeps 102,400 MiB of artifacts",
    "EVENKEEL_BUNDLE_MAX_FILES": "a bundle has 20,000 files at most",
    "EVENKEEL_BUNDLE_MAX_MIB": "a bundle has 256 MiB at most",
    "EVENKEEL_BUNDLE_QUOTA_MIB": "a project without a limit of its own keeps 10,240 MiB of bundles",
    "EVENKEEL_BUNDLE_UNPACKED_MAX_MIB": "an unpacked bundle has 2,048 MiB at most",
    "EVENKEEL_EMPTY_DECISION_EVERY_S": "a round that moves nothing is recorded every 600 s",
    "EVENKEEL_GIT_ALLOW_FILE": "file:// addresses are refused",
    "EVENKEEL_GIT_MAX_MIB": "a fetch from git has 2,048 MiB at most",
    "EVENKEEL_GIT_TIMEOUT_S": "a fetch from git takes 300 s at most",
    "EVENKEEL_NODE_CHECK_AGAIN_S": "a failed check is repeated after 60 s, then ever later",
    "EVENKEEL_NODE_CHECK_FAULTS": "3 runs that failed by the fault of a node have it checked",
    "EVENKEEL_NODE_CHECK_FAULTS_S": "faults of the last 3,600 s count",
    "EVENKEEL_NODE_CHECK_FREE_MIB": "the storage of jobs has to have 1,024 MiB free",
    "EVENKEEL_NODE_CHECK_TIMEOUT_S": "a check of a node takes 60 s at most",
    "EVENKEEL_RATE_ANONYMOUS_PER_MINUTE": "an address without sign-in has 300 requests a minute",
    "EVENKEEL_RATE_RUN_PER_MINUTE": "a run has 1,200 reports a minute",
    "EVENKEEL_RATE_USER_PER_MINUTE": "a token or person has 3,000 requests a minute",
}


def old_names_of(new: str, executor: str) -> list[str]:
    return [old.name for old in RENAMED if old.new == new and executor and old.of == executor]
