"""A whole portal on a real Slurm: a run on two nodes has its data in the cache of each before it trains."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.folding import fold_names
from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = """
import os
print("reads", (os.path.realpath(os.environ["EVENKEEL_DATA_NUMBERS"])), flush=True)
assert open(os.environ["EVENKEEL_DATA_NUMBERS"] + "/a.txt").read() == "seven"
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="evenkeel-data-"))
    made.chmod(0o755)
    (made / "source").mkdir(mode=0o755)
    (made / "source" / "a.txt").write_text("seven")
    (made / "caches").mkdir()
    (made / "caches").chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster, place: Path) -> Iterator[LivePortal]:
    settings = portal_settings(slurm) | {
        "EVENKEEL_DATA_CACHE_DIR": str(place / "caches" / "%n"),
    }
    with engine_portal(slurm, **settings) as portal:
        yield portal


def test_each_node_has_a_cache_of_its_own(portal: LivePortal, place: Path) -> None:
    said = portal.examined()
    with portal.api() as api:
        listed = api.get("nodes").json()
    nodes, gpus = [node["name"] for node in listed], sum(len(node["accelerators"]) for node in listed)
    assert f"ok    {fold_names(nodes)}: data cache: {place / 'caches' / '%n'}: " in said
    program = portal.files / "program.py"
    program.write_text(PROGRAM)
    wish: dict[str, Any] = {"model_type": None, "command": f"python {program}", "total_steps": 1, "batch_size": 8}
    wish |= {"gpus": gpus, "data": [{"name": "numbers", "url": f"file://{place}/source"}]}
    number = portal.submit(**wish)["number"]
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=240)
    assert job["state"] == "succeeded", job["reason"]
    assert sorted(path.parent.parent.parent.name for path in place.glob("caches/*/*/*/data")) == sorted(nodes)
