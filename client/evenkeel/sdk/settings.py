"""What the job environment says about this worker (docs/contracts.md, "Job environment")."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    rank: int
    world_size: int
    local_rank: int
    total_steps: int | None  # None: outside the cluster
    batch_size: int | None
    checkpoint_dir: Path | None
    checkpoint_every: int
    checkpoint_keep: int
    sdk_dir: Path | None
    epoch: int
    pace_steps_per_s: float | None
    distributed_timeout_s: float
    artifact_dir: Path | None = None
    gpu_memory_mib: int | None = None  # None: no limit
    data_dir: Path | None = None
    local_world_size: int | None = None  # None: all ranks are on this node
    rendezvous_dir: Path | None = None  # of the job alone, where all ranks are on this machine

    @property
    def spans_nodes(self) -> bool:
        return self.local_world_size is not None and self.local_world_size < self.world_size

    @property
    def in_cluster(self) -> bool:
        return self.total_steps is not None


def read_settings(env: Mapping[str, str] | None = None) -> Settings:
    env = os.environ if env is None else env

    def integer(name: str, default: int) -> int:
        return int(env.get(name) or default)

    def path(name: str) -> Path | None:
        return Path(env[name]) if env.get(name) else None

    total = env.get("EVENKEEL_TOTAL_STEPS")
    return Settings(
        rank=integer("RANK", 0),
        world_size=integer("WORLD_SIZE", 1),
        local_rank=integer("LOCAL_RANK", 0),
        total_steps=int(total) if total else None,
        batch_size=integer("EVENKEEL_BATCH_SIZE", 0) or None,
        checkpoint_dir=path("EVENKEEL_CHECKPOINT_DIR"),
        checkpoint_every=integer("EVENKEEL_CHECKPOINT_EVERY", 0),
        checkpoint_keep=max(1, integer("EVENKEEL_CHECKPOINT_KEEP", 3)),
        sdk_dir=path("EVENKEEL_SDK_DIR"),
        epoch=integer("EVENKEEL_EPOCH", 0),
        pace_steps_per_s=float(env.get("EVENKEEL_PACE_STEPS_PER_S") or 0) or None,
        distributed_timeout_s=float(env.get("EVENKEEL_DISTRIBUTED_TIMEOUT_S") or 300),
        artifact_dir=path("EVENKEEL_ARTIFACT_DIR"),
        gpu_memory_mib=integer("EVENKEEL_GPU_MEMORY_MIB", 0) or None,
        rendezvous_dir=path("EVENKEEL_RENDEZVOUS_DIR"),
        data_dir=path("EVENKEEL_DATA_DIR"),
        local_world_size=integer("LOCAL_WORLD_SIZE", 0) or None,
    )
