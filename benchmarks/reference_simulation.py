"""Runs in the reference's own environment: simulates one of its traces, CPU seconds to standard output.

venv/bin/python reference_simulation.py <gavel's scheduler/ directory> <trace> <policy> <v100:p100:k80>
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import time
import types
import warnings
from pathlib import Path

#: Imported by its scheduler, but not needed where it simulates.
ABSENT = ("matrix_completion", "runtime", "runtime.rpc", "runtime.rpc.scheduler_server", "runtime.rpc.scheduler_client")
ROUND_S = 360
GPUS_PER_NODE = 4


def main() -> None:
    where, trace, policy, spec = sys.argv[1:5]
    trace = str(Path(trace).resolve())
    os.chdir(where)
    sys.path[:0] = [where, f"{where}/policies"]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for name in ABSENT:
        sys.modules[name] = types.ModuleType(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    utils, scheduler = importlib.import_module("utils"), importlib.import_module("scheduler")
    cluster = dict(zip(("v100", "p100", "k80"), map(int, spec.split(":")), strict=True))
    with contextlib.redirect_stdout(sys.stderr):
        jobs, arrivals = utils.parse_trace(trace)
        one = scheduler.Scheduler(
            utils.get_policy(policy, solver="ECOS", seed=0),
            throughputs_file="simulation_throughputs.json",
            simulate=True,
            seed=0,
            time_per_iteration=ROUND_S,
        )
        started = time.process_time()
        one.simulate(cluster, arrivals, jobs, num_gpus_per_server=dict.fromkeys(cluster, GPUS_PER_NODE))
    print(time.process_time() - started)


if __name__ == "__main__":
    main()
