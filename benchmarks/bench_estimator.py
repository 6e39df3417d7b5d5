"""How far throughput estimates are off on the published table, and how long one takes.

    python -m benchmarks.bench_estimator

The reference's own estimator runs beside it where EVENKEEL_PEER_GAVEL names a check-out of it and EVENKEEL_PEER_PYTHON
a Python with numpy and matrix-completion; else it is printed as skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scheduling.throughput.estimator import COVERAGE, LOGARITHMS, RETAINED, Estimator, Floats, Method, fill  # noqa: E402
from scheduling.throughput.published import published_table  # noqa: E402
from scheduling.throughput.reference_tables import family, logarithms, retained  # noqa: E402

SEEDS = 5
#: Runs inside the reference's check-out, on the same table, by its own classes.
PEER = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[1] + "/scheduler")
warnings.simplefilter("ignore")
import numpy as np
from ast import literal_eval
from throughput_estimator import ThroughputEstimator
raw = json.load(open(sys.argv[1] + "/scheduler/simulation_throughputs.json"))
read = lambda key: key if key == "null" else literal_eval(key)
table = {t: {literal_eval(k): {read(q): v for q, v in r.items()} for k, r in rows.items()} for t, rows in raw.items()}
jobs = [key for key in table["k80"] if key[1] == 1]
errors, seconds = [], []
for seed in range(int(sys.argv[2])):
    estimator = ThroughputEstimator(table, ["k80", "p100", "v100"], jobs, len(jobs), 0.2, seed=seed)
    rows = estimator._normalized_throughputs
    for number, job in enumerate(jobs):
        started = time.perf_counter()
        found = jobs.index(estimator.match_job_to_reference_job(job))
        seconds.append(time.perf_counter() - started)
        errors.append(abs(rows[found] - rows[number]).mean())
print(np.mean(errors), 1000 * np.mean(seconds))
"""


def peer() -> tuple[float, float] | None:
    """(mean error, ms a job) of the reference; None with a line where it cannot run."""
    folder, python = os.environ.get("EVENKEEL_PEER_GAVEL"), os.environ.get("EVENKEEL_PEER_PYTHON", sys.executable)
    if not folder:
        print("the reference's estimator: skipped, EVENKEEL_PEER_GAVEL names no check-out")
        return None
    with tempfile.TemporaryDirectory() as here:
        script = Path(here) / "peer.py"
        script.write_text(PEER)
        done = subprocess.run([python, str(script), folder, "2"], capture_output=True, text=True, timeout=600)
    if done.returncode:
        print(f"the reference's estimator: skipped, it ended with: {done.stderr.strip().splitlines()[-1]}")
        return None
    error, ms = done.stdout.split()[-2:]
    return float(error), float(ms)


def jobs_of_the_table(setting: str, share: float = 0.2, noise: float = 0.0) -> tuple[float, float, float]:
    """(mean error over all entries, coverage of the unknown ones, ms a job) with `share` of a row known.

    among: the kind is one of the 26 reference rows, as in the reference's experiment; kind: its row is left out;
    family: all batch sizes of its model are.
    """
    table, families = retained(1), [family(kind) for kind in published_table().kinds]
    errors, covered, seconds = [], [], []
    everything = Estimator(table, RETAINED, families)
    everything.complete(np.full(table.shape[1], np.nan))
    for number, row in enumerate(table):
        use = everything
        if setting != "among":
            same = [f == families[number] if setting == "family" else n == number for n, f in enumerate(families)]
            use = Estimator(table[~np.array(same)], RETAINED, [f for f, s in zip(families, same, strict=True) if not s])
        for seed in range(SEEDS):
            generator = np.random.default_rng((seed, number))
            known = generator.random(len(row)) <= share
            seen = np.clip(row * generator.normal(1.0, noise, len(row)), 0, 1) if noise else row
            fingerprint = np.where(known, seen, np.nan)
            use.complete(fingerprint)  # calibrates once per table
            started = time.perf_counter()
            found = use.complete(fingerprint)
            seconds.append(time.perf_counter() - started)
            off = np.abs(found.values - row)
            errors.append(off.mean())
            covered.append((off <= found.error + 1e-9)[~known].mean())
    return float(np.mean(errors)), float(np.mean(covered)), 1000 * float(np.mean(seconds))


