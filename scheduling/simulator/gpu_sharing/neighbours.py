"""Effects of jobs with known histories on each other when they share a GPU: interference and running out of memory.

Between two changes (a job starts, ends, or passes a sample of its history) all speeds are constant. A job's position in
its history is the completed fraction of its steps, so a slowed job uses its GPU longer. If the jobs together need more
memory than the GPU has, the job whose use just grew fails (of several the one that started last), and queues again,
after BACK_OFF_S, from its last checkpoint. Policies see histories, but not these effects.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from scheduling.domain.usage_history import ResourceHistory
from scheduling.lifecycle import TRAINING, Event, State
from scheduling.simulator.gpu_sharing.usage import Usage
from scheduling.simulator.inputs.applications import APPLICATIONS
from scheduling.simulator.run import Run
from scheduling.throughput.interference import Nature, nature_of, slowdowns

if TYPE_CHECKING:
    from scheduling.simulator.engine import Engine

_TOLERANCE = 1e-6
#: Seconds until a job that ran out of memory is tried again.
BACK_OFF_S = 30.0


class Neighbours:
    """By device; only single-GPU jobs with a history."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.usage = engine, Usage()
        self.on: defaultdict[int, list[Run]] = defaultdict(list)  # in order of their starts
        self.turn: defaultdict[int, int] = defaultdict(int)  # guards timers
        self._memory: dict[str, float] = {}  # by job, its last known sample
        self._rates: dict[int, tuple[float, float, float]] = {}  # (since, GPU, memory) now used

    def begins(self, run: Run) -> None:
        """The job trains its first step."""
        if run.job.history is not None and len(run.occupied) == 1:
            self.on[run.occupied[0]].append(run)
            self._evaluate(run.occupied[0])

    def ends(self, run: Run) -> None:
        """The job stops training; called before its GPUs are released."""
        gpu = run.occupied[0] if run.occupied else -1
        if gpu in self.on and run in self.on[gpu]:
            self._account(gpu)
            self.on[gpu].remove(run)
            self._memory.pop(run.job.id, None)
            self._evaluate(gpu)

    def _evaluate(self, gpu: int) -> None:
        self._account(gpu)
        self.turn[gpu] += 1
        runs = self.on[gpu]
        places = [_sample(run, self.engine.clock.now) for run in runs]
        at = list(zip(runs, places, strict=True))
        has = {run.job.id: _history(run).gpu_memory[place] for run, place in at}
        memory = sum(has.values())
        if memory > 1.0 + _TOLERANCE and len(runs) > 1:
            asked = [run for run in runs if has[run.job.id] > self._memory.get(run.job.id, 0.0)]
            self._fail((asked or runs)[-1])  # comes back by `ends`
            return
        self._memory |= has
        group = [(self._nature(run), _history(run).gpu[place]) for run, place in at]
        slow = slowdowns(group) if self.engine.options.interference else [1.0] * len(group)
        for run, factor in zip(runs, slow, strict=True):
            self._retime(run, factor)
        used = sum(use / factor for (_, use), factor in zip(group, slow, strict=True))
        self._rates[gpu] = (self.engine.clock.now, min(1.0, used), memory)
        self._again_at_next_sample(gpu, at)

    def _nature(self, run: Run) -> Nature:
        name = run.job.model_type
        kind = run.gang.type if run.gang else ""
        return nature_of(APPLICATIONS[name].like if name in APPLICATIONS else name, kind)

    def _retime(self, run: Run, factor: float) -> None:
        """Set its speed from now on, and with it its end."""
        engine, now = self.engine, self.engine.clock.now
        speed = engine._speed(run) / factor
        if abs(speed - run.steps_per_s) <= _TOLERANCE * speed:
            return
        milli = len(run.occupied) * run.gpu_milli
        engine.meter.advance(now)
        engine.meter.train(milli, engine._share(run), -1)
        run.change_speed(now, speed)
        engine.meter.train(milli, engine._share(run), 1)
        run.epoch += 1  # the expected end is void
        run.seen = None
        if run.state is State.RUNNING_PROTECTED and run.protected_until is not None:
            engine.after(run, max(0.0, run.protected_until - now), engine._unprotect)
        engine._expect_end(run)

    def _again_at_next_sample(self, gpu: int, at: list[tuple[Run, int]]) -> None:
        """Wake when the first of the jobs reaches a sample that differs from its present one."""
        now, turn = self.engine.clock.now, self.turn[gpu]
        waits = []
        for run, place in at:
            following = _next_change(_history(run), place)
            if following is not None and run.steps_per_s > 0:
                due = run.job.total_steps * following / len(_history(run).gpu)
                waits.append(max(0.0, (due - run.steps(now)) / run.steps_per_s))
        if waits:
            self.engine.clock.after(min(waits), lambda: self._evaluate(gpu) if self.turn[gpu] == turn else None)

    def _account(self, gpu: int) -> None:
        since, used, memory = self._rates.pop(gpu, (self.engine.clock.now, 0.0, 0.0))
        seconds = self.engine.clock.now - since
        self.usage.gpu_s += used * seconds
        self.usage.memory_s += memory * seconds
        self._rates[gpu] = (self.engine.clock.now, used, memory)

    def _fail(self, run: Run) -> None:
        """Out of memory: the job's processes are gone at once, and it queues again."""
        engine = self.engine
        assert run.state in TRAINING
        self.usage.out_of_memory += 1
        engine.assigned.give_back(run.gpu_ids, run.gpu_milli)
        engine.stop_training(run)
        run.roll_back()
        run.gpu_ids, run.gang = (), None
        run.broken, run.failures = True, run.failures + 1
        run.not_before = engine.clock.now + BACK_OFF_S
        engine.clock.after(BACK_OFF_S, engine.wake)
        engine.move(run, Event.REALLOCATED)
        engine._forget_protection(run)
        engine.after(run, 0.0, engine._checkpointed)


def _sample(run: Run, now: float) -> int:
    """Index of its present sample; just before a sample counts as there."""
    history, total = _history(run), run.job.total_steps
    part = run.steps(now) / total if total > 0 else 0.0
    return min(len(history.gpu) - 1, int(part * len(history.gpu) + _TOLERANCE))


def _history(run: Run) -> ResourceHistory:
    assert run.job.history is not None
    return run.job.history


def _next_change(history: ResourceHistory, place: int) -> int | None:
    """The next sample in which GPU use or memory differs."""
    gpu, memory = history.gpu, history.gpu_memory
    later = range(place + 1, len(gpu))
    return next((n for n in later if gpu[n] != gpu[place] or memory[n] != memory[place]), None)
