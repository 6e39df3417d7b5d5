"""The keys of a cluster file and their allowed values; docs/simulator.md describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from scheduling.errors import InvalidInput
from scheduling.validation import validated

#: Of a whole cluster: each GPU and each node is an object in memory.
MOST_GPUS = 1_000_000

_AtLeast0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    """Strict: no value is rounded or guessed; null is the same as a missing key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NodeEntry(_Part):
    type: str = Field(min_length=1)
    count: int = Field(1, ge=0, le=MOST_GPUS)
    gpus: int = Field(ge=0, le=MOST_GPUS)
    price_per_gpu_hour: _AtLeast0 = 0.0
    mtbf_s: _Above0 | None = None
    repair_s: _AtLeast0 = 3600.0
    cpus: _Above0 | None = None
    memory_mib: _Above0 | None = None
    gpu_memory_mib: _Above0 | None = None
    # further keys of simulations that the portal wrote, ignored here
    name: Any = None
    watts: Any = None


class Hardware(_Part):
    nodes: list[NodeEntry]
    launch_s: _AtLeast0 | None = None
    checkpoint_s: _AtLeast0 | None = None
    stop_s: _AtLeast0 | None = None
    round_seconds: _Above0 | None = None
    checkpoint_every_s: _AtLeast0 | None = None
    measure_s: _AtLeast0 | None = None
    multi_node: bool = True
    limits: list[Any] | None = None
    guarantees: list[Any] | None = None
    note: Any = None

    @property
    def times(self) -> dict[str, float]:
        """Those that are set."""
        keys = ("launch_s", "checkpoint_s", "stop_s", "round_seconds", "checkpoint_every_s", "measure_s")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}


def read_hardware(data: Any, path: Path) -> Hardware:
    found = validated(Hardware, data, str(path))
    check_size(path, sum(entry.count * max(1, entry.gpus) for entry in found.nodes))
    return found


def check_size(path: Path, gpus: int) -> None:
    if gpus > MOST_GPUS:
        raise InvalidInput(f"{path}: nodes: {gpus:,} GPUs in all must be at most {MOST_GPUS:,}")
