"""Runs jobs as processes of this machine (docs/executors.md)."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.runner.grace import KILL_AFTER_S
from evenkeel.runner.processes import Process, all_processes, read_process, signal_quietly
from evenkeel.runner.software import installed
from evenkeel.store.offers import offers

from scheduling.errors import ExecutorError
from scheduling.executors.account_blocks import REGISTRY
from scheduling.executors.accounts import Account, Accounts, isolation_problem
from scheduling.executors.base import (
    NO_RENEWALS,
    NO_SOFTWARE,
    NOTHING_KEPT,
    AcceleratorInfo,
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
from scheduling.executors.local import environment, facts, launching, preparing
from scheduling.executors.local.apart import apart, each_epoch, log_apart
from scheduling.executors.local.layout import Layout, RunRecord, checked_name
from scheduling.executors.local.machine import procfs, sharing
from scheduling.executors.local.machine.checking import built_in_programs, check_node
from scheduling.executors.local.machine.inventory import declared_nodes, real_nodes
from scheduling.executors.local.machine.networks import Networks
from scheduling.executors.local.processes.admitting import Gate
from scheduling.executors.local.processes.cgroups import NAME, Cgroups, find_parents
from scheduling.executors.local.processes.strays import Found, Strays
from scheduling.executors.local.processes.sweeping import Prey, RunnerIdentity, sdk_dir_of
from scheduling.executors.local.processes.watching import end_holders, is_stopped
from scheduling.executors.local.processes.zygotes import Zygotes
from scheduling.executors.local.spooling import is_spooled, spooled_reports
from scheduling.executors.offering import SiteSoftware, offer_findings, software_findings

log = logging.getLogger(__name__)

KILL_GRACE_S = 3.0  # most programs end at once when asked; the others are checked again
#: How long a kill waits for the launch lock before it kills its holders, and the limit for all of them.
TAKING = ((0.2, True), (3.0, False), (1.0, False))
OBSERVE_S, LOOK_S = 3.0, 0.5  # time for ending runs without a runner, in one observation of all runs, and for one
SWEEP_S = 10.0
#: First-use imports of optimisers, DistributedDataParallel and the catalogue's data sets.
PRELOAD = ("numpy", "torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "sklearn.datasets")
ISOLATION = ("auto", "accounts", "none")


class LocalExecutor(SiteSoftware):
    """`virtual_accelerators`: "titan_xp:6", or "a=titan_xp:6,b=v100:4" for several nodes on this machine; empty: those
    found by NVML. `isolation`: "accounts" gives each project its own account (root only), "none" runs everything as one
    user, "auto" is the first if we are root. `accounts_file`: where they are stored, one place for all executors of a
    portal; None: in `data_dir`. `accounts_registry`: separates those of several portals on this machine. `run_network`,
    `loopback_ports`: see `Networks`."""

    name = "local"
    supports_warm_start = True
    supports_sharing = True
    supports_git = supports_bundles = supports_environments = supports_secrets = supports_artifacts = True

    def __init__(
        self,
        data_dir: str | Path,
        virtual_accelerators: str = "",
        isolation: str = "auto",
        *,
        virtual_memory_mib: int = 12_288,
        warm_start: bool = True,
        warm_idle_s: float = 1800.0,
        preload: tuple[str, ...] = PRELOAD,
        cgroup: str = NAME,
        data_cache_dir: str = "",
        software: Software = NO_SOFTWARE,
        accounts_file: Path | None = None,
        accounts_registry: Path = REGISTRY,
        run_network: str = "machine",
        loopback_ports: Iterable[int] = (),
    ) -> None:
        if isolation not in ISOLATION:
            raise ExecutorError(f"isolation is one of {', '.join(ISOLATION)}, not {isolation!r}", permanent=True)
        self._layout = Layout(Path(data_dir).resolve())
        self._layout.prepare()
        self._nodes = declared_nodes(virtual_accelerators, virtual_memory_mib) if virtual_accelerators else None
        self.supports_multi_node = self._nodes is not None and len(self._nodes) > 1
        separate = isolation == "accounts" or (isolation == "auto" and os.geteuid() == 0)
        file = accounts_file or self._layout.data / "run" / "accounts.json"
        self._accounts = Accounts(file, place=self._layout.data, separate=separate, registry=accounts_registry)
        self._networks = Networks(
            file.parent / "network",
            run_network,
            loopback_ports,
            uid=self._accounts.keepers_uid,
            members=self._in_network,
        )
        self.isolation_problem = self._find_isolation_problem(separate) or self._networks.problem
        self._zygotes = Zygotes(
            self._layout.own / "warm",
            self._layout.jobs,
            preload=preload,
            idle_s=warm_idle_s,
            enabled=warm_start,
            nobody=self._accounts.first_uid,
            networks=self._networks,
        )
        self._cgroups = Cgroups(find_parents(name=cgroup))
        self._strays = Strays(self._accounts, self._runner_in)
        self._swept: set[Path] = set()
        self._data_cache_dir, self._software = data_cache_dir, software

    def _find_isolation_problem(self, separate: bool) -> str | None:
        if separate and os.geteuid() != 0:
            return "Accounts of their own for projects need a portal that runs as root."
        if not separate:
            return None
        return self._accounts.problem or isolation_problem(self._layout.jobs, self._accounts.first_uid)

    def _in_network(self, account: Account) -> Iterator[int]:
        yield from (server.pid for server in self._zygotes.running(account))
        yield from (runner.pid for runner in self._strays.runners(account).values())

    @property
    def single_trust_mode(self) -> bool:
        """Everything runs as one user: a job can read what the portal can."""
        return not self._accounts.separate

    def _amended(self, content: dict[str, Any]) -> dict[str, Any]:
        """All ranks are on this machine: they rendezvous in a directory of the job, and use the loopback device."""
        rendezvous = str(Path(content["environment"]["EVENKEEL_SDK_DIR"]).with_name("rendezvous"))
        meeting = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} | content["environment"]
        meeting["EVENKEEL_RENDEZVOUS_DIR"] = rendezvous
        return content | {"container_tool": self._software.container_tool, "environment": meeting}

    # The executor contract

    def inventory(self) -> Sequence[NodeInfo]:
        return self._nodes if self._nodes is not None else real_nodes()

    def refresh(self) -> bool:
        return False

    def launch(self, request: LaunchRequest) -> None:
        if self.isolation_problem:
            raise ExecutorError(self.isolation_problem, permanent=True)
        devices = self._devices(request)
        account = self._accounts.of_project(request.project_key)
        record = RunRecord(checked_name(request.run_id), checked_name(request.job_id), account.uid)
        epoch_dir = self._layout.epoch_dir(record, request.epoch)
        emulated = all(device.emulated for device in devices)
        with self._accounts.beginning(account), Gate(self._cgroups, request, emulated=emulated) as gate:
            with self._layout.locked(record.run_id) as lock_fd:
                if not self._may_launch(record, request.epoch, epoch_dir):
                    return
                self._layout.remember(record)
                self._end_earlier(record, request.epoch)
                launching.make_job_dir(self._layout, record.job_id, account)
                with _as_executor_error("prepare"):
                    launching.make_cache_dir(request.data, account)
                with _as_executor_error("prepare"), account.files():
                    launching.prepare(self._layout, request, devices, epoch_dir, self._amended)
                with _as_executor_error("begin"):
                    self._layout.begin(record.run_id, request.epoch)
                with _as_executor_error("start"), self._networks.joined(account, request.api_url) as network:
                    lock, gate_fd = self._layout.lock_path(record.run_id), gate.open()
                    launching.start(epoch_dir, account, lock_fd, lock, self._zygotes, request.secrets, gate_fd, network)
            with _as_executor_error("await"):
                launching.await_runner(self._layout, record.run_id, epoch_dir, account)
            with account.files():
                runner = facts.read_runner(epoch_dir)
            if runner and runner.alive(account) and not self._networks.has(network, runner.pid):
                signal_quietly(runner.pid, signal.SIGKILL)
                self._zygotes.end(account)  # the next launch starts another, in the right one
                raise ExecutorError("the runner was not started in the network of its project", permanent=False)
            gate.admit(runner, account)
        self._runner(record, request.epoch)  # recorded: the runner waits for none of that

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        self._accounts.check()
        record = self._layout.record(run_id)
        with self._layout.locked(run_id):
            if record is None or not (self._layout.begun(run_id, epoch) or self._prepared(record, epoch)):
                self._layout.call_off(run_id, epoch)
                return
            with record.account.files(), _as_executor_error("stop"):
                (self._layout.epoch_dir(record, epoch) / "stop").touch(mode=0o600)

    def kill(self, run_id: str, epoch: int) -> None:
        """Returns when the processes are gone, or early while the program has its grace period: the next call checks
        again, and kills it once KILL_AFTER_S have passed since the first. Needs no cooperation of any process: a
        stopped runner gets no grace period."""
        self._accounts.check()
        with contextlib.ExitStack() as stack:
            self._take_lock(stack, run_id)
            record = self._layout.record(run_id)
            runner = self._runner(record, epoch) if record else None
            if record is None or runner is None:
                self._layout.call_off(run_id, epoch)
                if record:
                    self._end_unnamed(record, epoch)
                return
            epoch_dir = self._layout.epoch_dir(record, epoch)
            with record.account.files():
                ended = facts.read_exit(epoch_dir) is not None
            if runner.alive(record.account) and not ended:
                signal_quietly(runner.pid, signal.SIGUSR1)
                if self._has_grace(runner, record, epoch):
                    return
            self._end(record, epoch, "signal", "killed on request", by=int(signal.SIGKILL))

    def _take_lock(self, stack: contextlib.ExitStack, run_id: str) -> None:
        """Take the launch lock: processes of the job that hold it are killed, stopped ones at once."""
        path = self._layout.lock_path(run_id)
        for patience_s, stopped_only in TAKING:
            try:
                stack.enter_context(self._layout.locked(run_id, patience_s))
            except ExecutorError:
                if record := self._layout.record(run_id):
                    end_holders(path, record.account, stopped_only=stopped_only)
            else:
                return
        stack.enter_context(self._layout.locked(run_id, 1.0))

    def _has_grace(self, runner: RunnerIdentity, record: RunRecord, epoch: int) -> bool:
        asked_s, account = self._layout.asked_to_end_s(record.run_id, epoch), self._accounts.of_uid(record.uid)
        if asked_s < KILL_GRACE_S:
            _wait_for_end(runner, account)
        if is_stopped(read_process(runner.pid), account):
            return False
        return asked_s < KILL_AFTER_S and runner.alive(account)

    def prepare(self, preparation: Preparation) -> Progress:
        if self.isolation_problem:
            raise ExecutorError(self.isolation_problem, permanent=True)
        account = self._accounts.of_project(preparation.project_key)
        with self._accounts.beginning(account):
            return preparing.prepare(self._layout, account, preparation, environment.own_environment())

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        preparing.discard_all(self._layout, self._accounts.of_project(project_key), paths)

    def hand_over(self, project_key: str, job_id: str) -> None:
        account = self._accounts.of_project(project_key)
        try:
            account.take_over(self._layout.job_dir(job_id))
        except FileNotFoundError:
            return  # it never started here
        except OSError as error:
            text = f"cannot give the files of job {job_id} to {project_key}: {error}"
            raise ExecutorError(text, permanent=False) from error

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        self._accounts.check()
        processes = list(all_processes()) if known else []
        give_up_at = time.monotonic() + OBSERVE_S
        found = {}
        # otherwise the same ones would use up the time in each observation
        for run_id, epoch in random.sample(known, len(known)):
            found[run_id, epoch] = self._observe_one(run_id, epoch, processes, give_up_at)
        return [found[pair] for pair in known]

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        record = self._layout.record(run_id)
        if record is not None:
            yield from spooled_reports(record.account, self._layout.epoch_dir(record, epoch))

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        yield Finding("isolation", self.isolation_problem is None, self.isolation_problem or "jobs can be started")
        if self._accounts.separate:
            yield procfs.examine()
            yield self._networks.examine()
        try:
            devices = [device for node in self.inventory() for device in node.accelerators]
        except ExecutorError as error:
            yield Finding("accelerators", False, str(error), "check the NVIDIA driver")
            return
        counts = Counter(device.type for device in devices)
        words = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
        fix = "install the NVIDIA driver, or declare virtual ones: EVENKEEL_VIRTUAL_ACCELERATORS=titan_xp:6"
        yield Finding("accelerators", bool(counts), words or "there are none", fix)
        if not all(device.emulated for device in devices):
            yield sharing.examine(accounts=self._accounts.separate)
        yield built_in_programs()
        yield from offer_findings(offers(self._data_cache_dir, socket.gethostname()), self._software)

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        found = list(check_node(self._layout, self.inventory(), wish))
        return found if self._software == NO_SOFTWARE else [*found, *software_findings(installed(), self._software)]

    # Beyond the contract

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Start the fork servers of these projects, so that their first launch is warm."""
        if self.isolation_problem is None:
            for account in {self._accounts.of_project(key) for key in project_keys}:
                self._zygotes.warm_up(account)

    def stop_warm_start(self, project_keys: Iterable[str]) -> None:
        """End the fork servers of these projects; running jobs continue."""
        for account in {self._accounts.of_project(key) for key in project_keys}:
            self._zygotes.stop(account)

    def reap_orphans(self, known_live: Iterable[tuple[str, int]], min_age_s: float = 60.0) -> list[tuple[str, int]]:
        """End unknown processes of this data directory; returns their (run, epoch). Those younger than `min_age_s` may
        have been launched after the caller's check."""
        self._accounts.check()
        known, reaped, records = set(known_live), [], self._layout.records()
        for record, epoch in each_epoch(self._layout, records):
            with apart("reaping", record.run_id, epoch):
                if (record.run_id, epoch) not in known and self._live_for(record, epoch) > min_age_s:
                    self.kill(record.run_id, epoch)
                    reaped.append((record.run_id, epoch))
        live = {str(self._epoch_dir(run_id, epoch) / "sdk") for run_id, epoch in known}
        for process in all_processes():
            mark = sdk_dir_of(process.pid)
            stray = mark and mark not in live and Path(mark).is_relative_to(self._layout.jobs)
            if stray and process.age_s > min_age_s:
                signal_quietly(process.pid, signal.SIGKILL)
        self._cgroups.sweep(known, {record.run_id for record in records}, min_age_s)
        self._layout.continue_removals()
        self._reap_strays(min_age_s)
        return reaped

    def _reap_strays(self, min_age_s: float) -> None:
        for account in self._strays.accounts_in_use():
            try:
                found = self._strays.end(account, SWEEP_S, min_age_s=min_age_s)
            except ExecutorError as error:
                log.warning("account %s: %s", account.uid, error)
            else:
                if text := found.in_words():
                    log.warning("account %s: %s", account.uid, text)

    # Launching

    def _devices(self, request: LaunchRequest) -> list[AcceleratorInfo]:
        nodes = {node.name: node for node in self.inventory()}
        devices: list[AcceleratorInfo] = []
        for name, indexes in sorted(request.placement.items()):
            if name not in nodes:
                raise ExecutorError(f"there is no node {name!r} on this machine", permanent=True)
            by_index = {device.index: device for device in nodes[name].accelerators}
            missing = [index for index in indexes if index not in by_index]
            if missing:
                raise ExecutorError(f"node {name!r} has no accelerator {missing[0]}", permanent=True)
            devices += [by_index[index] for index in indexes]
        if not devices:
            raise ExecutorError("the placement names no accelerator", permanent=True)
        return devices

    def _may_launch(self, record: RunRecord, epoch: int, epoch_dir: Path) -> bool:
        """False if this epoch was launched or cancelled before; an epoch older than the newest is refused."""
        if self._layout.called_off(record.run_id, epoch):
            return False
        newest = max(self._layout.epochs(record), default=epoch)
        if newest > epoch:
            raise ExecutorError(f"epoch {epoch} of run {record.run_id} is stale: epoch {newest} exists", permanent=True)
        return self._runner(record, epoch) is None

    def _end_earlier(self, record: RunRecord, epoch: int) -> None:
        """Nothing of the job may still run: earlier epochs and earlier runs share its checkpoints."""
        earlier = {
            self._layout.epoch_dir(other, older): (other, older)
            for other in self._layout.runs_of_job(record)
            for older in self._layout.epochs(other)
        }
        if not self._layout.begun(record.run_id, epoch):  # otherwise an attempt with an unknown outcome
            earlier.pop(self._layout.epoch_dir(record, epoch), None)
        if not earlier:
            return
        runners = {path: self._runner(other, older) for path, (other, older) in earlier.items()}
        Prey(record.account, runners).end_for_certain()
        for path, (other, older) in earlier.items():
            if self._layout.record(other.run_id) == other:
                self._cgroups.remove(other.run_id, older)
            self._write_exit_record(other, older, path, "runner_lost", "ended to make way for a later launch")

    # Observing and ending

    def _epoch_dir(self, run_id: str, epoch: int) -> Path:
        record = self._layout.record(run_id)
        return self._layout.epoch_dir(record, epoch) if record else self._layout.jobs / "-"

    def _prepared(self, record: RunRecord, epoch: int) -> bool:
        with record.account.files(), contextlib.suppress(OSError):
            return (self._layout.epoch_dir(record, epoch) / "launch.json").exists()
        return False

    def _runner(self, record: RunRecord, epoch: int) -> RunnerIdentity | None:
        """The runner: from our own record, or else from the job's file, and then recorded for a launch of ours. A job
        can create directories in the names of other jobs' runs, which say nothing about those."""
        ours = self._layout.record(record.run_id) == record and self._layout.begun(record.run_id, epoch)
        noted = self._layout.runner(record.run_id, epoch) if ours else None
        if noted:
            return noted
        with record.account.files():
            runner = facts.read_runner(self._layout.epoch_dir(record, epoch))
        if runner and ours:
            try:
                self._layout.remember_runner(record.run_id, epoch, runner)
            except OSError as error:
                log.warning("run %s epoch %s: its runner is not noted: %s", record.run_id, epoch, error)
        return runner

    def _runner_in(self, layout: Layout, record: RunRecord, epoch: int) -> RunnerIdentity | None:
        """From the job's own file, for a launch of this portal that was not recorded yet."""
        with record.account.files():
            return facts.read_runner(layout.epoch_dir(record, epoch))

    def _live_for(self, record: RunRecord, epoch: int) -> float:
        """The age of the runner in seconds, minus infinity if there is none."""
        runner = self._runner(record, epoch)
        process = read_process(runner.pid) if runner and runner.alive(record.account) else None
        return process.age_s if process else float("-inf")

    def _end(
        self,
        record: RunRecord,
        epoch: int,
        reason: str,
        message: str,
        *,
        by: int | None = None,
        patience_s: float = SWEEP_S,
    ) -> None:
        """Afterwards no process of the epoch exists, and it has an exit record if it ever ran."""
        epoch_dir = self._layout.epoch_dir(record, epoch)
        if epoch_dir in self._swept:
            return
        runner = self._runner(record, epoch)
        Prey(record.account, {epoch_dir: runner}).end_for_certain(patience_s)
        self._end_strays(record, epoch, patience_s)
        self._layout.remove_secrets(record, epoch, max_entries=2_000, max_s=0.1)  # of a killed runner
        self._write_exit_record(record, epoch, epoch_dir, reason, message, by=by)
        if runner:
            self._swept.add(epoch_dir)

    def _end_strays(self, record: RunRecord, epoch: int, patience_s: float) -> None:
        """Processes that left the run's session and still exist; the run's record mentions them."""
        found = Found()
        for process in map(read_process, self._cgroups.members(record.run_id, epoch)):
            if process and process.alive:
                found.add(process)
        self._cgroups.remove(record.run_id, epoch)
        try:
            self._strays.end(record.account, patience_s, found=found)
        finally:
            if text := found.in_words():
                log.warning("run %s epoch %s: %s", record.run_id, epoch, text)
                self._layout.note_strays(record.run_id, epoch, text)

    def _write_exit_record(
        self, record: RunRecord, epoch: int, epoch_dir: Path, reason: str, message: str, *, by: int | None = None
    ) -> None:
        """The processes are gone already: a record that cannot be written must not block anything."""
        if self._runner(record, epoch) is None:
            return
        try:
            with record.account.files():
                if facts.read_exit(epoch_dir) is None:
                    facts.write_exit_record(record, epoch, epoch_dir, reason, message, signal=by)
        except Exception as error:
            log.warning("run %s epoch %s: no exit record: %s", record.run_id, epoch, error)

    def _end_unnamed(self, record: RunRecord, epoch: int, patience_s: float = SWEEP_S) -> None:
        """End a launch whose runner never identified itself; we hold the launch lock."""
        if self._layout.begun(record.run_id, epoch):
            Prey(record.account, {self._layout.epoch_dir(record, epoch): None}).end_for_certain(patience_s)
            self._end_strays(record, epoch, patience_s)

    def _observe_one(self, run_id: str, epoch: int, processes: Sequence[Process], give_up_at: float) -> Fact:
        now = time.time()
        try:
            record = self._layout.record(run_id)
            if record is None:
                return Fact(run_id, epoch, "absent", now)
            return self._look(record, epoch, now, processes, give_up_at)
        except Exception as error:
            # it is not certain that they are gone: the GPUs stay occupied until a later observation
            log_apart("observing", run_id, epoch, error)
            return Fact(run_id, epoch, "alive", now)

    def _look(self, record: RunRecord, epoch: int, now: float, processes: Sequence[Process], give_up_at: float) -> Fact:
        run_id, epoch_dir = record.run_id, self._layout.epoch_dir(record, epoch)
        free = self._layout.lock_is_free(run_id)  # before runner.json: it appears before the lock is released
        runner = self._runner(record, epoch)
        if runner and runner.alive(record.account):
            self._networks.mend(record.account, runner.pid)
            return Fact(run_id, epoch, "alive", now, usage=facts.usage_of(runner, processes))
        patience_s = min(give_up_at - time.monotonic(), LOOK_S)
        out_of_time = patience_s <= 0 and epoch_dir not in self._swept
        if out_of_time or (runner is None and not free):  # the next observation continues
            return Fact(run_id, epoch, "alive", now)
        if runner is None:
            with self._layout.locked(run_id, timeout_s=0):
                if self._runner(record, epoch):  # it has been launched since
                    return Fact(run_id, epoch, "alive", now)
                self._end_unnamed(record, epoch, patience_s)
                return Fact(run_id, epoch, "absent", now)
        self._end(record, epoch, "runner_lost", _lost_reason(runner), patience_s=patience_s)
        with record.account.files():
            ended = facts.read_exit(epoch_dir) or ExitInfo("runner_lost", message=_lost_reason(runner))
            ended = replace(ended, alleged=not runner.before_reboot)  # whatever the job's file says about it
            spooled = is_spooled(epoch_dir)
        strays = self._layout.strays(run_id, epoch)
        return Fact(run_id, epoch, "exited", now, exit=ended, spooled=spooled, strays=strays)


def _lost_reason(runner: RunnerIdentity) -> str:
    return "the machine was restarted" if runner.before_reboot else "the runner ended without leaving a record"


def _wait_for_end(runner: RunnerIdentity, account: Account) -> None:
    give_up_at = time.monotonic() + KILL_GRACE_S
    while runner.alive(account) and time.monotonic() < give_up_at:
        if is_stopped(read_process(runner.pid), account):
            return
        time.sleep(0.02)


class _as_executor_error:
    """Converts errors of the system into the executor's own error."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            permanent = isinstance(error, PermissionError)  # permissions do not change by themselves
            raise ExecutorError(f"cannot {self._verb} the run: {error}", permanent=permanent) from error
