"""What hostile files cost a round: `python -m benchmarks.bench_hostile_files [--runs 20] [--spooled 100]`.

Looks at runs that have ended, half of which left random files and trees in every place that a job may write to, and at
as many whose files are as they should be; then removes all of it. Says how long each took, and the largest memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from evenkeel.runner.reports import write_atomically
from evenkeel.runner.trees import remove_tree

from benchmarks.hostile_files import PLACES, Hostile
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.layout import Layout, RunRecord
from scheduling.executors.local.processes.sweeping import RunnerIdentity

#: More threads would be measured themselves.
CHANGES_ONE_IN = 10
BRACKETS = b"[" + b"[]," * 349_000 + b"[]]"


def left(layout: Layout, number: int, seed: int | None, at_work: ExitStack | None = None) -> tuple[str, int]:
    """A run whose runner is gone; with hostile files where there is a seed. Of some runs, those of the kind `changing`
    do so until `at_work` ends."""
    record = RunRecord(f"r{number}", f"j{number}", None)
    layout.remember(record)
    layout.remember_runner(record.run_id, 1, RunnerIdentity(2**22 - 1, 1, "another boot"))
    epoch_dir = layout.epoch_dir(record, 1)
    for name in ("sdk", "spool", "logs", "../artifacts"):
        (epoch_dir / name).mkdir(parents=True, exist_ok=True)
    write_atomically(epoch_dir / "exit.json", {"reason": "done", "step": 10}, durable=False)
    if seed is not None:
        hostile = Hostile(seed, depth=2_000, width=2_000)
        for place in PLACES:
            hostile.put(layout.job_dir(record.job_id) / place.format(run=record.run_id, epoch=1))
        if at_work is not None and seed % CHANGES_ONE_IN == 1:
            at_work.enter_context(hostile.at_work())
    return record.run_id, 1


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def spool(layout: Layout, number: int, files: int) -> tuple[str, int]:
    run, epoch = left(layout, number, None)
    directory = layout.epoch_dir(RunRecord(run, f"j{number}", None), epoch) / "spool"
    for seq in range(files):
        (directory / f"{seq}.json").write_bytes(BRACKETS)
    return run, epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind")
    parser.add_argument("--spooled", type=int, default=100, help="files of brackets, 1 MiB each, in one spool")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="evenkeel-hostile-"))
    try:
        print(json.dumps(measured(place, options.runs, options.spooled), indent=2))
    finally:
        while not remove_tree(place):
            pass


def measured(place: Path, runs: int, spooled: int) -> dict[str, float]:
    executor, layout = LocalExecutor(place / "data", "titan_xp:4", "none", warm_start=False), Layout(place / "data")
    sound = [left(layout, number, None) for number in range(2 * runs)]
    with ExitStack() as at_work:
        numbers = range(2 * runs, 4 * runs)
        mixed = [left(layout, number, number if number % 2 else None, at_work) for number in numbers]
        plain_s = timed(lambda: executor.observe(sound))
        first_s = timed(lambda: executor.observe(mixed))  # removes secrets, leaves exit records
        again_s = statistics.median(timed(lambda: executor.observe(mixed)) for _ in range(5))
    sound_again_s = statistics.median(timed(lambda: executor.observe(sound)) for _ in range(5))
    brackets, before_mib = spool(layout, 4 * runs, spooled), peak_mib()
    round_s = timed(lambda: executor.observe([brackets]))
    reading_s = timed(lambda: list(executor.spooled(*brackets)))
    after_mib = peak_mib()
    removal_s = timed(lambda: _remove(layout, range(2 * runs, 4 * runs)))
    return {
        "observe_sound_s": round(plain_s, 4),
        "observe_half_hostile_first_s": round(first_s, 4),
        "observe_sound_again_s": round(sound_again_s, 4),
        "observe_half_hostile_again_s": round(again_s, 4),
        "more_in_the_first_round_s": round(first_s - plain_s, 4),
        "ratio_again": round(again_s / sound_again_s, 2),
        "observe_a_spool_of_brackets_s": round(round_s, 4),
        "reading_it_outside_of_rounds_s": round(reading_s, 3),
        "memory_more_mib": round(after_mib - before_mib, 1),
        "removing_all_hostile_jobs_s": round(removal_s, 2),
    }


def _remove(layout: Layout, numbers: Iterable[int]) -> None:
    for number in numbers:
        while not remove_tree(layout.job_dir(f"j{number}"), max_s=3.0):
            pass


if __name__ == "__main__":
    main()
