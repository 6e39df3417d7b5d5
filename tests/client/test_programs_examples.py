"""The examples are true."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portal.jobs.schema import load_yaml, parse_job_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_job_files_are_valid(path: Path) -> None:
    job = parse_job_file(load_yaml(path.read_text()))
    assert job.model_type in (path.stem, None)


def test_at_most_ten_lines_differ() -> None:
    plain, elastic = ((EXAMPLES / f"train_{name}.py").read_text().splitlines() for name in ("plain", "elastic"))
    changed = [line for line in difflib.ndiff(plain, elastic) if line.startswith("+ ")]
    assert 0 < len(changed) <= 10


def test_the_elastic_program_runs_as_a_job(tmp_path: Path) -> None:
    environment = os.environ | {
        "EVENKEEL_TOTAL_STEPS": "20",
        "EVENKEEL_BATCH_SIZE": "90",
        "EVENKEEL_CHECKPOINT_DIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLES / "train_elastic.py")]
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert (tmp_path / "step-20" / "manifest.json").exists()
