"""Nodes' reports on access: of their jobs to the portal's private files, and of the nodes to the portal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scheduling.executors.base import Finding

SUBJECT = "portal's files"
_FIX = (
    "run the portal on another host than the nodes, with EVENKEEL_DATA on a disk that they do not see, and let its "
    "program belong to root or to an account that no job has (docs/executors.md#what-jobs-can-reach)"
)

FIX_PORTAL = "set EVENKEEL_API_URL to an address that nodes reach; runs train on without, until their lease is over"
FIX_CERTIFICATE = (
    "have the nodes trust the authority of the portal's certificate: on Debian put it into "
    "/usr/local/share/ca-certificates as NAME.crt and run update-ca-certificates, on Red Hat into "
    "/etc/pki/ca-trust/source/anchors and run update-ca-trust; the proxy sends intermediate certificates, too"
)


def portal_fix(errors: Iterable[str]) -> str:
    """What to do if nodes reported these problems of reaching the portal."""
    return FIX_CERTIFICATE if any("CERTIFICATE_VERIFY_FAILED" in one for one in errors) else FIX_PORTAL


def reach_finding(node: str, said: Mapping[str, Any]) -> Finding:
    """`said`: the result of `evenkeel.runner.reaching` there, or why it could not check under `problem`."""
    if problem := said.get("problem"):
        return Finding(SUBJECT, True, f"not known of {node}: {problem}", known=False)
    does = [f"{verb} {_named(said[verb])}" for verb in ("read", "connect to", "change") if said.get(verb)]
    if not does:
        return Finding(SUBJECT, True, f"no job on {node} can reach them")
    return Finding(SUBJECT, False, f"a job on {node} (as {said.get('account')}) can {', and '.join(does)}", _FIX)


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"
