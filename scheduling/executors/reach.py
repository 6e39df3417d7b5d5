"""What nodes said of how far their jobs reach: into what the portal keeps for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.executors.base import Finding

SUBJECT = "portal's files"
_FIX = (
    "run the portal on another host than the nodes, with EVENKEEL_DATA on a disk that they do not see, and let its "
    "program belong to root or to an account that no job has (docs/executors.md#what-jobs-can-reach)"
)


def reach_finding(node: str, said: Mapping[str, Any]) -> Finding:
    """`said`: what `evenkeel.runner.reaching` returned there, or why it could not look under `problem`."""
    if problem := said.get("problem"):
        return Finding(SUBJECT, True, f"not known of {node}: {problem}", known=False)
    does = [f"{verb} {_named(said[verb])}" for verb in ("read", "connect to", "change") if said.get(verb)]
    if not does:
        return Finding(SUBJECT, True, f"no job on {node} can reach them")
    return Finding(SUBJECT, False, f"a job on {node} (as {said.get('account')}) can {', and '.join(does)}", _FIX)


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"
