"""Runs jobs as processes of this machine (docs/executors.md)."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evenkeel.runner.grace import KILL_AFTER_S
from evenkeel.runner.processes import Process, all_processes, read_process, signal_quietly
from evenkeel.runner.software import installed
from evenkeel.store.offers import offers

from scheduling.errors import ExecutorError
from scheduling.executors.base import (
    NO_RENEWALS,
    NO_SOFTWARE,
    AcceleratorInfo,
    ExitInfo,
    Fact,
    Finding,
    LaunchRequest,
    NodeCheck,
    NodeInfo,
    Preparation,
    Progress,
    Renewals,
    Software,
)
from scheduling.executors.local import facts, launching, preparing, sharing
from scheduling.executors.local.accounts import Account, Accounts, isolation_problem
from scheduling.executors.local.admitting import Gate
from scheduling.executors.local.cgroups import NAME, Cgroups, find_parents
from scheduling.executors.local.checking import check_node
from scheduling.executors.local.inventory import declared_nodes, real_nodes
from scheduling.executors.local.layout import Layout, RunRecord, checked_name
from scheduling.executors.local.sweeping import Prey, RunnerIdentity, sdk_dir_of
from scheduling.executors.local.zygotes import Zygotes
from scheduling.executors.offering import SiteSoftware, offer_findings, software_findings

log = logging.getLogger(__name__)

KILL_GRACE_S = 3.0  # most programs end at once when asked; the others are looked at again
#: What optimisers, DistributedDataParallel and the catalogue's data sets would import at their first use.
PRELOAD = ("numpy", "torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "sklearn.datasets")
ISOLATION = ("auto", "accounts", "none")


class LocalExecutor(SiteSoftware):
    """`virtual_accelerators`: "titan_xp:6", or "a=titan_xp:6,b=v100:4" for several nodes on this machine;
    empty: what NVML finds. `isolation`: "accounts" gives each project an account of its own (root only),
    "none" runs everything as one user, "auto" is the first where we are root. `accounts_file`: where they are
    noted, one place for all executors of a machine; None: in `data_dir`."""

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
    ) -> None:
        if isolation not in ISOLATION:
            raise ExecutorError(f"isolation is one of {', '.join(ISOLATION)}, not {isolation!r}", permanent=True)
        self._layout = Layout(Path(data_dir).resolve())
        self._layout.prepare()
        self._nodes = declared_nodes(virtual_accelerators, virtual_memory_mib) if virtual_accelerators else None
        self.supports_multi_node = self._nodes is not None and len(self._nodes) > 1
        separate = isolation == "accounts" or (isolation == "auto" and os.geteuid() == 0)
        self._accounts = Accounts(accounts_file or self._layout.data / "run" / "accounts.json", separate=separate)
        self.isolation_problem = self._find_isolation_problem(separate)
        self._zygotes = Zygotes(
            self._layout.own / "warm", self._layout.jobs, preload=preload, idle_s=warm_idle_s, enabled=warm_start
        )
        self._cgroups = Cgroups(find_parents(name=cgroup))
        self._swept: set[Path] = set()
        self._data_cache_dir, self._software = data_cache_dir, software

    def _find_isolation_problem(self, separate: bool) -> str | None:
        if separate and os.geteuid() != 0:
            return "Accounts of their own for projects need a portal that runs as root."
        return isolation_problem(self._layout.jobs) if separate else None

    @property
    def single_trust_mode(self) -> bool:
        """Everything runs as one user: a job can read what the portal can."""
        return not self._accounts.separate

    def _amended(self, content: dict[str, Any]) -> dict[str, Any]:
        return content | {"container_tool": self._software.container_tool}

    # The executor contract

    def inventory(self) -> Sequence[NodeInfo]:
        return self._nodes if self._nodes is not None else real_nodes()

    def launch(self, request: LaunchRequest) -> None:
        if self.isolation_problem:
            raise ExecutorError(self.isolation_problem, permanent=True)
        devices = self._devices(request)
        account = self._accounts.of_project(request.project_key)
        record = RunRecord(checked_name(request.run_id), checked_name(request.job_id), account.uid)
        epoch_dir = self._layout.epoch_dir(record, request.epoch)
        with Gate(self._cgroups, request, emulated=all(device.emulated for device in devices)) as gate:
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
                with _as_executor_error("start"):
                    launching.start(epoch_dir, account, lock_fd, self._zygotes, request.secrets, gate.open())
            with _as_executor_error("await"):
                launching.await_runner(self._layout, record.run_id, epoch_dir, account)
            with account.files():
                runner = facts.read_runner(epoch_dir)
            gate.admit(runner, account)
        self._runner(record, request.epoch)  # is noted: the runner waits for none of that

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        record = self._layout.record(run_id)
        with self._layout.locked(run_id):
            if record is None or not (self._layout.begun(run_id, epoch) or self._prepared(record, epoch)):
                self._layout.call_off(run_id, epoch)
                return
            with record.account.files(), _as_executor_error("stop"):
                (self._layout.epoch_dir(record, epoch) / "stop").touch(mode=0o600)

    def kill(self, run_id: str, epoch: int) -> None:
        """Returns when the processes are gone, or early while the program has its grace: the next call then looks
        again, and ends it for certain once KILL_AFTER_S have passed since the first."""
        with self._layout.locked(run_id):
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

    def _has_grace(self, runner: RunnerIdentity, record: RunRecord, epoch: int) -> bool:
        asked_s = self._layout.asked_to_end_s(record.run_id, epoch)
        if asked_s < KILL_GRACE_S:
            _wait_for_end(runner, record.account)
        return asked_s < KILL_AFTER_S and runner.alive(record.account)

    def prepare(self, preparation: Preparation) -> Progress:
        if self.isolation_problem:
            raise ExecutorError(self.isolation_problem, permanent=True)
        account = self._accounts.of_project(preparation.project_key)
        return preparing.prepare(self._layout, account, preparation, launching.own_environment())

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        account = self._accounts.of_project(project_key)
        for path in paths:
            try:
                preparing.discard(self._layout, account, path)
            except OSError as error:
                raise ExecutorError(f"cannot remove {path}: {error}", permanent=False) from error

    def hand_over(self, project_key: str, job_id: str) -> None:
        account = self._accounts.of_project(project_key)
        try:
            account.take_over(self._layout.job_dir(job_id))
        except FileNotFoundError:
            return  # it never started here
        except (OSError, RecursionError) as error:
            text = f"cannot give the files of job {job_id} to {project_key}: {error}"
            raise ExecutorError(text, permanent=False) from error

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        processes = list(all_processes()) if known else []
        return [self._observe_one(run_id, epoch, processes) for run_id, epoch in known]

    def examine(self, api_url: str) -> Iterable[Finding]:
        yield Finding("isolation", self.isolation_problem is None, self.isolation_problem or "jobs can be started")
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
        yield from offer_findings(offers(self._data_cache_dir, socket.gethostname()), self._software)

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        found = list(check_node(self._layout, self.inventory(), wish))
        return found if self._software == NO_SOFTWARE else [*found, *software_findings(installed(), self._software)]

    # Beyond the contract

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Starts the fork servers of these projects, so that their first launch is warm."""
        if self.isolation_problem is None:
            for account in {self._accounts.of_project(key) for key in project_keys}:
                self._zygotes.warm_up(account)

    def stop_warm_start(self, project_keys: Iterable[str]) -> None:
        """Ends the fork servers of these projects; what runs goes on."""
        for account in {self._accounts.of_project(key) for key in project_keys}:
            self._zygotes.stop(account)

    def reap_orphans(self, known_live: Iterable[tuple[str, int]], min_age_s: float = 60.0) -> list[tuple[str, int]]:
        """Ends whatever runs in this data directory without being known, and says which (run, epoch) it was.
        What is younger than `min_age_s` may have been launched after the caller looked."""
        known, reaped, records = set(known_live), [], self._layout.records()
        for record in records:
            for epoch in self._layout.epochs(record):
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
        return reaped

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
        """False when this epoch was launched or called off before; an older epoch than the newest is refused."""
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
        if not self._layout.begun(record.run_id, epoch):  # else an attempt of which nobody knows what became
            earlier.pop(self._layout.epoch_dir(record, epoch), None)
        if not earlier:
            return
        runners = {path: self._runner(other, older) for path, (other, older) in earlier.items()}
        Prey(record.account, runners).end_for_certain()
        for path, (other, older) in earlier.items():
            if self._layout.record(other.run_id) == other:
                self._cgroups.remove(other.run_id, older)
            self._leave_exit(other, older, path, "runner_lost", "ended to make way for a later launch")

    # Looking and ending

    def _epoch_dir(self, run_id: str, epoch: int) -> Path:
        record = self._layout.record(run_id)
        return self._layout.epoch_dir(record, epoch) if record else self._layout.jobs / "-"

    def _prepared(self, record: RunRecord, epoch: int) -> bool:
        with record.account.files(), contextlib.suppress(OSError):
            return (self._layout.epoch_dir(record, epoch) / "launch.json").exists()
        return False

    def _runner(self, record: RunRecord, epoch: int) -> RunnerIdentity | None:
        """Who the runner is: what we noted ourselves, or else what the job's file says, noted then for a launch
        of ours. A job can make directories in the names of other jobs' runs, which says nothing of those."""
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

    def _live_for(self, record: RunRecord, epoch: int) -> float:
        """The age of the runner in seconds, minus infinity if there is none."""
        runner = self._runner(record, epoch)
        process = read_process(runner.pid) if runner and runner.alive(record.account) else None
        return process.age_s if process else float("-inf")

    def _end(self, record: RunRecord, epoch: int, reason: str, message: str, *, by: int | None = None) -> None:
        """Afterwards no process of the epoch exists, and it has an exit record if it ever ran."""
        epoch_dir = self._layout.epoch_dir(record, epoch)
        if epoch_dir in self._swept:
            return
        runner = self._runner(record, epoch)
        Prey(record.account, {epoch_dir: runner}).end_for_certain()
        self._cgroups.remove(record.run_id, epoch)
        with record.account.files():
            shutil.rmtree(epoch_dir / "secrets", ignore_errors=True)  # of a runner that was killed
        self._leave_exit(record, epoch, epoch_dir, reason, message, by=by)
        if runner:
            self._swept.add(epoch_dir)

    def _leave_exit(
        self, record: RunRecord, epoch: int, epoch_dir: Path, reason: str, message: str, *, by: int | None = None
    ) -> None:
        """The processes are gone already: a record that cannot be written holds nothing up."""
        if self._runner(record, epoch) is None:
            return
        try:
            with record.account.files():
                if facts.read_exit(epoch_dir) is None:
                    facts.leave_exit(record, epoch, epoch_dir, reason, message, signal=by)
        except OSError as error:
            log.warning("run %s epoch %s: no exit record: %s", record.run_id, epoch, error)

    def _end_unnamed(self, record: RunRecord, epoch: int) -> None:
        """Ends what was begun without our learning who its runner is; the launch lock is ours."""
        if self._layout.begun(record.run_id, epoch):
            Prey(record.account, {self._layout.epoch_dir(record, epoch): None}).end_for_certain()

    def _observe_one(self, run_id: str, epoch: int, processes: Sequence[Process]) -> Fact:
        now = time.time()
        try:
            record = self._layout.record(run_id)
            if record is None:
                return Fact(run_id, epoch, "absent", now)
            return self._look(record, epoch, now, processes)
        except (ExecutorError, OSError, ValueError) as error:
            # Not certain that they are gone: the GPUs stay held until a later look.
            log.warning("run %s epoch %s: %s", run_id, epoch, error)
            return Fact(run_id, epoch, "alive", now)

    def _look(self, record: RunRecord, epoch: int, now: float, processes: Sequence[Process]) -> Fact:
        run_id, epoch_dir = record.run_id, self._layout.epoch_dir(record, epoch)
        free = self._layout.lock_is_free(run_id)  # before runner.json: it appears before the lock is let go
        runner = self._runner(record, epoch)
        if runner is None and not free:
            return Fact(run_id, epoch, "alive", now)
        if runner is None:
            with self._layout.locked(run_id, timeout_s=0):
                runner = self._runner(record, epoch)  # it may have been launched since
                if runner is None:
                    self._end_unnamed(record, epoch)
                    return Fact(run_id, epoch, "absent", now)
        if runner.alive(record.account):
            return Fact(run_id, epoch, "alive", now, usage=facts.usage_of(runner, processes))
        self._end(record, epoch, "runner_lost", _how_lost(runner))
        with record.account.files():
            ended = facts.read_exit(epoch_dir) or ExitInfo("runner_lost", message=_how_lost(runner))
            return Fact(run_id, epoch, "exited", now, exit=ended, reports=facts.spooled_reports(epoch_dir))


def _how_lost(runner: RunnerIdentity) -> str:
    return "the machine was restarted" if runner.before_reboot else "the runner ended without leaving a record"


def _wait_for_end(runner: RunnerIdentity, account: Account) -> None:
    give_up_at = time.monotonic() + KILL_GRACE_S
    while runner.alive(account) and time.monotonic() < give_up_at:
        time.sleep(0.02)


class _as_executor_error:
    """Turns what the system refuses into the executor's own error."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            permanent = isinstance(error, PermissionError)  # who may do what does not change by itself
            raise ExecutorError(f"cannot {self._verb} the run: {error}", permanent=permanent) from error
