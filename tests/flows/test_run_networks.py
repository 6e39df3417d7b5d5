"""A whole portal whose projects have networks of their own: two ranks of plain PyTorch, another project's job that
looks for them, and a portal that is killed and comes back meanwhile."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.local.machine import network_keeper
from tests.live_portal import LivePortal, running_portal
from tests.site_software import need_pasta

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="networks of their own need root"),
]

#: Never waited for unless something is broken.
HANGS_S = 240
#: Asks the portal all the while, with no more than what its environment says.
TRAINING = """
import os, pathlib, sys, time, urllib.request
import torch, torch.distributed as dist
place = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimiser = torch.optim.SGD(model.parameters(), 0.1)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
enough = torch.zeros(1)
while not enough:
    optimiser.zero_grad()
    model(torch.ones(8, 4)).square().mean().backward()
    optimiser.step()
    if dist.get_rank() == 0:
        try:
            said = str(opener.open(os.environ["EVENKEEL_API_URL"] + "/healthz", timeout=5).status)
        except OSError as error:
            said = type(error).__name__
        (place / "draft").write_text(f"{os.environ['MASTER_PORT']} {said}")
        (place / "draft").rename(place / "said")
        enough.fill_((place / "enough").exists())
    dist.broadcast(enough, 0)
    time.sleep(0.2)
print("trained", dist.get_world_size())
"""
#: The store's port, on each address.
SCANNING = """
import pathlib, socket, sys
place, port, addresses = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
reached = []
for address in addresses:
    try:
        socket.create_connection((address, port), 3).close()
        reached.append(address)
    except OSError:
        pass
(place / "draft").write_text(f"reached {reached}")
(place / "draft").rename(place / "scanned")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-networks-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        for program, text in (("training.py", TRAINING), ("scanning.py", SCANNING)):
            (Path(name) / program).write_text(text)
        yield Path(name)


def submit(portal: LivePortal, project: str, gpus: int, *words: str) -> int:
    command = shlex.join(["python", *words])
    body: dict[str, Any] = {"project": project, "command": command, "total_steps": 10}
    body |= {"gpus": {"min": gpus, "max": gpus}, "throughput": {"titan_xp": [1.0] * gpus}}
    with portal.api() as api:
        answer = api.post("jobs", json=body)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["number"])


def heard(place: Path) -> list[str]:
    """The store's port, and what the portal answered last."""
    said = place / "said"
    return said.read_text().split() if said.exists() else []


def test_a_store_of_plain_pytorch_is_the_projects_alone_whatever_becomes_of_the_portal(place: Path) -> None:
    need_pasta()
    with running_portal(EVENKEEL_RUN_NETWORK="auto") as portal:
        [line] = [line for line in portal.manage_anyhow("doctor").splitlines() if "network of runs" in line]
        assert line.startswith("ok"), line
        with portal.api() as api:
            api.post("projects", json={"key": "acme", "name": "Acme"}).raise_for_status()
        training = submit(portal, "default", 2, str(place / "training.py"), str(place))
        portal.wait_for("it to train and reach the portal", lambda: "200" in heard(place), HANGS_S)
        port = heard(place)[0]

        addresses = ("127.0.0.1", "::1", network_keeper.ADDRESS)
        scanning = submit(portal, "acme", 1, str(place / "scanning.py"), str(place), port, *addresses)
        portal.wait_state(scanning, "succeeded", timeout_s=HANGS_S)
        assert (place / "scanned").read_text() == "reached []"

        portal.kill_all()
        portal.wait_for("it to miss the portal", lambda: "200" not in heard(place), HANGS_S)
        portal.start(HANGS_S)
        portal.wait_for("it to reach the portal again", lambda: "200" in heard(place), HANGS_S)
        (place / "enough").touch()
        job = portal.wait_state(training, "succeeded", "failed", timeout_s=HANGS_S)
        assert job["state"] == "succeeded", job
