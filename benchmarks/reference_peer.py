"""Runs in the reference's own environment: a problem from standard input, CPU seconds of its policy to standard output.

venv/bin/python reference_peer.py <gavel's scheduler/ directory>
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
import warnings
from typing import Any


def add_pairs(case: dict[str, Any], speeds: dict[Any, Any], pair: Any) -> None:
    """A row for each pair of jobs with equal gangs, 0 where they cannot share."""
    known = {(*entry["of"], entry["gang"]): entry["speeds"] for entry in case["pairs"]}
    for n, one in enumerate(case["jobs"]):
        for other in case["jobs"][n + 1 :]:
            if one["gang"] != other["gang"]:
                continue
            both = known.get((one["workload"], other["workload"], one["gang"]))
            turned = known.get((other["workload"], one["workload"], one["gang"]), {})
            found = both or {kind: values[::-1] for kind, values in turned.items()}
            speeds[pair(one["id"], other["id"])] = {kind: found.get(kind, [0.0, 0.0]) for kind in one["speeds"]}


def main() -> None:
    where = sys.argv[1]
    sys.path[:0] = [where, f"{where}/policies"]
    warnings.simplefilter("ignore")
    case: dict[str, Any] = json.load(sys.stdin)
    pair = importlib.import_module("job_id_pair").JobIdPair
    ids = {job["id"]: pair(job["id"], None) for job in case["jobs"]}
    speeds = {ids[job["id"]]: job["speeds"] for job in case["jobs"]}
    if "Packing" in case["class"]:
        add_pairs(case, speeds, pair)
    gangs = {ids[job["id"]]: job["gang"] for job in case["jobs"]}
    weights = dict.fromkeys(ids.values(), 1.0)
    ages = {ids[job["id"]]: job["age"] for job in case["jobs"]}
    steps = {ids[job["id"]]: job["steps"] for job in case["jobs"]}
    kind = getattr(importlib.import_module(case["module"]), case["class"])
    cluster, module = case["cluster"], case["module"]
    given: tuple[Any, ...] = {
        "max_min_fairness": (speeds, gangs, weights, cluster),
        "max_sum_throughput": (speeds, gangs, cluster),
        "min_total_duration": (speeds, gangs, steps, cluster),
        "finish_time_fairness": (speeds, gangs, weights, ages, steps, cluster),
        "max_min_fairness_water_filling": (speeds, gangs, weights, cluster),
    }[module]
    if "ByCost" in case["class"]:
        given = (*given, case["prices"])
    if module == "max_min_fairness_water_filling":
        members: dict[str, list[Any]] = {}
        for job in case["jobs"]:
            members.setdefault(job["entity"], []).append(ids[job["id"]])
        policy = kind(
            priority_reweighting_policies=dict.fromkeys(members, "fairness") if case["hierarchical"] else None
        )
        if case["hierarchical"]:
            given = (speeds, gangs, weights, cluster, case["weights"], members)
    else:
        policy = kind(solver="ECOS")
    started = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        policy.get_allocation(*given)
    print(time.process_time() - started)


if __name__ == "__main__":
    main()
