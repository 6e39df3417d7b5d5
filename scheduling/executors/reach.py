"""Nodes' reports on access: of their jobs to the portal's private files, and of the nodes to the portal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from scheduling.executors.base import Finding
from scheduling.executors.folding import fold_names

SUBJECT = "portal's files"
#: Stands for the name of a node in findings that are to be folded.
ANY_NODE = "%n"
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


def fold_reach(said: Iterable[tuple[str, Finding]]) -> Iterator[Finding]:
    """A line for the nodes that can reach the same, or else one for all. `said`: of each node its finding, in which
    ANY_NODE stands for its name."""
    alike: dict[Finding, list[str]] = {}
    for node, finding in said:
        alike.setdefault(finding, []).append(node)
    shown = [(one, nodes) for one, nodes in alike.items() if not (one.ok and one.known) or one.warning]
    for finding, nodes in shown:
        yield replace(finding, seen=finding.seen.replace(ANY_NODE, fold_names(nodes), 1))
    if alike and not shown:
        yield replace(next(iter(alike)), seen="no job on the nodes that were asked can reach them")


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"
