"""Runs jobs on an existing Ray cluster (docs/executors.md).

State is in files that portal and nodes share, as for the local executor, and in Ray's own tables; this object has none.
All calls to Ray go through a separate process (`link`), each with a time limit.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import SECRETS_FILE
from evenkeel.runner.files import exists
from evenkeel.runner.grace import KILL_AFTER_S
from evenkeel.runner.spec import END_OF_LEASE_S, ENDED_FILE
from evenkeel.runner.trees import remove_tree

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import (
    NO_RENEWALS,
    NO_SOFTWARE,
    NOTHING_KEPT,
    ExitInfo,
    Fact,
    Finding,
    Kept,
    LaunchRequest,
    NodeCheck,
    NodeInfo,
    Preparation,
    Progress,
    Renewals,
    Software,
    Spooled,
)
from scheduling.executors.local import environment, facts, preparing
from scheduling.executors.local.apart import apart, each_epoch, log_apart
from scheduling.executors.local.layout import Layout, RunRecord, checked_name
from scheduling.executors.local.machine import storage
from scheduling.executors.local.spooling import is_spooled, spooled_reports
from scheduling.executors.offering import SiteSoftware
from scheduling.executors.ray.examining import check_node, examine
from scheduling.executors.ray.inventory import nodes_of
from scheduling.executors.ray.link import Connection, Link
from scheduling.executors.ray.planning import planned, write_plan
from scheduling.executors.ray.records import Place, Records
from scheduling.executors.ray.verdict import Sight, is_of_a_dead_host, judge, of_forgotten

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 20.0  # an agent's first call waits for its connection, 2 to 5 s
LAUNCH_TIMEOUT_S = 90.0
END_TIMEOUT_S = 60.0
WHOLE = 100
LEASE_S = 600.0
#: A run that still reaches the portal, which then orders it to stop, has ended this long after its node was lost.
END_OF_STOP_S = 120.0
_ACCOUNT = Account(None)


class RayExecutor(SiteSoftware):
    """`shared_dir` (None: `data_dir`) is one directory under one path on this machine and all nodes; the files of jobs
    are below it. `lease_s`: a run that has not reached the portal for this long checkpoints and stops; None: never.
    `fence_s`: how long processes may continue unseen after their node was lost; GPUs and checkpoints are not reused
    before. None: until its runner has reported its end, or its lease has certainly expired. `emulated`: GPUs are only
    declared, and jobs train on CPUs. `store_module`: the module that nodes need for their checkpoint store."""

    name = "ray"
    supports_multi_node = True
    supports_warm_start = False
    supports_git = supports_bundles = supports_environments = supports_secrets = supports_artifacts = True
    supports_sharing = False
    isolation_problem: str | None = None
    single_trust_mode = True  # everything runs under the account that started Ray's daemons

    def __init__(
        self,
        data_dir: str | Path,
        address: str,
        namespace: str = "evenkeel",
        *,
        node_address: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_ca: str = "",
        token_file: str = "",
        shared_dir: str | Path | None = None,
        emulated: bool = False,
        store_module: str = "",
        data_cache_dir: str = "",
        software: Software = NO_SOFTWARE,
        fence_s: float | None = None,
        lease_s: float | None = LEASE_S,
    ) -> None:
        if not address:
            raise ExecutorError("no address of a Ray cluster is set: EVENKEEL_RAY_ADDRESS=host:6379", permanent=True)
        if "://" in address:
            text = f"Ray's address is host:port of its head, not {address}: this machine must be a node of the cluster"
            raise ExecutorError(text, permanent=True)
        here = Layout(Path(data_dir).resolve(), engine="ray")
        here.prepare()
        self._layout = Layout(Path(shared_dir).resolve(), engine="ray") if shared_dir else here
        self._layout.prepare()
        self._records = Records(self._layout)
        self.connection = Connection(address, namespace, node_address, tls_cert, tls_key, tls_ca, token_file)
        self._link = Link(here.own, self.connection)
        self._fence_s, self._lease_s, self._emulated = fence_s, lease_s, emulated
        self._store_module, self._data_cache_dir, self._software = store_module, data_cache_dir, software

    # The executor contract

    def inventory(self) -> Sequence[NodeInfo]:
        return [info for _, info in self._nodes().values()]

    def refresh(self) -> bool:
        return False

    def launch(self, request: LaunchRequest) -> None:
        record = RunRecord(checked_name(request.run_id), checked_name(request.job_id), None)
        if request.gpu_share_percent < WHOLE:
            raise ExecutorError("the ray executor gives whole GPUs only, not parts of them", permanent=True)
        with self._layout.locked(record.run_id):
            if not self._may_launch(record, request.epoch):
                return
            nodes = self._nodes()
            places = planned(request, nodes)
            self._layout.remember(record)
            self._end_earlier(record, request.epoch)
            epoch_dir = self._layout.epoch_dir(record, request.epoch)
            write_plan(self._layout, request, epoch_dir, places, nodes, self._lease_s, self._software)
            self._records.remember(record.run_id, request.epoch, places, self._cluster())
            actors = self._link.ask("launch", LAUNCH_TIMEOUT_S, **self._of(record, request.epoch, places))
            named = [replace(place, actor_id=actor) for place, actor in zip(places, actors, strict=True)]
            self._records.remember(record.run_id, request.epoch, named)
            _remove_secrets(epoch_dir)  # all have read it

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        record = self._layout.record(run_id)
        with self._layout.locked(run_id):
            if record is None or not self._records.places(run_id, epoch):
                self._layout.call_off(run_id, epoch)
                return
            try:
                (self._layout.epoch_dir(record, epoch) / "stop").touch(mode=0o600)
            except OSError as error:
                raise ExecutorError(f"cannot stop the run: {error}", permanent=False) from error

    def kill(self, run_id: str, epoch: int) -> None:
        """Returns when the processes are gone, for a lost node when all reachable ones are, or early while the program
        has its grace period: a call KILL_AFTER_S after the first kills it."""
        with self._layout.locked(run_id):
            record, places = self._layout.record(run_id), self._records.places(run_id, epoch)
            if record is None or not places:
                self._layout.call_off(run_id, epoch)
                return
            if not self._records.ended(run_id, epoch):
                if self._layout.asked_to_end_s(run_id, epoch) < KILL_AFTER_S and self._link.ask(
                    "ask_to_end", ASK_TIMEOUT_S, **self._of(record, epoch, places)
                ):
                    return
                killed = ExitInfo("signal", signal=int(signal.SIGKILL), message="killed on request")
                self._end(record, epoch, places, killed)

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        now = time.time()  # renewals are known until then
        unheard_s = {launch: now - at for launch, at in renewed_at.items()}
        hosts: dict[str, str | None] = {}
        for run_id, epoch in known:
            hosts |= self._hosts_to_ask(run_id, epoch)
        seen = self._look(hosts)
        return [self._observe_one(*launch, seen, unheard_s.get(launch)) for launch in known]

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        record = self._layout.record(run_id)
        if record is not None:
            yield from spooled_reports(_ACCOUNT, self._layout.epoch_dir(record, epoch))

    def prepare(self, preparation: Preparation) -> Progress:
        return preparing.prepare(self._layout, _ACCOUNT, preparation, environment.own_environment())

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        preparing.discard_all(self._layout, _ACCOUNT, paths)

    def hand_over(self, project_key: str, job_id: str) -> None:
        """All files belong to one account."""

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Starts are always cold."""

    def reap_orphans(self, known_live: Iterable[tuple[str, int]], min_age_s: float = 60.0) -> list[tuple[str, int]]:
        known, reaped = set(known_live), []
        for record, epoch in each_epoch(self._layout, self._layout.records()):
            with apart("reaping", record.run_id, epoch):
                stray = (record.run_id, epoch) not in known and not self._records.ended(record.run_id, epoch)
                if stray and self._records.age_s(record.run_id, epoch) > min_age_s:
                    self.kill(record.run_id, epoch)
                    reaped.append((record.run_id, epoch))
        return reaped

    # Beyond the contract

    def disconnect(self) -> None:
        """End the process that talks to Ray; running jobs continue."""
        self._link.end()

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        return examine(self._link, self._layout.own, api_url, *self._settings(), kept=kept)

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        found = list(check_node(self._link, self._layout.own, wish, *self._settings()))
        return [*found, storage.free_space(self._layout.jobs, wish.min_free_mib)]

    def _settings(self) -> tuple[str, str, Software, bool]:
        """Settings that are checked."""
        return self._store_module, self._data_cache_dir, self._software, self._emulated

    # Launching

    def _nodes(self) -> dict[str, tuple[Mapping[str, Any], NodeInfo]]:
        table = self._link.ask("nodes", ASK_TIMEOUT_S, ends_on_timeout=True)
        return nodes_of(table, emulated=self._emulated)

    def _may_launch(self, record: RunRecord, epoch: int) -> bool:
        """False if this epoch was launched or cancelled before; an epoch older than the newest is refused."""
        if self._layout.called_off(record.run_id, epoch) or self._records.ended(record.run_id, epoch):
            return False
        newest = max(self._layout.epochs(record), default=epoch)
        if newest > epoch:
            raise ExecutorError(f"epoch {epoch} of run {record.run_id} is stale: epoch {newest} exists", permanent=True)
        if exists(self._layout.epoch_dir(record, epoch) / "runner.json"):
            return False
        hosts = self._hosts_to_ask(record.run_id, epoch)
        return all(sight["state"] == "absent" for sight in self._look(hosts).values())

    def _end_earlier(self, record: RunRecord, epoch: int) -> None:
        """Nothing of the job may still run: earlier epochs and earlier runs share its checkpoints."""
        for other in self._layout.runs_of_job(record):
            for older in self._layout.epochs(other):
                places = self._records.places(other.run_id, older)
                if (other, older) == (record, epoch) or not places or self._records.ended(other.run_id, older):
                    continue
                made_way = ExitInfo("runner_lost", message="ended to make way for a later launch")
                if not self._end(other, older, places, made_way):
                    raise ExecutorError("an earlier launch may still run on a node that is lost", permanent=False)

    def _of(self, record: RunRecord, epoch: int, places: Sequence[Place]) -> dict[str, Any]:
        return {
            "run": f"{record.run_id}.{epoch}",
            "epoch_dir": str(self._layout.epoch_dir(record, epoch)),
            "nodes": [place.for_agent() for place in places],
        }

    # Observing and ending

    def _hosts_to_ask(self, run_id: str, epoch: int) -> dict[str, str | None]:
        try:
            if self._records.ended(run_id, epoch):
                return {}
            places = self._records.places(run_id, epoch)
        except Exception:  # `_observe_one` reports it
            return {}
        return {_host_name(run_id, epoch, place): place.actor_id for place in places}

    def _look(self, hosts: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
        if not hosts:
            return {}
        found: dict[str, dict[str, Any]] = self._link.ask("look", ASK_TIMEOUT_S, ends_on_timeout=True, hosts=hosts)
        return found

    def _observe_one(
        self, run_id: str, epoch: int, seen: Mapping[str, dict[str, Any]], unheard_s: float | None
    ) -> Fact:
        now = time.time()
        try:
            record = self._layout.record(run_id)
            places = self._records.places(run_id, epoch) if record else []
            if record is None or not places:
                return Fact(run_id, epoch, "absent" if self._layout.lock_is_free(run_id) else "alive", now)
            return self._weigh(record, epoch, places, seen, unheard_s, now)
        except Exception as error:
            if _is_no_name(run_id):
                return Fact(run_id, epoch, "absent", now)
            # it is not certain that they are gone: the GPUs stay occupied until a later observation
            log_apart("observing", run_id, epoch, error)
            return Fact(run_id, epoch, "alive", now)

    def _weigh(
        self,
        record: RunRecord,
        epoch: int,
        places: Sequence[Place],
        seen: Mapping[str, dict[str, Any]],
        unheard_s: float | None,
        now: float,
    ) -> Fact:
        run_id = record.run_id
        if not self._records.ended(run_id, epoch):
            if not self._layout.lock_is_free(run_id):
                return Fact(run_id, epoch, "alive", now)
            sights = [Sight(place.name, seen.get(_host_name(run_id, epoch, place), {})) for place in places]
            begun = exists(self._layout.epoch_dir(record, epoch) / "runner.json")
            self._learn(record, epoch, places, seen)
            verdict = judge(sights, begun=begun)
            if verdict.missing and self._is_anew(run_id, epoch):
                self._records.forget(run_id, epoch)
            if verdict.goes_on:
                self._records.note_silence(run_id, epoch, any(sight.state == "silent" for sight in sights))
                return Fact(run_id, epoch, "alive", now, usage=verdict.usage)
            with self._layout.locked(run_id, timeout_s=0):
                gone = self._end(record, epoch, places, verdict.exit, by_engine=verdict.by_engine, unheard_s=unheard_s)
            if not gone:
                return Fact(run_id, epoch, "alive", now)
        epoch_dir = self._layout.epoch_dir(record, epoch)
        ended = facts.read_exit(epoch_dir)
        if ended is None:
            return Fact(run_id, epoch, "absent", now)
        if self._records.forgotten(run_id, epoch):
            ended = of_forgotten(ended)
        return Fact(run_id, epoch, "exited", now, exit=ended, spooled=is_spooled(epoch_dir))

    def _cluster(self) -> str:
        """Ray's id of the cluster; a head that was restarted with its state keeps it."""
        return str(self._link.ask("version", ASK_TIMEOUT_S, ends_on_timeout=True).get("cluster") or "")

    def _is_anew(self, run_id: str, epoch: int) -> bool:
        begun_in = self._records.cluster(run_id, epoch)
        return bool(begun_in) and begun_in != self._cluster()

    def _learn(
        self, record: RunRecord, epoch: int, places: Sequence[Place], seen: Mapping[str, dict[str, Any]]
    ) -> None:
        """The actors' ids, if the launching process died before it stored them: Ray finds dead actors only by id."""
        names = {place: _host_name(record.run_id, epoch, place) for place in places}
        learned = [
            replace(place, actor_id=place.actor_id or seen.get(names[place], {}).get("actor_id")) for place in places
        ]
        if learned != list(places):
            self._records.remember(record.run_id, epoch, learned)

    def _end(
        self,
        record: RunRecord,
        epoch: int,
        places: Sequence[Place],
        info: ExitInfo | None,
        *,
        by_engine: bool = False,
        unheard_s: float | None = None,
    ) -> bool:
        """True once no process of the epoch exists and Ray has its GPUs back; False while a lost node may still run it.
        Writes `info` as its exit record if it has none. We hold the launch lock."""
        lost = self._link.ask("end", END_TIMEOUT_S, **self._of(record, epoch, places))
        if lost and self._may_run_unseen(record, epoch, places, lost, unheard_s):
            return False
        epoch_dir = self._layout.epoch_dir(record, epoch)
        _remove_secrets(epoch_dir)
        learned = facts.read_exit(epoch_dir)
        if info and (learned is None or (by_engine and is_of_a_dead_host(learned))):
            self._write_exit_record(record, epoch, epoch_dir, info)
        self._records.end(record.run_id, epoch)
        return True

    def _may_run_unseen(
        self, record: RunRecord, epoch: int, places: Sequence[Place], lost: Sequence[int], unheard_s: float | None
    ) -> bool:
        """On a lost node. Ray's daemon there, and its processes, may take minutes to notice. A runner that still sees
        the shared directory stops at once, and reports there when all processes on its node have ended. Of several
        nodes the first one's runner has the lease, and the others end when they lose contact with it."""
        epoch_dir, run_id = self._layout.epoch_dir(record, epoch), record.run_id
        if all(_left_word(epoch_dir, place) for place in places if place.rank in lost):
            return False
        with contextlib.suppress(OSError):  # the job may have closed or removed its directory
            (epoch_dir / "stop").touch(mode=0o600)
        lost_s, silent_s = self._records.lost_for_s(run_id, epoch), self._records.silent_for_s(run_id, epoch)
        if unheard_s is not None:  # the portal may receive its reports when Ray does not reach it
            silent_s = min(silent_s, unheard_s)
        if self._fence_s is not None:
            return lost_s < self._fence_s
        lease_s = (self._lease_s or 0.0) + END_OF_LEASE_S if 0 in lost else 0.0
        return lost_s < END_OF_STOP_S or silent_s < lease_s

    @staticmethod
    def _write_exit_record(record: RunRecord, epoch: int, epoch_dir: Path, info: ExitInfo) -> None:
        try:
            more = {"signal": info.signal, "exit_code": info.exit_code, "alleged": info.alleged}
            facts.write_exit_record(record, epoch, epoch_dir, info.reason, info.message, **more)
        except Exception as error:
            log.warning("run %s epoch %s: no exit record: %s", record.run_id, epoch, error)


def _remove_secrets(epoch_dir: Path) -> None:
    try:
        remove_tree(epoch_dir / SECRETS_FILE, max_entries=2_000, max_s=0.1)
    except OSError as error:
        log.warning("%s stays: %s", epoch_dir / SECRETS_FILE, error)


def _left_word(epoch_dir: Path, place: Place) -> bool:
    """Whether the node's runner has reported that nothing of the run is left there, or the witness has."""
    if place.rank == 0:
        return facts.read_exit(epoch_dir) is not None or exists(epoch_dir / ENDED_FILE)
    return exists(epoch_dir / f"node-{place.name}" / ENDED_FILE)


def _host_name(run_id: str, epoch: int, place: Place) -> str:
    return f"evenkeel.{run_id}.{epoch}.{place.rank}"


def _is_no_name(run_id: str) -> bool:
    try:
        return not checked_name(run_id)
    except ExecutorError:
        return True
