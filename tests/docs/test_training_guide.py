"""docs/submitting.md: its diff is the difference of two programs that run, and the second one resumes."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from evenkeel.runner.workers import free_port
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, Control

from portal.jobfile.parsing import load_yaml, parse_job_file

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "examples" / "training"
GUIDE = ROOT / "docs" / "submitting.md"
PATIENCE_S = 180
STEPS = 600


def difference() -> list[str]:
    plain, elastic = ((TRAINING / name).read_text().splitlines() for name in ("plain.py", "elastic.py"))
    return list(difflib.unified_diff(plain, elastic, "plain.py", "elastic.py", lineterm=""))


def run(name: str, **environment: str) -> str:
    """What one rank prints."""
    done = subprocess.run(command(name), env=alone() | environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(name: str) -> list[str]:
    return [sys.executable, str(TRAINING / name)]


def alone() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENKEEL_")}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def in_the_cluster(place: Path, epoch: int) -> dict[str, str]:
    """What the runner sets (docs/contracts.md, "Job environment"): checkpoints are the job's, all else the launch's."""
    sdk = place / str(epoch) / "sdk"
    sdk.mkdir(parents=True)
    Control.create(sdk / "control")
    return {
        "EVENKEEL_TOTAL_STEPS": str(STEPS),
        "EVENKEEL_BATCH_SIZE": "96",
        "EVENKEEL_CHECKPOINT_DIR": str(place / "checkpoints"),
        "EVENKEEL_SDK_DIR": str(sdk),
        "EVENKEEL_EPOCH": str(epoch),
    }


def final_loss(printed: str) -> float:
    [found] = re.findall(r"^final loss (\S+)$", printed, re.MULTILINE)
    return float(found)


def test_the_guide_shows_the_difference_of_the_two_programs() -> None:
    [shown] = re.findall(
        r"^```diff\n(.*?)\n```$", (ROOT / "docs" / "submitting.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert shown.split("\n") == difference()


def test_at_most_ten_lines_are_added() -> None:
    added = [line for line in difference() if line.startswith("+") and not line.startswith("+++")]
    assert 0 < len(added) <= 10


def test_the_guide_shows_the_job_file() -> None:
    text = (TRAINING / "elastic.yaml").read_text()
    assert f"```yaml\n{text}```\n" in GUIDE.read_text()
    assert parse_job_file(load_yaml(text)).command == "python elastic.py"


@pytest.fixture(scope="module")
def whole_loss() -> float:
    """Of the elastic program outside of a cluster, on one worker, never stopped."""
    return final_loss(run("elastic.py"))


def test_alone_both_programs_learn_the_same(whole_loss: float) -> None:
    """Their batches are drawn differently, so both end near zero, where the untrained network has 0.17."""
    assert final_loss(run("plain.py")) < 0.002
    assert whole_loss < 0.002


@pytest.mark.whole
def test_stopped_and_resumed_it_ends_at_the_same_loss(tmp_path: Path, whole_loss: float) -> None:
    stopped_at = train_until_asked_to_stop(tmp_path)
    assert 0 < stopped_at < STEPS
    resumed = run("elastic.py", **in_the_cluster(tmp_path, 2))
    assert f"step {STEPS}," in resumed
    assert (tmp_path / "checkpoints" / f"step-{STEPS}" / "manifest.json").exists()
    assert final_loss(resumed) == pytest.approx(whole_loss, rel=1e-6)


@pytest.mark.whole
def test_moved_to_two_workers_it_ends_at_the_same_loss(tmp_path: Path, whole_loss: float) -> None:
    train_until_asked_to_stop(tmp_path)
    gang = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    gang |= in_the_cluster(tmp_path, 2)
    other = subprocess.Popen(
        command("elastic.py"),
        env=alone() | gang | {"RANK": "1", "LOCAL_RANK": "1"},
        stdout=subprocess.DEVNULL,
    )
    try:
        printed = run("elastic.py", **gang, RANK="0", LOCAL_RANK="0")
        assert other.wait(PATIENCE_S) == 0
    finally:
        other.kill()
        other.wait()
    assert final_loss(printed) == pytest.approx(whole_loss, rel=0.02)  # sums in another order


def train_until_asked_to_stop(place: Path) -> int:
    """The step of the checkpoint that it left."""
    environment = alone() | in_the_cluster(place, 1) | {"EVENKEEL_PACE_STEPS_PER_S": "100"}
    program = subprocess.Popen(command("elastic.py"), env=environment, stdout=subprocess.PIPE, text=True)
    control = Control(place / "1" / "sdk" / "control")
    try:
        said, give_up_at = place / "1" / "sdk" / "rank0.jsonl", time.monotonic() + PATIENCE_S
        while not (said.exists() and '"step"' in said.read_text()):
            assert time.monotonic() < give_up_at, "it did not train"
            time.sleep(0.02)
        control.request = CHECKPOINT_AND_STOP
        printed, _ = program.communicate(timeout=PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.send_signal(signal.SIGKILL)
        program.wait()
    assert program.returncode == 0
    assert "final loss" not in printed  # what follows the block is for a finished run
    [saved] = (place / "checkpoints").glob("step-*")
    return int(saved.name.removeprefix("step-"))
