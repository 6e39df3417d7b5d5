"""Runners of one epoch on several nodes, here all on loopback: ranks, ends, orders, and nodes that are lost."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.channel import Door, join
from evenkeel.runner.processes import descendants, read_process
from evenkeel.runner.spec import END_OF_LEASE_S

from tests.client.test_runner import Portal, exit_of, launch, until
from tests.client.test_runner import portal as portal  # a fixture

NODES = [{"name": name, "address": "127.0.0.1", "workers": count} for name, count in (("a", 1), ("b", 2))]
WHO = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
with open("rank" + os.environ["RANK"], "w") as file:
    file.write(" ".join(os.environ[name] for name in names))
print("worker", os.environ["RANK"])
"""
SLEEP = "import os, time; open('up' + os.environ['RANK'], 'w').close(); time.sleep(600)"
#: Every rank adds its number in an all-reduce at each step.
ADDING = """
import time, torch, torch.distributed as dist, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"sums": []}
    run.init_process_group()
    for step in run.steps():
        value = torch.tensor(float(run.rank + 1))
        dist.all_reduce(value)
        state["sums"].append(float(value))
        time.sleep(0.01)
        run.save(state)
    open(f"left{run.rank}", "w").write(str(run.step))
"""
#: Makes some steps, and then answers nobody.
STUCK = """
import time, evenkeel
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(600 if step == 3 else 0.1)
"""
#: Only what is not on the first node computes.
LEANING = """
import os, time
while os.environ["RANK"] != "0":
    pass
open("up0", "w").close()
time.sleep(600)
"""
#: Only rank 0 makes steps, ten times as many as its pace asks for; nobody computes.
PACED = """
import os, time, evenkeel
if os.environ["RANK"] != "0":
    time.sleep(600)
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(0.05)
"""
GLOO = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def runners(place: Path, portal: Portal, program: str, **changes: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    head = launch(place, portal, program, nodes=NODES, **changes)
    command = [sys.executable, "-m", "evenkeel.runner", str(place / "epoch"), "--follow", "b"]
    both = [head, subprocess.Popen(command, start_new_session=True)]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            process.wait()


def test_ranks_count_through_the_nodes_and_logs_lie_together(tmp_path: Path, portal: Portal) -> None:
    with runners(tmp_path, portal, WHO) as both:
        assert [process.wait(60) for process in both] == [0, 0]
    found = [(tmp_path / f"rank{rank}").read_text() for rank in range(3)]
    assert found == ["0 0 3 1 0 127.0.0.1", "1 0 3 2 1 127.0.0.1", "2 1 3 2 1 127.0.0.1"]
    assert exit_of(tmp_path)["reason"] == "done"
    logs = [(tmp_path / "epoch" / "logs" / f"rank{rank}.log").read_text() for rank in range(3)]
    assert logs == [f"worker {rank}\n" for rank in range(3)]


def test_the_ranks_of_both_nodes_leave_at_one_step_when_asked(tmp_path: Path, portal: Portal) -> None:
    pytest.importorskip("torch")
    with runners(tmp_path, portal, ADDING, environment=GLOO) as both:
        until(lambda: portal.reports and (portal.reports[-1]["step"] or 0) > 5)
        (tmp_path / "epoch" / "stop").touch()
        assert both[0].wait(60) == 0
    ended = exit_of(tmp_path)
    assert (ended["reason"], ended["message"]) == ("stopped", "")
    assert portal.reports[-1]["checkpoint"]["step"] == ended["step"]
    manifests = (tmp_path / "checkpoints").glob("step-*/state.json")
    state = max(manifests, key=lambda path: int(path.parent.name.removeprefix("step-"))).read_text()
    assert state.count("6.0") == ended["step"]


def test_a_failure_elsewhere_ends_all_and_is_told_in_its_words(tmp_path: Path, portal: Portal) -> None:
    program = "import os, time\nif os.environ['RANK'] == '2': raise ValueError('a bad sample')\ntime.sleep(600)"
    with runners(tmp_path, portal, program) as both:
        assert both[0].wait(60) == 0
    ended = exit_of(tmp_path)
    assert (ended["reason"], ended["exit_code"]) == ("user_error", 1)
    assert ended["message"] == "worker 2 ended with code 1: ValueError: a bad sample"


def test_a_killed_worker_elsewhere_is_told_apart(tmp_path: Path, portal: Portal) -> None:
    program = "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(600)"
    with runners(tmp_path, portal, program) as both:
        assert both[0].wait(60) == 0
    assert (exit_of(tmp_path)["reason"], exit_of(tmp_path)["signal"]) == ("signal", 9)


def utilisation(portal: Portal) -> float:
    """The newest that was reported; 0.0: none yet."""
    said = [report["gpu_utilisation"] for report in portal.reports if report["gpu_utilisation"] is not None]
    assert all(len(values) == 1 and 0.0 <= values[0] <= 1.0 for values in said)
    return float(said[-1][0]) if said else 0.0


def test_the_gpus_of_all_nodes_are_in_what_is_reported(tmp_path: Path, portal: Portal) -> None:
    with runners(tmp_path, portal, LEANING, emulated_devices="3 × titan_xp"):
        until((tmp_path / "up0").exists)
        time.sleep(3.0)  # what rank 0 needed to start is no longer in its mean
        until(lambda: 0.0 < utilisation(portal) <= 0.67)  # two of three at most


def test_the_pace_that_the_first_node_keeps_counts_on_every_node(tmp_path: Path, portal: Portal) -> None:
    with runners(tmp_path, portal, PACED, emulated_devices="3 × titan_xp", pace_steps_per_s=2.0):
        until(lambda: utilisation(portal) > 0.9)


@pytest.mark.parametrize("victim", [0, 1])
def test_whoever_is_left_of_the_runners_ends_its_workers(tmp_path: Path, portal: Portal, victim: int) -> None:
    with runners(tmp_path, portal, SLEEP) as both:
        until(lambda: all((tmp_path / f"up{rank}").exists() for rank in range(3)))
        below = [child.pid for process in both for child in descendants(process.pid)]
        both[victim].send_signal(signal.SIGKILL)
        both[1 - victim].wait(60)
        until(lambda: not any((found := read_process(pid)) and found.alive for pid in below))
    if victim == 1:
        assert (exit_of(tmp_path)["reason"], exit_of(tmp_path)["message"]) == ("runner_lost", "node b was lost")
    else:
        assert not (tmp_path / "epoch" / "exit.json").exists()
    assert (tmp_path / "epoch" / "node-b" / "ended").exists() is (victim == 0)  # it says so when nothing is left there


def test_a_stop_does_not_wait_for_ranks_on_a_node_that_is_lost(tmp_path: Path, portal: Portal) -> None:
    with runners(tmp_path, portal, STUCK) as both:
        until(lambda: portal.reports and portal.reports[-1]["step"])
        (tmp_path / "epoch" / "stop").touch()
        until(lambda: portal.reports[-1]["phase"] == "checkpointing")
        both[1].kill()
        assert both[0].wait(60) == 0
    assert exit_of(tmp_path)["reason"] == "signal"


def test_killing_on_request_reaches_every_node(tmp_path: Path, portal: Portal) -> None:
    with runners(tmp_path, portal, SLEEP) as both:
        until(lambda: all((tmp_path / f"up{rank}").exists() for rank in range(3)))
        both[0].send_signal(signal.SIGUSR1)
        assert [process.wait(60) for process in both] == [0, 0]
    assert exit_of(tmp_path)["message"] == "killed on request"


def test_it_can_be_stopped_while_a_node_is_still_missing(tmp_path: Path, portal: Portal) -> None:
    head = launch(tmp_path, portal, SLEEP, nodes=NODES)
    until((tmp_path / "epoch" / "head.json").exists)
    (tmp_path / "epoch" / "stop").touch()
    assert head.wait(60) == 0
    assert (exit_of(tmp_path)["reason"], exit_of(tmp_path)["message"]) == ("stopped", "stopped before it started")


def test_without_the_portal_it_stops_with_a_checkpoint_when_its_lease_ends(tmp_path: Path, portal: Portal) -> None:
    head = launch(tmp_path, portal, lease_s=1.0)
    until(lambda: len(portal.reports) > 3)
    time.sleep(1.5)
    assert head.poll() is None
    portal.down()
    assert head.wait(60) == 0
    assert exit_of(tmp_path)["reason"] == "stopped"
    assert (tmp_path / "checkpoints" / f"step-{exit_of(tmp_path)['step']}").is_dir()


@pytest.mark.slow
def test_a_stop_that_is_under_way_is_over_soon_after_the_lease(tmp_path: Path, portal: Portal) -> None:
    """Its program does not answer; by the stop alone it would have 100 s."""
    head = launch(tmp_path, portal, STUCK, lease_s=1.0)
    until(lambda: any((report["step"] or 0) > 0 for report in portal.reports))
    (tmp_path / "epoch" / "stop").touch()
    portal.down()
    assert head.wait(1.0 + END_OF_LEASE_S + 20) == 0
    assert exit_of(tmp_path)["message"] == "it did not answer the request to stop and was ended"


def test_strangers_do_not_come_in_and_keep_nobody_out() -> None:
    door = Door("127.0.0.1", b"the token")
    with socket.create_connection(("127.0.0.1", door.port)):  # says nothing
        with pytest.raises(OSError, match="token"):
            join("127.0.0.1", door.port, b"another token", "b")
        channel = join("127.0.0.1", door.port, b"the token", "b")
        node, other = door.came.get(timeout=10)
        assert node == "b"
        other.send({"kind": "start"})
        assert channel.wait(10) == {"kind": "start"}
    channel.close()
    other.close()
    door.close()
