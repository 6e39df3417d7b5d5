"""A simulation as files: input for `manage.py simulate`, and a table of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from portal.core.packed_json import unpack
from portal.lab.describe import describe_simulation
from portal.lab.models import Simulation
from portal.lab.results import job_rows
from scheduling.simulator.readers.own import SCHEMA
from scheduling.simulator.sweeps import JOB_KEYS

COLUMNS = ("policy", "role", "seed", *JOB_KEYS)


def export_rows(row: Simulation) -> Iterator[list[Any]]:
    for trial in row.trials.filter(packed__isnull=False):
        for job in job_rows(trial):
            yield [trial.label, trial.role, trial.seed, *job.values()]


def export_document(row: Simulation) -> dict[str, Any]:
    """`traces` by seed (of all seeds under "") and `cluster` are files in the simulator's formats."""
    packed = Simulation.objects.only("inputs").get(pk=row.pk).inputs
    inputs: dict[str, Any] = unpack(packed) if packed else {"workloads": {}, "cluster": None}
    traces = {seed: {"schema": SCHEMA, "jobs": jobs} for seed, jobs in inputs["workloads"].items()}
    return {
        "schema": "evenkeel-simulation/1",
        "simulation": describe_simulation(row),
        "cluster": inputs["cluster"],
        "traces": traces,
    }
