"""Which job held which GPU when, drawn on matplotlib's axes (scheduling.simulator.output.plots)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from scheduling.domain import WHOLE, Node
from scheduling.simulator import Simulation
from scheduling.simulator.inputs.trace import Cluster
from scheduling.simulator.output.report import label
from scheduling.simulator.run import Run

#: A chart with more GPUs or launches shows the first ones, and says so.
GPUS, LAUNCHES = 128, 20_000
#: With more rows only nodes are named; with more names some are left out.
_NAMES = 64
_COLOURS = 10
_OTHERS = "0.75"
#: Inches: a row, the least and greatest height of the picture, the margins beside and below the axes.
_ROW, _LEAST, _GREATEST, _BESIDE, _BELOW = 0.2, 4.5, 11.0, 1.4, 1.2
_POINTS = 72.0
_LARGEST_PT, _SMALLEST_PT = 8.0, 5.0
_FILLED = 0.9  # of a row
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Bar:
    """From `top` to `top + height`, in rows."""

    run: Run
    top: float
    height: float
    start_h: float
    end_h: float


def draw_gantt(axes: Any, simulation: Simulation, cluster: Cluster) -> None:
    """One row per GPU, one bar per launch and stretch of neighbouring GPUs on a node, with the job's id if there is
    room for it. Coloured by project; by job if there is only one project."""
    rows = {gpu: row for row, gpu in enumerate(gpu for node in cluster.nodes for gpu in node.gpu_ids)}
    shown, holds = min(len(rows), GPUS), simulation.outcome.holds
    axes.figure.set_figheight(min(max(_LEAST, _BELOW + shown * _ROW), _GREATEST))
    cut = len(rows) > GPUS or len(holds) > LAUNCHES
    axes.set_title(label(simulation.result) + (f" (first {GPUS} GPUs, first {LAUNCHES} launches)" if cut else ""))
    _draw_bars(axes, list(_bars(simulation, cluster, rows)), _colours(simulation.outcome.runs), shown)
    axes.set_ylim(shown - 0.5, -0.5)
    _name_rows(axes, cluster.nodes, rows)
    axes.set_xlabel("time, h")


def _bars(simulation: Simulation, cluster: Cluster, rows: Mapping[int, int]) -> Iterator[Bar]:
    runs = {run.job.number: run for run in simulation.outcome.runs}
    node_of = {gpu: node.name for node in cluster.nodes for gpu in node.gpu_ids}
    lanes: dict[int, list[Bar]] = {}
    for number, gpus, start, end in sorted(simulation.outcome.holds[:LAUNCHES], key=lambda hold: hold[2:] + hold[:2]):
        run, times = runs[number], (start / 3600.0, end / 3600.0)
        drawn = sorted((gpu for gpu in gpus if rows[gpu] < GPUS), key=lambda gpu: rows[gpu])
        if run.gpu_milli < WHOLE:
            for gpu in drawn:
                yield from _free_gap(run, rows[gpu], times, lanes.setdefault(gpu, []))
            continue
        for first, count in _stretches([(node_of[gpu], rows[gpu]) for gpu in drawn]):
            yield Bar(run, first - _FILLED / 2, count - 1 + _FILLED, *times)


def _stretches(places: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """Neighbouring rows of the same node as (first, how many)."""
    found: list[tuple[int, int]] = []
    for at, (node, row) in enumerate(places):
        if at and places[at - 1] == (node, row - 1):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((row, 1))
    return found


def _free_gap(run: Run, row: int, times: tuple[float, float], lane: list[Bar]) -> list[Bar]:
    """In the first gap of the row that is large enough; in several gaps if none is."""
    lane[:] = sorted((bar for bar in lane if bar.end_h > times[0]), key=lambda bar: bar.top)
    top, left = row - _FILLED / 2, _FILLED * run.gpu_milli / WHOLE
    upper = [top, *(bar.top + bar.height for bar in lane)]
    places = [(at, end - at) for at, end in zip(upper, [*(bar.top for bar in lane), top + _FILLED], strict=True)]
    found: list[Bar] = []
    for at, room in [place for place in places if place[1] >= left - _TINY][:1] or places:
        high = min(room, left)
        if high > _TINY:
            found.append(Bar(run, at, high, *times))
            left -= high
    lane += found
    return found


def _colours(runs: Sequence[Run]) -> Mapping[str, str]:
    """Of projects, the same for every policy; those with the fewest jobs share one. Empty if there is only one
    project."""
    jobs = Counter(run.job.project for run in runs)
    if len(jobs) < 2:
        return {}
    most = sorted(jobs, key=lambda project: (-jobs[project], project))
    own = sorted(most if len(most) <= _COLOURS else most[: _COLOURS - 1])
    return dict.fromkeys(jobs, _OTHERS) | {project: f"C{at}" for at, project in enumerate(own)}


def _draw_bars(axes: Any, bars: Sequence[Bar], colours: Mapping[str, str], rows: int) -> None:
    if not bars:
        return
    first_h, last_h = min(bar.start_h for bar in bars), max(bar.end_h for bar in bars)
    width, height = axes.figure.get_size_inches()
    points_per_h = (width - _BESIDE) * _POINTS / max(last_h - first_h, 1e-9)
    points_per_row = (height - _BELOW) * _POINTS / max(rows, 1)
    axes.set_xlim(first_h, max(last_h, first_h + 1e-9))
    for bar in bars:
        colour = colours.get(bar.run.job.project, f"C{bar.run.job.number % 10}")
        wide = (bar.end_h - bar.start_h) * points_per_h
        middle = bar.top + bar.height / 2
        axes.barh(middle, bar.end_h - bar.start_h, left=bar.start_h, height=bar.height, color=colour,
                  edgecolor="white", linewidth=0.6 if wide > 3 else 0)  # fmt: skip
        size = min(_LARGEST_PT, 0.75 * bar.height * points_per_row)
        if size >= _SMALLEST_PT and wide >= _width(bar.run.job.id) * size:
            axes.text((bar.start_h + bar.end_h) / 2, middle, bar.run.job.id, size=size, color=_ink(colour), ha="center",
                      va="center_baseline", parse_math=False, clip_on=True, in_layout=False)  # fmt: skip
    _add_legend(axes, colours)


def _width(words: str) -> float:
    """In font sizes, with some margin; estimated rather too wide, not measured."""
    return 0.6 + sum(0.64 if letter.isdigit() else 0.85 if letter.isascii() else 1.0 for letter in words)


def _ink(colour: str) -> str:
    red, green, blue = to_rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"


def _add_legend(axes: Any, colours: Mapping[str, str]) -> None:
    named = sorted(project for project, colour in colours.items() if colour != _OTHERS)
    patches = [Patch(color=colours[project], label=project.replace("$", r"\$")) for project in named]
    if len(named) < len(colours):
        patches.append(Patch(color=_OTHERS, label=f"{len(colours) - len(named)} other projects"))
    if patches:
        axes.figure.legend(handles=patches, loc="outside lower center", ncols=5, fontsize=8, frameon=False)


def _name_rows(axes: Any, nodes: Sequence[Node], rows: Mapping[int, int]) -> None:
    """Label every GPU with its node and index; of many GPUs only the nodes, at the first GPU of each."""
    names: dict[int, str] = {}
    for node in nodes:
        known = node.name if node.type in node.name else f"{node.name} ({node.type})"
        for at, gpu in enumerate(node.gpu_ids):
            if len(rows) <= _NAMES:
                names[rows[gpu]] = f"{known} GPU {at}"
            elif at == 0 and rows[gpu] < GPUS:
                names[rows[gpu]] = known
    step = -(-len(names) // _NAMES) or 1
    places = sorted(names)[::step]
    axes.set_yticks(places, [names[place].replace("$", r"\$") for place in places], fontsize=8)
