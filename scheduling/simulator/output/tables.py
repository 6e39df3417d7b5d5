"""One line per job and policy, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from scheduling.lifecycle import TRAINING, WAITING
from scheduling.simulator import Simulation
from scheduling.simulator.inputs.trace import Cluster, sizes
from scheduling.simulator.outcome import LAUNCHING_DELAY
from scheduling.simulator.output.report import fairness, label, seconds_in, slowdown

COLUMNS = (
    "policy", "id", "number", "project", "model_type", "arrival_s", "started_s", "finished_s", "jct_s", "queueing_s",
    "launching_s", "running_s", "slowdown", "finish_time_fairness", "restarts", "failures", "lost_steps", "gpu_s",
    "cost",
)  # fmt: skip


def write_jobs(simulations: Sequence[Simulation], cluster: Cluster, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        print_jobs(simulations, cluster, file)


def print_jobs(simulations: Sequence[Simulation], cluster: Cluster, file: TextIO) -> None:
    """Times in seconds; empty for states that a job has not reached."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for simulation in simulations:
        writer.writerows(_rows(simulation, cluster))


def _rows(simulation: Simulation, cluster: Cluster) -> Iterator[list[object]]:
    name, of = label(simulation.result), sizes(cluster.nodes)
    for run in simulation.outcome.runs:
        job, done = run.job, run.finished_at is not None
        spent = [seconds_in(run, states) for states in (WAITING, LAUNCHING_DELAY, TRAINING)]
        yield [
            name,
            job.id,
            job.number,
            job.project,
            job.model_type,
            job.arrival_s,
            run.started_at,
            run.finished_at,
            run.finished_at - job.arrival_s if run.finished_at is not None else None,
            *spent,
            slowdown(run) if done else None,
            fairness(run, simulation.outcome, of) if done else None,
            run.restarts,
            run.failures,
            run.lost_steps,
            run.gpu_seconds,
            run.cost,
        ]
