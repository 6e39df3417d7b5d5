"""What is to be run: `launch.json`, and the environment and program of each worker."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from evenkeel.runner.files import parse_json, read_plain
from evenkeel.runner.interfaces import interface_towards
from evenkeel.runner.slurm_variables import job_variables, task_variables, with_slurms_commands

#: From the end of a lease until nothing of a run is left for certain: 30 s for its checkpoint, 10 s to end.
END_OF_LEASE_S = 45.0
#: In the directory of a node that follows: nothing of the run is left there.
ENDED_FILE = "ended"
#: Variables that take effect only when an interpreter starts; a program that sets them starts cold.
_COLD_PREFIXES = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "GOMP_", "KMP_", "TORCH_")
_WARM_EXCEPTIONS = {"PYTHONUNBUFFERED", "OMP_NUM_THREADS"}
_PLAIN_SHELL_LINE = re.compile(r"[\w@%+:,./=-]+( +[\w@%+:,./=-]+)*")


MAX_LAUNCH_BYTES, MAX_LAUNCH_NODES = 16 << 20, 200_000


@dataclass(frozen=True, slots=True)
class Place:
    """Which ranks a node's workers are, and where they all meet."""

    first_rank: int
    world_size: int
    master_address: str
    master_port: int
    group_rank: int = 0
    sdk_dir: str | None = None  # None: that of the epoch


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """`launch.json`: the executor's LaunchRequest and what it worked out from it."""

    job_id: str
    run_id: str
    epoch: int
    argv: list[str]
    shell: bool
    workdir: str
    workers: int
    cuda_visible_devices: str  # empty: no CUDA
    environment: dict[str, str]  # of every worker, complete but for its rank
    env: dict[str, str]  # the part of it that the job asked for
    total_steps: int
    max_duration_s: float | None
    memory_mib: int | None
    api_url: str
    report_interval_s: float
    limits: dict[str, int]
    log_bytes: int
    secret_variables: list[str]  # their names
    emulated_devices: str  # "2 × titan_xp"; empty: real ones
    pace_steps_per_s: float | None
    limits_in_words: str  # what holds processors and memory where no control group does; empty: nothing is limited
    gpu_sharing: str  # how it shares its GPUs with others, a sentence; empty: it does not
    gpu_share_percent: int = 100  # of each of its devices
    device_memory_mib: int = 0  # of its smallest device; 0: not known
    sample_interval_s: float = 5.0  # at which the use of resources is read; 0: never
    #: Where a launch spans several nodes, each as {"name", "address", "workers"}; the first one's runner leads.
    nodes: Sequence[dict[str, Any]] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)  # of nodes that the engine may choose
    engine_picks_devices: bool = False  # which GPUs it is comes in the runner's own CUDA_VISIBLE_DEVICES
    checkpoint_store: Mapping[str, Any] | None = None  # scheduling.executors.base.CheckpointStore; None: there is none
    data: Mapping[str, Any] | None = None  # scheduling.executors.base.Data, and project_key; None: it names none
    modules: Sequence[str] = ()  # of the site, to be loaded before workers start
    image: str | None = None  # that the program runs in, by `container_tool`
    container_tool: str = ""
    container: Sequence[str] = ()  # what stands before the program's words then
    starts_cold: bool = False
    node_name: str = ""  # of a run on one node, where the engine may name it otherwise than the machine does
    lease_s: float | None = None  # without the portal's answer for so long it checkpoints and stops; None: never

    @classmethod
    def read(cls, epoch_dir: Path) -> LaunchSpec:
        content: dict[str, Any] = parse_json(read_plain(epoch_dir / "launch.json", MAX_LAUNCH_BYTES), MAX_LAUNCH_NODES)
        known = {one.name: content[one.name] for one in fields(cls) if one.name in content or _is_needed(one)}
        return cls(**known)._in_slurm()._with_devices()._with_nodes()

    def _in_slurm(self) -> LaunchSpec:
        """The job's own variables count more than Slurm's."""
        path = with_slurms_commands(self.environment["PATH"]) if "PATH" in self.environment else ""
        own = self.environment | ({"PATH": path} if path else {})
        return replace(self, environment=job_variables(os.environ) | own)

    def _with_devices(self) -> LaunchSpec:
        if not self.engine_picks_devices:
            return self
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return replace(
            self, cuda_visible_devices=visible, environment=self.environment | {"CUDA_VISIBLE_DEVICES": visible}
        )

    def _with_nodes(self) -> LaunchSpec:
        """EVENKEEL_NODE names the node that leads, EVENKEEL_NODES all of them where the engine has chosen them."""
        nodes, chosen = list(self.nodes), os.environ.get("EVENKEEL_NODES", "").split()
        if nodes and len(chosen) == len(nodes):
            addressed = [(name, self.addresses.get(name, name)) for name in chosen]
            pairs = zip(nodes, addressed, strict=True)
            nodes = [node | {"name": name, "address": address} for node, (name, address) in pairs]
        leading = os.environ.get("EVENKEEL_NODE")
        nodes.sort(key=lambda node: leading is not None and node["name"] != leading)
        return replace(self, nodes=nodes, workers=int(nodes[0]["workers"])) if nodes else self

    @property
    def node(self) -> str:
        """The name of the node that leads, as the engine gave it or the machine has it."""
        named = self.nodes[0]["name"] if self.nodes else self.node_name
        return os.environ.get("EVENKEEL_NODE") or named or socket.gethostname()

    def with_checkpoints_in(self, directory: Path) -> LaunchSpec:
        return self.with_variables({"EVENKEEL_CHECKPOINT_DIR": str(directory)})

    def with_variables(self, variables: Mapping[str, str]) -> LaunchSpec:
        return replace(self, environment=self.environment | dict(variables))

    def alone(self, port: int) -> Place:
        return Place(0, self.workers, "127.0.0.1", port)

    def first_lines(self) -> str:
        """What every log begins with where the devices are not what their names say, or not the run's alone."""
        lines = []
        if self.emulated_devices:
            pace = f"at most {self.pace_steps_per_s:.4g} steps/s" if self.pace_steps_per_s else "without a given pace"
            lines.append(f"emulated: {self.emulated_devices}, computed on this machine's processors, {pace}")
        if self.gpu_sharing:
            lines.append(self.gpu_sharing)
        return "".join(f"[evenkeel] {line}\n" for line in lines)

    def words(self) -> list[str]:
        """The program as words: a shell line without shell syntax is one program with its arguments. What is there in
        an image is not known here."""
        if self.shell and not self.container and _PLAIN_SHELL_LINE.fullmatch(self.argv[0].strip()):
            words = shlex.split(self.argv[0])
            return words if "=" not in words[0] and shutil.which(words[0], path=self.environment["PATH"]) else []
        return [] if self.shell else self.argv

    @property
    def is_guarded(self) -> bool:
        """bwrap ends by a signal, and its program with it, where the program would have saved a checkpoint."""
        return bool(self.container) and self.container_tool == "bwrap"

    def command(self) -> list[str]:
        return [*self.container, *(self.words() or ["/bin/sh", "-c", self.argv[0]])]

    def worker_environment(self, local_rank: int, place: Place) -> dict[str, str]:
        given = (
            self._way_to_others(place)
            | self._as_task(local_rank, place)
            | self.environment
            | self._own_instance(local_rank)
            | {
                "MASTER_ADDR": place.master_address,
                "MASTER_PORT": str(place.master_port),
                "RANK": str(place.first_rank + local_rank),
                "LOCAL_RANK": str(local_rank),
                "WORLD_SIZE": str(place.world_size),
                "LOCAL_WORLD_SIZE": str(self.workers),
                "GROUP_RANK": str(place.group_rank),
            }
        )
        return given if place.sdk_dir is None else given | {"EVENKEEL_SDK_DIR": place.sdk_dir}

    def _as_task(self, local_rank: int, place: Place) -> dict[str, str]:
        workers = [int(node["workers"]) for node in self.nodes] or [self.workers]
        rank = place.first_rank + local_rank
        return task_variables(
            os.environ, rank=rank, local_rank=local_rank, node=place.group_rank, world_size=place.world_size,
            workers=workers,
        )  # fmt: skip

    def _way_to_others(self, place: Place) -> dict[str, str]:
        """Gloo tells other nodes the address of this one's host name, which is that of loopback on many machines."""
        if place.world_size == self.workers:
            return {}
        name = interface_towards(node["address"] for node in self.nodes)
        return {"GLOO_SOCKET_IFNAME": name} if name else {}

    def _own_instance(self, local_rank: int) -> dict[str, str]:
        """CUDA shows a program the first MIG instance that it is given and no other: each worker is given its own."""
        devices = self.cuda_visible_devices.split(",")
        return {"CUDA_VISIBLE_DEVICES": devices[local_rank]} if devices[0].startswith("MIG-") else {}

    # Warm start

    def python_arguments(self) -> list[str] | None:
        """Arguments of the interpreter if the program is a script or module of this very interpreter
        that an already running one can take over; otherwise None."""
        if self.modules or self.image or self.starts_cold:
            return None
        words = self.words()
        if not words or not _is_this_python(words[0], self.environment["PATH"]):
            return None
        if any(
            name.startswith(_COLD_PREFIXES) and name not in _WARM_EXCEPTIONS
            for name in [*self.env, *self.secret_variables]
        ):
            return None
        arguments = words[1:]
        while arguments[:1] == ["-u"]:
            arguments = arguments[1:]
        is_module = len(arguments) > 1 and arguments[0] == "-m"
        return arguments if is_module or (arguments and not arguments[0].startswith("-")) else None

    def mentions_sdk(self) -> bool:
        """Whether the program's own file speaks of the SDK: then it says itself when it is ready."""
        words = shlex.split(self.argv[0], comments=False) if self.shell and _balanced(self.argv[0]) else self.argv
        for before, word in zip(["", *words], words, strict=False):
            path = _module_file(word, self.workdir) if before == "-m" else Path(self.workdir, word)
            if path.suffix == ".py" and path.is_file() and "evenkeel" in path.read_text(errors="replace"):
                return True
        return False


def _is_needed(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _is_this_python(word: str, path: str) -> bool:
    found = shutil.which(word, path=path)
    if not found or not re.fullmatch(r"python(3(\.[0-9]+)?)?", os.path.basename(found)):  # noqa: PTH119
        return False
    here = Path(sys.executable).parent
    return Path(found).parent.resolve() == here.resolve()


def _balanced(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def _module_file(name: str, workdir: str) -> Path:
    if name.startswith("evenkeel."):
        return Path(__file__)
    place = Path(workdir, *name.split("."))
    return place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
