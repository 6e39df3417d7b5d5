"""The first of several runners of one epoch: it speaks for the run, and the others do as it says."""

from __future__ import annotations

import logging
import queue
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.bringing import DataUnavailable
from evenkeel.runner.channel import Channel, Door, Message
from evenkeel.runner.gauges import Lately, mean_over
from evenkeel.runner.listening import Heard
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.spec import LaunchSpec, Place
from evenkeel.runner.verdict import Order, Verdict
from evenkeel.runner.workers import Worker, free_port
from evenkeel.sdk.control import Control

log = logging.getLogger(__name__)

JOIN_S = 300.0  # for the last node to come
BEAT_S = 1.0
SILENCE_S = 30.0  # from then on a node is lost, well within the time after which its GPUs may be given to others
HEAD_FILE = "head.json"


class NodesMissing(Exception):
    """Not all nodes came."""


@dataclass(slots=True)
class Tail:
    """The last words of a worker elsewhere; its log was written there."""

    tail: bytes = b""

    def drain(self) -> None:
        pass


@dataclass(slots=True, kw_only=True)
class RemoteWorker(Worker):
    channel: Channel
    output: Any = field(default_factory=Tail)

    def send(self, number: int) -> None:
        if self.running:
            self.signalled = True
            self.channel.send({"kind": "signal", "rank": self.rank, "number": number})


@dataclass(slots=True)
class Follower:
    node: str
    channel: Channel
    workers: list[RemoteWorker] = field(default_factory=list)
    usage: dict[str, float] = field(default_factory=dict)
    gpus: Lately = field(default_factory=Lately)
    fetching: str = ""  # how far it is with its data
    has_data: bool = False
    problem: str = ""  # why it could not begin, in its words
    permanent: bool = False  # nor could it the next time


