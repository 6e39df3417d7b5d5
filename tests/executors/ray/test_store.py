"""A whole portal over a Ray cluster whose nodes share no checkpoints: a job moves from one to another by the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.ray_cluster import RayCluster
from tests.client.s3 import S3, s3_server
from tests.executors.moving_by_store import caches as caches  # a fixture
from tests.executors.moving_by_store import check_moving_to_a_node_that_has_nothing, settings_for
from tests.executors.ray.helpers import portal_settings
from tests.live_portal import LivePortal, engine_portal

pytestmark = pytest.mark.slow


@pytest.fixture
def s3(ordinary: RayCluster) -> Iterator[S3]:
    with ordinary.network.inside(), s3_server() as made:
        yield made


@pytest.fixture
def portal(ordinary: RayCluster, s3: S3, caches: Path) -> Iterator[LivePortal]:
    with engine_portal(ordinary, **settings_for(s3, caches) | portal_settings(ordinary)) as made:
        yield made


def test_a_job_moves_to_a_node_that_has_nothing_of_it(portal: LivePortal, s3: S3) -> None:
    check_moving_to_a_node_that_has_nothing(portal, s3)
