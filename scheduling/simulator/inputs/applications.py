"""The eleven applications and five workloads of the co-placement thesis, with synthetic histories (docs/packing.md).

The thesis (Sookmyung Women's University, 2019) states which applications are heavy and light, and the shapes of four:
training jobs use resources evenly after they have read their data; LAMMPS's memory grows from 363 MB to 8.5 GB, and its
GPU use with it, to 100 %; QMCPACK's GPU use climbs in three steps, and half-way its memory jumps to 5.1 GB. The numbers
here are assumptions within these statements, for a TITAN Xp of 12 GB. Input sizes stretch run times and change levels a
little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduling.domain import Curve, Node
from scheduling.domain.usage_history import ResourceHistory
from scheduling.simulator.inputs.trace import Cluster, TraceJob

GPU_TYPE = "titan_xp"
MEMORY_MIB = 12_196
INTERVAL_S = 5.0
JOBS = 30
#: Ratio of the longest to the shortest run of an application.
_STRETCH = 0.6, 1.6
#: The most jobs that may share a GPU: each declares this fraction of one.
DECLARED_MILLI = 125


@dataclass(frozen=True, slots=True)
class Application:
    """Levels are fractions of the device: the mean, or the first and the last, with `shape` in between.

    `like`: a program of the published pairs with the same interference; assumed, not measured.
    """

    duration_s: float
    gpu: tuple[float, ...]
    memory: tuple[float, ...]
    cores: float  # of its GPU use
    pcie: float
    like: str
    shape: str = "even"  # even: after its data is read | steps | growth


APPLICATIONS: Mapping[str, Application] = {
    "lammps": Application(170, (0.15, 1.0), (0.03, 0.70), 0.8, 0.08, "CycleGAN", "growth"),
    "gromacs": Application(110, (0.30,), (0.08,), 0.8, 0.10, "A3C"),
    "qmcpack": Application(190, (0.30, 0.55, 0.80), (0.02, 0.42), 0.7, 0.06, "Transformer (batch size 16)", "steps"),
    "hoomd": Application(150, (0.55,), (0.12,), 0.8, 0.05, "Transformer (batch size 128)"),
    "googlenet": Application(100, (0.42,), (0.30,), 0.7, 0.02, "ResNet-18 (batch size 64)"),
    "alexnet": Application(60, (0.28,), (0.35,), 0.7, 0.06, "ResNet-18 (batch size 16)"),
    "vgg11": Application(140, (0.62,), (0.62,), 0.7, 0.01, "ResNet-50 (batch size 16)"),
    "vgg16": Application(200, (0.85,), (0.72,), 0.7, 0.01, "ResNet-50 (batch size 64)"),
    "resnet50": Application(160, (0.70,), (0.57,), 0.7, 0.01, "ResNet-50 (batch size 32)"),
    "resnet101": Application(210, (0.80,), (0.66,), 0.7, 0.01, "ResNet-50 (batch size 64)"),
    "resnet152": Application(260, (0.88,), (0.75,), 0.7, 0.01, "ResNet-50 (batch size 128)"),
}
_MEMORY_HEAVY = ("vgg11", "vgg16", "resnet50", "resnet101", "resnet152")
WORKLOADS: Mapping[str, Sequence[str]] = {
    "gpu_heavy": (*_MEMORY_HEAVY, "qmcpack", "hoomd", "lammps"),
    "gpu_light": ("alexnet", "gromacs"),
    "memory_heavy": _MEMORY_HEAVY,
    "memory_light": ("alexnet", "googlenet", "qmcpack", "hoomd", "gromacs"),
    "random": tuple(APPLICATIONS),
}


def history_of(name: str, rng: np.random.Generator) -> ResourceHistory:
    """One run of the application with a random input."""
    known = APPLICATIONS[name]
    count = max(3, round(known.duration_s * rng.uniform(*_STRETCH) / INTERVAL_S))
    gpu, memory = _levels(known.gpu, known.shape, count), _levels(known.memory, known.shape, count)
    if known.shape == "even":
        gpu[0] = 0.05  # reads its data
        memory[0] /= 2
    elif known.shape == "steps":  # memory jumps half-way
        memory = np.where(np.arange(count) < count // 2, known.memory[0], known.memory[1])
    size = rng.uniform(0.92, 1.08)
    pcie = np.full(count, known.pcie * rng.uniform(0.8, 1.2))
    pcie[0] = min(1.0, 2 * known.pcie)
    gpu = np.clip(gpu * size * rng.uniform(0.97, 1.03, count), 0.0, 1.0)
    memory = np.clip(memory * rng.uniform(0.96, 1.04), 0.0, 1.0)
    series = (gpu, memory, gpu * known.cores, pcie)
    return ResourceHistory(INTERVAL_S, *(tuple(np.round(values, 3).tolist()) for values in series))


def _levels(levels: tuple[float, ...], shape: str, count: int) -> np.ndarray:
    if shape == "growth":  # slow at first, so that the mean is that of the thesis
        return levels[0] + (levels[-1] - levels[0]) * np.linspace(0.0, 1.0, count) ** 2.4
    return np.array([levels[n * len(levels) // count] for n in range(count)])


def make_workload(name: str, seed: int, jobs: int = JOBS) -> list[TraceJob]:
    """Jobs drawn at random from the workload's applications, all submitted at once; a step takes a second alone."""
    rng = np.random.default_rng(seed)
    return [_job(str(rng.choice(WORKLOADS[name])), number, rng) for number in range(1, jobs + 1)]


def _job(name: str, number: int, rng: np.random.Generator) -> TraceJob:
    history = history_of(name, rng)
    return TraceJob(
        id=f"{name}-{number}",
        number=number,
        arrival_s=0.0,
        total_steps=history.duration_s,
        curves={GPU_TYPE: Curve((1.0,), "user")},
        model_type=name,
        min_gpus=1,
        max_gpus=1,
        gpu_milli=DECLARED_MILLI,
        history=history,
    )


def declared_at_peak(job: TraceJob) -> TraceJob:
    """A request that never runs out of memory: the job's peaks, for policies without histories."""
    assert job.history is not None
    milli = max(1, round(1_000 * max(*job.history.gpu, *job.history.gpu_cores, *job.history.pcie)))
    return replace(job, gpu_milli=milli, gpu_memory_mib=int(np.ceil(max(job.history.gpu_memory) * MEMORY_MIB)))


def one_gpu(launch_s: float = 1.0) -> Cluster:
    """The thesis's node."""
    node = Node("node", GPU_TYPE, (0,), gpu_memory_mib=MEMORY_MIB)
    return Cluster((node,), {GPU_TYPE: 0.0}, launch_s=launch_s, checkpoint_s=0.0, stop_s=0.0)
