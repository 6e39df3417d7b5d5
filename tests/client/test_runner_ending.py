"""Every end asks first: SIGTERM, a grace in which a program may save what it has, then SIGKILL."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_runner import Portal, exit_of, launch, portal, until

__all__ = ["portal"]

#: Takes a second to save, which is longer than a shell takes to die.
SAVING = """
import pathlib, signal, sys, time

def save(*_):
    pathlib.Path("asked").open("a").write("SIGTERM\\n")
    time.sleep(1)
    pathlib.Path("last.pt").write_text("step 7")
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
time.sleep(600)
"""
DEAF = """
import pathlib, signal, time

signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked").touch())
pathlib.Path("ready").touch()
while True:
    time.sleep(0.05)
"""


def begin(place: Path, portal: Portal, program: str, **changes: Any) -> subprocess.Popen[bytes]:
    runner = launch(place, portal, program, **changes)
    until((place / "ready").exists)
    return runner


def below_a_shell(place: Path, line: str) -> dict[str, Any]:
    (place / "train.py").write_text(SAVING)
    return {"argv": ["/bin/sh", "-c", line.format(python=sys.executable)]}


@pytest.mark.parametrize("line", ["{python} train.py", "cd . && {python} train.py; true", "setsid {python} train.py"])
def test_killed_on_request_a_program_saves_first(tmp_path: Path, portal: Portal, line: str) -> None:
    runner = begin(tmp_path, portal, "", **below_a_shell(tmp_path, line))
    runner.send_signal(signal.SIGUSR1)
    runner.send_signal(signal.SIGUSR1)  # as the portal does that was not answered yet
    assert runner.wait(60) == 0
    assert (tmp_path / "asked").read_text() == "SIGTERM\n"
    assert (tmp_path / "last.pt").read_text() == "step 7"
    assert exit_of(tmp_path)["message"] == "killed on request"


@pytest.mark.parametrize("line", ["{python} train.py", "cd . && {python} train.py; true"])
def test_so_does_one_whose_time_is_over(tmp_path: Path, portal: Portal, line: str) -> None:
    runner = begin(tmp_path, portal, "", max_duration_s=0.2, **below_a_shell(tmp_path, line))
    assert runner.wait(60) == 0
    assert (tmp_path / "last.pt").read_text() == "step 7"
    assert exit_of(tmp_path)["reason"] == "time_limit"


def test_one_that_does_not_listen_is_ended_for_certain(tmp_path: Path, portal: Portal) -> None:
    runner = begin(tmp_path, portal, DEAF)
    runner.send_signal(signal.SIGUSR1)
    assert runner.wait(60) == 0
    assert (tmp_path / "asked").exists()
    assert exit_of(tmp_path)["message"] == "killed on request"


def test_a_good_end_after_the_question_is_still_an_end_on_request(tmp_path: Path, portal: Portal) -> None:
    runner = begin(tmp_path, portal, SAVING.replace("sys.exit(143)", "sys.exit(0)"))
    runner.send_signal(signal.SIGUSR1)
    assert runner.wait(60) == 0
    assert exit_of(tmp_path)["message"] == "killed on request"
