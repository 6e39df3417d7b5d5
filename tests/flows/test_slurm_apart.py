"""A portal whose jobs' files lay in its data directory: refused, and moved as documented while its jobs train on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal
from tests.ordinary_account import hand_over, starts_as
from tests.supervisor.running import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DOCUMENT = (ROOT / "docs" / "executors.md").read_text()
OLD, NEW = "/nfs/evenkeel", "/var/lib/evenkeel-data"
TICKS = "for i in $(seq 100000); do echo tick $i; sleep 1; done"
ANOTHER = 65534


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    with engine_portal(slurm, **portal_settings(slurm)) as portal:
        yield portal


@pytest.fixture
def elsewhere(portal: LivePortal) -> Iterator[Path]:
    """Where nodes look, too."""
    made = Path(tempfile.mkdtemp(prefix="evenkeel-moved-"))
    made.chmod(0o755)
    hand_over(made, portal.account)
    yield made / "data"
    portal.end()
    shutil.rmtree(made, ignore_errors=True)


def refused(portal: LivePortal) -> str:
    done = portal.run("up")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    return line


def documented(old: Path, new: Path) -> str:
    """The commands of the page, for these directories."""
    [block] = re.findall(r"\n((?:    .+\n)*    mkdir -p /var/lib/evenkeel-data.*\n(?:    .+\n)+)", DOCUMENT)
    return str(block).replace(NEW, str(new)).replace(OLD, str(old))


def ticks(portal: LivePortal, number: int) -> list[int]:
    with portal.api() as api:
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith("tick")]


def test_root_gets_no_slurm(portal: LivePortal) -> None:
    account, portal.account = portal.account, None
    try:
        if os.geteuid() == 0:
            assert refused(portal).startswith("The portal runs as root, and so would every job on Slurm: start it as")
    finally:
        portal.account = account


def test_no_other_account_can_read_the_token_of_a_run(portal: LivePortal) -> None:
    number = portal.submit(model_type=None, command=TICKS, total_steps=1, batch_size=8, gpus=1)["number"]
    portal.wait_for("ticks", lambda: ticks(portal, number), 240)
    [token] = portal.files.glob("jobs/*/runs/*/*/token")
    find = ["find", str(portal.files), "-type", "f", "-readable"]
    found = subprocess.run(find, capture_output=True, text=True, check=False, **starts_as(ANOTHER)).stdout.split()
    assert str(token) not in found
    assert token.stat().st_mode & 0o777 == 0o600
    readable = [path for path in found if token.read_bytes() in Path(path).read_bytes()]
    assert readable == []


def test_what_is_the_portals_is_moved_while_jobs_train_on(portal: LivePortal, elsewhere: Path) -> None:
    said = portal.examined()
    assert "ok    portal's files: no job on the nodes that were asked can reach them" in said
    number = portal.submit(model_type=None, command=TICKS, total_steps=1, batch_size=8, gpus=1)["number"]
    portal.wait_for("ticks", lambda: ticks(portal, number), 240)
    portal.interrupt()
    before, old = portal.data, portal.files
    for path in before.iterdir():  # as it was in older versions
        if path.name != "run":
            path.rename(old / path.name)
    portal.data, portal.env = old, portal.env | {"EVENKEEL_DATA": str(old)}
    for shared in (old, old / "jobs", old.parent):
        portal.env |= {"EVENKEEL_SHARED_DIR": str(shared)}
        assert "EVENKEEL_SHARED_DIR must be a directory apart from EVENKEEL_DATA" in refused(portal)
    del portal.env["EVENKEEL_SHARED_DIR"]
    assert "is that directory" in refused(portal)
    portal.env |= {"EVENKEEL_DATA": str(elsewhere), "EVENKEEL_SHARED_DIR": str(old)}
    assert f"{old} holds secret_key" in refused(portal)

    subprocess.run(["sh", "-ec", documented(old, elsewhere)], check=True, **starts_as(portal.account))
    portal.data = elsewhere
    portal.start()
    seen = len(ticks(portal, number))
    portal.wait_for("more ticks", lambda: len(ticks(portal, number)) > seen, 60)
    found = ticks(portal, number)
    assert found == list(range(1, len(found) + 1)), "it was not begun anew"
    assert portal.rows(
        f"SELECT r.epoch FROM jobs_run r JOIN jobs_job j ON j.id = r.job_id WHERE j.number = {number}"
    ) == [(1,)]
    failed = portal.run("doctor")
    assert failed.returncode == 1
    assert re.search(
        rf"WRONG portal's files: a job on gpu(?:[123]|\[1-3\]) \(as .+\) can read {elsewhere}/secret_key", failed.stdout
    )
