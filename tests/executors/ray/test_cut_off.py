"""A whole portal over Ray nodes in network namespaces of their own, whose links are cut and mended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from scripts.networks import Loss
from scripts.ray_cluster import NodePlan, RayCluster
from tests.executors.cut_off import (
    OF_A_GANG,
    check_a_gang_going_on,
    check_going_on_elsewhere,
    check_training_on_a_slow_link,
    or_skipped,
    portal_over,
)
from tests.executors.ray.helpers import portal_settings
from tests.live_portal import LivePortal
from tests.ordinary_account import ordinary_account

pytestmark = pytest.mark.slow


@pytest.fixture
def apart() -> Iterator[RayCluster]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements-ray.lock")
    nodes = [NodePlan("ray-1", "10.77.0.11", 2), NodePlan("ray-2", "10.77.0.12", 2)]
    # By itself it takes 65 s to give up a node that is silent, twice the lease; so it takes 35 s.
    made = RayCluster(nodes, apart=True, variables={"RAY_health_check_timeout_ms": "4000"}, account=ordinary_account())
    try:
        with or_skipped():
            made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def portal(apart: RayCluster) -> Iterator[LivePortal]:
    settings = portal_settings(apart)
    with portal_over(apart, apart.links, **settings) as made:
        yield made


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.value)
def test_a_job_goes_on_elsewhere_once_its_cut_off_runner_has_stopped(
    portal: LivePortal, apart: RayCluster, loss: Loss
) -> None:
    check_going_on_elsewhere(portal, apart.links, loss, "titan_xp", partial(start_anew, apart))


@OF_A_GANG
def test_a_gang_goes_on_without_the_node_that_was_cut_off(
    portal: LivePortal, apart: RayCluster, loss: Loss, first: bool
) -> None:
    check_a_gang_going_on(portal, apart.links, loss, "titan_xp", partial(start_anew, apart), first=first)


def start_anew(apart: RayCluster, node: str) -> None:
    """Ray has given it up."""
    apart.stop_node(node)
    apart.start_node(node)


def test_a_job_on_a_slow_link_trains_on(portal: LivePortal, apart: RayCluster) -> None:
    check_training_on_a_slow_link(portal, apart.links, "titan_xp")
