"""Executors by name; imported on first use, so that a machine without an engine still starts."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from scheduling.executors.base import Executor

EXECUTORS = {
    "local": "scheduling.executors.local.executor.LocalExecutor",
    "slurm": "scheduling.executors.slurm.executor.SlurmExecutor",
}


def load_executor(name: str, options: dict[str, Any]) -> Executor:
    """The executor `name` with its options; KeyError for a name that is not in EXECUTORS."""
    module, _, cls = EXECUTORS[name].rpartition(".")
    return cast("Executor", getattr(import_module(module), cls)(**options))
