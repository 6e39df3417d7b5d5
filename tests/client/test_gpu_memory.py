"""PyTorch is kept within the GPU memory that the job holds."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import evenkeel
import pytest
import torch
from evenkeel.sdk.settings import read_settings

MIB = 2**20


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What a machine with two GPUs of 8 GiB was told."""
    told: list[tuple[float, int]] = []
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=8_192 * MIB),
        "set_per_process_memory_fraction": lambda part, device: told.append((part, device)),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return told


def test_the_workers_own_device_is_limited(limits: list[tuple[float, int]]) -> None:
    settings = read_settings({"EVENKEEL_GPU_MEMORY_MIB": "2048", "LOCAL_RANK": "1"})
    assert evenkeel.limit_gpu_memory(settings) == 0.1875, "less 512 MiB of CUDA's own"
    assert limits == [(0.1875, 1)]


def test_half_of_a_small_limit_is_left_to_the_program(limits: list[tuple[float, int]]) -> None:
    assert evenkeel.limit_gpu_memory(read_settings({"EVENKEEL_GPU_MEMORY_MIB": "512"})) == 256 / 8_192


def test_more_than_there_is_is_all_of_it(limits: list[tuple[float, int]]) -> None:
    assert evenkeel.limit_gpu_memory(read_settings({"EVENKEEL_GPU_MEMORY_MIB": "9000"})) == 1.0
    assert limits == [(1.0, 0)]


def test_without_a_limit_nothing_is_set(limits: list[tuple[float, int]]) -> None:
    assert evenkeel.limit_gpu_memory(read_settings({})) is None
    assert limits == []


def test_a_program_that_hid_all_devices_but_its_own_is_limited_there(
    limits: list[tuple[float, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    evenkeel.limit_gpu_memory(read_settings({"EVENKEEL_GPU_MEMORY_MIB": "2048", "LOCAL_RANK": "1"}))
    assert limits == [(0.1875, 0)]


def test_training_sets_the_limit_before_the_program_allocates(limits: list[tuple[float, int]]) -> None:
    settings = read_settings({"EVENKEEL_GPU_MEMORY_MIB": "4096", "EVENKEEL_TOTAL_STEPS": "1"})
    with evenkeel.training(settings=settings) as run:
        assert limits == [(0.4375, 0)]
        for _ in run.steps():
            pass


def test_the_device_sets_it_where_torch_was_imported_late(
    limits: list[tuple[float, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_settings({"EVENKEEL_GPU_MEMORY_MIB": "4096", "EVENKEEL_TOTAL_STEPS": "1"})
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        run = evenkeel.training(settings=settings).__enter__()
    assert limits == []
    assert run.device == "cuda:0"
    assert limits == [(0.4375, 0)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with CUDA")
def test_on_processors_there_is_nothing_to_limit() -> None:
    program = "import torch, evenkeel; print(evenkeel.limit_gpu_memory())"
    environment = os.environ | {"EVENKEEL_GPU_MEMORY_MIB": "2048", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
