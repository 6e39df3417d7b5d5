"""What Ray's table of nodes is read as; no cluster is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduling.executors.base import AcceleratorInfo
from scheduling.executors.ray.inventory import nodes_of


def row(name: str = "a", address: str = "10.0.0.1", **changes: Any) -> dict[str, Any]:
    found = {"id": address, "name": name, "address": address, "alive": True, "labels": {}, "resources": {"GPU": 2.0}}
    return found | changes


def gpus(**changes: Any) -> tuple[AcceleratorInfo, ...]:
    [(_, node)] = nodes_of([row(**changes)]).values()
    return node.accelerators


@pytest.mark.parametrize(
    ("label", "resource", "expected"),
    [
        ("", "NVIDIA-TITAN-Xp", "titan_xp"),
        ("", "V100", "v100"),
        ("", "A100-80G", "a100_80g"),
        ("H100", "V100", "h100"),  # the label is the newer of the two
        ("", "", "gpu"),
    ],
)
def test_the_type_is_the_label_else_the_resource(label: str, resource: str, expected: str) -> None:
    labels = {"ray.io/accelerator-type": label} if label else {}
    resources = {"CPU": 8.0, "GPU": 2.0} | ({f"accelerator_type:{resource}": 1.0} if resource else {})
    assert [gpu.type for gpu in gpus(labels=labels, resources=resources)] == [expected] * 2


@pytest.mark.parametrize(
    ("said", "memory_mib"), [("12196", 12_196), ("", 0), ("12 GiB", 0), ("-1", 0), ("1" * 9, 0), (None, 0)]
)
def test_the_memory_of_a_gpu_is_what_its_label_says(said: str | None, memory_mib: int) -> None:
    labels = {} if said is None else {"evenkeel.io/gpu-memory-mib": said}
    assert [gpu.memory_mib for gpu in gpus(labels=labels)] == [memory_mib] * 2


def test_processors_and_memory_are_those_that_ray_counts() -> None:
    resources = {"GPU": 1.0, "CPU": 16.0, "memory": 64.0 * 2**30, "object_store_memory": 2.0**30}
    [(_, node)] = nodes_of([row(resources=resources)]).values()
    assert (node.cpus, node.memory_mib) == (16, 65_536)


@pytest.mark.parametrize("name", ["", "10.0.0.1", "../a", "a b", "x" * 101])
def test_a_node_without_a_usable_name_has_its_address(name: str) -> None:
    assert list(nodes_of([row(name)])) == ["10.0.0.1"]


def test_two_nodes_of_one_name_have_their_addresses() -> None:
    found = nodes_of([row("a", "10.0.0.2"), row("b", "10.0.0.3"), row("a", "10.0.0.1")])
    assert [(name, node.name, ray["id"]) for name, (ray, node) in found.items()] == [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.2", "10.0.0.2"),
        ("b", "b", "10.0.0.3"),
    ]
    ids = [gpu.uuid for _, node in found.values() for gpu in node.accelerators]
    assert len(set(ids)) == 6


def test_a_name_is_free_again_once_its_node_is_dead_or_where_the_other_has_no_gpus() -> None:
    dead = row("a", "10.0.0.2", alive=False)
    head = row("a", "10.0.0.3", resources={"CPU": 4.0})
    assert list(nodes_of([dead, head, row("a", "10.0.0.1")])) == ["a"]


def test_the_agent_says_the_address_of_a_node_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from scheduling.executors.ray import calls

    table = [{"NodeID": "1", "NodeManagerAddress": "10.0.0.1", "Alive": True, "Resources": {"GPU": 1.0}}]
    monkeypatch.setattr(calls, "ray", SimpleNamespace(nodes=lambda: table))
    said = calls.Calls.nodes(SimpleNamespace())  # type: ignore[arg-type]
    assert [(node["name"], node["labels"]) for node in said] == [("10.0.0.1", {})]
    assert list(nodes_of(said)) == ["10.0.0.1"]
