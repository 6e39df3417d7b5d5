"""The options and the outcome of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduling.lifecycle import State
from scheduling.simulator.gpu_sharing.usage import Usage
from scheduling.simulator.meter import Meter
from scheduling.simulator.run import Run
from scheduling.throughput.colocation import Pairs

LAUNCHING_DELAY = frozenset({State.STANDBY, State.LAUNCHING, State.CHECKPOINTING, State.STOPPING})


@dataclass(slots=True)
class Outcome:
    runs: list[Run]
    meter: Meter
    first_arrival: float
    end: float = 0.0
    rounds: int = 0
    failures: int = 0
    fallbacks: int = 0  # rounds in which the policy's solver failed and all jobs kept their GPUs
    interrupted: bool = False
    #: (run, GPUs, from, to) of every launch, if requested
    holds: list[tuple[int, tuple[int, ...], float, float]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)  # of jobs with histories


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a simulation, besides the cluster file."""

    seed: int = 0
    noise: float = 0.0  # relative standard deviation of true speeds from the trace's
    keep_holds: bool = False
    #: Least time between rounds for policies that consider every running job in each round (elastic and lasting ones).
    coalesce_s: float = 0.0
    pairs: Pairs = field(default_factory=dict)  # throughputs of jobs that share GPUs, if there is a file
    #: Jobs with known histories slow each other down on shared GPUs (scheduling.throughput.interference).
    interference: bool = True
    #: Called now and then with the number of finished jobs; True: stop here.
    progress: Callable[[int], bool] | None = None
