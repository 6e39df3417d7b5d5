"""The runner of a node that is not the epoch's first: starts its workers, says how they end, and ends with the first.

It writes into the epoch's directory nothing but logs and what its own workers say (`node-<name>/sdk`).
"""

from __future__ import annotations

import json
import logging
import os
import select
import selectors
import signal
import time
from dataclasses import replace
from pathlib import Path

from evenkeel.runner.bringing import Bringing, DataUnavailable, GivenUp
from evenkeel.runner.channel import Channel, Message, join
from evenkeel.runner.files import open_plain
from evenkeel.runner.gauges import Gauge, NoGauge, gauge_for
from evenkeel.runner.grace import TERM_GRACE_S
from evenkeel.runner.leading import HEAD_FILE, JOIN_S, SILENCE_S
from evenkeel.runner.listening import Listener
from evenkeel.runner.processes import descendants, group_lives, kernel_oom_kills, signal_quietly
from evenkeel.runner.secrets import Secrets, token_of
from evenkeel.runner.software import SoftwareUnavailable, with_software
from evenkeel.runner.spec import ENDED_FILE, LaunchSpec, Place
from evenkeel.runner.storing import Terms, bring_elsewhere, forget_checkpoints
from evenkeel.runner.workers import Worker, start_workers
from evenkeel.sdk.control import Control
from evenkeel.store import StoreError

log = logging.getLogger(__name__)

TICK_S = 0.1
USAGE_S = 2.0
GAUGE_S = 1.0
LAST_WORDS_S = 0.3


