"""Nodes that are declared, and runs that are played: for load on a control plane that no machine's jobs could make.

`PlayedNodes` is the executor, in the portal's processes; one `Stage`, in a process of its own, plays all runs: it
reports for them as runners do, with their tokens, over HTTP: those of a node together, at the node's moments, and at
once what is urgent. They talk over a Unix socket, a line of JSON each way. Nothing trains: a run makes its steps at the
pace it was given.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from evenkeel.runner.neighbours import GATHER_S, MOST, next_beat

from scheduling.errors import ExecutorError
from scheduling.executors.base import (
    NO_RENEWALS,
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
)

#: The types of the declared nodes, in turn, and the memory of their GPUs.
TYPES = {"v100": 16_160, "p100": 16_280, "k80": 12_206}
GPUS_OF_A_NODE = 8
LAUNCH_S, STOP_S = 3.0, 1.0
ASK_S = 20.0
#: The status, 0 where none came, and what was said.
Answer = tuple[int, dict[str, Any]]


class PlayedNodes:
    """`nodes` of eight GPUs each."""

    name = "played"
    supports_containers = supports_modules = supports_warm_start = supports_git = supports_bundles = False
    supports_environments = supports_secrets = supports_artifacts = supports_sharing = False
    supports_multi_node = True
    single_trust_mode = False
    isolation_problem = None

    def __init__(self, address: str, nodes: int) -> None:
        self._address, names = address, list(TYPES)
        self._nodes = tuple(self._node(number, names[number % len(names)]) for number in range(nodes))

    @staticmethod
    def _node(number: int, kind: str) -> NodeInfo:
        name = f"node{number:04}"
        gpus = [
            AcceleratorInfo(n, kind, f"played-{name}-{n}", TYPES[kind], emulated=True) for n in range(GPUS_OF_A_NODE)
        ]
        return NodeInfo(name, tuple(gpus), cpus=64, memory_mib=512 * 1024)

    def inventory(self) -> Sequence[NodeInfo]:
        return self._nodes

    def launch(self, request: LaunchRequest) -> None:
        kept = ("job_id", "run_id", "epoch", "total_steps", "checkpoint_every_steps", "api_url", "token")
        part = {name: getattr(request, name) for name in kept} | {"node": next(iter(request.placement))}
        gpus = sum(map(len, request.placement.values()))
        self._ask({"do": "launch", **part, "pace": request.pace_steps_per_s or 1.0, "gpus": gpus})

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        self._ask({"do": "stop", "run": run_id, "epoch": epoch})

    def kill(self, run_id: str, epoch: int) -> None:
        self._ask({"do": "kill", "run": run_id, "epoch": epoch})

    def refresh(self) -> bool:
        return False

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        now, answer = time.time(), self._ask({"do": "observe", "known": list(known)})
        return [
            Fact(run, epoch, kind, now, exit=ExitInfo(**ended) if ended else None)
            for (run, epoch), (kind, ended) in zip(known, answer, strict=True)
        ]

    def prepare(self, preparation: Preparation) -> Progress:
        return Progress("done")

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        """There are no files."""

    def hand_over(self, project_key: str, job_id: str) -> None:
        """There are no files."""

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """There is nothing to warm."""

    def examine(self, api_url: str) -> Iterable[Finding]:
        return ()

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        return (Finding("state", True, "declared"),)

    def reap_orphans(self, known_live: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        return []

    def _ask(self, question: Mapping[str, Any]) -> Any:
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(ASK_S)
                line.connect(self._address)
                line.sendall(json.dumps(question).encode() + b"\n")
                with line.makefile("rb") as answer:
                    return json.loads(answer.readline())
        except (OSError, ValueError) as error:
            raise ExecutorError(f"the stage does not answer: {error}", permanent=False) from None


@dataclass(slots=True)
class Play:
    """One launch."""

    run_id: str
    epoch: int
    job_id: str
    total_steps: int
    checkpoint_every_steps: int
    api_url: str
    token: str
    node: str
    pace: float
    gpus: int
    begun_at: float = 0.0
    from_step: int = 0
    seq: int = 0
    saved_step: int = 0
    order: str = ""
    ended: ExitInfo | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, now: float) -> int:
        trained_s = max(0.0, now - self.begun_at - LAUNCH_S)
        return min(self.total_steps, self.from_step + int(trained_s * self.pace))


@dataclass(slots=True)
class Waiting:
    """Reports of one node's runs that travel together."""

    plays: list[Play] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answers: list[asyncio.Future[Answer]] = field(default_factory=list)


