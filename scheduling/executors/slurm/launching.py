"""A launch as Slurm is asked for it: what goes into `launch.json`, and the words of `sbatch`."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import SECRETS_FILE

from scheduling.errors import ExecutorError
from scheduling.executors.base import AcceleratorInfo, LaunchRequest
from scheduling.executors.local import launching
from scheduling.executors.local.layout import Layout, checked_name
from scheduling.executors.slurm.inventory import SlurmNode
from scheduling.executors.slurm.options import Options

SCRIPT = Path(__file__).with_name("job.sh")
NAME_PREFIX = "evenkeel-"
STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin"


def job_name(run_id: str, epoch: int) -> str:
    return f"{NAME_PREFIX}{run_id}-{int(epoch)}"


def launch_of(name: str) -> tuple[str, int] | None:
    """The run and epoch of a job's name."""
    run_id, _, epoch = name.removeprefix(NAME_PREFIX).rpartition("-")
    if not name.startswith(NAME_PREFIX) or not (epoch.isascii() and epoch.isdecimal()) or len(epoch) > 9:
        return None
    try:
        return checked_name(run_id), int(epoch)
    except ExecutorError:
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """What a launch takes of one node."""

    node: SlurmNode
    indexes: tuple[int, ...]

    @property
    def workers(self) -> int:
        return len(self.indexes)

    @property
    def gres(self) -> str:
        """By type; a node with GPUs of several types gives what the plan counts of each."""
        types = [self.node.gpu_types[index] for index in self.indexes]
        named = (
            f"gpu:{kind}:{types.count(kind)}" if kind else f"gpu:{types.count(kind)}" for kind in dict.fromkeys(types)
        )
        return ",".join(named)

    def cpus(self, request: LaunchRequest) -> int:
        """As the job asks, of each node; otherwise what falls to its GPUs."""
        return request.cpus or max(1, self.node.info.cpus * self.workers // len(self.node.gpu_types))

    def memory_mib(self, request: LaunchRequest) -> int:
        return request.memory_mib or self.node.info.memory_mib * self.workers // len(self.node.gpu_types)

    @property
    def devices(self) -> list[AcceleratorInfo]:
        return [self.node.info.accelerators[index] for index in self.indexes]


def parts_of(request: LaunchRequest, nodes: Mapping[str, SlurmNode]) -> list[list[Part]]:
    """The request's nodes in groups of the same shape, each a component of the job; the larger ones first."""
    if request.gpu_share_percent < 100:
        raise ExecutorError("Slurm gives whole GPUs: a job that asks for a part of one cannot run here", permanent=True)
    groups: dict[tuple[str, int, int], list[Part]] = {}
    for name, indexes in sorted(request.placement.items()):
        node = nodes.get(name)
        if node is None:
            raise ExecutorError(f"Slurm has no node {name!r} with GPUs in this partition", permanent=True)
        if missing := [index for index in indexes if not 0 <= index < len(node.gpu_types)]:
            raise ExecutorError(f"node {name!r} has no accelerator {missing[0]}", permanent=True)
        part = Part(node, tuple(indexes))
        if indexes:
            shape = (part.gres, part.cpus(request), part.memory_mib(request))
            groups.setdefault(shape, []).append(part)
    if not groups:
        raise ExecutorError("the placement names no accelerator", permanent=True)
    return sorted(groups.values(), key=lambda parts: (-parts[0].workers, parts[0].node.info.name))


def prepare(
    layout: Layout,
    request: LaunchRequest,
    groups: Sequence[Sequence[Part]],
    options: Options,
    epoch_dir: Path,
    nodes: Mapping[str, SlurmNode],
) -> None:
    """`nodes`: all that Slurm may choose from, where it does."""
    addresses = {name: node.address for name, node in nodes.items()} if options.placement == "delegate" else {}
    parts = [part for group in groups for part in group]
    devices = [device for part in parts for device in part.devices]

    def amend(content: dict[str, Any]) -> dict[str, Any]:
        return content | _amended(content, request, parts, options) | {"addresses": addresses}

    launching.prepare(layout, request, devices, epoch_dir, amend)
    if request.secrets:
        text = json.dumps([asdict(secret) for secret in request.secrets])
        launching.write_private(epoch_dir / SECRETS_FILE, text)


def _amended(
    content: Mapping[str, Any], request: LaunchRequest, parts: Sequence[Part], options: Options
) -> dict[str, Any]:
    environment = dict(content["environment"])
    environment["PATH"] = f"{Path(options.python).parent}:{STANDARD_PATH}"
    nodes = [{"name": part.node.info.name, "address": part.node.address, "workers": part.workers} for part in parts]
    if "OMP_NUM_THREADS" not in request.env and not options.emulated:
        environment["OMP_NUM_THREADS"] = str(max(1, parts[0].cpus(request) // parts[0].workers))
    if "GLOO_SOCKET_IFNAME" not in request.env and not all(_is_loopback(part.node.address) for part in parts):
        environment.pop("GLOO_SOCKET_IFNAME", None)
    return {
        "environment": environment,
        "workers": parts[0].workers,
        "nodes": nodes if len(parts) > 1 else [],
        "engine_picks_devices": not options.emulated,
        "lease_s": options.lease_s,
        "container_tool": options.software.container_tool,
        # Processes are counted per account, and on the nodes that is everybody's.
        "limits": {name: value for name, value in content["limits"].items() if name != "nproc"},
        "limits_in_words": "",
    }


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def arguments(request: LaunchRequest, groups: Sequence[Sequence[Part]], options: Options, epoch_dir: Path) -> list[str]:
    """Of sbatch. Nothing of them is a secret: everybody on the cluster can read a job's command line."""
    words = [f"--job-name={job_name(request.run_id, request.epoch)}", "--no-requeue", "--export=NONE",
             f"--comment=evenkeel job {request.job_number} run {request.run_id} epoch {int(request.epoch)}",
             f"--output={os.fspath(epoch_dir / 'logs' / 'slurm.log')}", "--open-mode=append", "--chdir=/",
             f"--signal=B:TERM@{options.end_signal_s}"]  # fmt: skip
    for number, group in enumerate(groups):
        words += [":", f"--job-name={job_name(request.run_id, request.epoch)}"] if number else []
        words += [*options.arguments(), f"--nodes={len(group)}", "--ntasks-per-node=1", f"--gres={group[0].gres}"]
        words += [f"--cpus-per-task={group[0].cpus(request)}", f"--mem={group[0].memory_mib(request)}M"]
        if options.placement == "nodes":
            words.append("--nodelist=" + ",".join(part.node.info.name for part in group))
    return [*words, os.fspath(SCRIPT), os.fspath(epoch_dir), options.python, options.placement]
