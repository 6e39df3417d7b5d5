"""A launch as a request to Slurm: the contents of `launch.json`, and the arguments of `sbatch`."""

from __future__ import annotations

import ipaddress
import json
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import SECRETS_FILE

from scheduling.errors import ExecutorError
from scheduling.executors.base import AcceleratorInfo, LaunchRequest
from scheduling.executors.local import launching
from scheduling.executors.local.layout import Layout
from scheduling.executors.slurm.cluster.inventory import SlurmNode
from scheduling.executors.slurm.cluster.partitions import NO_LIMITS, Partition, check_nodes, most_memory_mib, within
from scheduling.executors.slurm.launch.asking import option_words
from scheduling.executors.slurm.launch.times import time_word
from scheduling.executors.slurm.names import job_comment, job_name
from scheduling.executors.slurm.options import Options

SCRIPT = Path(__file__).with_name("job.sh")
STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a launch on one node."""

    node: SlurmNode
    indexes: tuple[int, ...]
    partition: Partition = NO_LIMITS

    @property
    def workers(self) -> int:
        return len(self.indexes)

    @property
    def gres(self) -> str:
        """By type; a node with GPUs of several types provides the planned count of each."""
        types = [self.node.gpu_types[index] for index in self.indexes]
        named = (
            f"gpu:{kind}:{types.count(kind)}" if kind else f"gpu:{types.count(kind)}" for kind in dict.fromkeys(types)
        )
        return ",".join(named)

    def cpus(self, request: LaunchRequest) -> int:
        """For each node, as requested by the job; otherwise the share of its GPUs."""
        there = within(self.node.info, self.partition).cpus
        return request.cpus or max(1, there * self.workers // len(self.node.gpu_types))

    def memory_mib(self, request: LaunchRequest) -> int:
        share = self.node.info.memory_mib * self.workers // len(self.node.gpu_types)
        return request.memory_mib or most_memory_mib(share, self.cpus(request), self.partition)

    @property
    def devices(self) -> list[AcceleratorInfo]:
        return [self.node.info.accelerators[index] for index in self.indexes]


def parts_of(
    request: LaunchRequest, nodes: Mapping[str, SlurmNode], partition: Partition = NO_LIMITS
) -> list[list[Part]]:
    """The request's nodes in groups of the same shape, each a component of the job; the larger ones first."""
    check_nodes(len([name for name, indexes in request.placement.items() if indexes]), partition)
    if request.gpu_share_percent < 100:
        raise ExecutorError("Slurm gives whole GPUs: a job that asks for a part of one cannot run here", permanent=True)
    groups: dict[tuple[str, int, int], list[Part]] = {}
    for name, indexes in sorted(request.placement.items()):
        node = nodes.get(name)
        if node is None:
            raise ExecutorError(f"Slurm has no node {name!r} with GPUs in this partition", permanent=True)
        if missing := [index for index in indexes if not 0 <= index < len(node.gpu_types)]:
            raise ExecutorError(f"node {name!r} has no accelerator {missing[0]}", permanent=True)
        part = Part(node, tuple(indexes), partition)
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
    """`nodes`: all that Slurm may choose from, if it does."""
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
    environment |= _of_person(options.person, request)
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
        # processes are limited per account, which all jobs on the nodes share
        "limits": {name: value for name, value in content["limits"].items() if name != "nproc"},
        "limits_in_words": "",
    }


def _of_person(account: str, request: LaunchRequest) -> dict[str, str]:
    """Under a person's own account: its home and its name, unless the job sets others."""
    if not account:
        return {}
    home = request.env.get("HOME", pwd.getpwnam(account).pw_dir)
    return {"HOME": home, "USER": account, "LOGNAME": account}


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _comment(request: LaunchRequest) -> str:
    return job_comment(request.job_number, request.run_id, request.epoch, request.sbatch.get("comment", ""))


def arguments(
    request: LaunchRequest,
    groups: Sequence[Sequence[Part]],
    options: Options,
    epoch_dir: Path,
    partition: Partition = NO_LIMITS,
) -> list[str]:
    """Of sbatch. They contain no secrets: everybody on the cluster can read a job's command line."""
    named = [f"--job-name={job_name(request.job_number, request.job_name)}",
             f"--comment={_comment(request)}"]  # fmt: skip
    # the directory identifies a launch in accounting if its id was lost; the script leaves it at once
    words = [*named, "--no-requeue", "--export=NONE", f"--chdir={os.fspath(epoch_dir)}",
             f"--output={os.fspath(epoch_dir / 'logs' / 'slurm.log')}", "--open-mode=append",
             f"--signal=B:TERM@{options.end_signal_s}"]  # fmt: skip
    for number, group in enumerate(groups):
        words += [":", *named] if number else []
        words += option_words(options.given, request.sbatch, first=not number)
        words += [f"--time={time}"] if (time := time_word(request, options, partition)) else []
        words += [f"--nodes={len(group)}", "--ntasks-per-node=1", f"--gres={group[0].gres}"]
        words += [f"--cpus-per-task={group[0].cpus(request)}", f"--mem={group[0].memory_mib(request)}M"]
        if options.placement == "nodes":
            words.append("--nodelist=" + ",".join(part.node.info.name for part in group))
    shared = ["027"] if options.person else []  # the umask: the portal, under another account, reads logs and artifacts
    return [*words, os.fspath(SCRIPT), os.fspath(epoch_dir), options.python, options.placement, *shared]
