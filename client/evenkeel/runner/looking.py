"""Examinations of this machine in processes of their own: a driver in trouble answers late or never."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from evenkeel.program_output import shown_lines
from evenkeel.runner.devices import Row, row

PROGRAM = "evenkeel.runner.devices"
MAX_WORDS = 300
#: For the driver of a node with many devices that nothing keeps awake.
TIMEOUT_S = 20.0


def examined(arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None) -> list[Row]:
    """What `devices` finds: of these UUIDs, or as `of_node` would have it."""
    code, said = run_apart(["-m", PROGRAM, *arguments], timeout_s, environment)
    found: list[Row] = [json.loads(line) for line in said.split("\n") if line.startswith("{")]
    if code == 0:
        return found
    last = " ".join(shown_lines(said.encode())[-1:])[-MAX_WORDS:] or f"code {code}"
    after = f", after {found[-1]['subject']}" if found else ""
    seen = f"no answer within {timeout_s:.0f} s{after}" if code is None else last
    return [*found, row("device examination", seen, ok=False, fix="see `dmesg`; restart the machine")]


def of_node(count: int, *, hides: bool = False, timeout_s: float = TIMEOUT_S) -> list[Row]:
    """Of the devices of this machine, of which the engine declares `count`. `hides`: it shows processes only those
    that they hold, so that one which holds none cannot tell a hidden device from one that is gone."""
    return examined(["--node", str(count), *(["--hides"] if hides else [])], timeout_s)


def run_apart(
    arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """(exit code, what it printed) of this interpreter; no code where it was ended for taking too long."""
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=max(0.1, timeout_s))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, where no signal reaches it
            return None, process.communicate(timeout=5.0)[0]
        return None, ""
    return process.returncode, said
