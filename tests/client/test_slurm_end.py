"""How a runner leaves Slurm: what the portal stopped is cancelled there."""

from __future__ import annotations

from pathlib import Path

import pytest
from evenkeel.runner.slurm_end import leave_slurm


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What scancel was asked."""
    said = tmp_path / "asked"
    command = tmp_path / "scancel"
    command.write_text(f'#!/bin/sh\necho "$@ $SCANCEL_STATE" >{said}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "22")
    monkeypatch.setenv("SCANCEL_STATE", "PENDING")
    return said


def test_what_the_portal_stopped_is_cancelled_and_says_that_it_was_asked(asked: Path, tmp_path: Path) -> None:
    assert leave_slurm(0, tmp_path, on_request=True) == 0
    assert asked.read_text().split() == ["--quiet", "22"]
    assert (tmp_path / "stop").exists()


def test_what_ended_by_itself_keeps_its_exit_code(asked: Path, tmp_path: Path) -> None:
    assert leave_slurm(3, tmp_path, on_request=False) == 3
    assert not asked.exists()


def test_a_node_without_scancel_ends_jobs_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "22")
    monkeypatch.setenv("PATH", "/nowhere")
    assert leave_slurm(137, tmp_path, on_request=True) == 137
