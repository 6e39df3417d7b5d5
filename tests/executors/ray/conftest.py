"""One cluster for all tests of this folder: a head and two nodes with four declared GPUs each."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.executors.ray.executor import RayExecutor
from scripts.ray_cluster import NodePlan, RayCluster
from tests.executors.contract import requests_for
from tests.executors.contract_software import SOFTWARE
from tests.executors.ray.helpers import Requests
from tests.ordinary_account import ordinary_account

CLUSTER_TIMEOUT_S = 600  # whoever comes first waits for the cluster
HERE = Path(__file__).parent


#: Of the contract these run by default, all in one file, so that one cluster does; the others are marked slow.
SAMPLE = (
    "test_a_run_goes_to_its_end",
    "test_launching_twice_starts_once",
    "test_it_stops_with_a_checkpoint_and_continues_on_more_and_fewer",
    "test_what_was_stopped_or_killed_before_it_came_never_starts",
    "test_killing_ends_it_and_can_be_repeated",
    "test_a_job_on_two_nodes_trains_as_one",
    "test_a_sound_node_passes_its_check",
    "test_a_job_trains_from_a_bundle",
    "test_a_program_trains_in_an_image",
    "test_modules_are_loaded_for_the_program",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in (one for one in items if one.path.is_relative_to(HERE)):
        item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT_S))
        if item.path.name == "test_ray.py" and item.name not in SAMPLE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def request_for(executor: RayExecutor, place: Path) -> Requests:
    return requests_for(executor, place)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install -r requirements-ray.lock")
    made = RayCluster([NodePlan("ray-1", "127.0.0.11", 4), NodePlan("ray-2", "127.0.0.12", 4)])
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="package")
def ordinary() -> Iterator[RayCluster]:
    """For whole portals, which are no root's where we are root."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install -r requirements-ray.lock")
    nodes = [NodePlan("ray-1", "127.0.0.11", 4), NodePlan("ray-2", "127.0.0.12", 4)]
    made = RayCluster(nodes, account=ordinary_account())
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-ray-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def executor(cluster: RayCluster) -> Iterator[RayExecutor]:
    """All tests share the data directory, and so one connection; whatever a test leaves is ended."""
    with cluster.network.inside():
        made = connect(cluster)
        yield made
        made.reap_orphans([], min_age_s=-2.0)


def connect(cluster: RayCluster, fence_s: float = 0.5) -> RayExecutor:
    """Whoever kills a node here knows that it is dead, and need not wait for it."""
    to = cluster.connection
    data = cluster.place / "data"
    return RayExecutor(
        data,
        to.address,
        to.namespace,
        node_address=to.node_address,
        fence_s=fence_s,
        emulated=True,
        software=SOFTWARE,
    )
