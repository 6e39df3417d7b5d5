"""Whatever dies, the Ray executor says which it was, nothing is left running, and what can go on goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import read_process

from scheduling.errors import ExecutorError
from scheduling.executors.base import LaunchRequest
from scheduling.executors.ray import executor as executor_module
from scheduling.executors.ray.executor import RayExecutor
from scripts.ray_cluster import NodePlan, RayCluster
from tests.executors.contract import ended, reason, until
from tests.executors.ray.conftest import connect
from tests.executors.ray.helpers import Requests, alive, epoch_dir, message, said_steps, workers_of

pytestmark = pytest.mark.slow

SLEEPER = "import time; time.sleep(600)"
#: It says which processes are its own, and leaves one behind that has a session of its own.
WITH_A_STRAY = """
import subprocess, sys, time
stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[1], "w").write(str(stray.pid))
time.sleep(600)
"""
#: What Ray itself says of placement groups, actors and free GPUs.
ASK_RAY = """
import json, sys, ray
ray.init(address=sys.argv[1], namespace=sys.argv[2], _node_ip_address=sys.argv[3], log_to_driver=False)
nodes = {row["NodeID"]: row["NodeName"] for row in ray.nodes()}
groups = [row for row in ray.util.placement_group_table().values() if row["state"] == "CREATED"]
print(json.dumps({
    "groups": [[row["name"], sorted((nodes[row["bundles_to_node_id"][index]], bundle["GPU"])
                for index, bundle in row["bundles"].items())] for row in groups],
    "actors": ray.util.list_named_actors(),
    "free": ray.available_resources().get("GPU", 0),
}))
"""


def runner_pid(cluster: RayCluster, request: LaunchRequest) -> int:
    path = epoch_dir(cluster, request) / "runner.json"
    return int(json.loads(until(lambda: path.exists() and path.read_text(), "the runner"))["pid"])


def host_pid(cluster: RayCluster, request: LaunchRequest) -> int:
    runner = read_process(runner_pid(cluster, request))
    assert runner
    return runner.ppid


def say(cluster: RayCluster) -> dict[str, Any]:
    to = cluster.connection
    command = [sys.executable, "-c", ASK_RAY, to.address, to.namespace, to.node_address]
    with cluster.network.inside():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def on(request: LaunchRequest, node: str, gpus: int = 1) -> LaunchRequest:
    return dataclasses.replace(request, placement={node: tuple(range(gpus))})


def with_stray(cluster: RayCluster, executor: RayExecutor, request_for: Requests, place: Path) -> tuple[Any, set[int]]:
    request = request_for(WITH_A_STRAY, str(place / "stray"), workers=1)
    executor.launch(request)
    stray = int(until(lambda: (place / "stray").exists() and (place / "stray").read_text(), "the stray"))
    runner = runner_pid(cluster, request)
    return request, {stray, runner, *workers_of(runner)}


def test_ray_holds_exactly_the_planned_gpus_and_gets_them_back(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    request = on(request_for(SLEEPER), "ray-2", 3)
    executor.launch(request)
    said = say(cluster)
    name = f"evenkeel.{request.run_id}.1"
    assert said["groups"] == [[name, [["ray-2", 3.0]]]]
    assert said["actors"] == [f"{name}.0"]
    assert said["free"] == 5
    executor.kill(request.run_id, 1)
    assert until(lambda: (now := say(cluster))["free"] == 8 and now, "free GPUs")["actors"] == []


def test_what_does_not_fit_is_refused_and_leaves_nothing(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    first, second = on(request_for(SLEEPER), "ray-1", 3), on(request_for(SLEEPER), "ray-1", 2)
    executor.launch(first)
    with pytest.raises(ExecutorError, match="free") as refusal:
        executor.launch(second)
    assert not refusal.value.permanent
    assert [name for name, _ in say(cluster)["groups"]] == [f"evenkeel.{first.run_id}.1"]
    executor.kill(first.run_id, 1)
    executor.launch(second)
    assert executor.observe([(second.run_id, 1)])[0].kind == "alive"


def test_it_moves_to_another_node_and_goes_on_there(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    request = request_for(None, str(place / "starts"), "0.02", total_steps=100_000)
    steps = []
    for epoch, node in ((1, "ray-1"), (2, "ray-2")):
        executor.launch(dataclasses.replace(on(request, node), epoch=epoch))
        until(partial(_trains, cluster, request, epoch), "steps")
        executor.checkpoint_and_stop(request.run_id, epoch)
        fact = ended(executor, request.run_id, epoch)
        assert reason(fact) == "stopped"
        assert fact.exit
        steps.append(fact.exit.step or 0)
    assert 0 < steps[0] < steps[1]


def test_a_killed_worker_is_told(executor: RayExecutor, cluster: RayCluster, request_for: Requests) -> None:
    request = request_for(SLEEPER, workers=2)
    executor.launch(request)
    runner = runner_pid(cluster, request)
    workers = until(lambda: (found := workers_of(runner))[1:] and found, "both workers")
    os.kill(workers[1], signal.SIGKILL)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "signal"
    assert not alive(workers[0])


def test_a_killed_runner_is_told_and_nothing_is_left(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    request, pids = with_stray(cluster, executor, request_for, place)
    os.kill(runner_pid(cluster, request), signal.SIGKILL)
    fact = ended(executor, request.run_id)
    assert (reason(fact), message(fact)) == ("runner_lost", "the runner ended without leaving a record")
    assert not any(alive(pid) for pid in pids)


def test_a_killed_actor_is_told_and_nothing_is_left(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    request, pids = with_stray(cluster, executor, request_for, place)
    os.kill(host_pid(cluster, request), signal.SIGKILL)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "runner_lost"
    assert message(fact).startswith("its actor on node ray-1 died")
    assert not any(alive(pid) for pid in pids)
    assert say(cluster)["groups"] == []


def test_ending_the_actor_by_hand_is_told(executor: RayExecutor, cluster: RayCluster, request_for: Requests) -> None:
    request = request_for(SLEEPER)
    executor.launch(request)
    to = cluster.connection
    code = f"""import ray
