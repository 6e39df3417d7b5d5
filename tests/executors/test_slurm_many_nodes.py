"""What `manage.py doctor` says of a real Slurm with 64 nodes: all are asked at once, and what it says fits a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.executors.base import Finding, Kept
from scheduling.executors.reach import SUBJECT
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import slurm_or_skipped

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NODES, SCREEN_LINES = 64, 40
NOBODY = "http://127.0.0.1:9"  # in place of a portal


@pytest.fixture(scope="module")
def many() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=NODES, gpus=2) as cluster:
        yield cluster


def said(cluster: SlurmCluster, place: Path, kept: Kept) -> list[Finding]:
    place.chmod(0o755)
    return list(SlurmExecutor(place / "data", conf=str(cluster.conf), emulated=True).examine(NOBODY, kept))


def test_what_the_jobs_of_all_nodes_can_read_is_one_line(many: SlurmCluster, tmp_path: Path) -> None:
    key = tmp_path / "secret_key"
    key.write_text("k")
    found = said(many, tmp_path, Kept(files=(str(key),)))
    [reach] = [one for one in found if one.subject == SUBJECT]
    assert (reach.ok, f"a job on gpu[1-{NODES}] " in reach.seen, str(key) in reach.seen) == (False, True, True)
    assert len(found) <= SCREEN_LINES


def test_all_nodes_are_asked_and_what_is_said_fits_a_screen(many: SlurmCluster, tmp_path: Path) -> None:
    found = said(many, tmp_path, Kept())
    shared = next(one for one in found if one.subject == "shared storage")
    assert (shared.ok, shared.seen.endswith(f"is the same on {NODES} nodes")) == (True, True)
    assert len(found) <= SCREEN_LINES
    [portal] = [one for one in found if not one.ok]
    assert portal.seen.startswith(f"gpu[1-{NODES}]: ")
    assert max(len(one.seen) for one in found) < 1_000
