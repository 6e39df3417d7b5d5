"""Messages between the portal and an agent: typed, and validated by the receiver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scheduling.errors import ExecutorError
from scheduling.executors.base import ExitInfo, Fact, LaunchRequest, Preparation, Progress, Spooled
from scheduling.executors.local.facts import REASONS, UNPRINTABLE
from scheduling.executors.local.spooling import cleaned
from scheduling.executors.slurm.commands import SlurmJob

#: Format of a Unix account that the helper accepts.
ACCOUNT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
VERSION = 3
#: Of one line, either way.
MAX_LINE = 32 << 20
MAX_NODES = 2_000_000
MAX_WORDS = 2_000
_KINDS = frozenset({"alive", "exited", "absent"})
_STATES = frozenset({"working", "done", "failed"})

LAUNCH: TypeAdapter[LaunchRequest] = TypeAdapter(LaunchRequest)
PREPARATION: TypeAdapter[Preparation] = TypeAdapter(Preparation)
QUEUE: TypeAdapter[dict[str, list[SlurmJob]]] = TypeAdapter(dict[str, list[SlurmJob]])
_FACTS: TypeAdapter[list[Fact]] = TypeAdapter(list[Fact])
_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


def facts_of(answer: Any, asked: Sequence[tuple[str, int]]) -> list[Fact]:
    """One for each requested launch, in that order; everything else is rejected."""
    try:
        found = _FACTS.validate_python(answer)
    except ValidationError:
        raise _nonsense("its runs") from None
    if [(fact.run_id, fact.epoch) for fact in found] != list(asked) or any(f.kind not in _KINDS for f in found):
        raise _nonsense("its runs")
    return [_clean(fact) for fact in found]


def _clean(fact: Fact) -> Fact:
    # Its times determine its cost: Slurm must report them, not an account's own files.
    shown = replace(fact, usage={}, waits=words_of(fact.waits), strays="", began_at=None, ended_at=None)
    if fact.exit is None:
        return shown
    return replace(shown, exit=_clean_exit(fact.exit))


def _clean_exit(exit_info: ExitInfo) -> ExitInfo:
    reason = exit_info.reason if exit_info.reason in REASONS else "runner_lost"
    return replace(exit_info, reason=reason, message=words_of(exit_info.message))


def words_of(text: str) -> str:
    return UNPRINTABLE.sub("", text[: 4 * MAX_WORDS])[:MAX_WORDS]


def progress_of(answer: Any) -> Progress:
    try:
        found = _PROGRESS.validate_python(answer)
    except ValidationError:
        raise _nonsense("a preparation") from None
    if found.state not in _STATES:
        raise _nonsense("a preparation")
    return replace(found, message=words_of(found.message))


def spooled_of(answer: Any) -> Spooled | None:
    if answer is None:
        return None
    report, dropped = (answer.get("report"), answer.get("dropped")) if isinstance(answer, Mapping) else (None, None)
    if not isinstance(report, dict | None) or type(dropped) is not int or dropped < 0:
        raise _nonsense("a report")
    return Spooled(cleaned(report) if report is not None else None, dropped)


def plain_queue(queue: Mapping[str, Sequence[SlurmJob]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [{**asdict(job), "states": sorted(job.states)} for job in jobs] for name, jobs in queue.items()}


def _nonsense(about: str) -> ExecutorError:
    return ExecutorError(f"the agent of the account gave no sense of {about}", permanent=False)