def alone_by_one_type(setting: str) -> tuple[float, float, float]:
    """(mean, median absolute log error, coverage) of a kind's other types, where one type is known on one GPU.

    kind: its row is not in the table; model: nor are its other batch sizes.
    """
    table, families, one = logarithms(), [family(kind) for kind in published_table().kinds], [0, 4, 8]
    errors, covered = [], []
    for number, row in enumerate(table):
        same = [f == families[number] if setting == "model" else n == number for n, f in enumerate(families)]
        use = Estimator(table[~np.array(same)], LOGARITHMS, [f for f, s in zip(families, same, strict=True) if not s])
        for given in one:
            fingerprint = np.full(len(row), np.nan)
            fingerprint[given] = row[given]
            found = use.complete(fingerprint)
            others = [n for n in one if n != given]
            errors.append(np.abs(found.values - row)[others])
            covered.append((np.abs(found.values - row) <= found.error)[others])
    off = np.concatenate(errors)
    return float(off.mean()), float(np.median(off)), float(np.concatenate(covered).mean())


def hidden_in_table(table: Floats, method: Method, share: float) -> tuple[float, float]:
    """(mean, median) absolute error over entries hidden at random in the whole table."""
    errors: list[Floats] = []
    for seed in range(SEEDS):
        hidden = (np.random.default_rng(seed).random(table.shape) < share) & ~np.isnan(table)
        filled = fill(np.where(hidden, np.nan, table), method)
        errors.append(np.abs(filled - table)[hidden])
    off = np.concatenate(errors)
    return float(off.mean()), float(np.median(off))


def main() -> None:
    theirs = peer()
    print("\n26 reference jobs, 20 % of a job's entries known (normalised throughput beside a partner)")
    print(f"{'':44}{'mean error':>11}{'coverage':>10}{'ms a job':>10}")
    if theirs:
        print(f"{'reference, job among the 26':44}{theirs[0]:11.4f}{'':>10}{theirs[1]:10.2f}")
    for setting, title in (
        ("among", "job among the 26"),
        ("kind", "its kind left out"),
        ("family", "its model left out"),
    ):
        error, covered, ms = jobs_of_the_table(setting)
        print(f"{'here, ' + title:44}{error:11.4f}{covered:10.2f}{ms:10.3f}")
    error, covered, ms = jobs_of_the_table("among", noise=0.05)
    print(f"{'here, job among the 26, known to 5 %':44}{error:11.4f}{covered:10.2f}{ms:10.3f}")
    print(f"error bars are made for a coverage of {COVERAGE} where the model is new")
    print("\none type known on one GPU, the others estimated: mean (median) relative error, coverage")
    for setting in ("kind", "model"):
        mean, median, covered = alone_by_one_type(setting)
        print(f"{'its ' + setting + ' left out':24}{np.expm1(mean):10.1%} ({np.expm1(median):.1%}){covered:10.2f}")
    print("\nentries hidden in the whole table: mean (median) error")
    print(f"{'hidden':>8}{'alone, relative':>22}{'co-located, normalised':>26}")
    for share in (0.1, 0.3, 0.5):
        alone, pairs = hidden_in_table(logarithms(), LOGARITHMS, share), hidden_in_table(retained(1), RETAINED, share)
        print(f"{share:8.0%}{np.expm1(alone[0]):14.1%} ({np.expm1(alone[1]):.1%}){pairs[0]:18.4f} ({pairs[1]:.4f})")


if __name__ == "__main__":
    main()
