"""Ray's reasons for an actor's death, in the contract's terms."""

from __future__ import annotations

import re
from typing import Any

from evenkeel.program_output import shown_lines

#: Kinds of an actor's death: `node` (its node was lost), `memory` (Ray's monitor killed it), `killed` (by us or a
#: person, through Ray), `init` (its constructor failed), `process` (its process ended), `unplaced`.
KINDS = frozenset({"node", "memory", "killed", "init", "process", "unplaced"})
#: Words of Ray's memory monitor. For a process that is just gone Ray mentions the kernel's killer as a possible cause,
#: too.
_MEMORY = re.compile(r"running low on memory|memory pressure|memory monitor", re.IGNORECASE)
_NODE = re.compile(r"node (has |was )?(died|dead|terminated|lost)|its node|NODE_DIED", re.IGNORECASE)
_KILLED = re.compile(r"ray\.kill|killed by|KilledBy", re.IGNORECASE)
MAX_TEXT = 300


def explain(cause: Any) -> tuple[str, str]:
    """(kind, text) of an `ActorDeathCause` of Ray's protocol; from its fields, or else its text."""
    which = cause.WhichOneof("context") if hasattr(cause, "WhichOneof") else None
    if which is None:
        return "process", ""
    context = getattr(cause, which)
    text = str(getattr(context, "error_message", "") or context).strip()
    if which == "oom_context":
        return "memory", _short(text)
    if which in ("creation_task_failure_context", "runtime_env_failed_context"):
        text = str(getattr(context, "formatted_exception_string", "") or text)
        return "init", _last_line(text)
    if which == "actor_unschedulable_context":
        return "unplaced", _short(text)
    return _by_reason(context, text), _short(text)


def _by_reason(context: Any, text: str) -> str:
    reason = _reason_name(context)
    if reason == "NODE_DIED" or (not reason and _NODE.search(text)):
        return "node"
    if _MEMORY.search(text):
        return "memory"
    if reason == "RAY_KILL" or (not reason and _KILLED.search(text)):
        return "killed"
    return "process"


def _reason_name(context: Any) -> str:
    try:
        field = context.DESCRIPTOR.fields_by_name["reason"]
        return str(field.enum_type.values_by_number[context.reason].name)
    except (AttributeError, KeyError):
        return ""


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_TEXT]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in shown_lines(text.encode(errors="replace")) if line.strip()]
    return (lines[-1] if lines else "")[:MAX_TEXT]
