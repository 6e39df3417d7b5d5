"""The runner of one epoch: starts the workers, watches over them, ends them, says how it went."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel.runner.bringing import LOG_EVERY_S, Bringing, DataUnavailable, GivenUp
from evenkeel.runner.gauges import gauge_for
from evenkeel.runner.grace import TERM_GRACE_S
from evenkeel.runner.leading import JOIN_S, Follower, NodesMissing, Party, RemoteWorker, understand
from evenkeel.runner.listening import Listener
from evenkeel.runner.neighbours import Neighbours, next_beat, phase_of_node
from evenkeel.runner.output import RotatingLog
from evenkeel.runner.processes import (
    Process,
    descendants,
    group_of,
    group_oom_kills,
    kernel_oom_kills,
    proportional_mib,
    signal_quietly,
)
from evenkeel.runner.reports import CROWDED_INTERVAL_S, Reporter, report_url, write_atomically
from evenkeel.runner.samples import Sampler
from evenkeel.runner.secrets import Secrets, token_of
from evenkeel.runner.software import SoftwareUnavailable, with_software
from evenkeel.runner.spec import LaunchSpec
from evenkeel.runner.storing import Storing
from evenkeel.runner.verdict import Order, Verdict, ended_by_sigterm, judge
from evenkeel.runner.workers import Worker, start_workers
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, Control
from evenkeel.store import StoreError

log = logging.getLogger(__name__)

TICK_S = 0.1
READY_WITHOUT_SDK_S = 2.0
CHECKPOINT_GRACE_S = {Order.STOP: 100.0, Order.LEASE: 30.0, Order.TIME_LIMIT: 15.0}  # from the request to SIGTERM
LEAVE_GRACE_S = 15.0  # from the SDK's last word to SIGTERM
OWN_SIGNAL_S = 1.0  # from a worker's end by SIGTERM, until it was for the worker alone
LINGER_GRACE_S = 60.0  # from rank 0's end to SIGTERM for the others
ECHO_S = 0.5  # failures within this time of the first are looked at together
FINAL_REPORT_S = 3.0
MEMORY_CHECK_S = 1.0
_REPORTS_IN_LEASE = 4


@contextlib.contextmanager
def woken_by_signals() -> Iterator[int]:
    """A file descriptor that becomes readable with every signal: a worker's end is seen at once."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


