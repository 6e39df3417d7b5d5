"""Executors by name; imported on first use, so that a machine without an engine still starts."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from scheduling.executors.base import Executor

EXECUTORS = {
    "local": "scheduling.executors.local.executor.LocalExecutor",
    "ray": "scheduling.executors.ray.executor.RayExecutor",
    "slurm": "scheduling.executors.slurm.executor.SlurmExecutor",
}
#: Executors that can run each job as the person who submitted it: with the option `run_as`, "person".
AS_PERSON = {"slurm": "scheduling.executors.slurm.person.PersonSlurmExecutor"}


def load_executor(name: str, options: dict[str, Any]) -> Executor:
    """The executor `name` with its options; KeyError for an unknown name."""
    places = AS_PERSON if options.get("run_as") == "person" else EXECUTORS
    module, _, cls = places[name].rpartition(".")
    return cast("Executor", getattr(import_module(module), cls)(**options))
