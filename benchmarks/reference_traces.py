"""The reference's own traces, its recorded results, and which policy and parameters here answer to its policies."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduling.domain import Node
from scheduling.simulator import simulate
from scheduling.simulator.inputs.generate import Recipe, generate
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.readers import read_trace
from scheduling.simulator.readers.own import write
from scheduling.throughput.published import published_curves

TRACES = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data" / "traces"
TYPES = ("v100", "p100", "k80")
#: Per GPU-hour, the order of a cloud's on-demand prices when those cards were current.
PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
GPUS_PER_NODE = 4
POLICIES: dict[str, tuple[str, str]] = {
    "fifo": ("fifo", "agnostic"),
    "fifo_perf": ("fifo", "perf"),
    "isolated": ("isolated", "agnostic"),
    "allox": ("min_mean_jct", "perf"),
    "max_min_fairness": ("max_min_fairness", "agnostic"),
    "max_min_fairness_perf": ("max_min_fairness", "perf"),
    "finish_time_fairness": ("finish_time_fairness", "agnostic"),
    "finish_time_fairness_perf": ("finish_time_fairness", "perf"),
    "max_sum_throughput_perf": ("max_sum_throughput", "perf"),
    "min_total_duration": ("min_makespan", "agnostic"),
    "min_total_duration_perf": ("min_makespan", "perf"),
    "max_min_fairness_water_filling": ("max_min_fairness_water_filling", "agnostic"),
    "max_min_fairness_water_filling_perf": ("max_min_fairness_water_filling", "perf"),
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the reference answered; `theirs` is its name of the policy."""

    trace: str
    theirs: str
    cluster: str  # GPUs as v100:p100:k80
    mean_jct_s: float
    makespan_s: float
    wall_s: float

    @property
    def policy(self) -> tuple[str, str] | None:
        """Name and variant here; None where its rounds let pairs share GPUs, which ours do not."""
        return POLICIES.get(self.theirs)


def recorded() -> Iterator[Recorded]:
    """Nothing where the traces are absent."""
    path = TRACES / "reference_results.json"
    for entry in json.loads(path.read_text()) if path.is_file() else ():
        figures = entry["avg_jct_s"], entry["makespan_s"], entry["wall_s"]
        yield Recorded(entry["trace"].removesuffix(".trace"), entry["policy"], entry["cluster"], *figures)


def cluster(spec: str, *, restart_s: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Cluster:
    """`restart_s`: seconds to launch, to write a checkpoint and to stop."""
    nodes: list[Node] = []
    for kind, gpus in zip(TYPES, map(int, spec.split(":")), strict=True):
        for first in range(0, gpus, GPUS_PER_NODE):
            start = sum(len(node.gpu_ids) for node in nodes)
            ids = tuple(range(start, start + min(GPUS_PER_NODE, gpus - first)))
            nodes.append(Node(f"{kind}-{len(nodes)}", kind, ids))
    return Cluster(tuple(nodes), PRICES, *restart_s)


def run(trace: str, on: Cluster, policy: str, **parameters: Any) -> Mapping[str, Any]:
    return simulate(read_trace(TRACES / f"{trace}.jobs.json"), on, policy, parameters)


def made(recipe: Recipe) -> Sequence[TraceJob]:
    """The jobs of a synthetic trace with the published throughputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write(generate(recipe, published_curves()), path)
        return read_trace(path)
