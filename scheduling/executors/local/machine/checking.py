"""Whether jobs can run on a node of this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence

from evenkeel.runner.looking import examined, run_apart

from scheduling.executors.base import Finding, NodeCheck, NodeInfo
from scheduling.executors.local.environment import own_environment
from scheduling.executors.local.layout import Layout
from scheduling.executors.local.machine import storage

#: A runner's imports, and a computation with a known result.
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
        uuids = [device.uuid for device in node.accelerators]
        for row in examined(uuids, give_up_at - time.monotonic(), own_environment()):
            yield Finding(**row)


def built_in_programs() -> Finding:
    """Whether what they import is there; jobs that run commands of their own may need none of it."""
    lacking = [module for module in ("torch", "sklearn") if importlib.util.find_spec(module) is None]
    seen = f"{' and '.join(lacking)} not found, so jobs with `model` will fail" if lacking else "PyTorch is there"
    fix = "pip install -r requirements-local.lock, or `make env` without EVENKEEL_LOCAL=0"
    return Finding("built-in programs", True, seen, fix, warning=bool(lacking))


def _runner(timeout_s: float) -> Finding:
    """The interpreter, the client package and the processor, as a launch uses them."""
    code, said = run_apart(["-c", RUNNER], timeout_s, own_environment())
    right = code == 0 and said.strip() == EXPECTED
    words = "no answer in time" if code is None else said.strip()[-MAX_WORDS:] or f"code {code}"
    seen = "it starts and computes" if right else f"{sys.executable}: {words}"
    return Finding("runner", right, seen, "make the environment anew: `make env`")
