"""Draw what each policy makes of one small workload: `policy_pictures.py [--to DIR] [NAME...]`.

The production scheduler decides (scheduling/simulator) and a Gantt chart shows which job held which GPU when. The same
bytes come out every time. Also prints the figures as rows of a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scheduling.policies import POLICIES, load_policy  # noqa: E402
from scheduling.simulator import Options, Simulation, run_policy  # noqa: E402
from scheduling.simulator.inputs.trace import Cluster, read_cluster  # noqa: E402
from scheduling.simulator.readers import load_trace  # noqa: E402

TRACE, CLUSTER = (ROOT / "examples" / f"sample.{what}.json" for what in ("trace", "cluster"))
PICTURES = ROOT / "docs" / "pictures"
#: What a policy needs for this workload beyond its defaults.
GIVEN = {"static_partition": {"n": 4}}

SURFACE, LINE, FREE, INK, INK_2, AXIS = "#ffffff", "#e4e7ea", "#f3f5f6", "#12161c", "#48515d", "#626c78"
JOBS = (
    "#de7b0c", "#af5366", "#7c3f67", "#15a3b9", "#0363bc", "#8c6f02",
    "#789f62", "#086934", "#6f7292", "#5b4791", "#a53409", "#3579bd",
)  # fmt: skip
FONTS = "Inter, system-ui, Helvetica, Arial, sans-serif"
DARK_TEXT = "#0b0d10"
WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 760, 64, 16, 62, 20, 3
SHOWN_MIN, TICK_MIN = 180, 30
MINUTE = (WIDTH - LEFT - RIGHT) / SHOWN_MIN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all policies")
    parser.add_argument("--to", type=Path, default=PICTURES, metavar="DIR")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for name in options.names or POLICIES:
        simulation, cluster = simulate(name)
        (options.to / f"policy-{name}.svg").write_text(draw(simulation, cluster), encoding="utf-8")
        sys.stdout.write(f"| [`{name}`](#{name}) | {' | '.join(figures(simulation).values())} |\n")


def simulate(name: str) -> tuple[Simulation, Cluster]:
    cluster = read_cluster(CLUSTER)
    trace = load_trace(TRACE, None, sorted({node.type for node in cluster.nodes}))
    return run_policy(trace.jobs, cluster, name, GIVEN.get(name), Options(keep_holds=True)), cluster


def figures(simulation: Simulation) -> dict[str, str]:
    result = simulation.result
    return {
        "mean slowdown": f"{result['slowdown']['mean']:.2f}",
        "worst": f"{result['slowdown']['max']:.2f}",
        "last job ends after": f"{result['makespan_s'] / 60:.0f} min",
        "restarts": str(result["restarts"]),
        "cost": f"${result['cost']:.2f}",
    }


def draw(simulation: Simulation, cluster: Cluster) -> str:
    name = simulation.result["policy"]
    rows = {gpu: row for row, gpu in enumerate(gpu for node in cluster.nodes for gpu in node.gpu_ids)}
    height = TOP + len(rows) * (ROW + GAP) + 62
    said = ", ".join(f"{word} {value}" for word, value in figures(simulation).items())
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONTS}" font-size="11" role="img">',
        f"<title>{escape(name)}: {escape(said)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{SURFACE}" stroke="{LINE}"/>',
        text(LEFT, 22, load_policy(name).title, INK, 'font-size="13" font-weight="600"'),
        *arrivals(simulation),
        *grid(cluster, rows, height),
        *blocks(simulation, rows),
        *beyond(simulation),
        *strip(simulation, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def arrivals(simulation: Simulation) -> list[str]:
    """When each job came, above the GPUs."""
    parts = [text(LEFT - 8, TOP - 9, "came", AXIS, 'text-anchor="end"')]
    for run in simulation.outcome.runs:
        x = at(run.job.arrival_s)
        parts.append(text(x, TOP - 9, f"{run.job.number}", colour(run.job.number), 'font-weight="600"'))
        parts.append(f'<path d="M{x:.1f} {TOP - 6}v4" stroke="{colour(run.job.number)}"/>')
    return parts


def grid(cluster: Cluster, rows: dict[int, int], height: int) -> list[str]:
    parts = []
    for node in cluster.nodes:
        top, bottom = place(rows[node.gpu_ids[0]]), place(rows[node.gpu_ids[-1]]) + ROW
        words = f"{len(node.gpu_ids)} × {node.type}"
        parts.append(text(LEFT - 8, (top + bottom) / 2 + 4, words, INK_2, 'text-anchor="end"'))
        parts += [
            f'<rect x="{LEFT}" y="{place(rows[gpu])}" width="{WIDTH - LEFT - RIGHT}" height="{ROW}" fill="{FREE}"/>'
            for gpu in node.gpu_ids
        ]
    under = height - 62 + 12
    for minute in range(0, SHOWN_MIN + 1, TICK_MIN):
        x = at(60 * minute)
        parts.append(f'<path d="M{x:.1f} {TOP}V{height - 62}" stroke="{LINE}"/>')
        words = f"{minute} min" if minute == SHOWN_MIN else f"{minute}"
        parts.append(text(x, under, words, AXIS, f'text-anchor="{"end" if minute == SHOWN_MIN else "middle"}"'))
    return parts


def blocks(simulation: Simulation, rows: dict[int, int]) -> list[str]:
    """One block for each launch and stretch of neighbouring GPUs; what ends beyond the axis is cut there."""
    parts = []
    for number, gpus, start, end in simulation.outcome.holds:
        for first, count in stretches(sorted(rows[gpu] for gpu in gpus)):
            x, width = at(start), min(at(end), WIDTH - RIGHT) - at(start)
            if width <= 0:
                continue
            y, high = place(first), count * (ROW + GAP) - GAP
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{high}" rx="2" fill="{colour(number)}" '
                f'stroke="{SURFACE}" stroke-width="0.6"/>'
            )
            if width > 10:
                ink = ink_on(colour(number))
                parts.append(text(x + 3, y + high / 2 + 4, f"{number}", ink, 'font-weight="600"'))
    return parts


def beyond(simulation: Simulation) -> list[str]:
    """That there is more than is drawn."""
    end = simulation.result["makespan_s"]
    if at(end) <= WIDTH - RIGHT:
        return []
    return [text(WIDTH - RIGHT, 22, f"goes on until {end / 60:.0f} min →", AXIS, 'text-anchor="end"')]


def stretches(found: list[int]) -> list[tuple[int, int]]:
    """Neighbouring rows as (first, how many)."""
    runs = groupby(enumerate(found), key=lambda pair: pair[1] - pair[0])
    return [(group[0][1], len(group)) for _, pairs in runs for group in [list(pairs)]]


def strip(simulation: Simulation, height: int) -> list[str]:
    """The figures, under the chart."""
    parts, x = [], float(LEFT)
    for word, value in figures(simulation).items():
        parts.append(text(x, height - 28, word, AXIS))
        parts.append(text(x, height - 12, value, INK, 'font-size="13" font-weight="600"'))
        x += 136
    return parts


def text(x: float, y: float, words: str, fill: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{" " + more if more else ""}>{escape(words)}</text>'


def at(seconds: float) -> float:
    return LEFT + seconds / 60 * MINUTE


def place(row: int) -> int:
    return TOP + row * (ROW + GAP)


def colour(number: int) -> str:
    return JOBS[number % len(JOBS)]


def ink_on(fill: str) -> str:
    """White where it reaches a contrast of 4.5."""
    channels = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) >= 4.5 else DARK_TEXT


if __name__ == "__main__":
    main()
