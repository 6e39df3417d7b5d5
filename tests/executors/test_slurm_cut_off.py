"""A whole portal over Slurm nodes in network namespaces of their own, whose links are cut, slowed and mended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.networks import Loss, Network, NodeNetworks
from scripts.slurm_cluster import SlurmCluster, install, running
from tests.executors.cut_off import (
    check_going_on_elsewhere,
    check_steering_on_a_slow_link,
    check_training_on_a_slow_link,
    or_skipped,
    portal_over,
)
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
def portal(links: NodeNetworks) -> Iterator[LivePortal]:
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: a Slurm of our own needs root")
    if reason := install():
        pytest.skip(f"SKIPPED: no Slurm here: {reason}")
    root = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    # It asks nodes three times in that time, so it gives a silent one up 50 to 75 s after it was cut off.
    cluster = SlurmCluster(root, nodes=2, gpus=2, gives_node_up_s=75, links=links)
    settings = {
        "EVENKEEL_EXECUTOR": "slurm",
        "EVENKEEL_SLURM_CONF": str(cluster.conf),
        "EVENKEEL_SLURM_EMULATED": "1",
    }
    try:
        with links.network.inside(), running(cluster), portal_over(links, **settings) as made:
            yield made
    except PermissionError as error:
        pytest.skip(f"SKIPPED: device files cannot be made here: {error}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.value)
def test_a_job_goes_on_elsewhere_once_its_cut_off_runner_has_stopped(
    portal: LivePortal, links: NodeNetworks, loss: Loss
) -> None:
    def comes_back_by_itself(node: str) -> None:
        """slurmd has not noticed."""

    check_going_on_elsewhere(portal, links, loss, "a100", comes_back_by_itself)


def test_a_job_on_a_slow_link_trains_on(portal: LivePortal, links: NodeNetworks) -> None:
    check_training_on_a_slow_link(portal, links, "a100")


def test_jobs_on_a_slow_link_shrink_stop_and_grow(portal: LivePortal, links: NodeNetworks) -> None:
    check_steering_on_a_slow_link(portal, links, "a100")
