"""Whether jobs can run on a node of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from scheduling.executors.base import AcceleratorInfo, Finding, NodeCheck, NodeInfo
from scheduling.executors.local import devices, storage
from scheduling.executors.local.launching import own_environment
from scheduling.executors.local.layout import Layout

#: What a runner imports, and a computation whose result we know.
RUNNER = (
    "import hashlib, evenkeel.runner.engine; print(hashlib.pbkdf2_hmac('sha256', b'evenkeel', b'node', 1000).hex())"
)
EXPECTED = hashlib.pbkdf2_hmac("sha256", b"evenkeel", b"node", 1000).hex()
MAX_WORDS = 300


def check_node(layout: Layout, nodes: Sequence[NodeInfo], wish: NodeCheck) -> Iterator[Finding]:
    give_up_at = time.monotonic() + wish.timeout_s
    node = next((node for node in nodes if node.name == wish.node), None)
    if node is None or not node.accelerators:
        yield Finding("devices", False, "no accelerators of this node are on this machine", "check the NVIDIA driver")
        return
    yield storage.can_be_written(layout.jobs)
    yield storage.free_space(layout.jobs, wish.min_free_mib)
    yield _runner(give_up_at - time.monotonic())
    if node.accelerators[0].emulated:
        yield Finding("devices", True, f"{len(node.accelerators)} emulated: there is nothing to ask", known=False)
    else:
        yield from _devices(node.accelerators, give_up_at - time.monotonic())


def _runner(timeout_s: float) -> Finding:
    """The interpreter, the client package and the processor, as a launch uses them."""
    code, said = _run(["-c", RUNNER], timeout_s)
    right = code == 0 and said.strip() == EXPECTED
    words = "no answer in time" if code is None else said.strip()[-MAX_WORDS:] or f"code {code}"
    seen = "it starts and computes" if right else f"{sys.executable}: {words}"
    return Finding("runner", right, seen, "make the environment anew: `make env`")


def _devices(accelerators: Sequence[AcceleratorInfo], timeout_s: float) -> Iterator[Finding]:
    code, said = _run([devices.__file__, *(device.uuid for device in accelerators)], timeout_s)
    found = [Finding(**json.loads(line)) for line in said.splitlines() if line.startswith("{")]
    yield from found
    if code != 0:
        last = " ".join(said.splitlines()[-1:])[-MAX_WORDS:]
        after = f", after {found[-1].subject}" if found else ""
        seen = f"no answer within {timeout_s:.0f} s{after}" if code is None else last
        yield Finding("device examination", False, seen, "see `dmesg`; restart the machine")


def _run(arguments: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """(exit code, what it printed); no code where it was ended for taking too long."""
    process = subprocess.Popen(
        [sys.executable, *arguments], env=own_environment(), cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
    )  # fmt: skip
    with process:
        try:
            said, _ = process.communicate(timeout=max(0.1, timeout_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate(timeout=5.0)
            return None, said
    return process.returncode, said
