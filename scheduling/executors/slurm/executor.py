"""Runs jobs in an existing Slurm (docs/executors.md)."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import SECRETS_FILE
from evenkeel.runner.files import exists
from evenkeel.runner.grace import KILL_AFTER_S
from evenkeel.runner.spec import END_OF_LEASE_S
from evenkeel.runner.trees import remove_tree

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import (
    NO_RENEWALS,
    NOTHING_KEPT,
    POWERING_UP,
    EngineLimits,
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
    Spooled,
)
from scheduling.executors.local import facts, preparing
from scheduling.executors.local.apart import apart, each_epoch, log_apart
from scheduling.executors.local.environment import own_environment
from scheduling.executors.local.launching import make_job_dir
from scheduling.executors.local.layout import Layout, RunRecord, checked_name
from scheduling.executors.local.machine import storage
from scheduling.executors.local.spooling import is_spooled, spooled_reports
from scheduling.executors.offering import SiteSoftware
from scheduling.executors.slurm.checks import examining
from scheduling.executors.slurm.cluster import others, shares
from scheduling.executors.slurm.cluster.inventory import SlurmNode, features_of, parse_nodes
from scheduling.executors.slurm.cluster.limits import KnownLimits
from scheduling.executors.slurm.cluster.partitions import KnownPartitions, chosen, within
from scheduling.executors.slurm.cluster.waiting import Watch
from scheduling.executors.slurm.cluster.waking import Waking
from scheduling.executors.slurm.commands import Commands, SlurmJob
from scheduling.executors.slurm.endings import brought_about, ending_of, outweighed
from scheduling.executors.slurm.launch import launching
from scheduling.executors.slurm.launch.times import engine_limits
from scheduling.executors.slurm.names import PREFIX, job_name, parse_launch
from scheduling.executors.slurm.options import Options
from scheduling.executors.slurm.remembering import MOMENT_S, RememberingCommands, is_in_motion
from scheduling.executors.slurm.seeing import (
    Notes,
    Seen,
    as_executor_error,
    close,
    decisive,
    node_names,
    past_jobs,
    refresh_directory,
    silent,
    waits_in_words,
)

log = logging.getLogger(__name__)

KILL_GRACE_S = 3.0  # most programs end at once when asked; the others are checked again
GONE_S = 45.0  # from scancel until the nodes have confirmed that nothing is left
LOOK_S, LONGEST_LOOK_S = 0.25, 2.0
CLOCK_S = 1.0  # squeue is called after `Seen.at`; a job recorded since, or just before, may be missing from its output
OURS = Account(None)


class SlurmExecutor(SiteSoftware):
    """`shared_dir` has the same path on the portal's machine and on every node. `options`: see Options."""

    name = "slurm"
    supports_warm_start = supports_sharing = False
    supports_multi_node = True
    supports_git = supports_bundles = supports_environments = supports_secrets = supports_artifacts = True
    isolation_problem: str | None = None
    single_trust_mode = True  # every job runs as the portal's own user

    def __init__(self, shared_dir: str | Path, **options: Any) -> None:
        self._layout = Layout(Path(shared_dir).resolve(), "slurm")
        self._layout.prepare()
        self._notes = Notes(self._layout.own)
        self._options = chosen = Options(**options)
        self._software = chosen.software
        self._commands: Commands = RememberingCommands(
            chosen.conf, chosen.command_timeout_s, self._layout.own, chosen.look_s
        )
        self._partitions = KnownPartitions(self._commands)
        self._limits = KnownLimits(self._commands)
        self._watch = Watch(self._commands, self._layout.own / "looks" / "others" if chosen.look_s else None)
        self._waking = Waking(self._layout.own, self._commands)

    # The executor contract

    def inventory(self) -> Sequence[NodeInfo]:
        partition = self._partitions.of(self._options.partition)
        nodes = self._waking.timed(self._shared_nodes(self._commands.recalling()))
        return tuple(within(node, partition) for node in nodes)

    def refresh(self) -> bool:
        return self._commands.forget()

    def limits(self) -> EngineLimits:
        options, (listed, config) = self._options, self._partitions.listed()
        table = self._limits.table(listed, config, options.given)
        if features := features_of(self._nodes(self._commands.recalling()).values()):
            table = table | {"features": features}
        return engine_limits(options, chosen(listed, options.partition), table)

    def site_shares(self) -> Mapping[tuple[str, str], float]:
        return shares.read_shares(self._commands.run(*shares.COMMAND))

    def launch(self, request: LaunchRequest) -> None:
        record = RunRecord(checked_name(request.run_id), checked_name(request.job_id), None)
        epoch_dir = self._layout.epoch_dir(record, request.epoch)
        with self._layout.locked(record.run_id), as_executor_error("launch"):
            if not self._may_launch(record, request.epoch):
                return
            nodes = self._shared_nodes()
            partition = self._partitions.of(request.sbatch.get("partition", self._options.partition))
            groups = launching.parts_of(request, others.as_left(nodes, request.placement), partition)
            self._layout.remember(record)
            self._end_earlier(record, request.epoch)
            make_job_dir(self._layout, record.job_id, OURS)
            launching.prepare(self._layout, request, groups, self._options, epoch_dir, nodes)
            self._layout.begin(record.run_id, request.epoch)
            self._notes.name(record.run_id, request.epoch, job_name(request.job_number, request.job_name))
            job_id = self._commands.submit(launching.arguments(request, groups, self._options, epoch_dir, partition))
            self._notes.write(record.run_id, request.epoch, job_id)

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        record = self._layout.record(run_id)
        with self._layout.locked(run_id), as_executor_error("stop"):
            if record is None or not self._layout.begun(run_id, epoch):
                self._layout.call_off(run_id, epoch)
                return
            (self._layout.epoch_dir(record, epoch) / "stop").touch(mode=0o600)
            if waiting := [job.job_id for job in self._live(run_id, epoch) if job.pending]:
                self._commands.cancel(waiting, "--state=PENDING")  # a job that has started meanwhile finds the file

    def kill(self, run_id: str, epoch: int) -> None:
        """Returns when Slurm reports that the processes are gone, or early while the program has its grace period: the
        next call checks again, and has Slurm end the job once KILL_AFTER_S have passed since the first."""
        with self._layout.locked(run_id), as_executor_error("kill"):
            record = self._layout.record(run_id)
            if record is None or not self._layout.begun(run_id, epoch):
                self._layout.call_off(run_id, epoch)
                return
            self._notes.kill_mark(run_id, epoch).touch(mode=0o600)
            live = self._live(run_id, epoch)
            if live and not any(job.pending for job in live):
                self._commands.cancel([min(job.job_id for job in live)], "--batch", "--signal=USR1")  # the leading one
                asked_s = self._layout.asked_to_end_s(run_id, epoch)
                live = self._await_end(run_id, epoch, KILL_GRACE_S if asked_s < KILL_GRACE_S else 0.0)
                if live and asked_s < KILL_AFTER_S:
                    return
            if live:
                self._commands.cancel([job.job_id for job in live])
                self._await_end(run_id, epoch, GONE_S)
            self._observe_one(run_id, epoch, self._see())  # its end is recorded before Slurm forgets it

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        if not known:
            return []
        seen = self._see_for(known)
        return [self._observe_one(*launch, seen, renewed_at.get(launch)) for launch in known]

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        record = self._layout.record(run_id)
        if record is not None:
            yield from spooled_reports(OURS, self._layout.epoch_dir(record, epoch))

    def prepare(self, preparation: Preparation) -> Progress:
        return preparing.prepare(self._layout, OURS, preparation, own_environment())

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        preparing.discard_all(self._layout, OURS, paths)

    def hand_over(self, project_key: str, job_id: str) -> None:
        """All files belong to one user."""

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Nothing: workers start cold."""

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        return examining.examine(self._commands, self._options, self._layout.data, api_url, kept)

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        found = list(examining.check_node(self._commands, self._options, self._layout.data, wish))
        return [*found, storage.free_space(self._layout.jobs, wish.min_free_mib)]

    def reap_orphans(self, known_live: Iterable[tuple[str, int]], min_age_s: float = 60.0) -> list[tuple[str, int]]:
        """End jobs of our recorded runs that the portal does not know; another portal's are left alone."""
        return self._reap(set(known_live), min_age_s, self._see(self._commands.recalling()))

    def _reap(self, known: Set[tuple[str, int]], min_age_s: float, seen: Seen) -> list[tuple[str, int]]:
        reaped = []
        for record, epoch in each_epoch(self._layout, self._layout.records()):
            with apart("reaping", record.run_id, epoch):
                live = seen.live(record.run_id, epoch)
                if (
                    (record.run_id, epoch) in known
                    or not live
                    or time.time() - self._notes.at(record.run_id, epoch) <= min_age_s
                ):
                    continue
                self.kill(record.run_id, epoch)
                reaped.append((record.run_id, epoch))
        return reaped

    # Launching

    def _nodes(self, commands: Commands | None = None) -> dict[str, SlurmNode]:
        options = self._options
        found = parse_nodes(
            (commands or self._commands).nodes(),
            options.partition,
            reservation=options.reservation,
            emulated=options.emulated,
            memory_mib=options.gpu_memory_mib,
        )
        return {node.info.name: node for node in found}

    def _shared_nodes(self, commands: Commands | None = None) -> dict[str, SlurmNode]:
        """With the use by other jobs."""
        return self._watch.with_taken(self._nodes(commands), self._our_jobs)

    def _our_jobs(self) -> set[int]:
        """Slurm's ids of runs started by this portal. Another portal on the cluster is not included."""
        return self._begun_here(self._see().jobs)

    def _begun_here(self, queue: Mapping[str, Sequence[SlurmJob]]) -> set[int]:
        """Jobs that do not name their launch (checks of nodes, a changed comment) count as ours."""
        found = set[int]()
        for name, jobs in queue.items():
            launch = parse_launch(name)
            if not name:
                found |= {job.job_id for job in jobs if job.name.startswith(PREFIX)}
            elif launch is not None and self._layout.begun(*launch):
                # Anybody can give a job another's comment: if the launch's id is known, the id counts.
                number = self._notes.job_id(*launch)
                found |= {job.job_id for job in jobs if number in (None, job.leading_id or job.job_id)}
        return found

    def _may_launch(self, record: RunRecord, epoch: int) -> bool:
        """False if this epoch was sent or cancelled before; an epoch older than the newest is refused."""
        if self._layout.called_off(record.run_id, epoch):
            return False
        newest = max(self._layout.epochs(record), default=epoch)
        if newest > epoch:
            raise ExecutorError(f"epoch {epoch} of run {record.run_id} is stale: epoch {newest} exists", permanent=True)
        if not self._layout.begun(record.run_id, epoch):
            return True
        if self._notes.job_id(record.run_id, epoch) is not None:
            return False
        # it may have been sent, but its job id was lost
        if found := self._known_to_slurm(record, epoch):
            self._notes.write(record.run_id, epoch, min(job.job_id for job in found))  # the leading one
            return False
        with contextlib.suppress(OSError):
            remove_tree(self._layout.epoch_dir(record, epoch) / "claim")  # ours, see `_close`
        return True

    def _known_to_slurm(self, record: RunRecord, epoch: int) -> Sequence[SlurmJob]:
        return self._see().of(record.run_id, epoch) or self._past(record, epoch) or ()

    def _past(self, record: RunRecord, epoch: int) -> Sequence[SlurmJob] | None:
        epoch_dir = self._layout.epoch_dir(record, epoch)
        return past_jobs(self._commands, self._notes, record.run_id, epoch, epoch_dir)

    def _end_earlier(self, record: RunRecord, epoch: int) -> None:
        """Nothing of the job may still run: earlier epochs and earlier runs share its checkpoints."""
        earlier = [
            (other, older)
            for other in self._layout.runs_of_job(record)
            for older in self._layout.epochs(other)
            if (other.run_id, older) != (record.run_id, epoch) and self._layout.begun(other.run_id, older)
        ]
        seen = self._see() if earlier else Seen(0.0, {}, self._notes)
        for other, older in earlier:
            if live := seen.live(other.run_id, older):
                self._commands.cancel([job.job_id for job in live])
                unseen = self._ended_unseen(live, self._layout.epoch_dir(other, older))
                if not unseen and self._await_end(other.run_id, older, GONE_S):
                    raise ExecutorError(f"epoch {older} of run {other.run_id} is still ending", permanent=False)
            fact = self._observe_one(other.run_id, older, self._see() if live else seen)
            if fact.kind == "alive":
                text = f"epoch {older} of run {other.run_id} may still run on a node that Slurm lost"
                raise ExecutorError(text, permanent=False)

    # What we know

    def _see(self, commands: Commands | None = None) -> Seen:
        at, commands = time.time(), commands or self._commands.recalling(0.0)
        jobs = commands.jobs(PREFIX)
        return Seen(commands.asked_at or at, jobs, self._notes)  # jobs sent since may be missing

    def _see_for(self, known: Sequence[tuple[str, int]]) -> Seen:
        """In quiet times Slurm's last answer suffices."""
        places = [(launch, place) for launch in known if (place := self._place_of(*launch))]
        if any(is_in_motion(self._notes, place, *launch) for launch, place in places):
            return self._see()
        seen = self._see(commands := self._commands.recalling())
        if commands.asked_at is not None and any(self._has_begun_since(seen, *one) for one in places):
            return self._see()
        return seen

    @staticmethod
    def _has_begun_since(seen: Seen, launch: tuple[str, int], epoch_dir: Path) -> bool:
        live = seen.live(*launch)
        return bool(live) and all(job.pending for job in live) and exists(epoch_dir / "claim" / "job")

    def _place_of(self, run_id: str, epoch: int) -> Path | None:
        with contextlib.suppress(ExecutorError, OSError):
            if record := self._layout.record(run_id):
                return self._layout.epoch_dir(record, epoch)
        return None

    def _live(self, run_id: str, epoch: int) -> list[SlurmJob]:
        return self._see().live(run_id, epoch)

    def _await_end(self, run_id: str, epoch: int, timeout_s: float) -> list[SlurmJob]:
        """What is left of it after at most that time."""
        give_up_at, wait_s = time.monotonic() + timeout_s, LOOK_S
        while (live := self._live(run_id, epoch)) and time.monotonic() < give_up_at:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_LOOK_S)
        return live

    # Observing

    def _observe_one(self, run_id: str, epoch: int, seen: Seen, renewed_at: float | None = None) -> Fact:
        now = time.time()
        try:
            record = self._layout.record(run_id)
            if record is None or not self._layout.begun(run_id, epoch):
                return Fact(run_id, epoch, "absent", now)
            return self._look(record, epoch, now, seen, renewed_at)
        except Exception as error:
            # it is not certain that they are gone: the GPUs stay occupied until a later observation
            if not isinstance(error, ExecutorError) or "cannot name" not in str(error):
                log_apart("observing", run_id, epoch, error)
                return Fact(run_id, epoch, "alive", now)
            return Fact(run_id, epoch, "absent", now)

    def _look(self, record: RunRecord, epoch: int, now: float, seen: Seen, renewed_at: float | None) -> Fact:
        run_id, epoch_dir = record.run_id, self._layout.epoch_dir(record, epoch)
        mine = seen.of(run_id, epoch)
        live = [job for job in mine if not job.over]
        if live and not self._ended_unseen(mine, epoch_dir):
            if all(job.pending for job in live) and exists(epoch_dir / "claim" / "job"):
                # It has started before: Slurm has ended it and queued it again. The portal makes the next launch.
                self._notes.requeue_mark(run_id, epoch).touch(mode=0o600)
                self._commands.cancel([job.job_id for job in live], "--state=PENDING")
            return Fact(run_id, epoch, "alive", now, waits=self._waits(live))
        if not mine and self._notes.job_id(run_id, epoch) is None:
            return self._look_unnoted(record, epoch, now)
        if not mine and self._notes.at(run_id, epoch) >= seen.at - CLOCK_S:
            return Fact(run_id, epoch, "alive", now)
        refresh_directory(epoch_dir)
        job = decisive(mine or self._past(record, epoch) or (), epoch_dir)
        left = facts.read_exit(epoch_dir)
        # as of the moment of observation: `renewed_at` is known until then
        if self._may_run_on(record, epoch, job, left, renewed_at, min(now, seen.at)):
            return Fact(run_id, epoch, "alive", now)
        close(epoch_dir)
        if left is not None and job is not None and node_names(epoch_dir):
            left = left if self._notes.kill_mark(run_id, epoch).exists() else outweighed(job, left)
        ended = left or self._write_exit_record(record, epoch, epoch_dir, job)
        if job is not None and job.ended("OUT_OF_MEMORY") and ended.reason in ("signal", "user_error"):
            ended = replace(ended, reason="out_of_memory", message=f"{ended.message}: out of memory in Slurm's eyes")
        asked = exists(epoch_dir / "stop")
        if job is not None and ended.reason in ("stopped", "time_limit") and not asked:
            by_limit = job.ended_by_limit(self._options.end_signal_s)
            said = brought_about(job, by_limit=by_limit) if ended.reason == "stopped" else ""
            ended = replace(ended, engine_limit=by_limit, message=said or ended.message)
        self._clean(epoch_dir)
        began_at, ended_at = (job.started_at, job.ended_at) if job is not None else (None, None)
        if self._notes.requeue_mark(run_id, epoch).exists():  # Slurm's times are those of its last part
            began_at, ended_at = self._first_part(run_id, epoch)
        spooled = is_spooled(epoch_dir)
        return Fact(run_id, epoch, "exited", now, exit=ended, spooled=spooled, began_at=began_at, ended_at=ended_at)

    def _first_part(self, run_id: str, epoch: int) -> tuple[float | None, float | None]:
        number = self._notes.job_id(run_id, epoch)
        if number is None:
            return None, None
        try:
            return self._commands.first_part(number)
        except ExecutorError as error:
            log.warning("run %s epoch %s: when it ran is not known: %s", run_id, epoch, error)
            return None, None

    def _look_unnoted(self, record: RunRecord, epoch: int, now: float) -> Fact:
        """A launch under way, or one that was interrupted. Before it counts as absent it is closed: if Slurm has
        accepted the job after all, the job finds its epoch claimed and exits."""
        run_id = record.run_id
        if not self._layout.lock_is_free(run_id):
            return Fact(run_id, epoch, "alive", now)
        with self._layout.locked(run_id, timeout_s=0):
            if self._notes.job_id(run_id, epoch) is not None:
                return Fact(run_id, epoch, "alive", now)
            if found := self._known_to_slurm(record, epoch):
                self._notes.write(run_id, epoch, min(job.job_id for job in found))
                return Fact(run_id, epoch, "alive", now)
            with contextlib.suppress(FileNotFoundError):
                (self._layout.epoch_dir(record, epoch) / "claim").mkdir(mode=0o700)
        return Fact(run_id, epoch, "absent", now)

    def _may_run_on(
        self,
        record: RunRecord,
        epoch: int,
        job: SlurmJob | None,
        left: ExitInfo | None,
        renewed_at: float | None,
        now: float,
    ) -> bool:
        """Slurm has given the job up because a node does not answer, or has forgotten it (`job` None) before we looked:
        until its runners have reported, or its lease has certainly expired, it may continue there. Without the first
        one, which has the lease, the others end by themselves. Runners that still see the shared directory are asked to
        stop."""
        epoch_dir = self._layout.epoch_dir(record, epoch)
        if not exists(epoch_dir / "claim" / "job"):
            return False
        if left is not None and not ((quiet := silent(epoch_dir)) and quiet & self._silent_nodes()):
            return False
        if job is not None and not (job.ended("NODE_FAIL") or self._on_lost_node(job)):
            return False
        with contextlib.suppress(OSError):  # the job may have closed or removed its directory
            (epoch_dir / "stop").touch(mode=0o600)
        since = self._notes.unseen_since(record.run_id, epoch, (job and job.ended_at) or now)
        if left is not None:
            return now < since + END_OF_LEASE_S + self._options.skew_s
        # Slurm's clock may differ from ours, by which its lease was renewed
        begun_at = since + self._options.skew_s if renewed_at is None else renewed_at
        return now < begun_at + self._options.lease_s + END_OF_LEASE_S

    def _ended_unseen(self, jobs: Sequence[SlurmJob], epoch_dir: Path) -> bool:
        """On nodes of which some do not answer, so that Slurm counts it as running until it gives them up: the runner
        of each has reported the end there."""
        if facts.read_exit(epoch_dir) is None or silent(epoch_dir):  # first: it reads files, the others run commands
            return False
        return any(self._on_lost_node(job) for job in jobs)

    def _on_lost_node(self, job: SlurmJob) -> bool:
        listed = self._commands.run("scontrol", "show", "hostnames", job.nodes).split() if job.nodes else []
        return not self._silent_nodes().isdisjoint(listed)

    def _waits(self, live: Sequence[SlurmJob]) -> str:
        """Nodes that power saving has switched off are named while they come up."""
        configured = [job.nodes for job in live if job.nodes and "CONFIGURING" in job.states]
        if not configured:
            return waits_in_words(live) + self._behind(live)
        named = self._commands.run("scontrol", "show", "hostnames", ",".join(configured)).split()
        nodes = self._nodes(self._commands.recalling(MOMENT_S))
        waking = [name for name in named if name in nodes and nodes[name].wakes]
        return f"{POWERING_UP} ({self._waking.in_words(waking)})" if waking else waits_in_words(live)

    def _behind(self, live: Sequence[SlurmJob]) -> str:
        """How many jobs of others precede one that waits for nodes."""
        if not any(job.pending and job.reason in ("Resources", "Priority") for job in live):
            return ""
        nodes = self._nodes(self._commands.recalling(MOMENT_S))
        return self._watch.behind({job.job_id for job in live}, self._our_jobs(), nodes.values())

    def _silent_nodes(self) -> set[str]:
        nodes = self._nodes(self._commands.recalling(MOMENT_S))  # once for all runs of a round
        return {name for name, node in nodes.items() if node.silent}

    def _write_exit_record(self, record: RunRecord, epoch: int, epoch_dir: Path, job: SlurmJob | None) -> ExitInfo:
        killed = self._notes.kill_mark(record.run_id, epoch).exists()
        requeued = self._notes.requeue_mark(record.run_id, epoch).exists()
        ending = ending_of(job, epoch_dir, killed=killed, requeued=requeued)
        try:
            more = {"signal": ending.signal, "alleged": ending.alleged}
            left = facts.write_exit_record(record, epoch, epoch_dir, ending.reason, ending.message, **more)
            return replace(left, nodes_fault=ending.nodes_fault)
        except Exception as error:
            log.warning("run %s epoch %s: no exit record: %s", record.run_id, epoch, error)
            return ExitInfo(
                ending.reason,
                signal=ending.signal,
                message=ending.message,
                nodes_fault=ending.nodes_fault,
                alleged=ending.alleged,
            )

    @staticmethod
    def _clean(epoch_dir: Path) -> None:
        """Secrets of a killed runner."""
        nodes = (epoch_dir / f"node-{name}" for name in node_names(epoch_dir))
        for path in (epoch_dir / SECRETS_FILE, epoch_dir / "secrets", *(node / "secrets" for node in nodes)):
            try:
                if not remove_tree(path, max_entries=2_000, max_s=0.1):
                    log.warning("%s has more in it than is removed at once", path)
            except OSError as error:
                log.warning("%s stays: %s", path, error)
