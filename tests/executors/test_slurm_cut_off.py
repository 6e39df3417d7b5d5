"""A whole portal over Slurm nodes in network namespaces of their own, whose links are cut, slowed and mended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from scripts.networks import Loss, Network, NodeNetworks
from scripts.slurm_cluster import SlurmCluster
from tests.executors.cut_off import (
    OF_A_GANG,
    check_a_gang_going_on,
    check_going_on_elsewhere,
    check_steering_on_a_slow_link,
    check_training_on_a_slow_link,
    or_skipped,
    portal_over,
)
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.live_portal import LivePortal

HEAD = "10.77.0.1"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def links() -> Iterator[NodeNetworks]:
    network = Network()
    made = NodeNetworks(network, HEAD, {"gpu1": "10.77.0.11", "gpu2": "10.77.0.12"})
    try:
        with or_skipped():
            made.up()
        yield made
    finally:
        made.down()
        network.close()


@pytest.fixture
def slurm(links: NodeNetworks) -> Iterator[SlurmCluster]:
    # It asks nodes three times in that time, so it gives a silent one up 50 to 75 s after it was cut off.
    with links.network.inside(), slurm_or_skipped(nodes=2, gpus=2, gives_node_up_s=75, links=links) as cluster:
        yield cluster


@pytest.fixture
def portal(links: NodeNetworks, slurm: SlurmCluster) -> Iterator[LivePortal]:
    with portal_over(slurm, links, **portal_settings(slurm)) as made:
        yield made


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.value)
def test_a_job_goes_on_elsewhere_once_its_cut_off_runner_has_stopped(
    portal: LivePortal, links: NodeNetworks, loss: Loss
) -> None:
    check_going_on_elsewhere(portal, links, loss, "a100", comes_back_by_itself)


@OF_A_GANG
def test_a_gang_goes_on_without_the_node_that_was_cut_off(
    portal: LivePortal, links: NodeNetworks, slurm: SlurmCluster, loss: Loss, first: bool
) -> None:
    check_a_gang_going_on(portal, links, loss, "a100", partial(registers_anew, slurm), first=first)


def comes_back_by_itself(node: str) -> None:
    """slurmd has not noticed."""


def registers_anew(slurm: SlurmCluster, node: str) -> None:
    """Nothing there has anything to tell Slurm, which asks lost nodes seldom."""
    os.kill(slurm.pid(f"slurmd.{node}"), signal.SIGHUP)


def test_a_job_on_a_slow_link_trains_on(portal: LivePortal, links: NodeNetworks) -> None:
    check_training_on_a_slow_link(portal, links, "a100")


def test_jobs_on_a_slow_link_shrink_stop_and_grow(portal: LivePortal, links: NodeNetworks) -> None:
    check_steering_on_a_slow_link(portal, links, "a100")
