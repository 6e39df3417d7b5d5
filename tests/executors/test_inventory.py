"""Real accelerators as NVML says them (played here: no machine of ours has MIG)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
from evenkeel.runner.spec import LaunchSpec

from scheduling.errors import ExecutorError
from scheduling.executors.local.machine.inventory import real_nodes

MIB = 2**20


@dataclass
class Instance:
    uuid: str
    slices: int
    mib: int
    computes: int = 0


@dataclass
class Device:
    name: str
    uuid: str
    mib: int
    mig: bool | None = None  # None: it does not know of MIG
    instances: dict[int, Instance] = field(default_factory=dict)


class Driver:
    """NVML over these devices; what it does not have it refuses as NVML does."""

    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self.devices[index]

    def nvmlDeviceGetName(self, handle: Device) -> str:
        return handle.name

    def nvmlDeviceGetUUID(self, handle: Device | Instance) -> str:
        return handle.uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Device | Instance) -> Any:
        return SimpleNamespace(total=handle.mib * MIB)

    def nvmlDeviceGetMigMode(self, handle: Device) -> list[int]:
        if handle.mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle.mig), int(handle.mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Device) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Device, place: int) -> Instance:
        if place not in handle.instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle.instances[place]

    def nvmlDeviceGetAttributes_v2(self, handle: Instance) -> Any:
        return SimpleNamespace(
            gpuInstanceSliceCount=handle.slices,
            computeInstanceSliceCount=handle.computes or handle.slices,
            memorySizeMB=handle.mib,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*devices: Device) -> Driver:
        driver = Driver(list(devices))
        for name in vars(Driver):
            if name.startswith("nvml"):
                monkeypatch.setattr(pynvml, name, getattr(driver, name))
        return driver

    monkeypatch.setattr("socket.gethostname", lambda: "oak")
    return make


def h100(uuid: str, *instances: Instance, mig: bool | None = True) -> Device:
    return Device("NVIDIA H100 80GB HBM3", uuid, 81_559, mig, dict(enumerate(instances)))


def test_a_device_in_mig_mode_is_its_instances_under_the_names_of_their_profiles(machine: Any) -> None:
    small = [Instance(f"MIG-{n}", 1, 9_984) for n in range(2)]
    machine(h100("GPU-a", *small), h100("GPU-b", Instance("MIG-9", 1, 9_984)))
    (node,) = real_nodes()
    assert {gpu.type for gpu in node.accelerators} == {"h100_80gb_hbm3_mig_1g_10gb"}
    assert [(gpu.index, gpu.uuid, gpu.memory_mib) for gpu in node.accelerators] == [
        (0, "MIG-0", 9_984), (1, "MIG-1", 9_984), (7, "MIG-9", 9_984)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("device_mib", "instance", "profile"),
    [
        (81_559, Instance("MIG-x", 1, 9_984), "1g_10gb"),
        (81_559, Instance("MIG-x", 1, 20_096), "1g_20gb"),
        (81_559, Instance("MIG-x", 2, 20_096), "2g_20gb"),
        (81_559, Instance("MIG-x", 3, 40_448), "3g_40gb"),
        (81_559, Instance("MIG-x", 7, 81_050), "7g_80gb"),
        (81_559, Instance("MIG-x", 2, 20_096, computes=1), "1c_2g_20gb"),
        (40_536, Instance("MIG-x", 1, 4_864), "1g_5gb"),
        (40_536, Instance("MIG-x", 3, 20_096), "3g_20gb"),
    ],
)
def test_profiles_are_named_as_nvidia_does(machine: Any, device_mib: int, instance: Instance, profile: str) -> None:
    machine(Device("NVIDIA A100-SXM4-40GB", "GPU-a", device_mib, True, {3: instance}))
    (node,) = real_nodes()
    assert [(gpu.index, gpu.type) for gpu in node.accelerators] == [(3, f"a100_sxm4_40gb_mig_{profile}")]


def test_each_type_is_a_node_of_its_own_that_has_its_part_of_the_machine(machine: Any) -> None:
    machine(
        h100("GPU-a", Instance("MIG-0", 3, 40_448), Instance("MIG-1", 1, 9_984)),
        h100("GPU-b", mig=False),
        Device("NVIDIA TITAN Xp", "GPU-c", 12_196),
    )
    nodes = {node.name: node for node in real_nodes()}
    assert {name: [gpu.uuid for gpu in node.accelerators] for name, node in nodes.items()} == {
        "oak": ["GPU-b"],
        "oak-titan_xp": ["GPU-c"],
        "oak-h100_80gb_hbm3_mig_3g_40gb": ["MIG-0"],
        "oak-h100_80gb_hbm3_mig_1g_10gb": ["MIG-1"],
    }
    assert all(len({gpu.type for gpu in node.accelerators}) == 1 for node in nodes.values())
    assert sum(node.memory_mib for node in nodes.values()) <= psutil.virtual_memory().total // MIB
    assert nodes["oak"].memory_mib > nodes["oak-titan_xp"].memory_mib > 0


def test_a_device_in_mig_mode_without_instances_has_nothing_to_give(machine: Any) -> None:
    machine(h100("GPU-a"), h100("GPU-b", mig=False))
    (node,) = real_nodes()
    assert [gpu.uuid for gpu in node.accelerators] == ["GPU-b"]


def test_what_nvml_refuses_otherwise_is_said(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(h100("GPU-a"))

    def refuses(handle: Device) -> list[int]:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", refuses)
    with pytest.raises(ExecutorError, match="NVML does not say"):
        real_nodes()


def test_each_worker_is_given_its_own_instance() -> None:
    """CUDA shows a program one instance, the first it is given."""
    given: dict[str, Any] = dict.fromkeys(LaunchSpec.__dataclass_fields__, "")
    given |= {
        "cuda_visible_devices": "MIG-0,MIG-1",
        "environment": {"CUDA_VISIBLE_DEVICES": "MIG-0,MIG-1"},
        "workers": 2,
    }
    assert _devices(LaunchSpec(**given)) == ["MIG-0", "MIG-1"]
    given |= {"cuda_visible_devices": "GPU-0,GPU-1", "environment": {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}}
    assert _devices(LaunchSpec(**given)) == ["GPU-0,GPU-1"] * 2


def _devices(spec: LaunchSpec) -> list[str]:
    """By worker."""
    return [spec.worker_environment(rank, spec.alone(1))["CUDA_VISIBLE_DEVICES"] for rank in range(2)]
