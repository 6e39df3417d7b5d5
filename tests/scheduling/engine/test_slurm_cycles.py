"""What is read of Slurm's own figures, and that the queue beside them is the same."""

from __future__ import annotations

import random

from benchmarks.slurm_cycles import decision_s, read_cycles, snapshot_of, wishes

SDIAG = """
Main schedule statistics (microseconds):
	Last cycle:   20765
	Max cycle:    30000
	Total cycles: 22
	Mean cycle:   9953
	Mean depth cycle:  100
	Last queue length: 2000

Backfilling stats
	Total backfilled jobs (since last slurm start): 0
	Total cycles: 9
	Last cycle when: Sun Nov 22 01:24:10 2026 (1795310650)
	Last cycle: 2430016
	Max cycle:  2430016
	Mean cycle: 1449469
	Last depth cycle: 1368
"""


def test_both_schedulers_figures_are_read() -> None:
    assert read_cycles(SDIAG) == {
        "main, last cycle": 20_765,
        "main, mean cycle": 9_953,
        "backfill, last cycle": 2_430_016,
        "backfill, mean cycle": 1_449_469,
        "backfill, jobs looked at last": 1_368,
    }


def test_our_queue_is_the_same_and_is_decided() -> None:
    queue = list(wishes(30, random.Random(1)))
    snapshot = snapshot_of(queue, 2)
    assert sum(job.gang is None for job in snapshot.jobs) == 30
    assert sum(len(job.gpu_ids) for job in snapshot.jobs) == sum(len(node.gpu_ids) for node in snapshot.nodes) == 8
    assert decision_s(queue, 2, "easy") >= 0
