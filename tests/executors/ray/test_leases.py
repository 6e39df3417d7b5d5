"""Whose GPUs of a lost node are held for how long, with a Ray that says what it is told to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.spec import END_OF_LEASE_S

from scheduling.executors.base import LaunchRequest
from scheduling.executors.ray import executor as executor_module
from scheduling.executors.ray.executor import RayExecutor
from scheduling.executors.ray.verdict import FORGOTTEN
from tests.executors.contract import reason, requests_for

LEASE_S = 100.0


class Scripted:
    """In place of the process that speaks to Ray."""

    def __init__(self, *_: Any) -> None:
        self.sight: dict[str, Any] = {"state": "alive", "running": True}
        self.lost: set[str] = set()
        self.cluster = "one"

    def ask(self, call: str, timeout_s: float, **arguments: Any) -> Any:
        match call:
            case "nodes":
                row = {"alive": True, "resources": {"GPU": 2.0}, "labels": {}}
                return [row | {"id": name, "name": name, "address": name} for name in ("a", "b")]
            case "version":
                return {"ray": "2.60.0", "cluster": self.cluster}
            case "look":
                return dict.fromkeys(arguments["hosts"], self.sight)
            case "launch":
                return [node["name"] for node in arguments["nodes"]]
            case "end":
                return [node["rank"] for node in arguments["nodes"] if node["name"] in self.lost]
        raise AssertionError(call)

    def lose(self, *nodes: str) -> None:
        self.sight, self.lost = {"state": "dead", "kind": "node"}, set(nodes)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    made = Scripted()
    monkeypatch.setattr(executor_module, "Link", lambda *_: made)
    return made


@pytest.fixture
def executor(ray: Scripted, tmp_path: Path) -> RayExecutor:
    return RayExecutor(tmp_path, "head:6379", emulated=True, lease_s=LEASE_S)


@pytest.fixture
def request_(executor: RayExecutor, tmp_path: Path) -> LaunchRequest:
    made = requests_for(executor, tmp_path)(placement={"a": (0,)})
    executor.launch(made)
    return made


def test_without_a_word_gpus_are_held_until_the_lease_is_over(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    ray.sight = {"state": "silent"}
    assert kind(executor, request_) == "alive"
    silent = tmp_path / "run" / "ray" / f"{request_.run_id}.1.silent"
    ray.lose("a")
    assert kind(executor, request_) == "alive"
    assert (epoch_dir(tmp_path, request_) / "stop").exists()  # where the directory is still seen there
    lost = silent.with_suffix(".lost")
    age(lost, executor_module.END_OF_STOP_S + 1)
    age(silent, LEASE_S + END_OF_LEASE_S - 1)
    assert kind(executor, request_) == "alive"
    age(silent, LEASE_S + END_OF_LEASE_S + 1)
    age(lost, executor_module.END_OF_STOP_S - 1)  # the portal may have reached it until its node was lost
    assert kind(executor, request_) == "alive"
    age(lost, executor_module.END_OF_STOP_S + 1)
    [fact] = executor.observe([(request_.run_id, 1)])
    assert reason(fact) == "runner_lost"


def test_reports_that_the_portal_took_later_renew_the_lease(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    ray.lose("a")
    assert kind(executor, request_) == "alive"
    launch, over_s = (request_.run_id, 1), LEASE_S + END_OF_LEASE_S
    marks = tmp_path / "run" / "ray"
    age(marks / f"{request_.run_id}.1.silent", over_s + 30)
    age(marks / f"{request_.run_id}.1.lost", over_s + 30)
    for ago_s, expected in ((over_s - 1, "alive"), (over_s + 1, "exited")):
        [fact] = executor.observe([launch], {launch: time.time() - ago_s})
        assert fact.kind == expected


def test_an_answer_begins_the_silence_anew(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    mark = tmp_path / "run" / "ray" / f"{request_.run_id}.1.silent"
    for state, marked in (("silent", True), ("alive", False), ("silent", True)):
        ray.sight = {"state": state, "running": True}
        assert kind(executor, request_) == "alive"
        assert mark.exists() is marked


def test_the_word_of_a_runner_alone_on_its_node_frees_its_gpus(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    ray.lose("a")
    assert kind(executor, request_) == "alive"
    (epoch_dir(tmp_path, request_) / "exit.json").write_text(json.dumps({"reason": "stopped", "step": 7}))
    [fact] = executor.observe([(request_.run_id, 1)])
    assert reason(fact) == "stopped"


def test_the_word_of_the_witness_of_its_end_frees_its_gpus(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    ray.lose("a")
    assert kind(executor, request_) == "alive"
    (epoch_dir(tmp_path, request_) / "ended").touch()
    [fact] = executor.observe([(request_.run_id, 1)])
    assert (reason(fact), fact.exit and fact.exit.message) == ("runner_lost", "its node a was lost")


def test_the_word_of_the_first_of_several_does_not_speak_for_the_other_nodes(
    executor: RayExecutor, ray: Scripted, tmp_path: Path
) -> None:
    made = requests_for(executor, tmp_path)(placement={"a": (0,), "b": (0,)})
    executor.launch(made)
    ray.lose("a", "b")
    (epoch_dir(tmp_path, made) / "exit.json").write_text(json.dumps({"reason": "stopped", "step": 7}))
    assert kind(executor, made) == "alive"


def test_a_lost_node_that_is_not_the_first_ends_with_the_first(
    executor: RayExecutor, ray: Scripted, tmp_path: Path
) -> None:
    made = requests_for(executor, tmp_path)(placement={"a": (0,), "b": (0,)})
    executor.launch(made)
    ray.lose("b")
    assert kind(executor, made) == "alive"
    age(tmp_path / "run" / "ray" / f"{made.run_id}.1.lost", executor_module.END_OF_STOP_S + 1)
    assert kind(executor, made) == "exited"


def test_the_word_of_each_lost_node_frees_the_gpus_of_a_gang(
    executor: RayExecutor, ray: Scripted, tmp_path: Path
) -> None:
    made = requests_for(executor, tmp_path)(placement={"a": (0,), "b": (0,)})
    executor.launch(made)
    ray.lose("a", "b")
    node = epoch_dir(tmp_path, made) / "node-b"
    node.mkdir()
    (node / "ended").touch()
    assert kind(executor, made) == "alive"
    (epoch_dir(tmp_path, made) / "exit.json").write_text(json.dumps({"reason": "stopped", "step": 7}))
    assert kind(executor, made) == "exited"


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (None, ("runner_lost", FORGOTTEN)),
        ({"reason": "signal", "signal": 9, "alleged": False}, ("runner_lost", FORGOTTEN)),
        ({"reason": "stopped", "step": 7}, ("stopped", FORGOTTEN)),
        ({"reason": "done", "step": 9}, ("done", "")),
    ],
)
def test_what_a_new_head_does_not_know_ends_as_that_and_as_no_fault_of_nodes_or_jobs(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path, left: Any, expected: tuple[str, str]
) -> None:
    (epoch_dir(tmp_path, request_) / "runner.json").write_text("{}")
    ray.cluster, ray.sight = "another", {"state": "absent"}
    ray.lost = {"a"}  # its daemon still lives and belongs to no cluster
    assert kind(executor, request_) == "alive"
    assert (epoch_dir(tmp_path, request_) / "stop").exists()
    if left is not None:
        (epoch_dir(tmp_path, request_) / "exit.json").write_text(json.dumps(left))
    ray.lost = set()
    [fact] = executor.observe([(request_.run_id, 1)])
    assert fact.exit is not None
    assert (fact.exit.reason, fact.exit.message) == expected
    if expected[0] == "runner_lost":
        assert (fact.exit.alleged, fact.exit.is_nodes_fault) == (False, False)


def test_what_the_same_head_does_not_know_is_another_thing(
    executor: RayExecutor, request_: LaunchRequest, ray: Scripted, tmp_path: Path
) -> None:
    (epoch_dir(tmp_path, request_) / "runner.json").write_text("{}")
    ray.sight = {"state": "absent"}
    [fact] = executor.observe([(request_.run_id, 1)])
    assert fact.exit is not None
    assert (fact.exit.alleged, "does not know" in fact.exit.message) == (True, True)


def kind(executor: RayExecutor, request: LaunchRequest) -> str:
    [fact] = executor.observe([(request.run_id, 1)])
    return fact.kind


def epoch_dir(data: Path, request: LaunchRequest) -> Path:
    return data / "jobs" / request.job_id / "runs" / request.run_id / "1"


def age(mark: Path, seconds: float) -> None:
    os.utime(mark, (time.time() - seconds,) * 2)
