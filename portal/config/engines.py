"""The executor of a cluster and its options, from the environment; docs/executors.md lists the variables."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portal.config import env
from portal.config.datasets import DataSettings, read_data_settings
from portal.config.stores import StoreSettings, module_for_nodes, read_checkpoint_store
from scheduling.executors.base import NO_SOFTWARE, Software

EXECUTORS = ("local", "ray", "slurm")
#: Tools that also run images of registries; the others run images stored on the nodes.
FETCHING_TOOLS = frozenset({"apptainer", "singularity"})


@dataclass(frozen=True, slots=True)
class Engine:
    """How one cluster runs its jobs."""

    executor: str
    options: dict[str, Any]
    #: Contains `jobs/`, written by runs, and `environments/`.
    job_files: Path
    checkpoint_store: StoreSettings | None
    datasets: DataSettings
    emulated: bool
    #: The settings that EVENKEEL_CLUSTERS has for it, by the names that stand there.
    said: frozenset[str] = frozenset()

    @property
    def runs_as_person(self) -> bool:
        """Each job runs under the Unix account of the person who submitted it."""
        return self.options.get("run_as") == "person"

    @property
    def software(self) -> Software:
        found: Software = self.options.get("software", NO_SOFTWARE)
        return found


def read_engine(executor: str, data: Path, accounts_file: Path) -> Engine:
    """`data`: the folder of the cluster's files unless its settings name another. `accounts_file`: for the whole
    machine, so that projects of two clusters never share an account."""
    datasets = read_data_settings(executor, data)
    options = read_options(executor, data)
    if executor == "local":
        files, emulated = env.folder("EVENKEEL_LOCAL_DIR", data), bool(options["virtual_accelerators"])
        options |= {"data_dir": files, "accounts_file": accounts_file}
    else:
        files, emulated = options["shared_dir"], bool(options["emulated"])
    return Engine(executor, options, files, read_checkpoint_store(executor), datasets, emulated)


def read_options(executor: str, data: Path) -> dict[str, Any]:
    """What the executor is made with."""
    readers = {"local": read_local_options, "ray": read_ray_options, "slurm": read_slurm_options}
    return readers[executor](data)


def read_local_options(data: Path) -> dict[str, Any]:
    return {
        "data_dir": data,
        "data_cache_dir": read_data_settings("local", data).cache_dir,
        "software": read_software(),
        "virtual_accelerators": env.virtual_accelerators("EVENKEEL_VIRTUAL_ACCELERATORS"),
        "accounts_registry": read_accounts_registry(),
        **read_run_network(),
    }


def read_run_network() -> dict[str, Any]:
    """Whether each project has its own network for its runs, and which ports of the machine's loopback device are open
    to it."""
    return {
        "run_network": env.choice("EVENKEEL_RUN_NETWORK"),
        "loopback_ports": env.ports("EVENKEEL_RUN_LOOPBACK_PORTS"),
    }


def read_accounts_registry() -> Path:
    """Separates the accounts of several portals on one machine: the same file for all of them."""
    return env.folder("EVENKEEL_ACCOUNTS_REGISTRY")


def read_ray_options(data: Path) -> dict[str, Any]:
    return {
        "data_dir": data,
        "shared_dir": env.folder("EVENKEEL_SHARED_DIR", data, of="ray"),
        "address": env.text("EVENKEEL_RAY_ADDRESS"),
        "namespace": env.text("EVENKEEL_RAY_NAMESPACE"),
        "node_address": env.text("EVENKEEL_RAY_NODE_ADDRESS"),
        "tls_cert": env.text("EVENKEEL_RAY_TLS_CERT"),
        "tls_key": env.text("EVENKEEL_RAY_TLS_KEY"),
        "tls_ca": env.text("EVENKEEL_RAY_TLS_CA"),
        "emulated": env.flag("EVENKEEL_EMULATED", of="ray"),
        "token_file": env.text("EVENKEEL_RAY_TOKEN_FILE"),
        "store_module": module_for_nodes(),
        "software": read_software(),
        "data_cache_dir": env.text("EVENKEEL_DATA_CACHE_DIR"),
        "fence_s": _ray_fence_s(),
        "lease_s": env.number("EVENKEEL_LEASE_S"),
    }


def read_software() -> Software:
    return Software(env.flag("EVENKEEL_MODULES"), env.choice("EVENKEEL_CONTAINER_TOOL"))


def _ray_fence_s() -> float | None:
    """None, if unset: as long as the lease requires."""
    return env.number("EVENKEEL_RAY_FENCE_S") if env.said("EVENKEEL_RAY_FENCE_S") else None


def read_slurm_options(data: Path) -> dict[str, Any]:
    return {
        "shared_dir": env.folder("EVENKEEL_SHARED_DIR", data, of="slurm"),
        "partition": env.text("EVENKEEL_SLURM_PARTITION"),
        "account": env.text("EVENKEEL_SLURM_ACCOUNT"),
        "qos": env.text("EVENKEEL_SLURM_QOS"),
        "reservation": env.text("EVENKEEL_SLURM_RESERVATION"),
        "time_limit": env.text("EVENKEEL_SLURM_TIME"),
        "placement": env.choice("EVENKEEL_SLURM_PLACEMENT"),
        "python": env.text("EVENKEEL_SLURM_PYTHON", sys.executable),
        "conf": env.text("EVENKEEL_SLURM_CONF"),
        "emulated": env.flag("EVENKEEL_EMULATED", of="slurm"),
        "gpu_memory_mib": env.integer("EVENKEEL_SLURM_GPU_MEMORY_MIB"),
        "store_module": module_for_nodes(),
        "software": read_software(),
        "data_cache_dir": env.text("EVENKEEL_DATA_CACHE_DIR"),
        "look_s": env.number("EVENKEEL_SLURM_LOOK_S"),
        "end_signal_s": env.integer("EVENKEEL_SLURM_END_SIGNAL_S"),
        **_read_run_as(),
        "lease_s": env.number("EVENKEEL_LEASE_S"),
    }


def _read_run_as() -> dict[str, Any]:
    """None if jobs run under the portal's account."""
    if env.choice("EVENKEEL_SLURM_RUN_AS") == "portal":
        return {}
    return {
        "run_as": "person",
        "helper": env.text("EVENKEEL_SLURM_HELPER"),
        "section": env.text("EVENKEEL_SLURM_HELPER_SECTION"),
        "min_uid": read_account_min_uid(),
    }


def read_account_min_uid() -> int:
    return env.integer("EVENKEEL_ACCOUNT_MIN_UID")