class FollowingRunner:
    def __init__(
        self, epoch_dir: Path, spec: LaunchSpec, node: str, secrets: Secrets, data: Bringing | None = None
    ) -> None:
        self._dir, self._node, self._data = epoch_dir, node, data
        self._secrets = secrets.hiding(token_of(epoch_dir))
        self._own = epoch_dir / f"node-{node}"
        (self._own / "sdk").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._spec = spec
        self._control = Control.create(self._own / "sdk" / "control")
        self._workers: list[Worker] = []
        self._ended: list[tuple[float, Worker, int]] = []  # and not told yet
        self._kill_at: dict[int, float] = {}  # by the worker's process id: its grace is over then
        self._leave = self._asked_to_end = False
        self._errors_reported, self._usage_at, self._progress_at = 0, 0.0, 0.0
        self._oom_kills = kernel_oom_kills()
        self._gauge: Gauge = NoGauge()
        self._gauge_at = 0.0
        self._step: int | None = None  # of the run, as the first node knows it

    def ask_to_end(self) -> None:
        """From a signal handler: the first node's runner decides what follows."""
        self._asked_to_end = True

    def run(self) -> None:
        self._follow()
        if not descendants(os.getpid()):
            (self._own / ENDED_FILE).touch(mode=0o600)

    def _follow(self) -> None:
        self._channel = self._join()
        if not self._bring_data():
            return
        start = self._channel.wait(JOIN_S)
        while start is not None and start.get("kind") == "beat":  # the others still fetch their data
            start = self._channel.wait(JOIN_S)
        if start is None or start.get("kind") != "start":
            log.info("the first node's runner is gone")
            return
        place = Place(**start["place"], sdk_dir=str(self._own / "sdk"))
        self._spec = replace(self._spec, workers=int(start["workers"]))
        if not self._bring(start.get("checkpoint")):
            return
        self._listener = Listener(self._own / "sdk", self._spec.workers, place.first_rank)
        try:
            self._spec = with_software(self._spec, self._dir, lambda: not self._is_wanted())
            self._workers = start_workers(self._spec, self._dir / "logs", False, self._secrets, place)
        except SoftwareUnavailable as error:
            self._channel.send({"kind": "failed", "text": f"{error} ({self._node})", "permanent": error.permanent})
        except GivenUp:
            return
        except OSError as error:
            self._channel.send({"kind": "failed", "text": f"the program could not be started on {self._node}: {error}"})
        self._gauge = gauge_for(self._spec)
        self._watch()
        self._end_descendants()

    def _bring_data(self) -> bool:
        """Whether the job's data is on this node, too; False if it cannot be fetched, which is reported to the first
        node."""
        if self._data is None:
            return True
        try:
            variables = self._data.bring(self._own / "data", self._tell_progress, lambda: not self._is_wanted())
        except DataUnavailable as error:
            self._channel.send({"kind": "no_data", "text": str(error), "permanent": error.permanent,
                                "nodes_fault": error.nodes_fault})  # fmt: skip
            return False
        except GivenUp:
            return False
        self._spec = self._spec.with_variables(variables)
        self._channel.send({"kind": "data", "done": True})
        return True

    def _tell_progress(self, words: str) -> None:
        if (now := time.monotonic()) >= self._progress_at:
            self._progress_at = now + USAGE_S
            self._channel.send({"kind": "data", "text": words, "done": False})

    def _bring(self, chosen: Message | None) -> bool:
        """With a store: fetches the checkpoint from which the first node resumes. Sends signs of life meanwhile; False
        if it cannot be fetched, which is reported to the first node."""
        terms = Terms.of(self._spec, self._secrets, self._node)
        if terms is None or not terms.cache_dir:  # the directory is the first node's, too: it is as it should be
            return True
        self._spec = self._spec.with_checkpoints_in(terms.directory)
        try:
            if chosen is None:
                forget_checkpoints(terms.directory)
            else:
                bring_elsewhere(terms, chosen, self._is_wanted)
        except (StoreError, OSError) as error:
            self._channel.send({"kind": "failed", "text": f"no checkpoint to begin with on {self._node}: {error}"})
            return False
        return self._channel.open

    def _is_wanted(self) -> bool:
        """Whether the first node's runner still waits for us."""
        now = time.monotonic()
        if now >= self._usage_at:
            self._usage_at = now + USAGE_S
            self._channel.send({"kind": "usage", "usage": {}, "contact": False, "over": False})
        while self._channel.open and select.select([self._channel], [], [], 0)[0]:
            for message in self._channel.receive():
                self._obey(message)
        return self._channel.open and not self._leave

    def _join(self) -> Channel:
        """A shared file system may remember for a while that a file is not there, unless we change its directory."""
        key = token_of(self._dir).encode()
        give_up_at = time.monotonic() + JOIN_S
        while True:
            draft = self._dir / f".looking-{self._node}"
            draft.touch(mode=0o600)
            draft.unlink(missing_ok=True)
            try:
                with open_plain(self._dir / HEAD_FILE) as file:
                    head = json.loads(file.read(1 << 16))
                return join(str(head["address"]), int(head["port"]), key, self._node)
            except (OSError, ValueError, KeyError):
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)

    def _watch(self) -> None:
        for message in self._channel.pending:
            self._obey(message)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            for worker in self._workers:
                selector.register(worker.output.read_fd, selectors.EVENT_READ, worker)
            while not self._leave:
                for key, _ in selector.select(TICK_S):
                    if key.data is not None:
                        if not key.data.output.pump():
                            selector.unregister(key.fd)
                        continue
                    for message in self._channel.receive():
                        self._obey(message)
                self._tick()
                if not self._channel.open or time.monotonic() - self._channel.heard_at > SILENCE_S:
                    log.info("the first node's runner is gone: ending the workers")
                    return

    def _obey(self, message: Message) -> None:
        match message.get("kind"):
            case "beat":
                stop_at, total = message.get("stop_at"), message.get("total")
                if stop_at is not None and self._control.stop_at is None:
                    self._control.stop_at = int(stop_at)
                if total is not None and (self._control.total or 0) < int(total):
                    self._control.total = int(total)
                self._step = message.get("step")
            case "signal":
                for worker in self._workers:
                    if worker.rank == message.get("rank"):
                        self._signal(worker, int(message["number"]))
            case "leave":
                self._leave = True

    def _signal(self, worker: Worker, number: int) -> None:
        if number == signal.SIGTERM:
            self._kill_at.setdefault(worker.pid, time.monotonic() + TERM_GRACE_S)
        worker.send(number)

    def _tick(self) -> None:
        self._reap()
        self._tell_ends()
        self._listener.listen()
        for error in self._listener.heard.errors[self._errors_reported :]:
            self._channel.send({"kind": "error", "line": error})
        self._errors_reported = len(self._listener.heard.errors)
        now = time.monotonic()
        if self._asked_to_end:
            self._asked_to_end = False
            self._channel.send({"kind": "asked_to_end"})
        if now >= self._gauge_at:
            self._gauge_at = now + GAUGE_S
            self._gauge.sample()
        if now >= self._usage_at:
            self._usage_at = now + USAGE_S
            self._tell_usage(now)

    def _tell_usage(self, now: float) -> None:
        below = descendants(os.getpid())
        cpu_s, rss_mib = sum(process.cpu_s for process in below), sum(process.rss_mib for process in below)
        self._channel.send(
            {
                "kind": "usage",
                "usage": {"cpu_s": cpu_s, "rss_mib": rss_mib},
                "gpu_utilisation": self._gauge.take(now, cpu_s, self._step),
                "contact": self._listener.heard.contact,
                "over": self._spec.memory_mib is not None and rss_mib > self._spec.memory_mib,
            }
        )

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
                worker = by_pid[pid]
                worker.end(status, 0)
                self._ended.append((time.monotonic() + LAST_WORDS_S, worker, status))

    def _tell_ends(self) -> None:
        """With their last words, which may still be in the pipe."""
        waiting, now = [], time.monotonic()
        for at, worker, status in self._ended:
            if (worker.output.open and now < at) or self._is_leaving(worker, now):
                waiting.append((at, worker, status))
            else:
                self._tell_end(worker, status)
        self._ended = waiting

    def _is_leaving(self, worker: Worker, now: float) -> bool:
        """It was asked to end and has, and what it started has the rest of the grace."""
        return now < self._kill_at.get(worker.pid, 0.0) and group_lives(worker.pid)

    def _tell_end(self, worker: Worker, status: int) -> None:
        oom = worker.killed and not worker.signalled and kernel_oom_kills() > self._oom_kills
        tail = worker.output.tail.decode(errors="replace")
        self._channel.send({"kind": "ended", "rank": worker.rank, "status": status, "tail": tail, "oom": oom})

    def _end_descendants(self) -> None:
        give_up_at = time.monotonic() + 10.0
        while (below := descendants(os.getpid())) and time.monotonic() < give_up_at:
            for process in below:
                signal_quietly(process.pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)
        for worker in self._workers:
            worker.output.drain()
