"""Jobs with histories."""

from __future__ import annotations

from typing import Any

from scheduling.domain import Curve, Job
from scheduling.domain.usage_history import ResourceHistory
from scheduling.policies.learned.images import Choices
from scheduling.simulator.inputs.applications import GPU_TYPE
from scheduling.simulator.inputs.trace import TraceJob
from tests.builders import make_job


def history(gpu: list[float], memory: list[float] | None = None, interval_s: float = 10.0) -> ResourceHistory:
    memory = memory or [0.1] * len(gpu)
    rest = tuple([0.0] * len(gpu))
    return ResourceHistory(interval_s, tuple(gpu), tuple(memory), rest, rest)


def seen(number: int, gpu: list[float], memory: list[float] | None = None, **changes: Any) -> Job:
    known = history(gpu, memory)
    values: dict[str, Any] = {"curve": Curve((1.0,)), "remaining_steps": known.duration_s, "done_steps": 0.0} | changes
    return make_job(number=number, gpus=1, gpu_milli=100, history=known, **values)


def trace_job(number: int, known: ResourceHistory, arrival_s: float = 0.0) -> TraceJob:
    curves = {GPU_TYPE: Curve((1.0,))}
    return TraceJob(str(number), number, arrival_s, known.duration_s, curves, max_gpus=1, gpu_milli=125, history=known)


def every(slots: int) -> Choices:
    """All combinations."""
    return Choices(slots, slots)