class Stage:
    """Plays every launch until its end; `counts` of reports by status, `took_ms` of each request's answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._plays: dict[tuple[str, int], Play] = {}
        self._saved: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, Waiting] = {}
        self.counts: Counter[str] = Counter()
        self.requests = 0
        self.took_ms: list[float] = []

    async def serve(self) -> None:
        server = await asyncio.start_unix_server(self._answer, self._address, limit=64 * 2**20)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = json.loads(await reader.readline())
        writer.write(json.dumps(getattr(self, f"_{question.pop('do')}")(**question)).encode() + b"\n")
        await writer.drain()
        writer.close()

    def _launch(self, **given: Any) -> bool:
        key = given["run_id"], given["epoch"]
        if key not in self._plays:
            play = Play(**given, begun_at=time.time(), from_step=self._saved[given["job_id"]])
            self._plays[key] = play
            task = asyncio.get_running_loop().create_task(self._play(play))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _stop(self, run: str, epoch: int) -> bool:
        return self._tell(run, epoch, "stopped")

    def _kill(self, run: str, epoch: int) -> bool:
        return self._tell(run, epoch, "signal")

    def _tell(self, run: str, epoch: int, order: str) -> bool:
        if play := self._plays.get((run, epoch)):
            play.order = order
            play.hurry.set()
        return True

    def _observe(self, known: list[tuple[str, int]]) -> list[tuple[str, dict[str, Any] | None]]:
        found: list[tuple[str, dict[str, Any] | None]] = []
        for run, epoch in known:
            play = self._plays.get((run, epoch))
            if play is None:
                found.append(("absent", None))
            else:
                found.append(("exited", asdict(play.ended)) if play.ended else ("alive", None))
        return found

    def _figures(self) -> dict[str, Any]:
        """Since the last time it was asked."""
        figures = {"counts": dict(self.counts), "took_ms": self.took_ms, "cpu_s": time.process_time()}
        figures["requests"] = self.requests
        figures["alive"] = sum(play.ended is None for play in self._plays.values())
        self.counts, self.took_ms, self.requests = Counter(), [], 0
        return figures

    async def _play(self, play: Play) -> None:
        phase, on_beat, told_ready = random.Random(play.node).random(), False, False
        while not (play.order or play.step(time.time()) >= play.total_steps):
            interval_s = await self._report(play, None, alone=not on_beat)
            now = time.time()
            trains = now >= play.begun_at + LAUNCH_S
            told_ready |= trains
            wait_s = next_beat(time.monotonic(), interval_s, phase) - time.monotonic()
            left_s = (play.total_steps - play.step(now)) / play.pace if trains else play.begun_at + LAUNCH_S - now
            on_beat = told_ready and wait_s <= left_s  # the first step is told at once, as its end is
            try:
                await asyncio.wait_for(play.hurry.wait(), max(0.05, min(wait_s, left_s)))
            except TimeoutError:
                continue
        reason = play.order or "done"
        await asyncio.sleep(STOP_S if reason == "stopped" else 0.0)
        ended = ExitInfo(reason, exit_code=0 if reason == "done" else None, step=play.step(time.time()))
        await self._report(play, ended, alone=True)
        play.ended = ended

    async def _report(self, play: Play, ended: ExitInfo | None, *, alone: bool) -> float:
        """Seconds that the portal asks for until the next one; it is sent again until it is taken."""
        body = self._body(play, ended)
        pause_s = 1.0
        while True:
            status, orders = await (self._post([play], [body]) if alone else self._post_together(play, body))
            self.counts[str(status or "none")] += 1
            if status == 409:
                play.order = play.order or "stopped"
            if status in (200, 409):
                if command := orders.get("command"):
                    play.order = play.order or ("signal" if command == "kill" else "stopped")
                return float(orders.get("next_report_s", 10.0))
            alone = True
            await asyncio.sleep(pause_s)
            pause_s = min(30.0, pause_s * 2)

    async def _post_together(self, play: Play, body: dict[str, Any]) -> Answer:
        """The first of a node's that comes waits for the others, as runners do."""
        waiting = self._waiting.get(play.node)
        if waiting is not None and len(waiting.plays) < MOST:
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            waiting.plays.append(play)
            waiting.bodies.append(body)
            waiting.answers.append(answer)
            return await answer
        mine = self._waiting[play.node] = Waiting([play], [body])
        await asyncio.sleep(GATHER_S)
        if self._waiting.get(play.node) is mine:
            del self._waiting[play.node]
        return await self._post(mine.plays, mine.bodies, mine.answers)

    def _body(self, play: Play, ended: ExitInfo | None) -> dict[str, Any]:
        now = time.time()
        play.seq, step = play.seq + 1, play.step(now)
        trains = now - play.begun_at >= LAUNCH_S
        body: dict[str, Any] = {"epoch": play.epoch, "seq": play.seq, "sent_at": now, "sdk": True, "step": step}
        body["phase"] = "stopped" if ended else "running" if trains else "starting"
        body["ready_at"] = play.begun_at + LAUNCH_S if trains else None
        if trains:
            body["metrics"] = [{"step": step, "at": now, "loss": 2.0 / (1.0 + step / 1_000.0)}]
            body["usage"] = {"cpu_s": now - play.begun_at, "rss_mib": 2_048.0}
            body["gpu_utilisation"] = [0.9] * play.gpus
            body["resources"] = {
                "interval_s": 5.0,
                "source": "processes",
                "samples": [[now - 5.0, 0.9, 0.5, 0.6, 0.1], [now, 0.92, 0.5, 0.61, 0.1]],
            }
        due = step // play.checkpoint_every_steps > play.saved_step // play.checkpoint_every_steps
        if trains and (due or (ended and ended.reason == "stopped")):
            play.saved_step = self._saved[play.job_id] = step
            body["checkpoint"] = {"step": step, "at": now, "path": f"step-{step}", "bytes": 2**28, "seconds": 0.5}
        if ended:
            body["exit"] = {**asdict(ended), "at": now}
        return body

    async def _post(
        self,
        plays: Sequence[Play],
        bodies: Sequence[dict[str, Any]],
        answers: Sequence[asyncio.Future[Answer]] = (),
    ) -> Answer:
        """Over a connection of its own, as runners do: the first one's report with all the others'."""
        others = [
            {"run": play.run_id, "token": play.token, "report": body}
            for play, body in zip(plays[1:], bodies[1:], strict=True)
        ]
        content = json.dumps(bodies[0] | {"others": others}).encode()
        began = time.perf_counter()
        try:
            status, said = await asyncio.wait_for(self._request(plays[0], content), ASK_S)
        except (OSError, ValueError, IndexError, TimeoutError):
            status, said = 0, {}
        self.took_ms.append((time.perf_counter() - began) * 1_000.0)
        self.requests += 1
        told = said.get("others") or [{"status": 0, "orders": None}] * len(answers)  # each alone: it was not refused
        for answer, one in zip(answers, told, strict=True):
            answer.set_result((int(one["status"]), one["orders"] or {}))
        return status, said

    @staticmethod
    async def _request(play: Play, body: bytes) -> Answer:
        place = urlsplit(play.api_url)
        head = (
            f"POST /api/v1/runs/{play.run_id}/reports HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
            f"Authorization: Bearer {play.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(head.encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        first, _, content = answer.partition(b"\r\n\r\n")
        status = int(first.split()[1])
        return status, json.loads(content) if status == 200 else {}


def main(address: str) -> None:
    asyncio.run(Stage(address).serve())


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
