"""A node's daemon is killed under the jobs of a whole portal and never comes back, while its machine lives."""

from __future__ import annotations

import pytest

from tests.executors.cut_off import OVERLAPS, Launch
from tests.executors.ray.test_head import FREE, TICKS, cluster_of, portal_on, submit, ticks
from tests.live_portal import LivePortal

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


def test_a_gang_is_over_by_the_word_of_whichever_of_its_nodes_died() -> None:
    """First a node behind that of rank 0, then that one, which has the lease."""
    cluster = cluster_of(fault_tolerant=False)
    with portal_on(cluster) as portal:
        number = submit(portal, f"python {portal.files / 'trains.py'}", 3, total_steps=10**6)
        for first in (False, True):
            steps_since_the_last_launch(portal, 1 + int(first))
            newest = launches(portal)[-1]
            [behind] = [path.name.removeprefix("node-") for path in newest.place.glob("node-*")]
            [lead] = cluster.nodes.keys() - {behind}
            dies = lead if first else behind
            cluster.kill_daemon(dies)
            portal.wait_for("free GPUs", lambda: portal.rows(FREE) == [(0,)], FREE_WITHIN_S)
            assert portal.job(number)["state"] == "queued", "what is left of the cluster is too small for it"
            cluster.stop_node(dies)
            cluster.start_node(dies)
        steps_since_the_last_launch(portal, 3)
        saved = 0
        for launch in launches(portal):
            assert launch.lines("step")[0]["step"] == saved + 1
            saved = max([saved, *(line["step"] for line in launch.lines("checkpoint"))])
        assert portal.rows(OVERLAPS) == [(0,)]


def launches(portal: LivePortal) -> list[Launch]:
    """Those that made steps, in order."""
    found = [Launch(path.parent) for path in portal.files.glob("jobs/*/runs/*/*/sdk")]
    return sorted((one for one in found if one.lines("step")), key=lambda one: float(one.lines("step")[0]["t"]))


def steps_since_the_last_launch(portal: LivePortal, number: int) -> None:
    def trained() -> bool:
        found = launches(portal)
        return len(found) == number and bool(found[-1].lines("checkpoint"))

    portal.wait_for(f"steps of launch {number}", trained, 240)
