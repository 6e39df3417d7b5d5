"""Tables, curves and comparisons of finished trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from portal.core.packed_json import unpack
from portal.lab.models import Simulation, Trial
from scheduling.simulator.sweeps import JOB_KEYS, MOST_POINTS

Row = dict[str, Any]
COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("jct_s.mean", "Mean JCT", "s", "low"),
    ("jct_s.p50", "Median JCT", "s", "low"),
    ("jct_s.p99", "p99 JCT", "s", "low"),
    ("makespan_s", "Makespan", "s", "low"),
    ("wait_s.mean", "Mean wait", "s", "low"),
    ("wait_s.p95", "p95 wait", "s", "low"),
    ("utilisation", "Utilisation", "", "high"),
    ("slowdown.mean", "Mean slowdown", "", "low"),
    ("slowdown.max", "Worst slowdown", "", "low"),
    ("slowdown.variance", "Variance of slowdown", "", "low"),
    ("finish_time_fairness.max", "Worst finish-time fairness", "", "low"),
    ("finish_time_fairness.jain", "Jain's index", "", "high"),
    ("restarts", "Restarts", "", "low"),
    ("cost", "Cost", "currency", "low"),
    ("energy_kwh", "Energy", "kWh", "low"),
    ("finished", "Finished", "", "high"),
    ("rounds", "Rounds", "", "none"),
    ("fallbacks", "Fallbacks", "", "low"),
    ("wall_s", "Simulated in", "s", "none"),
)
#: Student's t of 97.5 % by degrees of freedom.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
MOST_ROWS, MOST_GPU_ROWS = 200, 128


def job_rows(trial: Trial) -> list[Row]:
    return [dict(zip(JOB_KEYS, row, strict=True)) for row in unpack(trial.packed)["jobs"]]


# Table ---------------------------------------------------------------------------------------------


def table_of(row: Simulation) -> dict[str, Any]:
    groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in row.trials.defer("packed"):
        groups[trial.role, trial.label].append(trial)
    rows = [_table_row(trials) for trials in groups.values()]
    _mark(rows)
    columns = [dict(zip(("key", "label", "unit", "better"), column, strict=True)) for column in COLUMNS]
    return {"columns": columns, "rows": rows}


def _table_row(trials: list[Trial]) -> dict[str, Any]:
    first, done = trials[0], [trial.metrics for trial in trials if trial.metrics]
    return {
        "policy": first.policy,
        "parameters": first.parameters,
        "label": first.label,
        "role": first.role,
        "trials": [str(trial.pk) for trial in trials],
        "values": {key: _interval([_dig(metrics, key) for metrics in done]) for key, *_ in COLUMNS},
        "best": [],
        "worst": [],
    }


def _dig(metrics: Any, path: str) -> float | None:
    for key in path.split("."):
        metrics = metrics[key]
    return None if metrics is None else float(metrics)


def _interval(given: Sequence[float | None]) -> dict[str, float | None]:
    values = [value for value in given if value is not None]
    if not values:
        return {"mean": None, "low": None, "high": None}
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None}
    half = _T[len(values) - 1] * stdev(values) / len(values) ** 0.5
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _mark(rows: list[dict[str, Any]]) -> None:
    """Best and worst among the candidates, if they differ."""
    candidates = [row for row in rows if row["role"] == "candidate"]
    for key, _, _, better in COLUMNS:
        means = [row["values"][key]["mean"] for row in candidates]
        known = [mean for mean in means if mean is not None]
        if better == "none" or len(set(known)) < 2:
            continue
        low, high = min(known), max(known)
        for row, mean in zip(candidates, means, strict=True):
            if mean in (low, high):
                row["best" if (mean == low) == (better == "low") else "worst"].append(key)


# Charts --------------------------------------------------------------------------------------------


def charts_of(row: Simulation) -> dict[str, Any]:
    found: dict[str, list[Any]] = {
        key: []
        for key in ("jct_cdf", "wait_over_time", "utilisation_over_time", "utilisation_cdf", "slowdown_by_project")
    }
    seen: set[tuple[str, str]] = set()
    for trial in row.trials.filter(packed__isnull=False):
        if (trial.role, trial.label) in seen:
            continue
        seen.add((trial.role, trial.label))
        detail, jobs = unpack(trial.packed), job_rows(trial)
        of = {"trial": str(trial.pk), "label": trial.label}
        done = [job for job in jobs if job["finished_s"] is not None]
        found["jct_cdf"].append({**of, "points": cdf([job["finished_s"] - job["arrival_s"] for job in done])})
        found["wait_over_time"].append({**of, "points": _waits(done)})
        found["utilisation_over_time"].append({**of, "points": detail["utilisation"]})
        found["utilisation_cdf"].append({**of, "points": detail["utilisation_cdf"]})
        found["slowdown_by_project"].append({**of, "projects": _slowdowns(done)})
    return found


def cdf(values: Sequence[float]) -> list[list[float]]:
    """[value, fraction at or below it], at most 200 points, the last of them at 1."""
    ordered, count = sorted(values), len(values)
    steps = min(count, MOST_POINTS)
    places = sorted({round((step + 1) * count / steps) for step in range(steps)})
    return [[ordered[place - 1], place / count] for place in places]


def _waits(jobs: Sequence[Row]) -> list[list[float]]:
    """[time of arrival, mean wait], over equal intervals with arrivals."""
    if not jobs:
        return []
    start, end = (pick(job["arrival_s"] for job in jobs) for pick in (min, max))
    width = (end - start) / MOST_POINTS or 1.0
    slots: dict[int, list[float]] = defaultdict(list)
    for job in jobs:
        slots[min(MOST_POINTS - 1, int((job["arrival_s"] - start) / width))].append(job["wait_s"])
    return [[start + slot * width, fmean(waits)] for slot, waits in sorted(slots.items())]


def _slowdowns(jobs: Iterable[Row]) -> list[dict[str, Any]]:
    of: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job["slowdown"] is not None:
            of[job["project"]].append(job["slowdown"])
    ordered = sorted(of.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_ROWS]
    return [{"project": key, "mean": fmean(slow), "max": max(slow), "jobs": len(slow)} for key, slow in ordered]


def gantt_of(row: Simulation, trial: Trial) -> dict[str, Any]:
    detail, inputs = unpack(trial.packed), unpack(Simulation.objects.only("inputs").get(pk=row.pk).inputs)
    jobs = detail["jobs"]
    hardware = inputs["own_cluster" if trial.role == "as_it_was" else "cluster"]["nodes"]
    rows: list[dict[str, Any]] = []
    nodes = 0
    total = sum(entry["count"] * entry["gpus"] for entry in hardware)
    for entry in hardware:
        for _ in range(entry["count"]):
            name = entry.get("name") or f"{entry['type']}-{nodes}"
            nodes += 1
            if len(rows) < MOST_GPU_ROWS:
                rows += [{"gpu": len(rows) + i, "node": name, "type": entry["type"]} for i in range(entry["gpus"])]
    spans = [
        {
            "job": jobs[place][0],
            "project": jobs[place][1],
            "gpu_from": first,
            "gpu_to": last,
            "start_s": start,
            "end_s": end,
        }
        for place, first, last, start, end in detail["spans"]
    ]
    of = {"trial": str(trial.pk), "label": trial.label, "gpus": total}
    return {**of, "rows": rows[:MOST_GPU_ROWS], "spans": spans, "span_s": detail["end_s"]}


# Compare -------------------------------------------------------------------------------------------


def compare(base: Trial, other: Trial) -> dict[str, Any]:
    """Of jobs that finish in both."""
    theirs = {job["id"]: job for job in job_rows(other) if job["finished_s"] is not None}
    both = [(job, theirs[job["id"]]) for job in job_rows(base) if job["finished_s"] is not None and job["id"] in theirs]
    history = Simulation.objects.only("spec").get(pk=base.simulation_id).spec["workload"]["kind"] == "history"
    jobs = [_job(one, two, history=history) for one, two in both]
    jobs.sort(key=lambda job: -abs(job["difference_s"]))
    groups = {name: _groups(both, name) for name in ("project", "user")}
    return {
        "base": str(base.pk),
        "other": str(other.pk),
        "projects": groups["project"],
        "users": groups["user"],
        "jobs": jobs[:MOST_ROWS],
    }


def _job(one: Row, two: Row, *, history: bool) -> dict[str, Any]:
    return {
        "job": one["id"],
        "project": one["project"],
        "user": one["user"],
        "number": int(one["id"]) if history else None,
        "wait_base_s": one["wait_s"],
        "wait_other_s": two["wait_s"],
        "jct_base_s": one["finished_s"] - one["arrival_s"],
        "jct_other_s": two["finished_s"] - two["arrival_s"],
        "difference_s": two["wait_s"] - one["wait_s"],
    }


def _groups(both: list[tuple[Row, Row]], name: str) -> list[dict[str, Any]]:
    of: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for pair in both:
        of[pair[0][name]].append(pair)
    found: list[dict[str, Any]] = []
    for key, pairs in of.items():
        waits = [fmean(pair[side]["wait_s"] for pair in pairs) for side in (0, 1)]
        slow = [fmean(pair[side]["slowdown"] or 0.0 for pair in pairs) for side in (0, 1)]
        found.append(
            {
                name: key,
                "jobs": len(pairs),
                "wait_base_s": waits[0],
                "wait_other_s": waits[1],
                "difference_s": waits[1] - waits[0],
                "slowdown_base": slow[0],
                "slowdown_other": slow[1],
            }
        )
    return sorted(found, key=lambda row: -abs(row["difference_s"]))[:MOST_ROWS]
