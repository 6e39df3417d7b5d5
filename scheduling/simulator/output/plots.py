"""Pictures of simulations: identical bytes for identical results. Only this module and gantt import Matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from scheduling.domain import WHOLE
from scheduling.simulator import Simulation
from scheduling.simulator.inputs.trace import Cluster
from scheduling.simulator.output.gantt import draw_gantt
from scheduling.simulator.output.report import label, slowdown

#: A line with more points is thinned.
_POINTS = 4000
FORMATS = ("png", "svg")


def write_plots(simulations: Sequence[Simulation], cluster: Cluster, folder: Path, kind: str = "png") -> list[Path]:
    """One file per picture; the Gantt chart one per policy."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Callable[[Any], None]] = {
        "jct_cdf": lambda axes: _jct(axes, simulations),
        "slowdown_cdf": lambda axes: _slowdown(axes, simulations),
        "utilisation": lambda axes: _utilisation(axes, simulations, cluster),
        "utilisation_cdf": lambda axes: _utilisation_cdf(axes, simulations),
    }
    for index, simulation in enumerate(simulations):
        name = f"gantt_{index + 1}_{simulation.result['policy']}"
        pictures[name] = lambda axes, one=simulation: draw_gantt(axes, one, cluster)  # type: ignore[misc]
    with mpl.rc_context({"svg.hashsalt": "evenkeel", "svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        return [_write(folder / f"{name}.{kind}", draw) for name, draw in pictures.items()]


def _write(path: Path, draw: Callable[[Any], None]) -> Path:
    figure = Figure(figsize=(8, 4.5), layout="constrained")  # no window system: Figure draws with Agg
    axes = figure.subplots()
    draw(axes)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)
    return path


def _jct(axes: Any, simulations: Sequence[Simulation]) -> None:
    for simulation in simulations:
        runs = simulation.outcome.runs
        _cdf(
            axes, [r.finished_at - r.job.arrival_s for r in runs if r.finished_at is not None], label(simulation.result)
        )
    _label(axes, "job completion time, s", "share of jobs", logarithmic=True)


def _slowdown(axes: Any, simulations: Sequence[Simulation]) -> None:
    for simulation in simulations:
        done = [run for run in simulation.outcome.runs if run.finished_at is not None]
        _cdf(axes, [value for run in done if (value := slowdown(run)) is not None], label(simulation.result))
    _label(axes, "slowdown (1: as fast as alone)", "share of jobs", logarithmic=True)


def _cdf(axes: Any, values: Sequence[float], name: str) -> None:
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size:
        places = np.unique(np.linspace(0, ordered.size - 1, min(ordered.size, _POINTS)).astype(int))
        axes.plot(ordered[places], (places + 1) / ordered.size, label=name, drawstyle="steps-post")


def _utilisation(axes: Any, simulations: Sequence[Simulation], cluster: Cluster) -> None:
    """Means over a few hundred equal intervals."""
    for simulation in simulations:
        meter, outcome = simulation.outcome.meter, simulation.outcome
        if not meter.times or outcome.end <= outcome.first_arrival:
            continue
        times = np.array([*meter.times, max(meter.at, meter.times[-1])])
        area = np.concatenate([[0.0], np.cumsum(np.diff(times) * np.array(meter.levels, dtype=float) / WHOLE)])
        edges = np.linspace(outcome.first_arrival, outcome.end, 400)
        mean = np.diff(np.interp(edges, times, area)) / np.diff(edges) / max(1, cluster.gpus)
        axes.stairs(mean, edges / 3600.0, label=label(simulation.result))
    axes.set_ylim(0, 1.02)
    _label(axes, "time, h", "share of GPUs that train")


def _utilisation_cdf(axes: Any, simulations: Sequence[Simulation]) -> None:
    for simulation in simulations:
        levels, shares = zip(*simulation.result["utilisation_cdf"], strict=True)
        axes.plot(levels, shares, label=label(simulation.result), marker=".")
    _label(axes, "share of GPUs that train", "share of time at or below")


def _label(axes: Any, x: str, y: str, *, logarithmic: bool = False) -> None:
    if logarithmic and axes.lines:
        axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
