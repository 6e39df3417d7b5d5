"""Runs in the reference's own environment: one problem from standard input, seconds of its policy to standard output.

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


def main() -> None:
    where = sys.argv[1]
    sys.path[:0] = [where, f"{where}/policies"]
    warnings.simplefilter("ignore")
    case: dict[str, Any] = json.load(sys.stdin)
    pair = importlib.import_module("job_id_pair").JobIdPair
    ids = {job["id"]: pair(job["id"], None) for job in case["jobs"]}
    speeds = {ids[job["id"]]: job["speeds"] for job in case["jobs"]}
    gangs = {ids[job["id"]]: job["gang"] for job in case["jobs"]}
    weights = dict.fromkeys(ids.values(), 1.0)
    ages = {ids[job["id"]]: job["age"] for job in case["jobs"]}
    steps = {ids[job["id"]]: job["steps"] for job in case["jobs"]}
    kind = getattr(importlib.import_module(case["module"]), case["class"])
    cluster, module = case["cluster"], case["module"]
    arguments: dict[str, tuple[Any, ...]] = {
        "max_min_fairness": (speeds, gangs, weights, cluster),
        "max_sum_throughput": (speeds, gangs, cluster),
        "min_total_duration": (speeds, gangs, steps, cluster),
        "finish_time_fairness": (speeds, gangs, weights, ages, steps, cluster),
        "max_min_fairness_water_filling": (speeds, gangs, weights, cluster),
    }
    given = arguments[module]
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
    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        policy.get_allocation(*given)
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
