"""Combines the states of an epoch's hosts: does it continue, and if not, how did it end?"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduling.executors.base import ExitInfo

FORGOTTEN = (
    "Ray's head was started anew and knew nothing of what ran: it has no fault tolerance, or lost what it had stored"
)
#: If several hosts died, the first of these is the cause: the others died with it.
_ORDER = ("memory", "node", "init", "unplaced", "killed", "process")


@dataclass(frozen=True, slots=True)
class Sight:
    """The agent's observation of the host on one node (`Calls.look`)."""

    node: str
    seen: Mapping[str, Any]

    @property
    def state(self) -> str:
        return str(self.seen.get("state", "silent"))

    @property
    def running(self) -> bool:
        return self.state == "silent" or (self.state == "alive" and bool(self.seen.get("running")))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`exit` None, if it does not continue: it never started."""

    goes_on: bool
    exit: ExitInfo | None = None
    by_engine: bool = False  # a host died, and with it its runner's or another node's knowledge of the end
    usage: Mapping[str, float] = field(default_factory=dict)
    missing: bool = False  # Ray does not know all of its hosts


def judge(sights: Sequence[Sight], *, begun: bool) -> Verdict:
    """`begun`: a runner was there. A host that does not answer may live: then the epoch continues until Ray gives it
    up. A dead one ends it for all."""
    dead = [sight for sight in sights if sight.state == "dead"]
    missing = [sight for sight in sights if sight.state == "absent"]
    if not dead and not missing and any(sight.running for sight in sights):
        return Verdict(True, usage=_usage(sights))
    if dead:
        worst = min(dead, key=lambda sight: _ORDER.index(str(sight.seen.get("kind"))))
        return Verdict(False, _explain(worst), by_engine=True)
    if missing:
        text = f"Ray does not know its actor on node {missing[0].node} any more"
        forgotten = ExitInfo("runner_lost", message=text, alleged=True)
        return Verdict(False, forgotten if begun else None, missing=True)
    return Verdict(False, ExitInfo("runner_lost", message="the runner ended without leaving a record", alleged=True))


def of_forgotten(ended: ExitInfo) -> ExitInfo:
    """The end of a run that was lost with the state of Ray's head: neither its nodes' fault, nor its job's."""
    if ended.reason == "stopped":
        return replace(ended, message=FORGOTTEN)
    if not is_of_a_dead_host(ended):
        return ended
    return ExitInfo("runner_lost", step=ended.step, message=FORGOTTEN, nodes_fault=False)


def is_of_a_dead_host(info: ExitInfo) -> bool:
    """A runner's report after the death of a host: another node's is lost, or a worker was killed. The engine knows
    more."""
    return info.reason == "runner_lost" or (info.reason == "signal" and info.signal == signal.SIGKILL)


def _explain(sight: Sight) -> ExitInfo:
    text = str(sight.seen.get("text") or "")
    said = f": {text}" if text else ""
    match sight.seen.get("kind"):
        case "node":
            return ExitInfo("runner_lost", message=f"its node {sight.node} was lost")
        case "memory":
            return ExitInfo("out_of_memory", message=f"Ray ended it, as node {sight.node} ran out of memory")
        case "killed":
            return ExitInfo(
                "signal", signal=int(signal.SIGKILL), message=f"its actor on node {sight.node} was ended through Ray"
            )
        case "init" | "unplaced":
            text = f"its actor on node {sight.node} did not start{said}"
            return ExitInfo("launch_failed", message=text, nodes_fault=True)
        case _:
            return ExitInfo("runner_lost", message=f"its actor on node {sight.node} died{said}", alleged=True)


def _usage(sights: Sequence[Sight]) -> dict[str, float]:
    total: dict[str, float] = {}
    for sight in sights:
        for name, value in dict(sight.seen.get("usage") or {}).items():
            total[name] = round(total.get(name, 0.0) + float(value), 2)
    return total
