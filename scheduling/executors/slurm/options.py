"""A site's settings of its Slurm."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from scheduling.errors import ExecutorError
from scheduling.executors.base import NO_SOFTWARE, Software

PLACEMENTS = ("nodes", "delegate")
_NAME = re.compile(r"[\w.@+-]{0,64}")
_TIME = re.compile(r"[0-9]+(-[0-9]+(:[0-9]+){0,2})?|[0-9]+(:[0-9]+){1,2}|")


@dataclass(frozen=True, slots=True)
class Options:
    """`placement`: "nodes", Slurm starts a run on the planned nodes, or "delegate", on any nodes with as many GPUs.
    `python`: the interpreter on the nodes, with the client package and what jobs import. `lease_s`: how long a runner
    trains without an answer of the portal; `skew_s`: the largest difference of clocks. `end_signal_s`: how long before
    its end a job is asked for a checkpoint. `emulated`: there are no real GPUs, jobs train on CPUs."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time_limit: str = ""
    placement: str = "nodes"
    person: str = ""  # account of the jobs; empty: the portal's
    python: str = field(default_factory=lambda: sys.executable)
    conf: str = ""
    emulated: bool = False
    store_module: str = ""  # module that nodes need for their checkpoint store; empty: none besides the client
    data_cache_dir: str = ""  # nodes' cache for data of URLs, with `%n`; empty: none
    software: Software = NO_SOFTWARE
    gpu_memory_mib: int = 0
    lease_s: float = 600.0
    skew_s: float = 30.0
    end_signal_s: int = 120
    command_timeout_s: float = 20.0
    look_s: float = 20.0  # maximum age of Slurm's answers in quiet times

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            text = f"Slurm's placement is one of {', '.join(PLACEMENTS)}, not {self.placement!r}"
            raise ExecutorError(text, permanent=True)
        for name in ("partition", "account", "qos", "reservation"):
            if not _NAME.fullmatch(value := getattr(self, name)):
                raise ExecutorError(f"{value!r} cannot be Slurm's {name}", permanent=True)
        if not _TIME.fullmatch(self.time_limit):
            raise ExecutorError(f"{self.time_limit!r} is no time limit of Slurm's, as 1-00:00:00", permanent=True)
        if not Path(self.python).is_absolute():
            raise ExecutorError(f"the nodes' interpreter {self.python!r} is no absolute path", permanent=True)

    @property
    def given(self) -> dict[str, str]:
        """sbatch options of every job, unless its project has others."""
        return {
            name: value for name in ("partition", "account", "qos", "reservation") if (value := getattr(self, name))
        }

    def arguments(self) -> list[str]:
        """Of a job that is no launch."""
        words = [f"--{name}={value}" for name, value in self.given.items()]
        return [*words, *([f"--time={self.time_limit}"] if self.time_limit else [])]
