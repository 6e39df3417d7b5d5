"""How an epoch ended, from what each worker left and what the SDK said."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evenkeel.program_output import plain
from evenkeel.runner.last_words import MAX_WORDS, is_out_of_memory, last_words
from evenkeel.runner.listening import Heard
from evenkeel.runner.workers import Worker


class Order(StrEnum):
    """Why the runner ended the workers, weakest first."""

    STOP = "stop"
    LEASE = "lease"
    TIME_LIMIT = "time_limit"
    MEMORY = "memory"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Verdict:
    reason: str
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    permanent: bool = False  # trying again changes nothing
    nodes_fault: bool | None = None

    def as_exit_code(self) -> int:
        """The program's, 128 and its signal as shells have it, or 1 for another failure."""
        if self.reason in ("done", "stopped"):
            return 0
        if self.signal:
            return 128 + self.signal
        return self.exit_code if self.exit_code and 0 < self.exit_code < 256 else 1


def judge(
    workers: Sequence[Worker],
    heard: Heard,
    order: Order | None,
    limits: dict[str, Any],
    oom: bool,
    in_group: bool = False,
) -> Verdict:
    """`oom`: the kernel killed something for want of memory around the time a worker was killed; `in_group`: it did so
    in the control group of the run, perhaps a worker's child, whose end the worker may tell in any way."""
    if all(worker.exit_code == 0 for worker in workers):
        if order is not None and not heard.done:
            ended = order in (Order.TIME_LIMIT, Order.KILL)
            return _as_ordered(order, heard, limits) if ended else Verdict("stopped", exit_code=0)
        return Verdict("stopped" if heard.stopped and not heard.done else "done", exit_code=0)
    # An engine that ends a job sends SIGTERM to all of its processes, not to us alone.
    asked = order in (Order.STOP, Order.LEASE)
    taken = [worker for worker in workers if asked and not worker.signalled and ended_by_sigterm(worker)]
    by_itself = [
        worker for worker in workers if worker.failed and not (worker.signalled or worker in taken)
        and not _lost_its_peer(worker, taken)
    ]  # fmt: skip
    if by_itself and order not in (Order.KILL, Order.MEMORY):
        return _failure(_first(by_itself, heard), heard, oom, in_group)
    if order is not None:
        return _as_ordered(order, heard, limits)
    return _failure(_first([worker for worker in workers if worker.failed], heard), heard, oom, in_group)


def ended_by_sigterm(worker: Worker) -> bool:
    """Or, as shells say it, a child of it was."""
    return worker.signal == signal.SIGTERM or worker.exit_code == 128 + signal.SIGTERM


def _lost_its_peer(worker: Worker, taken: Sequence[Worker]) -> bool:
    """It failed after an engine had ended a peer: on another node, which the engine may not reach, its connections to
    that peer broke. The kernel's SIGKILL is no such failure."""
    return not worker.killed and any(peer.order < worker.order for peer in taken)


def _as_ordered(order: Order, heard: Heard, limits: dict[str, Any]) -> Verdict:
    match order:
        case Order.KILL:
            return Verdict("signal", "killed on request", signal=int(signal.SIGKILL))
        case Order.MEMORY:
            return Verdict("out_of_memory", f"the job used more than its {limits['memory_mib']} MiB of memory")
        case Order.TIME_LIMIT:
            return Verdict("time_limit", f"stopped after its limit of {limits['max_duration_s']:g} s")
        case Order.STOP | Order.LEASE:
            late = heard.ready_at is not None and heard.contact and not heard.stopped
            return Verdict("stopped", "it did not answer the request to stop and was ended" if late else "")


def _first(failed: list[Worker], heard: Heard) -> Worker:
    """The worker whose failure brought the others down: one killed from outside cannot be an echo of another's failure,
    and an error that was reported first is older than those that follow from it."""
    reported_at = {int(error["rank"]): float(error["t"]) for error in reversed(heard.errors)}

    def rank_of(worker: Worker) -> tuple[bool, bool, float, int]:
        memory = _ran_out_of_memory(worker, heard)
        at = reported_at.get(worker.rank, worker.ended_at or 0.0)
        return not worker.killed, not memory and worker.signal is None, at, worker.order

    return min(failed, key=rank_of)


def _failure(worker: Worker, heard: Heard, oom: bool, in_group: bool) -> Verdict:
    where = f"worker {worker.rank}"
    if in_group or (oom and worker.killed):
        how = "was killed by the kernel" if worker.killed else "ended after the kernel killed a process of the run"
        message = f"{where} {how}: out of memory"
        return Verdict("out_of_memory", message, exit_code=worker.exit_code, signal=worker.signal)
    if worker.signal is not None:
        name = signal.Signals(worker.signal).name if worker.signal in set(signal.Signals) else str(worker.signal)
        return Verdict("signal", f"{where} was ended by {name}", signal=worker.signal)
    reason = "out_of_memory" if _ran_out_of_memory(worker, heard) else "user_error"
    text = _last_words(worker, heard)
    message = f"{where} ended with code {worker.exit_code}" + (f": {text}" if text else "")
    return Verdict(reason, message, exit_code=worker.exit_code)


def _ran_out_of_memory(worker: Worker, heard: Heard) -> bool:
    said = [error for error in heard.errors if error.get("rank") == worker.rank]
    if any(is_out_of_memory(str(error.get("type")), str(error.get("text"))) for error in said):
        return True
    return worker.exit_code not in (0, None) and last_words(worker.output.tail).out_of_memory


def _last_words(worker: Worker, heard: Heard) -> str:
    for error in heard.errors:
        if error.get("rank") == worker.rank:
            text = " ".join(plain(str(error.get("text") or "")).split())
            return f"{error.get('type')}: {text}".strip(": ")[:MAX_WORDS]
    return last_words(worker.output.tail, worker.exit_code).text