class Runner:
    def __init__(
        self,
        epoch_dir: Path,
        spec: LaunchSpec,
        *,
        can_fork: bool,
        secrets: Secrets | None = None,
        storing: Storing | None = None,
        data: Bringing | None = None,
    ) -> None:
        self._dir, self._spec, self._can_fork, self._storing, self._data = epoch_dir, spec, can_fork, storing, data
        self.exit_code = 1  # until it is known how the epoch ended
        self.ended_on_request = self._commanded = False  # by the portal, not by a signal of the engine's
        self._fetching, self._logged_at = "", time.monotonic()
        token = token_of(epoch_dir)
        self._secrets = (secrets or Secrets()).hiding(token)
        self._redactor = self._secrets.redactor()
        self._started = time.monotonic()
        self._listener = Listener(epoch_dir / "sdk", spec.workers)
        self._heard = self._listener.heard
        self._control = Control.create(epoch_dir / "sdk" / "control")
        self._workers: list[Worker] = []
        self._ordered: Order | None = None  # what reached us, perhaps from another thread or a signal handler
        self._order: Order | None = None  # what is being carried out
        self._term_at = self._kill_at = float("inf")
        self._asked: set[int] = set()  # processes outside of the workers' groups that got SIGTERM
        self._report_at = self._memory_at = 0.0
        self._ready_at: float | None = None
        self._trains_since: float | None = None
        self._expects_sdk = spec.mentions_sdk()
        self._gauge = gauge_for(spec)
        self._sampler = Sampler(spec, lambda: self._heard.step)
        self._oom_kills, self._oom = kernel_oom_kills(), False
        self._party = Party(epoch_dir, spec, token.encode()) if len(spec.nodes) > 1 else None
        self._reporter = Reporter(
            epoch_dir / "spool",
            report_url(spec.api_url, spec.run_id),
            token,
            self._command_from_portal,
            Neighbours(spec.api_url, spec.run_id, token),
        )
        self._beat_phase = phase_of_node()

    # Orders

    def order(self, order: Order) -> None:
        ranks = list(Order)
        if self._ordered is None or ranks.index(order) > ranks.index(self._ordered):
            self._ordered = order

    def _command_from_portal(self, command: str) -> None:
        known = {"checkpoint_and_stop": Order.STOP, "kill": Order.KILL}
        if command in known:
            self._commanded = True
            self.order(known[command])

    # The course of an epoch

    def run(self) -> None:
        if self._asked_to_stop():
            self._finish(Verdict("stopped", "stopped before it started"))
            return
        try:
            self._bring_data()
            self._settle_checkpoint()
            self._spec = with_software(self._spec, self._dir, self._is_over)
            self._workers = self._start_workers()
        except StoreError as error:
            self._finish(self._not_gathered(f"the checkpoint to begin with cannot be had: {error}"))
            return
        except DataUnavailable as error:
            verdict = Verdict(
                "data_unavailable", str(error), permanent=error.permanent, nodes_fault=error.nodes_fault or None
            )
            self._finish(self._not_gathered(verdict))
            return
        except SoftwareUnavailable as error:
            self._finish(self._not_gathered(Verdict("launch_failed", str(error), permanent=error.permanent)))
            return
        except (NodesMissing, GivenUp) as error:
            self._finish(self._not_gathered(str(error)))
            return
        except OSError as error:
            self._end_descendants()
            self._finish(Verdict("launch_failed", f"the program could not be started: {error}"))
            return
        self._reporter.start()
        self._sampler.start()
        self._watch()
        self._end_descendants()
        self._await_own_signal()
        if self._party:
            self._party.dismiss()
        self._listener.listen()
        unsaved = self._await_store()
        if self._party and self._order is None and (lost := self._party.verdict()):
            self._finish(lost)
            return
        limits = {"memory_mib": self._spec.memory_mib, "max_duration_s": self._max_duration_s}
        in_group = group_oom_kills(f"{self._spec.run_id}.{self._spec.epoch}") > 0
        verdict = judge(self._workers, self._heard, self._order, limits, self._oom, in_group)
        self._finish(replace(verdict, message="; ".join(filter(None, (verdict.message, unsaved)))))

    def _await_own_signal(self) -> None:
        """An engine that ends a job sends SIGTERM to all of its processes: a worker may have ended by its own before
        ours has reached us."""
        if self._order is not None or not any(not one.signalled and ended_by_sigterm(one) for one in self._workers):
            return
        give_up_at = time.monotonic() + OWN_SIGNAL_S
        while not self._is_over() and time.monotonic() < give_up_at:
            time.sleep(TICK_S)
        self._order = self._ordered or (Order.STOP if self._asked_to_stop() else None)

    def _bring_data(self) -> None:
        """What the job names is on all of its nodes, or DataUnavailable; the portal hears how far it is."""
        if self._data is None:
            return
        if self._party:
            self._party.gather(self._is_over)
        variables = self._data.bring(self._dir / "data", self._tell_progress, self._is_over)
        for text in self._data.notices:
            self._write_log(text)
        while self._party and (words := self._party.tend_data()):
            self._tell_progress(words)
            if self._is_over():
                raise GivenUp
            time.sleep(TICK_S)
        self._spec = self._spec.with_variables(variables)
        self._fetching, self._started = "", time.monotonic()

    def _is_over(self) -> bool:
        return self._asked_to_stop() or self._ordered is not None

    def _tell_progress(self, words: str) -> None:
        """In reports, and in the logs, where people look for what a launch does."""
        if self._party:
            self._party.tend_data()
        self._fetching = words
        if (now := time.monotonic()) - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.info("%s", words)
            self._write_log(words)
        if now >= self._report_at:
            self._report_when_due(False)
            self._reporter.send_now()

    def _write_log(self, words: str) -> None:
        first = RotatingLog(self._dir / "logs" / "rank0.log", self._spec.log_bytes)
        first.write(self._redactor.clean_text(f"[evenkeel] {words}\n").encode())
        first.close()

    def _settle_checkpoint(self) -> None:
        """With a store: the checkpoint to begin with is on this node, or StoreError."""
        if self._storing is None:
            return
        self._spec = self._spec.with_checkpoints_in(self._storing.directory)
        most_s = JOIN_S / 2 if self._party else float("inf")  # the other nodes wait
        self._storing.settle(self._is_over, most_s)
        self._reporter.answered_at = time.monotonic()  # nothing was asked of the portal meanwhile

    def _await_store(self) -> str:
        """What did not get into the store of what the program left, in words. Reports go on meanwhile."""
        if self._storing is None:
            return ""
        self._storing.offer(self._heard.checkpoint)
        stopped = self._order is not None or self._heard.stopped
        return self._storing.finish(
            lambda: self._report_when_due(False), lambda: self._ordered is Order.KILL, asked=stopped
        )

    def _below(self) -> list[Process]:
        """The program's processes: what carries checkpoints is ours."""
        ours = {one.pid for one in (self._storing, self._data) if one}
        return [process for process in descendants(os.getpid()) if process.pid not in ours]

    def _start_workers(self) -> list[Worker]:
        if self._party is None:
            return start_workers(self._spec, self._dir / "logs", self._can_fork, self._secrets)
        self._party.gather(self._is_over)
        place, others = self._party.start(self._storing.chosen if self._storing else None)
        try:
            return [*start_workers(self._spec, self._dir / "logs", False, self._secrets, place), *others]
        except OSError:
            self._party.dismiss()
            raise

    def _not_gathered(self, why: str | Verdict) -> Verdict:
        if self._party:
            self._party.dismiss()
        if self._ordered is Order.KILL:
            return Verdict("signal", "killed on request", signal=int(signal.SIGKILL))
        if self._is_over():
            return Verdict("stopped", "stopped before it started")
        return why if isinstance(why, Verdict) else Verdict("launch_failed", why)

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector, woken_by_signals() as signals:
            selector.register(signals, selectors.EVENT_READ)
            for worker in self._workers:
                if not isinstance(worker, RemoteWorker):
                    selector.register(worker.output.read_fd, selectors.EVENT_READ, worker)
            for follower in self._party.followers if self._party else ():
                selector.register(follower.channel, selectors.EVENT_READ, follower)
            while any(worker.running for worker in self._workers) or self._is_leaving():
                for key, _ in selector.select(TICK_S):
                    if key.data is None:
                        os.read(signals, 4096)
                    elif isinstance(key.data, Follower):
                        self._hear(key.data)
                        if not key.data.channel.open:
                            selector.unregister(key.fd)
                    elif not key.data.output.pump():
                        selector.unregister(key.fd)
                self._tick()

    def _tick(self) -> None:
        urgent = self._listener.listen()
        self._reap()
        self._lose(self._party.tick(self._control, self._heard.step) if self._party else [])
        self._notice_ready()
        self._check_limits()
        self._grow()
        self._carry_out()
        self._escalate()
        if self._storing:
            self._storing.offer(self._heard.checkpoint)
            urgent |= self._storing.tick()
        self._report_when_due(urgent)

    def _report_when_due(self, urgent: bool) -> None:
        now = time.monotonic()
        if urgent or now >= self._report_at:
            on_beat = self._report_at > 0
            self._report_at = next_beat(now, self._report_interval_s(), self._beat_phase)
            self._reporter.put(self._redactor.clean_object(self._report()), urgent=urgent, on_beat=on_beat)

    def _report_interval_s(self) -> float:
        """As the portal asked; an answer is to come well before the lease is over."""
        interval_s = self._reporter.interval_s or self._spec.report_interval_s
        if self._reporter.crowded:
            interval_s = max(interval_s, CROWDED_INTERVAL_S)
        return min(interval_s, self._spec.lease_s / _REPORTS_IN_LEASE) if self._spec.lease_s else interval_s

    def _reap(self) -> None:
        by_pid = {worker.pid: worker for worker in self._workers}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                order = sum(not worker.running for worker in self._workers)
                by_pid[pid].end(status, order)
                self._after_end_of(by_pid[pid])

    def _hear(self, follower: Follower) -> None:
        self._reap()  # what failed there may have done so because ours had ended
        for message in follower.channel.receive():
            understand(message, follower, self._heard, self.order, self._end_remote)

    def _end_remote(self, worker: RemoteWorker, status: int, oom: bool) -> None:
        worker.end(status, sum(not other.running for other in self._workers))
        self._after_end_of(worker)
        self._oom |= oom

    def _lose(self, workers: list[RemoteWorker]) -> None:
        for worker in workers:
            log.warning("worker %s is lost with its node", worker.rank)
            worker.end(signal.SIGKILL, sum(not other.running for other in self._workers))
            self._after_end_of(worker)
        if workers and self._order is not None:  # the others may wait for them rather than leave
            self._end_by(time.monotonic() + CHECKPOINT_GRACE_S[Order.TIME_LIMIT])

    def _after_end_of(self, worker: Worker) -> None:
        now = time.monotonic()
        if worker.killed and not worker.signalled and not isinstance(worker, RemoteWorker):
            self._oom = kernel_oom_kills() > self._oom_kills
        if worker.failed and self._order is None:
            self._end_by(now + ECHO_S, 3.0)
        elif worker.rank == 0 and self._heard.done:
            self._end_by(now + LINGER_GRACE_S)

    def _notice_ready(self) -> None:
        if self._heard.ready_at is not None:
            self._ready_at = self._heard.ready_at
            return
        alone = not self._expects_sdk and not self._heard.contact
        if alone and self._ready_at is None and time.monotonic() - self._started >= READY_WITHOUT_SDK_S:
            self._ready_at = time.time()
            self._report_at = 0.0

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._asked_to_stop():
            self.order(Order.STOP)
        self._check_duration(now)
        self._check_lease(now)
        if now < self._memory_at:
            return
        self._memory_at = now + MEMORY_CHECK_S
        self._gauge.sample()
        if not self._oom:
            self._oom_kills = kernel_oom_kills()
        if self._spec.memory_mib and self._used_mib() > self._spec.memory_mib:
            self.order(Order.MEMORY)

    def _asked_to_stop(self) -> bool:
        """A directory that the job has closed to itself, and to us, says nothing."""
        with contextlib.suppress(OSError):
            return (self._dir / "stop").exists()
        return False

    def _check_duration(self, now: float) -> None:
        """Time in training counts; launching has a limit of its own."""
        if self._ready_at is not None and self._trains_since is None:
            self._trains_since = now
            self._sampler.begin()
        if self._trains_since is None or self._max_duration_s is None:
            return
        if now - self._trains_since >= self._max_duration_s:
            self.order(Order.TIME_LIMIT)

    def _check_lease(self, now: float) -> None:
        """Far from the portal our GPUs are given to others when it has not heard of us for so long: a stop that it
        asked for before must be over then, too."""
        lease_s = self._spec.lease_s
        if lease_s is None or self._ordered not in (None, Order.STOP) or now - self._reporter.answered_at <= lease_s:
            return
        log.warning("the portal has not answered for %g s: the lease is over", lease_s)
        self.order(Order.LEASE)

    @property
    def _max_duration_s(self) -> float | None:
        return self._reporter.limits.get("max_duration_s", self._spec.max_duration_s)

    def _grow(self) -> None:
        """Hand on a total that has grown; the ranks take it between two steps."""
        total = self._reporter.limits.get("total_steps")
        if total is not None and total > max(self._spec.total_steps, self._control.total_wanted or 0):
            self._control.total_wanted = int(total)

    def _used_mib(self) -> float:
        """Shared pages counted once; read in full only where the cheap upper bound is over the limit."""
        below = self._below()
        resident = sum(process.rss_mib for process in below)
        if self._spec.memory_mib is None or resident <= self._spec.memory_mib:
            return resident
        return sum(proportional_mib(process.pid) for process in below)

    # Ending the workers

    def _carry_out(self) -> None:
        order = self._ordered
        if order is None or order is self._order:
            if self._heard.stopped:
                self._end_by(time.monotonic() + LEAVE_GRACE_S)
            return
        log.info("ending the workers: %s", order)
        self._order, now = order, time.monotonic()
        if order is Order.MEMORY:  # what it would still allocate is not there
            self._term_at = self._kill_at = now
        elif order is not Order.KILL and self._heard.ready_at is not None:
            self._control.request = CHECKPOINT_AND_STOP
            self._end_by(now + CHECKPOINT_GRACE_S[order])
        else:  # nothing waits for a step: none was made yet, there is no SDK, or the job ends for good
            self._end_by(now)
        self._report_at = 0.0

    def _end_by(self, term_at: float, grace_s: float = TERM_GRACE_S) -> None:
        if term_at < self._term_at:
            self._term_at, self._kill_at = term_at, term_at + grace_s

    def _escalate(self) -> None:
        now = time.monotonic()
        if now >= self._kill_at:
            self._signal(signal.SIGKILL, again=True)
        elif now >= self._term_at:
            self._signal(signal.SIGTERM, again=False)

    def _signal(self, number: int, *, again: bool) -> None:
        for worker in self._workers:
            if again or not worker.signalled:
                worker.send(number)

    def _is_leaving(self) -> bool:
        """Workers that were asked to end have ended and what they started has not: a shell dies before the program that
        it waits for. That has the rest of the grace."""
        if self._order in (None, Order.MEMORY) or not self._term_at <= time.monotonic() < self._kill_at:
            return False
        left = [process for process in self._below() if process.alive]
        asked = {worker.pid for worker in self._workers}
        for process in left:
            if process.pid not in self._asked and group_of(process.pid) not in asked:
                self._asked.add(process.pid)
                signal_quietly(process.pid, signal.SIGTERM)
        return bool(left)

    def _end_descendants(self) -> None:
        """No process below us survives: orphans of the workers have become our children."""
        give_up_at = time.monotonic() + 10.0
        while (below := self._below()) and time.monotonic() < give_up_at:
            for process in below:
                signal_quietly(process.pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)
        for worker in self._workers:
            worker.output.drain()

    # Words to the portal

    def _phase(self) -> str:
        if self._order is not None and self._heard.ready_at is not None:
            return "checkpointing"
        return "running" if self._ready_at is not None else "launching"

    def _speaks_sdk(self, *, ended: bool) -> bool | None:
        """None while it may still be about to."""
        return self._heard.contact or (False if ended or self._ready_at is not None else None)

    def _report(self, exit_record: dict[str, Any] | None = None) -> dict[str, Any]:
        below = self._below()
        elsewhere = self._party.usage() if self._party else {"cpu_s": 0.0, "rss_mib": 0.0}
        cpu_s = sum(process.cpu_s for process in below)
        busy = self._gauge.take(time.monotonic(), cpu_s, self._heard.step)
        return {
            "epoch": self._spec.epoch,
            "phase": "stopped" if exit_record else self._phase(),
            "step": self._heard.step,
            "ready_at": self._ready_at,
            "checkpoint": self._storing.stored if self._storing else self._heard.checkpoint,
            "metrics": self._heard.take_metrics(),
            "usage": {
                "cpu_s": round(cpu_s + elsewhere["cpu_s"], 2),
                "rss_mib": round(sum(process.rss_mib for process in below) + elsewhere["rss_mib"], 1),
            },
            "gpu_utilisation": self._party.gpu_utilisation(busy) if self._party else busy,
            "resources": self._sampler.take(),
            "notices": self._take_notices(),
            "fetching": self._fetching or None,
            "links": self._heard.links,
            "sdk": self._speaks_sdk(ended=exit_record is not None),
            "exit": exit_record,
        }

    def _take_notices(self) -> list[str]:
        others = [one.take_notices() for one in (self._storing, self._data) if one]
        return [*self._heard.take_notices(), *(notice for notices in others for notice in notices)]

    def _finish(self, verdict: Verdict) -> None:
        record = {
            "reason": verdict.reason,
            "exit_code": verdict.exit_code,
            "signal": verdict.signal,
            "step": self._heard.step,
            "message": self._redactor.clean_text(verdict.message),
            "permanent": verdict.permanent,
            "nodes_fault": verdict.nodes_fault,
            "at": time.time(),
        }
        self.exit_code = verdict.as_exit_code()
        asked = self._commanded or self._asked_to_stop()
        stopped, killed = verdict.reason == "stopped" and asked, verdict.reason == "signal"
        self.ended_on_request = stopped or (killed and self._ordered is Order.KILL)
        self._fetching = ""
        log.info("ended: %s %s", record["reason"], record["message"])
        self._reporter.put(self._redactor.clean_object(self._report(record)), urgent=True)
        if not self._workers:
            self._reporter.start()
        self._reporter.flush(FINAL_REPORT_S)
        self._reporter.close()
        write_atomically(self._dir / "exit.json", {"run_id": self._spec.run_id, "epoch": self._spec.epoch, **record})
