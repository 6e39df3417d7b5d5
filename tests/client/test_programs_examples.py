"""The examples are true; the training pair is tested with its guide (tests/docs/test_training_guide.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.jobfile.parsing import load_yaml, parse_job_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("**/*.yaml")), ids=lambda path: path.stem)
def test_job_files_are_valid(path: Path) -> None:
    job = parse_job_file(load_yaml(path.read_text()))
    assert job.model_type in (path.stem, None)
