"""A rank that leaves while one of gloo's threads still lets go of a tensor ends as its program says."""

from __future__ import annotations

import os
import subprocess
import sys

from evenkeel.runner.workers import free_port

#: Rank 1 has dropped its tensor before rank 0 takes part, so that one of gloo's threads drops the last reference. It
#: is held there at work without the interpreter's lock, and needs it again once the interpreter is being finalized.
PROGRAM = """
import hashlib, os, sys, threading, time, torch, torch.distributed as dist, evenkeel

class Held:
    begun, over = threading.Event(), False

    def __del__(self):
        self.begun.set()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
        Held.over = True

class Last:
    def __del__(self, sleep=time.sleep, held=Held):  # of the modules nothing is left
        sleep(0 if held.over else 5)

dropped, drop = os.pipe()
child = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if child else "1"
with evenkeel.training() as run:
    run.init_process_group()
    value = torch.ones(1)
    if child:
        os.read(dropped, 1)
        dist.all_reduce(value)
    else:
        value.held, sys.last = Held(), Last()
        dist.all_reduce(value, async_op=True)
        del value
        os.write(drop, b".")
        assert Held.begun.wait(60)
if child:
    print(f"rank 1 ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
else:
    print("rank 1 leaves")
    sys.exit(7)
"""


def test_a_rank_ends_as_its_program_says_while_gloo_lets_go_of_a_tensor() -> None:
    environment = os.environ | {
        "EVENKEEL_TOTAL_STEPS": "1",
        "EVENKEEL_BATCH_SIZE": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["rank 1 leaves", "rank 1 ended with 7"], done.stderr
