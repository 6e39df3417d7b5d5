"""The cluster's own history, simulated under the policy that ran, compared with the recorded one."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from portal.core.packed_json import unpack
from portal.lab.models import Simulation
from portal.lab.results import cdf, job_rows
from portal.lab.services import policy_then
from portal.lab.spec import HistoryWorkload, Spec
from scheduling.simulator.output.report import percentile

LABELS = {
    "jct_mean_s": "Mean JCT",
    "jct_p50_s": "Median JCT",
    "jct_p99_s": "p99 JCT",
    "wait_mean_s": "Mean wait",
    "wait_p95_s": "p95 wait",
    "utilisation": "Utilisation",
    "makespan_s": "Makespan",
}


def fidelity_of(row: Simulation) -> dict[str, Any]:
    trial = row.trials.filter(role="as_it_was").first()
    if trial is None:
        return _unavailable("Only the cluster's own history can be compared with what was recorded.")
    if trial.packed is None:
        return _unavailable("The policy that really ran has not been simulated yet.", trial.label)
    inputs = unpack(Simulation.objects.only("inputs").get(pk=row.pk).inputs)
    jobs = [job for job in job_rows(trial) if job["finished_s"] is not None and job["id"] in inputs["recorded"]]
    if not jobs:
        return _unavailable("None of the jobs finished in the simulation.", trial.label)
    seen = [inputs["recorded"][job["id"]] for job in jobs]
    arrivals = [job["arrival_s"] for job in jobs]
    ran = [end - at for at, (_, end, _) in zip(arrivals, seen, strict=True)]
    simulated = [job["finished_s"] - job["arrival_s"] for job in jobs]
    gpus = sum(entry["count"] * entry["gpus"] for entry in inputs["own_cluster"]["nodes"])
    span = max(end for _, end, _ in seen) - min(arrivals)
    used = sum(gpu_s for *_, gpu_s in seen) / (gpus * span) if span > 0 and gpus else 0.0
    assert trial.metrics is not None
    recorded = _figures(ran, [wait for wait, *_ in seen], used, span)
    again = _figures(
        simulated, [job["wait_s"] for job in jobs], trial.metrics["utilisation"], trial.metrics["makespan_s"]
    )
    return {
        "available": True,
        "why": "",
        "policy": trial.label,
        "rows": [
            {
                "key": key,
                "label": label,
                "recorded": recorded[key],
                "simulated": again[key],
                "error": (again[key] - recorded[key]) / recorded[key] if recorded[key] else 0.0,
            }
            for key, label in LABELS.items()
        ],
        "jobs": len(jobs),
        "notes": _notes(row),
        "jct_cdf": {"recorded": cdf(ran), "simulated": cdf(simulated)},
    }


def _figures(jct: list[float], waits: list[float], used: float, span: float) -> dict[str, float]:
    shares = {"jct_p50_s": percentile(jct, 0.5), "jct_p99_s": percentile(jct, 0.99)}
    wait = {"wait_mean_s": fmean(waits), "wait_p95_s": percentile(waits, 0.95)}
    return {"jct_mean_s": fmean(jct), **shares, **wait, "utilisation": used, "makespan_s": span}


def _notes(row: Simulation) -> list[str]:
    workload = Spec.model_validate(row.spec).workload
    assert isinstance(workload, HistoryWorkload)
    notes = ["Hardware, prices and throughputs are those of the day of the simulation."]
    count = policy_then(row.cluster, workload.from_at, workload.to_at)[2]
    if count > 1:
        notes.append(f"{count} policies were in force; the one that was the longest was simulated.")
    if row.summary and row.summary["left_out"]:
        notes.append(f"{row.summary['left_out']} jobs that did not finish, or of no known throughput, are left out.")
    return notes


def _unavailable(why: str, policy: str = "") -> dict[str, Any]:
    curves: dict[str, list[Any]] = {"recorded": [], "simulated": []}
    return {"available": False, "why": why, "policy": policy, "rows": [], "jobs": 0, "notes": [], "jct_cdf": curves}
