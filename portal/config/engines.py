"""Which executor runs the jobs of a cluster, and what it is told, from the environment; docs/executors.md lists the
variables."""

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
#: Those that run images of registries, too; the others run what lies on the nodes.
FETCHING_TOOLS = frozenset({"apptainer", "singularity"})
CONTAINER_TOOLS = ("apptainer", "singularity", "ch-run", "bwrap")


@dataclass(frozen=True, slots=True)
class Engine:
    """How one cluster runs its jobs."""

    executor: str
    options: dict[str, Any]
    #: Below it lie `jobs/`, what runs wrote, and `environments/`.
    job_files: Path
    checkpoint_store: StoreSettings | None
    datasets: DataSettings
    emulated: bool

    @property
    def runs_as_person(self) -> bool:
        """Each job has the UNIX account of the person who submitted it."""
        return self.options.get("run_as") == "person"

    @property
    def software(self) -> Software:
        found: Software = self.options.get("software", NO_SOFTWARE)
        return found


def read_engine(executor: str, data: Path, accounts_file: Path) -> Engine:
    """`data`: where the cluster's files lie unless its settings say otherwise. `accounts_file`: of the whole machine,
    so that no account is given to projects of two clusters."""
    datasets = read_data_settings(executor, data)
    if executor == "local":
        own = {"accounts_file": accounts_file, "data_cache_dir": datasets.cache_dir}
        options = read_local_options(data) | own
        files, emulated = options["data_dir"], bool(options["virtual_accelerators"])
    else:
        options = read_ray_options(data) if executor == "ray" else read_slurm_options(data)
        files, emulated = options["shared_dir"], bool(options["emulated"])
    return Engine(executor, options, files, read_checkpoint_store(executor), datasets, emulated)


def read_local_options(data: Path) -> dict[str, Any]:
    return {
        "data_dir": env.folder("EVENKEEL_LOCAL_DIR", data),
        "software": read_software(),
        "virtual_accelerators": env.virtual_accelerators("EVENKEEL_VIRTUAL_ACCELERATORS"),
        "accounts_registry": read_accounts_registry(),
        **read_run_network(),
    }


def read_run_network() -> dict[str, Any]:
    """Whether the runs of a project have a network of their own, and what of the machine's loopback device it has."""
    return {
        "run_network": env.choice("EVENKEEL_RUN_NETWORK", "auto", "own", "machine"),
        "loopback_ports": env.ports("EVENKEEL_RUN_LOOPBACK_PORTS"),
    }


def read_accounts_registry() -> Path:
    """What keeps the accounts of several portals on one machine apart: for all of them the same."""
    return env.folder("EVENKEEL_ACCOUNTS_REGISTRY", Path("/var/lib/evenkeel/accounts"))


def read_ray_options(data: Path) -> dict[str, Any]:
    return {
        "data_dir": data,
        "shared_dir": env.folder("EVENKEEL_RAY_SHARED_DIR", data),
        "address": env.text("EVENKEEL_RAY_ADDRESS"),
        "namespace": env.text("EVENKEEL_RAY_NAMESPACE", "evenkeel"),
        "node_address": env.text("EVENKEEL_RAY_NODE_ADDRESS"),
        "tls_cert": env.text("EVENKEEL_RAY_TLS_CERT"),
        "tls_key": env.text("EVENKEEL_RAY_TLS_KEY"),
        "tls_ca": env.text("EVENKEEL_RAY_TLS_CA"),
        "emulated": env.flag("EVENKEEL_RAY_EMULATED"),
        "token_file": env.text("EVENKEEL_RAY_TOKEN_FILE"),
        "store_module": module_for_nodes(),
        "software": read_software(),
        "data_cache_dir": env.text("EVENKEEL_DATA_CACHE_DIR"),
        "fence_s": _ray_fence_s(),
        "lease_s": env.number("EVENKEEL_LEASE_S", 600, minimum=30, maximum=86_400),
    }


def read_software() -> Software:
    return Software(env.flag("EVENKEEL_MODULES"), env.choice("EVENKEEL_CONTAINER_TOOL", "", *CONTAINER_TOOLS))


def _ray_fence_s() -> float | None:
    """None, where nothing is set: as long as the lease demands."""
    if not env.text("EVENKEEL_RAY_FENCE_S"):
        return None
    return env.number("EVENKEEL_RAY_FENCE_S", 0, minimum=0, maximum=3_600)


def read_slurm_options(data: Path) -> dict[str, Any]:
    return {
        "shared_dir": env.folder("EVENKEEL_SLURM_SHARED_DIR", data),
        "partition": env.text("EVENKEEL_SLURM_PARTITION"),
        "account": env.text("EVENKEEL_SLURM_ACCOUNT"),
        "qos": env.text("EVENKEEL_SLURM_QOS"),
        "reservation": env.text("EVENKEEL_SLURM_RESERVATION"),
        "time_limit": env.text("EVENKEEL_SLURM_TIME"),
        "placement": env.choice("EVENKEEL_SLURM_PLACEMENT", "nodes", "delegate"),
        "python": env.text("EVENKEEL_SLURM_PYTHON", sys.executable),
        "conf": env.text("EVENKEEL_SLURM_CONF"),
        "emulated": env.flag("EVENKEEL_SLURM_EMULATED"),
        "gpu_memory_mib": env.integer("EVENKEEL_SLURM_GPU_MEMORY_MIB", 0, minimum=0, maximum=10_000_000),
        "store_module": module_for_nodes(),
        "software": read_software(),
        "data_cache_dir": env.text("EVENKEEL_DATA_CACHE_DIR"),
        "look_s": env.number("EVENKEEL_SLURM_LOOK_S", 20, minimum=0, maximum=60),
        "end_signal_s": env.integer("EVENKEEL_SLURM_END_SIGNAL_S", 120, minimum=10, maximum=65_535),
        **_read_run_as(),
        "lease_s": env.number("EVENKEEL_LEASE_S", 600, minimum=30, maximum=86_400),
    }


def _read_run_as() -> dict[str, Any]:
    """Nothing where jobs run as the portal's account."""
    if env.choice("EVENKEEL_SLURM_RUN_AS", "portal", "person") == "portal":
        return {}
    return {
        "run_as": "person",
        "helper": env.text("EVENKEEL_SLURM_HELPER", "/usr/local/libexec/evenkeel-run-as"),
        "section": env.text("EVENKEEL_SLURM_HELPER_SECTION", "default"),
        "min_uid": read_account_min_uid(),
    }


def read_account_min_uid() -> int:
    return env.integer("EVENKEEL_ACCOUNT_MIN_UID", 1000, minimum=100, maximum=2_000_000_000)