ray.init(address={to.address!r}, namespace={to.namespace!r}, _node_ip_address={to.node_address!r})
ray.kill(ray.get_actor("evenkeel.{request.run_id}.1.0"))"""
    with cluster.network.inside():
        subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "signal"
    assert "through Ray" in message(fact)


def test_a_lost_node_is_told_and_used_again_when_it_is_back(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    request = on(request_for(None, str(place / "starts"), "0.02", total_steps=100_000), "ray-2")
    executor.launch(request)
    said = epoch_dir(cluster, request) / "sdk" / "rank0.jsonl"
    until(lambda: said.exists() and '"checkpoint"' in said.read_text(), "a checkpoint")
    runner = runner_pid(cluster, request)
    try:
        cluster.kill_daemon("ray-2")
        fact = ended(executor, request.run_id)
        assert (reason(fact), message(fact)) == ("runner_lost", "its node ray-2 was lost")
        assert not alive(runner)
        assert [node.name for node in executor.inventory()] == ["ray-1"]
    finally:
        cluster.stop_node("ray-2")
        cluster.start_node("ray-2")
    until(lambda: len(executor.inventory()) == 2, "the node")
    executor.launch(dataclasses.replace(request, epoch=2, total_steps=20))
    assert reason(ended(executor, request.run_id, 2)) == "done"


def test_gpus_of_a_lost_node_are_held_until_nothing_can_run_there(
    cluster: RayCluster, executor: RayExecutor, request_for: Requests
) -> None:
    patient = connect(cluster, fence_s=3600)
    request = on(request_for(SLEEPER), "ray-2")
    patient.launch(request)
    try:
        cluster.kill_daemon("ray-2")
        until(lambda: len(patient.inventory()) == 1, "the loss")
        assert patient.observe([(request.run_id, 1)])[0].kind == "alive"
        with pytest.raises(ExecutorError, match="lost"):
            patient.launch(dataclasses.replace(on(request, "ray-1"), epoch=2))
    finally:
        cluster.stop_node("ray-2")
        cluster.start_node("ray-2")
    assert reason(ended(patient, request.run_id)) == "runner_lost"  # the machine is back: nothing of the run is on it


def test_rays_own_end_for_want_of_memory_is_told(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    """Its monitor takes any use of memory there for too much, so it ends what the node does: the actor."""
    scarce = {"RAY_memory_usage_threshold": "0.02", "RAY_memory_monitor_refresh_ms": "250"}
    cluster.nodes["ray-3"] = NodePlan("ray-3", "127.0.0.13", 1, variables=scarce)
    try:
        cluster.start_node("ray-3")
        until(lambda: len(executor.inventory()) == 3, "the node")
        request = on(request_for(SLEEPER), "ray-3")
        executor.launch(request)
        cluster.stop_node("ray-3")  # nobody could look round on it
        fact = ended(executor, request.run_id)
        assert reason(fact) == "out_of_memory"
        assert "ray-3" in message(fact)
    finally:
        cluster.stop_node("ray-3")
        del cluster.nodes["ray-3"]


def test_runs_outlive_the_portal_and_are_found_again_by_name(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    request = request_for(None, str(place / "starts"), "0.05", total_steps=100_000)
    executor.launch(request)
    executor.disconnect()
    said = epoch_dir(cluster, request) / "sdk" / "rank0.jsonl"
    until(lambda: said.exists(), "the program")
    before = said.stat().st_size
    until(lambda: said.stat().st_size > before, "steps without a portal")
    later = connect(cluster)
    assert later.observe([(request.run_id, 1)])[0].kind == "alive"
    later.launch(request)
    assert (place / "starts").read_text().count("started") == 1
    later.checkpoint_and_stop(request.run_id, 1)
    assert reason(ended(later, request.run_id)) == "stopped"


def test_a_cluster_that_hangs_costs_one_timeout_and_no_connection_for_ever(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(SLEEPER)
    executor.launch(request)
    [control] = cluster.pids("head", "gcs_server")
    os.kill(control, signal.SIGSTOP)
    try:
        monkeypatch.setattr(executor_module, "ASK_TIMEOUT_S", 4.0)
        began = time.monotonic()
        with pytest.raises(ExecutorError, match="does not answer") as refusal:
            executor.observe([(request.run_id, 1)])
        assert time.monotonic() - began < 60  # far from for ever; not a timing
        assert not refusal.value.permanent
    finally:
        os.kill(control, signal.SIGCONT)
        monkeypatch.undo()
    assert until(lambda: _kind(executor, request), "an answer") == "alive"


def _trains(cluster: RayCluster, request: LaunchRequest, epoch: int) -> bool:
    return said_steps(cluster, request, epoch) > 2


def _kind(executor: RayExecutor, request: LaunchRequest) -> str:
    try:
        return executor.observe([(request.run_id, 1)])[0].kind
    except ExecutorError:
        return ""


def test_a_secret_is_in_no_file_once_the_run_has_begun(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, place: Path
) -> None:
    from scheduling.executors.base import Secret

    program = "import os, sys, time; open(sys.argv[1], 'w').write(str(len(os.environ['KEY']))); time.sleep(600)"
    request = request_for(program, str(place / "said"), secrets=(Secret("key", env="KEY", value="xyzzy-plugh"),))
    executor.launch(request)
    until(lambda: (place / "said").exists() and (place / "said").read_text() == "11", "the program")
    files = [path for path in epoch_dir(cluster, request).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"xyzzy" in path.read_bytes()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
