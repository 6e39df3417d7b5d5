"""What an administrator must fix before jobs can run on this Ray cluster: for `manage.py doctor`."""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import evenkeel
from evenkeel.runner.files import create_private

from scheduling.errors import ExecutorError
from scheduling.executors.base import NO_SOFTWARE, NOTHING_KEPT, Finding, Kept, NodeCheck, Software
from scheduling.executors.folding import fold_findings, fold_names
from scheduling.executors.offering import offer_findings
from scheduling.executors.ray.inventory import (
    TYPE_LABEL,
    UNKNOWN_TYPE,
    accelerator_type,
    gpu_count,
    nodes_of,
)
from scheduling.executors.ray.link import Link
from scheduling.executors.reach import ANY_NODE, fold_reach, portal_fix, reach_finding

CONNECT_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 60.0
TRIED = "2.60"
MAX_SKEW_S = 2.0
Row = Mapping[str, Any]


def examine(
    link: Link,
    own: Path,
    api_url: str,
    store_module: str = "",
    data_cache_dir: str = "",
    software: Software = NO_SOFTWARE,
    emulated: bool = False,
    kept: Kept = NOTHING_KEPT,
) -> Iterator[Finding]:
    """Yields findings; stops at the first one that makes the rest pointless."""
    yield from _files(link)
    try:
        version = link.ask("version", CONNECT_TIMEOUT_S, ends_on_timeout=True)["ray"]
        table = link.ask("nodes", CONNECT_TIMEOUT_S, ends_on_timeout=True)
    except ExecutorError as error:
        yield Finding(
            "connection",
            False,
            str(error),
            "set EVENKEEL_RAY_ADDRESS to host:port of the head, and make this machine a node of the cluster:"
            " ray start --address=HOST:PORT --num-gpus=0 --num-cpus=0; with TLS or a token set EVENKEEL_RAY_TLS_* or"
            " EVENKEEL_RAY_TOKEN_FILE",
        )
        return
    living = [row for row in table if row["alive"]]
    yield Finding("connection", True, f"{len(living)} of {len(table)} nodes that ever joined are alive")
    yield Finding(
        "version", version.startswith(f"{TRIED}."), f"Ray {version}", f"Ray {TRIED} is the one that was tried"
    )
    yield from _gpus(living)
    trouble, answers = _probe(link, own, api_url, data_cache_dir, not emulated, kept=kept)
    yield from trouble
    said = defaultdict[str, list[Finding]](list)
    for one, findings in answers:
        said[str(one["name"])] += [*findings, *_of_offers(one, store_module, software)]
    yield from fold_findings(said)
    yield from fold_reach((str(one["name"]), _of_reach(one)) for one, _ in answers if "reached" in one)


def _files(link: Link) -> Iterator[Finding]:
    to = link.connection
    for name, path in (("TLS", to.tls_cert), ("TLS", to.tls_key), ("TLS", to.tls_ca), ("token", to.token_file)):
        if path and not os.access(path, os.R_OK):
            yield Finding(name, False, f"{path} cannot be read", "correct the setting, or the file's owner and mode")
    for path in (to.tls_key, to.token_file):
        if path and os.access(path, os.R_OK) and Path(path).stat().st_mode & 0o077:
            yield Finding("secrets", False, f"{path} can be read by others", f"chmod 600 {path}")


def _gpus(living: Sequence[Row]) -> Iterator[Finding]:
    nodes = nodes_of(living)
    alike = defaultdict[str, list[str]](list)
    for name, (_, info) in nodes.items():
        alike[f"{len(info.accelerators)} × {info.accelerators[0].type}"].append(name)
    yield Finding(
        "GPUs",
        bool(nodes),
        ", ".join(f"{fold_names(names)} {gpus}" for gpus, names in alike.items()) or "none",
        "start nodes with --num-gpus, or where Ray finds their GPUs by itself",
    )
    untyped = [str(row["name"]) for row in living if gpu_count(row) and accelerator_type(row) == UNKNOWN_TYPE]
    if untyped:
        fix = f"ray start --labels {TYPE_LABEL}=a100, where Ray does not find the type by itself"
        yield Finding("GPU types", False, f"not known of {fold_names(untyped)}", fix)
    often = Counter(str(row["name"]) for row in living if gpu_count(row))
    if double := [name for name, count in often.items() if count > 1]:
        yield Finding("node names", False, f"{', '.join(double)}: several nodes", "ray start --node-name, one each")


def check_node(
    link: Link,
    own: Path,
    wish: NodeCheck,
    store_module: str,
    data_cache_dir: str = "",
    software: Software = NO_SOFTWARE,
    emulated: bool = False,
) -> Iterator[Finding]:
    """For one node: Ray's declarations, and the node's own data."""
    began = time.monotonic()
    row, info = nodes_of(link.ask("nodes", wish.timeout_s / 2, ends_on_timeout=True)).get(wish.node, (None, None))
    if row is None or info is None:
        fix = f"ray start --address={link.connection.address} there"
        yield Finding("state", False, "Ray has no living node of that name with GPUs", fix)
        return
    yield Finding("state", True, "alive in Ray")
    yield Finding("GPUs", True, f"{len(info.accelerators)} × {info.accelerators[0].type}")
    left_s = max(2.0, wish.timeout_s - (time.monotonic() - began) - 1.0)
    place = (link, own, wish.api_url, data_cache_dir)
    trouble, answers = _probe(*place, not emulated, left_s, only=str(row["id"]))
    of_node = [
        finding for one, findings in answers for finding in (*findings, *_of_offers(one, store_module, software))
    ]
    for finding in (*trouble, *of_node):
        bare = finding.subject == "PyTorch" and not finding.ok  # it runs commands
        yield replace(finding, ok=finding.ok or bare, known=not bare)


