"""Plans a launch on Ray's nodes: which nodes and how many GPUs, and the files for the runners."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import SECRETS_FILE
from evenkeel.runner.hosting import PLAN

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import AcceleratorInfo, LaunchRequest, NodeInfo, Software
from scheduling.executors.local import launching
from scheduling.executors.local.layout import Layout
from scheduling.executors.ray.records import Place

#: By our name: Ray's row, and the node.
Nodes = Mapping[str, tuple[Mapping[str, Any], NodeInfo]]


def planned(request: LaunchRequest, nodes: Nodes) -> list[Place]:
    """The place of each part of the launch, on the cluster as it is now; ExecutorError if there is none."""
    places = []
    for rank, (name, indexes) in enumerate(sorted(request.placement.items())):
        if name not in nodes:
            raise ExecutorError(f"there is no node {name!r} in the Ray cluster now", permanent=False)
        row, info = nodes[name]
        missing = [index for index in indexes if index >= len(info.accelerators)]
        if missing:
            raise ExecutorError(f"node {name!r} has no accelerator {missing[0]}", permanent=True)
        places.append(Place(rank, name, row["id"], row["address"], len(indexes)))
    if not any(place.gpus for place in places):
        raise ExecutorError("the placement names no accelerator", permanent=True)
    return places


def write_plan(
    layout: Layout,
    request: LaunchRequest,
    epoch_dir: Path,
    places: Sequence[Place],
    nodes: Nodes,
    lease_s: float | None,
    software: Software,
) -> None:
    """Everything that hosts and runners read; the first host makes `launch.json` from the plan."""
    devices = [nodes[place.name][1].accelerators[index] for place in places for index in request.placement[place.name]]
    try:
        launching.make_job_dir(layout, request.job_id, Account(None))
        (epoch_dir / "launch.json").unlink(missing_ok=True)  # of an attempt that did not get its GPUs
        more = _beyond_one_machine(places, devices, lease_s) | {"container_tool": software.container_tool}
        launching.prepare(layout, request, devices, epoch_dir, partial(_amended, more=more), PLAN)
        if request.secrets:
            secrets = json.dumps([asdict(secret) for secret in request.secrets])
            launching.write_private(epoch_dir / SECRETS_FILE, secrets)
    except (OSError, KeyError) as error:
        permanent = isinstance(error, PermissionError)
        raise ExecutorError(f"cannot prepare the run: {error}", permanent=permanent) from error


def _beyond_one_machine(
    places: Sequence[Place], devices: Sequence[AcceleratorInfo], lease_s: float | None
) -> dict[str, Any]:
    """Additional values of `LaunchSpec` for runners on several nodes."""
    nodes = [{"name": place.name, "address": place.address, "workers": place.gpus} for place in places]
    return {
        "workers": places[0].gpus,
        "nodes": nodes if len(nodes) > 1 else [],
        "node_name": places[0].name,
        "engine_picks_devices": not all(device.emulated for device in devices),
        "lease_s": lease_s,
    }


def _amended(content: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Emulated devices rendezvous by loopback, unless they are on several machines."""
    environment = dict(content["environment"])
    if any(not node["address"].startswith("127.") for node in more["nodes"]):
        environment.pop("GLOO_SOCKET_IFNAME", None)
    return content | more | {"environment": environment}
