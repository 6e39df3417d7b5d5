"""The catalogue's programs train, resume where they were, and do not care how many workers share a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from evenkeel.programs import digits_cnn, inception_v3, resnet50, tiny_lm
from evenkeel.programs._data import Samples, corpus, digits
from evenkeel.runner.workers import free_port
from evenkeel.sdk.sampling import batch_indices
from evenkeel.sdk.settings import read_settings
from evenkeel.training import Run
from torch import nn

from tests.client.programs_worker import Record, run_program

STEPS = 6


@pytest.fixture(autouse=True)
def as_a_job_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in job_environment(tmp_path / "checkpoints", 2 * STEPS).items():
        monkeypatch.setenv(name, value)


def job_environment(checkpoints: Path, steps: int) -> dict[str, str]:
    return {
        "EVENKEEL_TOTAL_STEPS": str(steps),
        "EVENKEEL_BATCH_SIZE": "90",
        "EVENKEEL_CHECKPOINT_DIR": str(checkpoints),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def run_to(step: int, name: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    for variable, value in job_environment(checkpoints, step).items():
        monkeypatch.setenv(variable, value)
    return run_program(name)


@pytest.mark.parametrize(
    ("name", "steps", "below"),
    [
        ("digits_mlp", 40, 0.7),
        ("digits_cnn", 40, 0.7),
        ("tiny_lm", 30, 0.9),
        ("resnet50", 25, 0.8),
        pytest.param("inception_v3", 25, 0.97, marks=pytest.mark.whole),
    ],
)
def test_loss_goes_down(name: str, steps: int, below: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = run_to(steps, name, tmp_path, monkeypatch)["losses"]
    assert len(losses) == steps
    assert sum(losses[-5:]) < below * sum(losses[:5])


@pytest.mark.parametrize("name", ["digits_cnn", "tiny_lm", "resnet50"])
def test_a_resumed_run_continues_the_same_losses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_to(2 * STEPS, name, tmp_path / "whole", monkeypatch)
    parts = [run_to(step, name, tmp_path / "parts", monkeypatch) for step in (STEPS, 2 * STEPS)]
    assert [len(part["losses"]) for part in parts] == [STEPS, STEPS]
    assert parts[0]["losses"] + parts[1]["losses"] == whole["losses"]
    assert parts[0]["samples"] + parts[1]["samples"][:STEPS] == whole["samples"][: 2 * STEPS]


@pytest.mark.parametrize("name", ["digits_mlp", pytest.param("resnet50", marks=pytest.mark.whole)])
def test_two_workers_continue_what_one_began(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_to(2 * STEPS, name, tmp_path / "whole", monkeypatch)
    begun = run_to(STEPS, name, tmp_path / "parts", monkeypatch)
    environment = os.environ | job_environment(tmp_path / "parts", 2 * STEPS) | {"WORLD_SIZE": "2"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path]))
    command = [sys.executable, "-m", "tests.client.programs_worker", str(tmp_path / "out"), name]
    subprocess.run(command, env=environment, check=True, timeout=150, capture_output=True)
    first, second = (json.loads((tmp_path / f"out.{rank}.json").read_text()) for rank in (0, 1))
    assert begun["losses"] == whole["losses"][:STEPS]
    assert first["losses"] == pytest.approx(whole["losses"][STEPS:], rel=1e-3)
    taken = [one + other for one, other in zip(first["samples"], second["samples"], strict=True)]
    assert taken == whole["samples"][STEPS:]
    assert {len(samples) for samples in first["samples"]} == {45}


@pytest.mark.parametrize(
    ("model", "samples"),
    [
        (digits_cnn.make_model(4), digits()[0]),
        (resnet50.ResNet50(0.0625), digits(16)[0]),
        (inception_v3.InceptionV3(0.0625), digits(16)[0]),
        (tiny_lm.TinyLM(8, 1, 2, 16), corpus(16)),
    ],
    ids=["digits_cnn", "resnet50", "inception_v3", "tiny_lm"],
)
def test_an_uneven_split_gives_the_gradient_of_the_whole_batch(model: nn.Module, samples: Samples) -> None:
    model = model.double()
    whole = gradient(model, samples, one_of(0, 1))
    shares = [one_of(rank, 4) for rank in range(4)]
    assert [run.local_batch for run in shares] == [23, 23, 22, 22]
    mean = sum(gradient(model, samples, run) for run in shares) / 4
    assert torch.allclose(torch.as_tensor(mean), whole, rtol=1e-9, atol=1e-12)


def one_of(rank: int, workers: int) -> Run:
    settings = replace(read_settings(), rank=rank, world_size=workers, checkpoint_dir=None)
    return Run(settings, total_steps=None, batch_size=None, seed=0)


def gradient(model: nn.Module, samples: Samples, run: Run) -> torch.Tensor:
    inputs, targets = samples.take(run.local_slice(3, len(samples)))
    logits = model(inputs.double() if inputs.is_floating_point() else inputs)
    model.zero_grad()
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    run.scale_loss(loss).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_the_topologies_are_the_papers() -> None:
    """Full width, with three colours and 1,000 classes, has about the parameters the papers' networks have."""
    convolutions = [module for module in resnet50.ResNet50(0.0625).modules() if hasattr(module, "kernel")]
    assert len(convolutions) == 1 + 16 * 3 + 4
    convolutions = [module for module in inception_v3.InceptionV3(0.0625).modules() if hasattr(module, "kernel")]
    assert len(convolutions) == 94
    full = sum(parameter.numel() for parameter in resnet50.ResNet50(1.0, classes=1000).parameters())
    assert full == 25_557_032 - 2 * 64 * 49  # one colour instead of three
    full = sum(parameter.numel() for parameter in inception_v3.InceptionV3(1.0, classes=1000).parameters())
    assert 23e6 < full < 25e6


def test_each_pass_takes_every_sample_once() -> None:
    size = len(digits()[0])
    taken = [index for step in range(50) for index in batch_indices(step, size, 90, seed=0)]
    assert sorted(taken[:size]) == list(range(size))
