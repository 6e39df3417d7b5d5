"""Two real ranks stop at the same step, and an uneven split gives the global mean: over gloo, and over NCCL where
there are two CUDA devices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from evenkeel.runner.workers import free_port
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, Control
from evenkeel.sdk.sampling import batch_indices

needs_two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs two CUDA devices")
PROGRAM = """
import json, os, sys, torch, evenkeel

# Importing PyTorch once is slow enough.
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "1" if os.fork() == 0 else "0"
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).double()
inputs = torch.arange(60, dtype=torch.float64).reshape(20, 3) / 60
with evenkeel.training(seed=5) as run:
    model.to(run.device)
    inputs = inputs.to(run.device)
    run.checkpoint(model=model)
    wrapped = run.wrap(model)
    for step in run.steps():
        wrapped.zero_grad()
        loss = (wrapped(inputs[run.local_slice(step, 20)]) ** 2).mean()
        run.scale_loss(loss).backward()
        if step == 0:
            found = {"gradient": model.weight.grad.tolist(), "mean": run.mean(loss.detach()), "device": run.device}
            found["backend"] = torch.distributed.get_backend()
    found |= {"left_at": run.step, "stopping": run.stopping, "total": run.total_steps}
    path = f"{sys.argv[1]}/rank{run.rank}.json"
    with open(path + ".draft", "w") as file:
        json.dump(found, file)
    os.rename(path + ".draft", path)
"""


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < give_up_at, "did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("cuda", [False, pytest.param(True, marks=needs_two_devices)])
def test_two_ranks_agree(tmp_path: Path, cuda: bool) -> None:
    (tmp_path / "sdk").mkdir()
    control = Control.create(tmp_path / "sdk" / "control")
    environment = os.environ | {
        "EVENKEEL_TOTAL_STEPS": "1000000",
        "EVENKEEL_BATCH_SIZE": "7",
        "EVENKEEL_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "EVENKEEL_SDK_DIR": str(tmp_path / "sdk"),
        "CUDA_VISIBLE_DEVICES": "0,1" if cuda else "",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, start_new_session=True)
    try:
        said = tmp_path / "sdk" / "rank0.jsonl"
        until(lambda: said.exists() and '"step"' in said.read_text())
        control.total_wanted = 2_000_000
        until(lambda: control.total == 2_000_000)
        control.request = CHECKPOINT_AND_STOP
        until(lambda: all((tmp_path / f"rank{rank}.json").exists() for rank in (0, 1)))
        assert program.wait(timeout=60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    found = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0]["stopping"]
    assert found[1]["stopping"]
    assert found[0]["total"] == found[1]["total"] == 2_000_000
    assert found[0]["left_at"] == found[1]["left_at"] == control.stop_at
    assert (tmp_path / "checkpoints" / f"step-{control.stop_at}").is_dir()
    assert [rank["device"] for rank in found] == (["cuda:0", "cuda:1"] if cuda else ["cpu", "cpu"])
    assert {rank["backend"] for rank in found} == {"nccl" if cuda else "gloo"}
    _check_global_mean(found)


def _check_global_mean(found: list[dict[str, object]]) -> None:
    """Rank 0 had four samples of the seven and rank 1 three."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    inputs = torch.arange(60, dtype=torch.float64).reshape(20, 3) / 60
    loss = (model(inputs[batch_indices(0, 20, 7, seed=5)]) ** 2).mean()
    loss.backward()
    assert model.weight.grad is not None
    for rank in found:
        torch.testing.assert_close(torch.tensor(rank["gradient"], dtype=torch.float64), model.weight.grad)
        assert abs(float(str(rank["mean"])) - loss.item()) < 1e-12