class Party:
    """All the nodes of the epoch but the first. Calls do not block while there is other work, except in `gather`, which
    polls `given_up`."""

    def __init__(self, epoch_dir: Path, spec: LaunchSpec, key: bytes) -> None:
        self._dir, self._spec = epoch_dir, spec
        self._others = {str(node["name"]): int(node["workers"]) for node in spec.nodes[1:]}
        self._address = str(spec.nodes[0]["address"])
        self._door = Door(self._address, key)
        self.followers: list[Follower] = []
        self.lost: list[str] = []
        self._beat_at = 0.0
        self._own_gpus = Lately()
        self._sent: tuple[int | None, int | None] = (None, None)
        where = {"address": self._address, "port": self._door.port, "host": socket.gethostname()}
        write_atomically(epoch_dir / HEAD_FILE, where)

    @property
    def world_size(self) -> int:
        return self._spec.workers + sum(self._others.values())

    def gather(self, given_up: Callable[[], bool]) -> None:
        """Until every node has come; NodesMissing where one does not, or where waiting is given up."""
        if self.followers:
            return
        give_up_at, came = time.monotonic() + JOIN_S, dict[str, Channel]()
        while missing := sorted(self._others.keys() - came.keys()):
            if given_up() or time.monotonic() > give_up_at:
                raise NodesMissing(f"{', '.join(missing)} did not join within {JOIN_S:g} s")
            try:
                node, channel = self._door.came.get(timeout=0.1)
            except queue.Empty:
                continue
            if node in missing:
                came[node] = channel
            else:
                channel.close()
        self._door.close()
        self.followers = [Follower(node, came[node]) for node in self._others]

    def tend_data(self) -> str:
        """While data is fetched: signs of life, and how far the others are; empty once all have theirs. Raises
        NodesMissing, and DataUnavailable in the words of the one that cannot have it."""
        now, words = time.monotonic(), ""
        if now >= self._beat_at:
            self._beat_at = now + BEAT_S
            for follower in self.followers:
                follower.channel.send({"kind": "beat"})
        for follower in self.followers:
            channel = follower.channel
            while channel.open and select.select([channel], [], [], 0)[0]:
                for message in channel.receive():
                    self._hear_of_data(message, follower)
            if not follower.has_data:
                words = words or f"{follower.fetching or 'waiting'} on {follower.node}"
                if not channel.open or now - channel.heard_at > SILENCE_S:
                    raise NodesMissing(f"node {follower.node} was lost while data was fetched")
        return words

    @staticmethod
    def _hear_of_data(message: Message, follower: Follower) -> None:
        match message.get("kind"):
            case "data":
                follower.fetching, follower.has_data = str(message.get("text"))[:200], bool(message.get("done"))
            case "no_data":
                text = f"{str(message.get('text'))[:400]} (on {follower.node})"
                raise DataUnavailable(
                    text, permanent=bool(message.get("permanent")), nodes_fault=bool(message.get("nodes_fault"))
                )

    def start(self, chosen: dict[str, Any] | None = None) -> tuple[Place, list[RemoteWorker]]:
        """Has the other nodes start their workers; returns the place of our own workers, and the others' workers.
        `chosen`: the checkpoint from which they resume, if it comes from a store."""
        port, first = free_port(self._address), self._spec.workers
        for number, follower in enumerate(self.followers, start=1):
            count = self._others[follower.node]
            place: dict[str, int | str] = {"first_rank": first, "world_size": self.world_size, "group_rank": number}
            place |= {"master_address": self._address, "master_port": port}
            follower.channel.send({"kind": "start", "workers": count, "place": place, "checkpoint": chosen})
            follower.channel.heard_at = time.monotonic()  # they were silent for as long as we were not ready
            ranks = range(first, first + count)
            follower.workers = [RemoteWorker(rank=rank, pid=-1, channel=follower.channel) for rank in ranks]
            first += count
        own = Place(0, self.world_size, self._address, port)
        return own, [worker for follower in self.followers for worker in follower.workers]

    def tick(self, control: Control, step: int | None = None) -> list[RemoteWorker]:
        """Signs of life, and what the ranks are to know. Returns workers that were running on nodes now lost."""
        now, orders = time.monotonic(), (control.stop_at, control.total)
        if now >= self._beat_at or orders != self._sent:
            self._beat_at, self._sent = now + BEAT_S, orders
            for follower in self.followers:
                follower.channel.send({"kind": "beat", "stop_at": orders[0], "total": orders[1], "step": step})
        gone: list[RemoteWorker] = []
        for follower in self.followers:
            silent = now - follower.channel.heard_at > SILENCE_S
            running = [worker for worker in follower.workers if worker.running]
            if running and (silent or not follower.channel.open):
                self.lost.append(follower.node)
                follower.channel.close()
                gone += running
        return gone

    def verdict(self) -> Verdict | None:
        """Where a node was lost, or could not begin; None where none was."""
        if not self.lost:
            return None
        for follower in self.followers:
            if follower.problem:
                return Verdict("launch_failed", follower.problem, permanent=follower.permanent)
        return Verdict("runner_lost", f"node {self.lost[0]} was lost")

    def usage(self) -> dict[str, float]:
        """CPU seconds and MiB of the others."""
        names = ("cpu_s", "rss_mib")
        return {name: sum(follower.usage.get(name, 0.0) for follower in self.followers) for name in names}

    def gpu_utilisation(self, own: list[float] | None) -> list[float] | None:
        """Of the whole run; `own`: what the gauge of the first node says."""
        now = time.monotonic()
        self._own_gpus.hear(now, own)
        return mean_over([self._own_gpus, *(follower.gpus for follower in self.followers)], now)

    def dismiss(self) -> None:
        for follower in self.followers:
            follower.channel.send({"kind": "leave"})
            follower.channel.close()
        self._door.close()


def understand(
    message: Message,
    follower: Follower,
    heard: Heard,
    order: Callable[[Order], None],
    end: Callable[[RemoteWorker, int, bool], None],
) -> None:
    """What another node's runner says: how a worker ended, what one complained of, what they use."""
    match message.get("kind"):
        case "ended":
            for worker in follower.workers:
                if worker.rank == message.get("rank") and worker.running:
                    worker.output.tail = str(message.get("tail")).encode()
                    end(worker, int(message["status"]), bool(message.get("oom")))
        case "error":
            heard.errors.append(dict(message["line"]))
        case "failed":
            follower.problem, follower.permanent = str(message.get("text"))[:400], bool(message.get("permanent"))
            log.warning("%s", follower.problem)
            follower.channel.close()
        case "asked_to_end":
            order(Order.STOP)
        case "usage":
            follower.usage = {name: float(value) for name, value in dict(message["usage"]).items()}
            follower.gpus.hear(time.monotonic(), [float(value) for value in message.get("gpu_utilisation") or ()])
            heard.contact |= bool(message.get("contact"))
            if message.get("over"):
                order(Order.MEMORY)
