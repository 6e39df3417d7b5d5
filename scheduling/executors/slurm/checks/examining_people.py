"""Checks of `doctor` where jobs run as their person: the helper, the shared directory, and one real account."""

from __future__ import annotations

import grp
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evenkeel.runner.files import parse_json

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import blocking
from scheduling.executors.base import Finding
from scheduling.executors.local.layout import Layout
from scheduling.executors.slurm.agents import Link, RunAs
from scheduling.executors.slurm.run_as_helper import CONFIGURATION
from scheduling.executors.slurm.run_as_helper import VERSION as HELPER_VERSION

TREE = Path(__file__).resolve().parents[4]
TRIED = 3  # accounts tried until one may be used
ASK_S = 60.0
DOCS = "docs/executors.md, Jobs as the person"


def examine(run_as: RunAs, layout: Layout, settings: Mapping[str, Any]) -> Iterator[Finding]:
    yield _roots_alone(Path(run_as.helper))
    try:
        found = _described(run_as.ask("check", run_as.section))
    except ExecutorError as error:
        yield Finding("run as person", False, str(error), f"the sudoers rule and {CONFIGURATION} are in {DOCS}")
        return
    version = found.get("version")
    words = f"sudo starts it; version {version}" + ("" if version == HELPER_VERSION else f", not {HELPER_VERSION}")
    fix = f"install {TREE}/scheduling/executors/slurm/run_as_helper.py as {run_as.helper} again"
    yield Finding("run as person", version == HELPER_VERSION, words, fix)
    yield _same_places(found, layout.data)
    yield _shared(layout)
    yield _trial(run_as, found, settings)


def _described(text: str) -> Mapping[str, Any]:
    try:
        found = parse_json(text.encode())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ExecutorError("the helper's answer makes no sense: install it again", permanent=False)
    return found


def _roots_alone(path: Path) -> Finding:
    for current in (path, *path.parents):
        try:
            status = current.lstat()
        except OSError as error:
            return Finding("helper", False, f"{current}: {error.strerror}", f"install it as {DOCS} says")
        if status.st_uid != 0 or status.st_mode & 0o022:
            return Finding(
                "helper", False, f"{current} is not root's alone", f"chown root {current}; chmod go-w {current}"
            )
    return Finding("helper", True, f"{path} is root's alone")


def _same_places(found: Mapping[str, Any], shared: Path) -> Finding:
    """Its configuration names the paths that this portal uses, and people's accounts can access them."""
    theirs = Path(str(found.get("shared_dir")))
    if theirs.resolve() != shared:
        return Finding(
            "helper's configuration", False, f"shared_dir is {theirs}, not {shared}", f"edit {CONFIGURATION}"
        )
    for path in (Path(str(found.get("python"))), Path(str(found.get("tree"))) / "scheduling", shared / "jobs"):
        if blocked := blocking(path):
            seen = f"people's accounts cannot pass {blocked} on the way to {path}"
            return Finding("helper's configuration", False, seen, f"chmod o+x {blocked} (of a file: o+r)")
    fits = Path(str(found.get("tree"))).resolve() == TREE and str(found.get("python")) == sys.executable
    seen = f"{theirs}, uids {found.get('min_uid')} to {found.get('max_uid')}, group {found.get('group')}"
    advice = f"python = {sys.executable}, tree = {TREE}: what this portal itself runs"
    return Finding("helper's configuration", True, seen, advice, warning=not fits)


def _shared(layout: Layout) -> Finding:
    status, wanted = layout.jobs.stat(), ({0o1733, 0o3733})
    mode = stat.S_IMODE(status.st_mode)
    ok = status.st_uid == os.geteuid() and mode in wanted
    ours = mode == 0o1733 or status.st_gid in {os.getegid(), *os.getgroups()}
    seen = f"{layout.jobs} has mode {mode:o}" + ("" if ours else " and a group that is not the portal's")
    return Finding("shared directory's modes", ok and ours, seen, f"chown it to the portal, chmod 3733 {layout.jobs}")


def _trial(run_as: RunAs, found: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    """A job under one of the accounts that may be used."""
    subject, refused = "a person's job", "the group has no members that could be tried"
    try:
        members = grp.getgrnam(str(found.get("group"))).gr_mem
    except KeyError:
        members = []
    for account in members[:TRIED]:
        try:
            run_as.ask("check", run_as.section, account)
            link = Link(account, run_as, settings)
            try:
                said = link.ask("trial", ASK_S)
            finally:
                link.close()
        except ExecutorError as error:
            refused = str(error)
            continue
        if not isinstance(said, dict) or said.get("name") != account:
            return Finding(
                subject, False, f"a job of {account} ran as {str(said)[:100]}", "nodes need the same accounts"
            )
        home = f"its home {str(said.get('home'))[:100]} is there" if said.get("has_home") else "it has no home there"
        fix = "mount homes on the nodes: HOME of a job is the person's"
        return Finding(
            subject, True, f"a job of {account} ran as {account}; {home}", fix, warning=not said.get("has_home")
        )
    return Finding(subject, True, f"not tried: {refused}", known=False)
