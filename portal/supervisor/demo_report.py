"""The table at the end of a demo, in real and in workload seconds."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

HEADINGS = ("job", "model", "state", "queueing", "launching", "running", "resizes", "cost")


def report(jobs: list[dict[str, Any]], timeline: dict[str, Any], *, variance: float, speedup: float) -> list[str]:
    began = min(_moment(job["submitted_at"]) for job in jobs)
    ended = max(_moment(job["finished_at"]) for job in jobs)
    duration_s = (ended - began).total_seconds()
    rows = [HEADINGS, *(_row(job, speedup) for job in jobs)]
    cost = sum((Decimal(job["cost"]["so_far"]) for job in jobs), Decimal(0))
    return [
        "",
        f"Seconds as real (workload); emulated accelerators at {speedup:g} times their speed.",
        *_aligned(rows),
        "",
        f"completion of the workload    {_seconds(duration_s, speedup)}",
        f"utilisation                   {100 * utilisation(timeline, began, ended):.0f} %",
        f"slowdown variance             {variance:.4f} (of relative throughput, mean over time)",
        f"cost                          {cost:.2f} {jobs[0]['cost']['currency']}",
        "",
    ]


def utilisation(timeline: dict[str, Any], began: datetime, ended: datetime) -> float:
    """The fraction of GPU time that was occupied."""
    gpus = sum(node["gpus"] for node in timeline["nodes"])
    held_s = 0.0
    for hold in timeline["holds"]:
        start = max(_moment(hold["from_at"]), began)
        end = min(_moment(hold["to_at"]) if hold["to_at"] else ended, ended)
        held_s += max(0.0, (end - start).total_seconds())
    capacity_s = gpus * (ended - began).total_seconds()
    return held_s / capacity_s if capacity_s else 0.0


def _row(job: dict[str, Any], speedup: float) -> tuple[str, ...]:
    times = job["times"]
    return (
        f"#{job['number']}",
        str(job["model_type"]),
        str(job["state"]),
        _seconds(times["queueing_s"], speedup),
        _seconds(times["launching_s"], speedup),
        _seconds(times["running_s"], speedup),
        str(job["resizes"]),
        f"{Decimal(job['cost']['so_far']):.2f} {job['cost']['currency']}",
    )


def _seconds(real_s: float, speedup: float) -> str:
    return f"{real_s:,.0f} ({real_s * speedup:,.0f})"


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
