"""What the benchmarks beside a real Slurm start is ended with them; the script here starts a daemon that sleeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import real_slurm

STARTER = "setsid nohup sleep 300 >/dev/null 2>&1 </dev/null &\necho $SLURM_ROOT > $TOLD; sleep $LINGER\n"
BENCHMARK = """
import sys, time
from pathlib import Path
from benchmarks import real_slurm
real_slurm.SCRIPT = Path(sys.argv[1])
with real_slurm.slurm(nodes=1, env={}):
    time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("linger", ["0", "300"])
def test_a_signal_ends_what_was_started(tmp_path: Path, number: signal.Signals, linger: str) -> None:
    (script := tmp_path / "up.sh").write_text(STARTER)
    told = tmp_path / "told"
    env = os.environ | {"LINGER": linger, "TOLD": str(told)}
    with subprocess.Popen([sys.executable, "-c", BENCHMARK, str(script)], env=env) as benchmark:
        _until(lambda: told.exists() and told.read_text().endswith("\n"))
        root = Path(told.read_text().strip())
        _until(lambda: len(real_slurm.started_with(root)) >= 1)
        benchmark.send_signal(number)
        assert benchmark.wait(30) == 128 + number
    assert not root.exists()
    assert real_slurm.started_with(root) == set()


def test_only_what_was_started_with_the_root_is_ended(tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "300"], env=os.environ | {"SLURM_CONF": f"{tmp_path}/slurm.conf"}) as started,
        subprocess.Popen(["sleep", "300"]) as other,
    ):
        try:
            _until(lambda: real_slurm.started_with(tmp_path) == {started.pid})
            real_slurm.end_all(tmp_path)
            assert started.wait(30) == -signal.SIGTERM
            assert other.poll() is None
        finally:
            other.kill()
            started.kill()


def _until(ready: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < ends
        time.sleep(0.05)