def _probe(
    link: Link,
    own: Path,
    api_url: str,
    data_cache_dir: str,
    real: bool,
    timeout_s: float = PROBE_TIMEOUT_S,
    only: str | None = None,
    kept: Kept = NOTHING_KEPT,
) -> tuple[list[Finding], list[tuple[Row, list[Finding]]]]:
    """What keeps it from asking nodes, and what each of them said, with what that shows of it."""
    nonce = f"doctor-{secrets.token_hex(8)}"
    try:
        try:
            with os.fdopen(create_private(own / nonce), "w") as file:
                file.write(nonce)
        except OSError as error:
            seen = f"{own} cannot be written here: {error.strerror}"
            return [Finding("shared storage", False, seen, "repair it")], []
        try:
            wanted: dict[str, Any] = {"data_cache_dir": data_cache_dir, "real": real} | (
                {} if only is None else {"only": only}
            )
            wanted |= {} if kept == NOTHING_KEPT else {"kept": asdict(kept)}
            said = link.ask("probe", timeout_s, shared=str(own), nonce=nonce, api_url=api_url, **wanted)
        except ExecutorError as error:
            return [Finding("nodes", False, str(error), "look into Ray's logs on its head")], []
        return [], [(node, list(of_node(node, nonce, own))) for node in said]
    finally:
        for path in own.glob(f"{nonce}*"):
            path.unlink(missing_ok=True)


def _of_offers(said: Row, store_module: str, software: Software) -> Iterator[Finding]:
    if store_module and gpu_count(said) and "problem" not in said:
        yield _driver(said, store_module)
    if gpu_count(said) and "data" in said:
        yield from offer_findings(said["data"], software)


def _of_reach(said: Row) -> Finding:
    """Where Ray has no GPUs no job is placed, for example on the portal's machine; a program can still start Ray tasks
    there, and nothing prevents that."""
    found = reach_finding(ANY_NODE, said["reached"])
    if found.ok or gpu_count(said):
        return found
    seen = f"{found.seen}, by tasks that its program starts in Ray"
    fix = "Ray keeps no program from that: let only people use this cluster who may administer the portal"
    return replace(found, ok=True, warning=True, seen=seen, fix=f"{fix} (docs/executors.md#what-jobs-can-reach)")


def _driver(said: Row, module: str) -> Finding:
    there = module in said.get("drivers", ())
    fix = "install the driver of EVENKEEL_CHECKPOINT_URL into Ray's environment there (requirements-s3.lock)"
    return Finding("checkpoint store", there, f"{module} {'is there' if there else 'not found'}", fix)


def of_node(said: Row, nonce: str, own: Path) -> Iterator[Finding]:
    """The node's own answer (`Calls.probe`); for one without GPUs only the general part."""
    if "problem" in said:
        fix = f"{evenkeel.__name__} must be importable there: pip install the client package into Ray's environment"
        yield Finding("answer", False, said["problem"], fix)
        return
    skew_s = max(said["asked_at"] - said["at"], said["at"] - said["answered_at"], 0.0)
    seen = f"at least {skew_s:.1f} s off" if skew_s > MAX_SKEW_S else "agrees with the portal's"
    yield Finding("clock", skew_s <= MAX_SKEW_S, seen, "run NTP on every machine")
    if gpu_count(said) == 0:
        return
    there = said.get("shared") == nonce and (own / said["wrote"]).exists()
    seen = said.get("shared_error") or ("seen from both sides" if there else "another file of that name")
    fix = "EVENKEEL_SHARED_DIR must be the same storage under the same path here and on every node"
    yield Finding("shared storage", there, f"{own}: {seen}", fix)
    same_user = said["uid"] == os.geteuid()
    fix = "start Ray's nodes and the portal as the same account"
    yield Finding("account", same_user, f"{said['uid']}, the portal is {os.geteuid()}", fix)
    ours = (platform.python_version_tuple()[:2], evenkeel.__version__)
    theirs = (tuple(said["python"].split(".")[:2]), said["evenkeel"])
    seen = f"Python {said['python']}, client {said['evenkeel']}, {said['interpreter']}"
    yield Finding("versions", ours == theirs, seen, "the same Python and client package as the portal's")
    yield Finding("PyTorch", said["torch"], "is there" if said["torch"] else "not found", "install it there")
    reached = "portal_error" not in said
    fix = portal_fix([said.get("portal_error", "")])
    yield Finding("portal", reached, said.get("portal_error", "is reached"), fix)
    for row in said.get("devices", ()):
        yield Finding(**row)
