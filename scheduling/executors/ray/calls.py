"""The agent's calls to Ray. Only this module and its process import it.

A run's epoch is a placement group `evenkeel.RUN.EPOCH` with a bundle of GPUs for each of its nodes, and in each bundle
an actor `evenkeel.RUN.EPOCH.RANK`; both are detached, so they outlive their creator and are found again by name.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from evenkeel.runner import hosting
from evenkeel.runner.looking import TIMEOUT_S as GPUS_TIMEOUT_S
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from scheduling.errors import ExecutorError
from scheduling.executors.ray.deaths import explain
from scheduling.executors.ray.inventory import gpu_count
from scheduling.executors.ray.link import Connection

PREFIX = "evenkeel."
NODE_ID_LABEL = "ray.io/node-id"
PLACE_TIMEOUT_S = 15.0  # a placement group that fits is ready in milliseconds
LOOK_TIMEOUT_S = 3.0
RELEASE_TIMEOUT_S = 10.0
END_TIMEOUT_S = hosting.KILL_GRACE_S + hosting.DEATH_TIMEOUT_S + 5.0


def group_name(run: str) -> str:
    return f"{PREFIX}{run}"


def host_name(run: str, rank: int) -> str:
    return f"{PREFIX}{run}.{rank}"


class Calls:
    """`run` is RUN.EPOCH throughout; `nodes` are `{"rank", "name", "node_id", "address", "gpus"}` of it."""

    @classmethod
    def connect(cls, connection: Connection) -> Calls:
        options: dict[str, Any] = {"_node_ip_address": connection.node_address} if connection.node_address else {}
        ray.init(
            address=connection.address,
            namespace=connection.namespace,
            log_to_driver=False,
            logging_level=logging.WARNING,
            **options,
        )
        return cls()

    def __init__(self) -> None:
        self._host_class = ray.remote(hosting.Host)
        self._sweep = ray.remote(hosting.sweep)
        self._probe = ray.remote(hosting.probe)

    def carry_out(self, call: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        known: dict[str, Callable[..., Any]] = {
            "version": self.version,
            "nodes": self.nodes,
            "probe": self.probe,
            "launch": self.launch,
            "look": self.look,
            "ask_to_end": self.ask_to_end,
            "end": self.end,
        }
        if call not in known:
            raise ExecutorError(f"the agent knows no call {call!r}", permanent=True)
        if call in ("launch", "probe"):
            arguments = arguments | {"timeout_s": timeout_s}
        return known[call](**arguments)

    def version(self) -> dict[str, str]:
        """`cluster`: changes if the head was restarted without its state."""
        found = {"ray": ray.__version__}
        with contextlib.suppress(AttributeError):
            found["cluster"] = ray._private.worker.global_worker.gcs_client.cluster_id.hex()
        return found

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "id": row["NodeID"],
                "name": row.get("NodeName") or row["NodeManagerAddress"],
                "address": row["NodeManagerAddress"],
                "alive": bool(row["Alive"]),
                "resources": row.get("Resources") or {},
                "labels": row.get("Labels") or {},
            }
            for row in ray.nodes()
        ]

    def names(self) -> list[str]:
        """Of all living hosts in the namespace."""
        return [name for name in ray.util.list_named_actors() if name.startswith(PREFIX)]

    # Launching

    def launch(self, run: str, epoch_dir: str, nodes: list[dict[str, Any]], timeout_s: float) -> list[str]:
        """The actors' ids once every runner has started or ended, or its actor died: `look` tells how. Existing ones
        are reused, and nothing starts twice. Without enough GPUs, nothing is left behind."""
        give_up_at = time.monotonic() + timeout_s
        group = self._group(run, nodes)
        if not group.wait(min(PLACE_TIMEOUT_S, timeout_s / 2)):
            self.release(run, [int(node["rank"]) for node in nodes])
            raise ExecutorError("Ray has not got these GPUs free: something else holds them", permanent=False)
        hosts = [self._host(run, epoch_dir, group, index, node) for index, node in enumerate(nodes)]
        self._await_begin(hosts, give_up_at)
        return [host._actor_id.hex() for host in hosts]

    def _group(self, run: str, nodes: list[dict[str, Any]]) -> Any:
        with contextlib.suppress(ValueError):
            return ray.util.get_placement_group(group_name(run))
        return placement_group(
            [{"GPU": int(node["gpus"])} for node in nodes],
            strategy="PACK",
            name=group_name(run),
            lifetime="detached",
            bundle_label_selector=[{NODE_ID_LABEL: node["node_id"]} for node in nodes],
        )

    def _host(self, run: str, epoch_dir: str, group: Any, index: int, node: dict[str, Any]) -> Any:
        return self._host_class.options(
            name=host_name(run, int(node["rank"])),
            lifetime="detached",
            get_if_exists=True,
            num_gpus=int(node["gpus"]),
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
        ).remote(epoch_dir, node["name"] if int(node["rank"]) else None)

    def _await_begin(self, hosts: Sequence[Any], give_up_at: float) -> None:
        waiting = list(hosts)
        while waiting:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                raise ExecutorError("the runner did not begin in time", permanent=False)
            refs = {host.look.remote(): host for host in waiting}
            ready, late = ray.wait(list(refs), num_returns=len(refs), timeout=left_s)
            waiting = [refs[ref] for ref in late] + [refs[ref] for ref in ready if _is_beginning(ref)]
            time.sleep(0.02 if waiting else 0)

    # Observing

    def look(self, hosts: dict[str, str | None]) -> dict[str, dict[str, Any]]:
        """For each name (with its actor's id if known): `state` is `alive` (with the host's data), `silent` (it lives
        but does not answer), `dead` (with `kind` and `text`) or `absent`."""
        living = set(self.names())
        asked = {name: self._named(name) for name in hosts if name in living}
        refs = {handle.look.remote(): name for name, handle in asked.items() if handle is not None}
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=LOOK_TIMEOUT_S) if refs else ([], [])
        found: dict[str, dict[str, Any]] = {}
        for ref in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                name = refs[ref]
                found[name] = {"state": "alive", "actor_id": asked[name]._actor_id.hex(), **ray.get(ref)}
        for name, actor_id in hosts.items():
            if name not in found:
                found[name] = self._unanswered(name in living, actor_id)
        return found

    @staticmethod
    def _named(name: str) -> Any:
        with contextlib.suppress(ValueError):
            return ray.get_actor(name)
        return None

    def _unanswered(self, living: bool, actor_id: str | None) -> dict[str, Any]:
        """From Ray's table of actors, which keeps dead ones."""
        row = ray._private.state.actors(actor_id) if actor_id else {}
        if row.get("State") == "DEAD":
            kind, text = explain(row["DeathCause"])
            return {"state": "dead", "kind": kind, "text": text, "node_id": row["Address"]["NodeID"]}
        return {"state": "silent" if living or row else "absent"}

    # Ending

    def ask_to_end(self, run: str, epoch_dir: str, nodes: list[dict[str, Any]]) -> bool:
        """Has the first node's runner end the program everywhere; True if that takes longer than most programs do. A
        runner that cannot be asked has no program that could save anything."""
        handle, give_up_at = self._named(host_name(run, 0)), time.monotonic() + hosting.KILL_GRACE_S
        if handle is None:
            return False
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(handle.ask_to_end.remote(), timeout=LOOK_TIMEOUT_S)
            while ray.get(handle.look.remote(), timeout=LOOK_TIMEOUT_S)["running"]:
                if time.monotonic() > give_up_at:
                    return True
                time.sleep(0.1)
        return False

    def end(self, run: str, epoch_dir: str, nodes: list[dict[str, Any]]) -> list[int]:
        """End every process of the epoch and release its GPUs. Returns ranks of lost nodes, whose processes are
        unknown; ExecutorError if a reachable process does not end. A machine whose daemon was restarted is reachable
        again."""
        alive = {row["id"]: row for row in self.nodes() if row["alive"]}
        anew = {row["address"]: row["id"] for row in alive.values()}
        refs: dict[Any, dict[str, Any]] = {}
        for node in nodes:
            handle = self._named(host_name(run, int(node["rank"])))
            if handle is not None and node["node_id"] in alive:
                refs[handle.end.remote()] = node
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=END_TIMEOUT_S) if refs else ([], [])
        clean = {int(refs[ref]["rank"]) for ref in ready if _says_true(ref)}
        self.release(run, [int(node["rank"]) for node in nodes])
        by_id = {
            int(node["rank"]): node["node_id"] if node["node_id"] in alive else anew.get(node["address"])
            for node in nodes
        }
        self._sweep_nodes(epoch_dir, [found for rank, found in by_id.items() if found and rank not in clean])
        return [rank for rank, found in by_id.items() if not found]

    def _sweep_nodes(self, epoch_dir: str, node_ids: Sequence[str]) -> None:
        refs = [
            self._sweep.options(
                num_cpus=0,
                max_retries=2,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            ).remote(epoch_dir)
            for node_id in node_ids
        ]
        ready, late = ray.wait(refs, num_returns=len(refs), timeout=END_TIMEOUT_S) if refs else ([], [])
        if late or not all(_says_true(ref) for ref in ready):
            raise ExecutorError("processes of the run on its node do not end", permanent=False)

    def release(self, run: str, ranks: list[int]) -> None:
        """Remove actors and placement group; returns once Ray has released the names."""
        for rank in ranks:
            handle = self._named(host_name(run, rank))
            if handle is not None:
                ray.kill(handle, no_restart=True)
        with contextlib.suppress(ValueError):
            remove_placement_group(ray.util.get_placement_group(group_name(run)))
        names = {host_name(run, rank) for rank in ranks}
        give_up_at = time.monotonic() + RELEASE_TIMEOUT_S
        while names & set(self.names()):
            if time.monotonic() > give_up_at:
                raise ExecutorError("Ray does not let go of the run's actors", permanent=False)
            time.sleep(0.02)

    # Checking

    def probe(
        self,
        shared: str,
        nonce: str,
        api_url: str,
        timeout_s: float,
        data_cache_dir: str,
        only: str | None = None,
        real: bool = False,
        kept: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """For each living node, or the one with the id `only`: its own data and, if GPUs are `real`, that of its GPUs,
        with the times of question and answer; `problem` if it does not answer."""
        gpus_timeout_s = min(GPUS_TIMEOUT_S, timeout_s * 0.5)
        rows = [row for row in self.nodes() if row["alive"] and only in (None, row["id"])]
        asked_at = time.time()
        refs = {
            self._probe.options(
                num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(row["id"], soft=False)
            ).remote(
                shared, nonce, api_url, data_cache_dir, row["name"], gpu_count(row) if real else 0, gpus_timeout_s, kept
            ): row
            for row in rows
        }
        give_up_at, found, waiting = time.monotonic() + timeout_s * 0.8, [], list(refs)
        while waiting and time.monotonic() < give_up_at:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.1, give_up_at - time.monotonic()))
            for ref in ready:
                answered_at = time.time()
                try:
                    said = ray.get(ref)
                except ray.exceptions.RayError as error:
                    said = {"problem": " ".join(str(error).split())[-300:]}
                found.append({**refs[ref], **said, "asked_at": asked_at, "answered_at": answered_at})
        return found + [{**refs[ref], "problem": "it does not answer"} for ref in waiting]


def _is_beginning(ref: Any) -> bool:
    with contextlib.suppress(ray.exceptions.RayError):
        seen = ray.get(ref)
        return bool(seen["running"] and not seen["begun"])
    return False


def _says_true(ref: Any) -> bool:
    with contextlib.suppress(ray.exceptions.RayError):
        return bool(ray.get(ref))
    return False
