"""How much code, environments, artifacts and checkpoints may take, and for how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.fernet import Fernet

from portal.config import env

MIB = 1 << 20
_MOST_MIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    bundle_max_bytes: int
    bundle_unpacked_max_bytes: int
    bundle_max_files: int
    bundle_quota_bytes: int
    bundle_keep_days: int
    git_max_bytes: int
    git_timeout_s: float
    git_allowed_hosts: tuple[str, ...]
    git_allow_file: bool
    environment_max_bytes: int
    environment_cache_bytes: int
    environment_timeout_s: float
    environments_shared: bool
    pip_index_url: str
    artifact_max_files: int
    artifact_max_bytes: int
    artifact_quota_bytes: int
    artifact_keep_days: int
    checkpoint_soft_bytes: int  # 0: no limit
    checkpoint_hard_bytes: int  # 0: no limit
    checkpoint_keep_days: int
    checkpoint_final_keep_days: int


def read_secret_keys() -> list[str]:
    """EVENKEEL_SECRET_KEYS, newest first; empty: those of the data directory."""
    keys = env.words("EVENKEEL_SECRET_KEYS", [])
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            raise env.BadSetting(f"EVENKEEL_SECRET_KEYS: key {number} is no Fernet key") from None
    return keys


def _bytes(name: str, default_mib: int, minimum: int = 1) -> int:
    return env.integer(name, default_mib, minimum=minimum, maximum=_MOST_MIB) * MIB


def _days(name: str, default: int) -> int:
    return env.integer(name, default, minimum=1, maximum=36_500)


def read_limits() -> Limits:
    """From the environment; docs/code-and-environments.md lists the variables."""
    return Limits(
        bundle_max_bytes=_bytes("EVENKEEL_BUNDLE_MAX_MIB", 256),
        bundle_unpacked_max_bytes=_bytes("EVENKEEL_BUNDLE_UNPACKED_MAX_MIB", 2_048),
        bundle_max_files=env.integer("EVENKEEL_BUNDLE_MAX_FILES", 20_000, minimum=1, maximum=10**7),
        bundle_quota_bytes=_bytes("EVENKEEL_BUNDLE_QUOTA_MIB", 10_240),
        bundle_keep_days=_days("EVENKEEL_BUNDLE_KEEP_DAYS", 30),
        git_max_bytes=_bytes("EVENKEEL_GIT_MAX_MIB", 2_048),
        git_timeout_s=env.number("EVENKEEL_GIT_TIMEOUT_S", 300, minimum=1, maximum=86_400),
        git_allowed_hosts=tuple(env.words("EVENKEEL_GIT_ALLOWED_HOSTS", [])),
        git_allow_file=env.flag("EVENKEEL_GIT_ALLOW_FILE"),
        environment_max_bytes=_bytes("EVENKEEL_ENVIRONMENT_MAX_MIB", 20_480),
        environment_cache_bytes=_bytes("EVENKEEL_ENVIRONMENT_CACHE_MIB", 102_400),
        environment_timeout_s=env.number("EVENKEEL_ENVIRONMENT_TIMEOUT_S", 1_800, minimum=1, maximum=86_400),
        environments_shared=env.flag("EVENKEEL_SHARE_ENVIRONMENTS"),
        pip_index_url=env.text("EVENKEEL_PIP_INDEX_URL"),
        artifact_max_files=env.integer("EVENKEEL_ARTIFACT_MAX_FILES", 1_000, minimum=1, maximum=10**6),
        artifact_max_bytes=_bytes("EVENKEEL_ARTIFACT_MAX_MIB", 10_240),
        artifact_quota_bytes=_bytes("EVENKEEL_ARTIFACT_QUOTA_MIB", 102_400),
        artifact_keep_days=_days("EVENKEEL_ARTIFACT_KEEP_DAYS", 30),
        checkpoint_soft_bytes=_bytes("EVENKEEL_CHECKPOINT_SOFT_MIB", 0, 0),
        checkpoint_hard_bytes=_bytes("EVENKEEL_CHECKPOINT_HARD_MIB", 0, 0),
        checkpoint_keep_days=_days("EVENKEEL_CHECKPOINT_KEEP_DAYS", 30),
        checkpoint_final_keep_days=_days("EVENKEEL_CHECKPOINT_FINAL_KEEP_DAYS", 365),
    )
