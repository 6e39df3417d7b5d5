"""Nodes that power saving has switched off: how long they take to come up.

The duration of the last wake-up of each node is stored for all processes; before the first one, Slurm's ResumeTimeout
is used, after which it gives a node up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from evenkeel.runner.files import read_object
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.base import NodeInfo
from scheduling.executors.folding import fold_names
from scheduling.executors.slurm.cluster.inventory import SlurmNode
from scheduling.executors.slurm.cluster.partitions import configured
from scheduling.executors.slurm.commands import Commands

#: Slurm's own default of ResumeTimeout.
DEFAULT_S = 60.0
#: One that takes longer than expected is expected at any moment.
LEAST_S = 1.0


class Waking:
    """`since`: when each waking node was first seen waking; `took`: the duration of its last wake-up."""

    def __init__(self, own: Path, commands: Commands) -> None:
        self._file, self._commands = own / "nodes.waking", commands  # not .json: those are runs

    def timed(self, nodes: Mapping[str, SlurmNode]) -> list[NodeInfo]:
        """The nodes, with the time that powered-down ones need; observations are stored."""
        content = read_object(self._file) or {}
        since, took = _seconds(content.get("since")), _seconds(content.get("took"))
        if not since and not any(node.wakes for node in nodes.values()):
            return [node.info for node in nodes.values()]
        now = time.time()
        for name in since.keys() & {name for name, node in nodes.items() if node.up}:
            took[name] = now - since[name]
        since = {name: since.get(name, now) for name, node in nodes.items() if node.is_waking}
        if {"since": since, "took": took} != content:
            with contextlib.suppress(OSError):
                write_atomically(self._file, {"since": since, "took": took})
        timeout_s = self._timeout_s()

        def boot_s(name: str) -> float:
            return max(LEAST_S, took.get(name, timeout_s) - (now - since.get(name, now)))

        return [
            replace(node.info, boot_s=round(boot_s(name), 1)) if node.wakes else node.info
            for name, node in nodes.items()
        ]

    def in_words(self, names: Iterable[str]) -> str:
        """`names`: of waking nodes."""
        names, took = list(names), _seconds((read_object(self._file) or {}).get("took"))
        if any(name not in took for name in names):
            return f"{fold_names(names)}, for which Slurm has {self._timeout_s():.0f} s"
        return f"{fold_names(names)}, which took {max(took[name] for name in names):.0f} s last time"

    def _timeout_s(self) -> float:
        with contextlib.suppress(ExecutorError, ValueError):
            _, config = self._commands.recalling_settings().partitions()
            return float(configured(config, "ResumeTimeout") or DEFAULT_S)
        return DEFAULT_S


def _seconds(rows: object) -> dict[str, float]:
    if not isinstance(rows, dict):
        return {}
    return {str(name): float(value) for name, value in rows.items() if isinstance(value, int | float)}
