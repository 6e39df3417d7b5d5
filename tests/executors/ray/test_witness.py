"""The process that says, once the engine's own on a node has died, that nothing of the run is left there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from evenkeel.runner.processes import read_process

from tests.executors.contract import until
from tests.executors.cut_off import Launch


def test_it_ends_what_is_left_and_then_leaves_word(tmp_path: Path) -> None:
    word, sleep = tmp_path / "ended", ["sleep", "600"]
    runner = subprocess.Popen(sleep, start_new_session=True)
    worker = subprocess.Popen(sleep, env={**os.environ, "EVENKEEL_SDK_DIR": f"{tmp_path}/sdk"}, start_new_session=True)
    other = subprocess.Popen(sleep, env={**os.environ, "EVENKEEL_SDK_DIR": f"{tmp_path}-other/sdk"})
    started, (reading, writing) = read_process(runner.pid), os.pipe()
    assert started
    try:
        terms = [str(tmp_path), str(word), str(runner.pid), str(started.start_ticks)]
        witness = [sys.executable, "-m", "evenkeel.runner.witness", *terms]
        subprocess.run(witness, stdin=reading, check=True, timeout=30)  # it goes on by itself
        os.close(reading)
        time.sleep(0.5)
        assert (word.exists(), runner.poll(), worker.poll()) == (False, None, None)
        launch = Launch(tmp_path)
        [left], [witness_left] = launch.processes(), launch.witnesses()  # which tests of runners tell apart
        assert left.startswith(f"{worker.pid} (sleep, sleeping, for ")
        assert left.endswith(": sleep 600")
        assert "evenkeel.runner.witness" in witness_left
        os.close(writing)
        until(lambda: runner.poll() and worker.poll(), "their end")
        until(word.exists, "its word")
        until(lambda: not launch.witnesses(), "its own end")
        assert other.poll() is None
    finally:
        for process in (runner, worker, other):
            process.kill()
            process.wait()
