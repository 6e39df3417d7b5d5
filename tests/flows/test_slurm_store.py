"""A whole portal on a real Slurm whose nodes share no checkpoints: a job moves from one to another by the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.client.s3 import S3, s3_server
from tests.executors.moving_by_store import caches as caches  # a fixture
from tests.executors.moving_by_store import check_moving_to_a_node_that_has_nothing, settings_for
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def s3() -> Iterator[S3]:
    with s3_server() as made:
        yield made


@pytest.fixture
def portal(slurm: SlurmCluster, s3: S3, caches: Path) -> Iterator[LivePortal]:
    with engine_portal(slurm, **settings_for(s3, caches) | portal_settings(slurm)) as portal:
        yield portal


def test_a_job_moves_to_a_node_that_has_nothing_of_it(portal: LivePortal, s3: S3) -> None:
    check_moving_to_a_node_that_has_nothing(portal, s3)
