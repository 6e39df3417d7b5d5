"""How much code, environments, artifacts and checkpoints may take; portal/config/keep.py says for how long."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.fernet import Fernet

from portal.config import env

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What has a value here, no operator has to set."""

    git_allowed_hosts: tuple[str, ...]
    environment_max_bytes: int
    environment_timeout_s: float
    environments_shared: bool
    pip_index_url: str
    checkpoint_soft_bytes: int  # 0: no limit
    checkpoint_hard_bytes: int  # 0: no limit
    bundle_max_bytes: int = 256 * MIB
    bundle_unpacked_max_bytes: int = 2_048 * MIB
    bundle_max_files: int = 20_000
    bundle_quota_bytes: int = 10_240 * MIB
    git_max_bytes: int = 2_048 * MIB
    git_timeout_s: float = 300
    git_allow_file: bool = False  # for tests
    artifact_max_files: int = 1_000
    artifact_max_bytes: int = 10_240 * MIB
    artifact_quota_bytes: int = 102_400 * MIB


def read_secret_keys() -> list[str]:
    """EVENKEEL_SECRET_KEYS, newest first; empty: use those of the data directory."""
    keys = env.words("EVENKEEL_SECRET_KEYS", [])
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            raise env.BadSetting(f"EVENKEEL_SECRET_KEYS must be Fernet keys, and key {number} is none") from None
    return keys


def read_limits() -> Limits:
    """docs/code-and-environments.md lists the settings."""
    return Limits(
        git_allowed_hosts=tuple(env.words("EVENKEEL_GIT_ALLOWED_HOSTS", [])),
        environment_max_bytes=env.integer("EVENKEEL_ENVIRONMENT_MAX_MIB") * MIB,
        environment_timeout_s=env.number("EVENKEEL_ENVIRONMENT_TIMEOUT_S"),
        environments_shared=env.flag("EVENKEEL_SHARE_ENVIRONMENTS"),
        pip_index_url=env.text("EVENKEEL_PIP_INDEX_URL"),
        checkpoint_soft_bytes=env.integer("EVENKEEL_CHECKPOINT_SOFT_MIB") * MIB,
        checkpoint_hard_bytes=env.integer("EVENKEEL_CHECKPOINT_HARD_MIB") * MIB,
    )
