"""A whole portal over a Ray cluster whose nodes share no checkpoints: a job moves from one to another by the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.ray_cluster import RayCluster
from tests.client.s3 import S3, s3_server
from tests.executors.moving_by_store import check_moving_to_a_node_that_has_nothing, settings_for
from tests.live_portal import LivePortal, running_portal

pytestmark = pytest.mark.slow


@pytest.fixture
def s3(cluster: RayCluster) -> Iterator[S3]:
    with cluster.network.inside(), s3_server() as made:
        yield made


@pytest.fixture
def portal(cluster: RayCluster, s3: S3, tmp_path: Path) -> Iterator[LivePortal]:
    to = cluster.connection
    engine = {
        "EVENKEEL_EXECUTOR": "ray",
        "EVENKEEL_RAY_ADDRESS": to.address,
        "EVENKEEL_RAY_NAMESPACE": "evenkeel-store",
        "EVENKEEL_RAY_NODE_ADDRESS": to.node_address,
        "EVENKEEL_RAY_EMULATED": "1",
    }
    with running_portal(**settings_for(s3, tmp_path) | engine) as made:
        yield made


def test_a_job_moves_to_a_node_that_has_nothing_of_it(portal: LivePortal, s3: S3) -> None:
    check_moving_to_a_node_that_has_nothing(portal, s3)
