"""The accelerators of this machine: by NVML, or virtual ones by declaration."""

from __future__ import annotations

import contextlib
import os
import re
import socket

import psutil

from scheduling.errors import ExecutorError, InvalidInput
from scheduling.executors.base import AcceleratorInfo, NodeInfo

_DECLARATION = re.compile(r"(?:(?P<node>[A-Za-z0-9][\w.-]*)=)?(?P<type>[a-z0-9_]+):(?P<count>\d+)")
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


def real_node() -> NodeInfo:
    """This machine with the accelerators NVML finds; none where there is no driver. ExecutorError when NVML
    does not answer for another reason, which says nothing about what is there."""
    return _node(socket.gethostname(), tuple(_nvml_accelerators()))


def _node(name: str, accelerators: tuple[AcceleratorInfo, ...]) -> NodeInfo:
    memory_mib = psutil.virtual_memory().total // 2**20
    return NodeInfo(name, accelerators, cpus=os.cpu_count() or 1, memory_mib=memory_mib)


def _nvml_accelerators() -> list[AcceleratorInfo]:
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        try:
            return [_nvml_accelerator(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return []
        raise ExecutorError(f"NVML does not say which accelerators there are: {error}", permanent=False) from error


def _nvml_accelerator(nvml: object, index: int) -> AcceleratorInfo:
    call = nvml.__getattribute__
    handle = call("nvmlDeviceGetHandleByIndex")(index)
    memory_mib = int(call("nvmlDeviceGetMemoryInfo")(handle).total) // 2**20
    name, uuid = str(call("nvmlDeviceGetName")(handle)), str(call("nvmlDeviceGetUUID")(handle))
    return AcceleratorInfo(index, type_name(name), uuid, memory_mib, emulated=False)


def type_name(product: str) -> str:
    """`NVIDIA TITAN Xp` becomes `titan_xp`."""
    short = re.sub(r"\b(nvidia|geforce|tesla|quadro)\b", "", product.lower())
    return re.sub(r"[^a-z0-9]+", "_", short).strip("_")
