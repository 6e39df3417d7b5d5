"""The accelerators of this machine: from NVML, or declared virtual ones."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from dataclasses import replace
from math import ceil
from typing import Any

import psutil
from evenkeel.runner.devices import mig_instances

from scheduling.errors import ExecutorError, InvalidInput
from scheduling.executors.base import AcceleratorInfo, NodeInfo

_DECLARATION = re.compile(r"(?:(?P<node>[A-Za-z0-9][\w.-]*)=)?(?P<type>[a-z0-9_]+):(?P<count>[0-9]+)")
MAX_VIRTUAL = 1024


def declared_nodes(declaration: str, memory_mib: int) -> tuple[NodeInfo, ...]:
    """`titan_xp:6`, or several nodes: `a=titan_xp:6,b=v100:4`."""
    nodes: list[NodeInfo] = []
    for part in declaration.split(","):
        match = _DECLARATION.fullmatch(part.strip())
        if not match or not 1 <= int(match["count"]) <= MAX_VIRTUAL:
            raise InvalidInput(f"virtual accelerators {part.strip()!r}: expected type:count or node=type:count")
        name = match["node"] or socket.gethostname()
        if any(node.name == name for node in nodes):
            raise InvalidInput(f"virtual accelerators: node {name!r} is declared twice")
        accelerators = tuple(
            AcceleratorInfo(index, match["type"], f"virtual-{name}-{index}", memory_mib, emulated=True)
            for index in range(int(match["count"]))
        )
        nodes.append(_node(name, accelerators))
    return tuple(nodes)


def real_nodes() -> tuple[NodeInfo, ...]:
    """This machine with the accelerators found by NVML; none without a driver. Devices in MIG mode are represented by
    their instances. A node has accelerators of one type: each further type is a separate node, named after it, and CPUs
    and memory are divided by the memory of the devices. ExecutorError if NVML fails for another reason, which says
    nothing about the devices."""
    by_type: dict[str, list[AcceleratorInfo]] = {}
    for accelerator in _nvml_accelerators():
        by_type.setdefault(accelerator.type, []).append(accelerator)
    host = socket.gethostname()
    if len(by_type) < 2:
        return (_node(host, tuple(accelerator for found in by_type.values() for accelerator in found)),)
    size = sum(accelerator.memory_mib for found in by_type.values() for accelerator in found) or 1
    nodes = []
    for number, (kind, found) in enumerate(by_type.items()):
        part = sum(accelerator.memory_mib for accelerator in found) / size
        node = _node(f"{host}-{kind}" if number else host, tuple(found))
        nodes.append(replace(node, cpus=max(1, int(node.cpus * part)), memory_mib=int(node.memory_mib * part)))
    return tuple(nodes)


def _node(name: str, accelerators: tuple[AcceleratorInfo, ...]) -> NodeInfo:
    memory_mib = psutil.virtual_memory().total // 2**20
    return NodeInfo(name, accelerators, cpus=os.cpu_count() or 1, memory_mib=memory_mib)


def _nvml_accelerators() -> list[AcceleratorInfo]:
    """Whole devices first."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            found = [_of_device(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index), index) for index in range(count)]
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return []
        raise ExecutorError(f"NVML does not say which accelerators there are: {error}", permanent=False) from error
    wholes = [whole for whole, _ in found if whole is not None]
    return wholes + [instance for _, instances in found for instance in instances]


def _of_device(nvml: Any, handle: Any, index: int) -> tuple[AcceleratorInfo | None, list[AcceleratorInfo]]:
    """The device, or in MIG mode its instances, possibly none."""
    places = mig_instances(nvml, handle)
    if places is None:
        return _accelerator(nvml, handle, index, nvml.nvmlDeviceGetName(handle)), []
    most, instances = nvml.nvmlDeviceGetMaxMigDeviceCount(handle), []
    for place, instance in places.items():
        name = f"{nvml.nvmlDeviceGetName(handle)} MIG {_mig_profile(nvml, handle, instance)}"
        instances.append(_accelerator(nvml, instance, index * most + place, name))
    return None, instances


def _mig_profile(nvml: Any, device: Any, instance: Any) -> str:
    """`1g.10gb`, or `1c.2g.20gb` if it computes on a part of its slices, named as in NVIDIA's tools: memory counts in
    eighths of the device's."""
    attributes = nvml.nvmlDeviceGetAttributes_v2(instance)
    slices, computes = int(attributes.gpuInstanceSliceCount), int(attributes.computeInstanceSliceCount)
    total_mib = int(nvml.nvmlDeviceGetMemoryInfo(device).total) / 2**20
    eighths = ceil(8 * int(attributes.memorySizeMB) / total_mib)
    part = "" if computes == slices else f"{computes}c."
    return f"{part}{slices}g.{round(eighths / 8 * ceil(total_mib / 1024))}gb"


def _accelerator(nvml: Any, handle: Any, index: int, name: str) -> AcceleratorInfo:
    memory_mib = int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20
    return AcceleratorInfo(index, type_name(str(name)), str(nvml.nvmlDeviceGetUUID(handle)), memory_mib, emulated=False)


def type_name(product: str) -> str:
    """`NVIDIA TITAN Xp` becomes `titan_xp`."""
    short = re.sub(r"\b(nvidia|geforce|tesla|quadro)\b", "", product.lower())
    return re.sub(r"[^a-z0-9]+", "_", short).strip("_")
