"""A node's daemon is killed under the jobs of a whole portal and never comes back, while its machine lives."""

from __future__ import annotations

import pytest

from tests.executors.cut_off import OVERLAPS
from tests.executors.ray.test_head import TICKS, cluster_of, portal_on, submit, ticks

pytestmark = pytest.mark.slow

#: Far less than this portal's lease, 600 s; Ray takes about 15 s to see the loss.
FREE_WITHIN_S = 120.0
HELD_ON = """
    SELECT count(*) FROM jobs_hold h JOIN jobs_accelerator a ON a.id = h.accelerator_id
    JOIN jobs_node n ON n.id = a.node_id WHERE n.name = 'ray-2' AND upper_inf(h.during)
"""


def test_gpus_of_a_node_that_stays_away_are_free_long_before_the_lease_is_over() -> None:
    cluster = cluster_of(fault_tolerant=False)
    with portal_on(cluster) as portal:
        trains = submit(portal, f"python {portal.files / 'trains.py'}", 2, total_steps=1_500)
        portal.wait_for("steps", lambda: portal.job(trains)["step"] > 20, 240)
        plain = submit(portal, TICKS.format(10**6), 2)
        portal.wait_for("ticks", lambda: len(ticks(portal, plain)) > 2, 60)
        assert portal.rows(HELD_ON) == [(2,)]
        cluster.kill_daemon("ray-2")
        portal.wait_for("free GPUs", lambda: portal.rows(HELD_ON) == [(0,)], FREE_WITHIN_S)
        portal.wait_state(trains, "succeeded", timeout_s=240)  # what it shared no node with goes on
        portal.wait_state(plain, "running", timeout_s=120)
        assert portal.rows(OVERLAPS) == [(0,)]
