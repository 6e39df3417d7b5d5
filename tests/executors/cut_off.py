"""What the tests of whole portals whose nodes are cut off share: each node has a network namespace of its own."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from scripts.networks import Loss, NodeNetworks, NoNetworks
from tests.live_portal import GENTLE, LivePortal, Nodes, engine_portal
from tests.supervisor.running import free_port

#: The shortest that can be set. The engine is made to give a silent node up some time later.
LEASE_S = 30
#: What the portal promises: a job goes on so long after its lease, at the latest.
RESUMES_WITHIN_S = 60
FIRST_STEPS_S = 240  # all of this shares two processors
SLOW_CHANGE_S = 120
#: An engine's process that ends is noticed at once, and what was started for the run is ended then in at most 10 s.
WITNESS_S = 30
WITNESS = "evenkeel.runner.witness"
#: Not over before the link is mended, and soon after.
STEERED_STEPS = 3_000
OVERLAPS = """
    SELECT count(*) FROM jobs_hold one JOIN jobs_hold other
    ON one.accelerator_id = other.accelerator_id AND one.id < other.id AND one.during && other.during
"""
#: Whether it is the first node that a gang loses, and how.
OF_A_GANG = pytest.mark.parametrize(
    ("first", "loss"),
    [(False, Loss.ALL), (True, Loss.ALL), (False, Loss.FROM_NODE), (True, Loss.TO_NODE)],
    ids=lambda value: value.value if isinstance(value, Loss) else "the first" if value else "another",
)
WITH_CHECKPOINT = "SELECT 1 FROM jobs_run WHERE checkpoint_step > 0"
HOLDS_OF_NODES = """
    SELECT n.name, extract(epoch FROM max(coalesce(upper(h.during), 'infinity')))::float FROM jobs_hold h
    JOIN jobs_accelerator a ON a.id = h.accelerator_id JOIN jobs_node n ON n.id = a.node_id GROUP BY n.name
"""


@contextmanager
def or_skipped() -> Iterator[None]:
    """What makes the networks, and what needs them."""
    try:
        yield
    except NoNetworks as error:
        pytest.skip(f"SKIPPED: nodes cannot have network namespaces of their own here: {error}")


@contextmanager
def portal_over(nodes: Nodes, links: NodeNetworks, clusters: str = "", **settings: str) -> Iterator[LivePortal]:
    """A portal at the head's address, in whose namespace this thread stays meanwhile."""
    with links.network.inside():
        port = free_port()
        reached = {
            "EVENKEEL_PORT": str(port),
            "EVENKEEL_HOST": "0.0.0.0",
            "EVENKEEL_ALLOWED_HOSTS": links.head,
            "EVENKEEL_API_URL": f"http://{links.head}:{port}",
            "EVENKEEL_LEASE_S": str(LEASE_S),
        }
        with engine_portal(nodes, clusters, **reached, **settings) as made:
            yield made


@dataclass(frozen=True)
class Launch:
    """One epoch of the job by its files."""

    place: Path

    def lines(self, kind: str) -> list[dict[str, Any]]:
        said = self.place / "sdk" / "rank0.jsonl"
        if not said.exists():
            return []
        whole = said.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if line["kind"] == kind]

    @property
    def exit(self) -> dict[str, Any]:
        record = self.place / "exit.json"
        return dict(json.loads(record.read_text())) if record.exists() else {}

    def processes(self) -> list[str]:
        """Runners and workers, in words. Their witness is none: it waits for the end of the engine's own process, which
        beyond a cut link lives on for minutes."""
        return [_in_words(one) for one in psutil.process_iter() if _belongs(one, str(self.place))]

    def workers(self) -> list[str]:
        return [_in_words(one) for one in psutil.process_iter() if _is_worker(one, str(self.place))]

    def witnesses(self) -> list[str]:
        commands = [(one, _command(one)) for one in psutil.process_iter()]
        return [_in_words(one) for one, said in commands if WITNESS in said and str(self.place) in said]


def check_going_on_elsewhere(
    portal: LivePortal, links: NodeNetworks, loss: Loss, kind: str, bring_back: Callable[[str], None]
) -> None:
    """Two nodes with two GPUs each. `bring_back(node)`: what is to be done when the link is mended."""
    number, first, node = trains(portal, kind)
    links.cut(node, loss)
    cut_at = time.time()
    lease_over_at = cut_at + LEASE_S
    time.sleep(LEASE_S)
    assert not (first.place / "stop").exists()  # nobody asked before the lease was over
    _wait_for_none(portal, "the cut-off runner to stop", first.processes, LEASE_S + 90)
    gone_at = time.time()
    portal.wait_for("the loss of the node", lambda: _nodes(portal)[node], 120)
    lost_at = time.time()
    portal.wait_for("steps elsewhere", lambda: _later(portal, first), 300)
    [second] = _later(portal, first)
    resumed_at = second.lines("step")[0]["t"]
    after_s = {"stopped": gone_at, "node given up": lost_at, "went on": resumed_at}
    print(loss.value, {what: round(at - lease_over_at, 1) for what, at in after_s.items()}, "s after the lease's end")

    assert first.exit["reason"] == "stopped"
    kept, last = first.lines("checkpoint")[-1], first.lines("step")[-1]
    assert kept["step"] == last["step"]
    assert kept["t"] > cut_at
    assert second.lines("step")[0]["step"] == kept["step"] + 1
    assert portal.rows(OVERLAPS) == [(0,)]
    assert resumed_at > dict(portal.rows(HOLDS_OF_NODES))[node] > first.exit["at"] > last["t"]
    # A promise to users, so this timing is asserted. With usual leases the engine has given the node up before.
    assert resumed_at - max(lease_over_at, lost_at) < RESUMES_WITHIN_S

    assert [name for name, lost in _nodes(portal).items() if lost] == [node]
    links.mend(node)
    bring_back(node)
    portal.wait_for("the node", lambda: not any(_nodes(portal).values()), 120)
    another = portal.submit(total_steps=30, gpus={"min": 2, "max": 2})["number"]  # the other has one GPU free
    portal.wait_state(another, "succeeded", timeout_s=FIRST_STEPS_S)
    _wait_for_none(portal, "the end of its witness", first.witnesses, WITNESS_S)
    assert not first.processes()
    assert portal.job(number)["state"].startswith("running")
    assert portal.rows(OVERLAPS) == [(0,)]


def check_a_gang_going_on(
    portal: LivePortal, links: NodeNetworks, loss: Loss, kind: str, bring_back: Callable[[str], None], *, first: bool
) -> None:
    """Two nodes with two GPUs each, on all of which a job trains; `first`: the one with rank 0 is cut off, which speaks
    for the run, else the other."""
    with portal.api() as api:  # by default nobody is stopped for as little as the last GPUs bring here
        api.put("policy", json={"name": "f_scheduling", "parameters": {"min_gain": 0.01}}).raise_for_status()
    pace = {kind: [0.4, 0.7, 1.0, 1.2]}
    job = GENTLE | {"total_steps": 1_000_000, "throughput": pace, "gpus": {"min": 2, "max": 4}}
    number = portal.submit(**job)["number"]
    portal.wait_for("a checkpoint", lambda: portal.rows(WITH_CHECKPOINT), FIRST_STEPS_S)
    portal.wait_for("all four GPUs", lambda: _gpus(portal, number) == 4 and _trains_now(portal, number), FIRST_STEPS_S)
    earlier = _launches(portal)  # the first may have begun on what there was then
    before = max(earlier, key=lambda one: int(one.place.name))
    [follower] = [path.name.removeprefix("node-") for path in before.place.glob("node-*")]
    [lead] = links.nodes.keys() - {follower}
    lost, kept = (lead, follower) if first else (follower, lead)
    links.cut(lost, loss)
    cut_at = seen_at = looked_at = time.time()
    while left := before.workers():
        seen_at = looked_at  # looking takes a while
        assert seen_at < cut_at + 2 * LEASE_S + 120, left
        time.sleep(0.2)
        looked_at = time.time()
    _wait_for_none(portal, "the end of its runners", before.processes, 60)
    portal.wait_for("the loss of the node", lambda: _nodes(portal)[lost], 120)
    lost_at = time.time()
    portal.wait_for("steps on the other node", lambda: _later(portal, *earlier), 300)
    [after] = _later(portal, *earlier)
    resumed_at = after.lines("step")[0]["t"]
    held_until = dict(portal.rows(HOLDS_OF_NODES))
    after_s = {"stopped": seen_at, "node given up": lost_at, "GPUs free": held_until[lost], "went on": resumed_at}
    print(loss.value, {what: round(at - cut_at, 1) for what, at in after_s.items()}, "s after the cut")

    assert resumed_at - max(cut_at + LEASE_S, lost_at) < RESUMES_WITHIN_S
    # The launch that was cut off may not have come to a checkpoint of its own.
    saved = [line["step"] for one in earlier for line in one.lines("checkpoint")]
    assert after.lines("step")[0]["step"] == max(saved) + 1
    assert _gpus(portal, number) == 2
    assert portal.rows(OVERLAPS) == [(0,)]
    assert held_until[kept] == float("inf")
    assert seen_at < held_until[lost] < resumed_at
    links.mend(lost)
    bring_back(lost)
    portal.wait_for("the node", lambda: not any(_nodes(portal).values()), 120)
    another = portal.submit(total_steps=30, gpus={"min": 2, "max": 2})["number"]  # the others are taken
    portal.wait_state(another, "succeeded", timeout_s=FIRST_STEPS_S)
    _wait_for_none(portal, "the end of its witnesses", before.witnesses, WITNESS_S)
    assert portal.rows(OVERLAPS) == [(0,)]


def _wait_for_none(portal: LivePortal, what: str, left: Callable[[], list[str]], timeout_s: float) -> None:
    """Of processes; where some stay, the first words are which."""
    try:
        portal.wait_for(what, lambda: not left(), timeout_s)
    except AssertionError as error:
        raise AssertionError("\n".join(["still there:", *left(), str(error)])) from None


def _trains_now(portal: LivePortal, number: int) -> bool:
    return str(portal.job(number)["state"]).startswith("running")


def check_training_on_a_slow_link(portal: LivePortal, links: NodeNetworks, kind: str) -> None:
    number, first, node = trains(portal, kind)
    links.slow(node, kbit_s=16)
    _stay_slow(portal, links, node, until=time.time() + 2 * LEASE_S)
    before = portal.job(number)["step"]
    portal.wait_for("steps that are told", lambda: portal.job(number)["step"] > before, 60)
    assert _launches(portal) == [first]
    assert not any(_nodes(portal).values())
    assert portal.rows("SELECT count(*) FROM jobs_run") == [(1,)]


def check_steering_on_a_slow_link(portal: LivePortal, links: NodeNetworks, kind: str) -> None:
    """Two nodes with two GPUs each: on the slow one a job shrinks for another, which is stopped, and grows again."""
    with portal.api() as api:  # by default nobody is stopped for as little as a second GPU brings here
        api.put("policy", json={"name": "f_scheduling", "parameters": {"min_gain": 0.1}}).raise_for_status()
    number, first, node = trains(portal, kind, total_steps=STEERED_STEPS, gpus={"min": 1, "max": 2})
    assert _gpus(portal, number) == 2
    gentle = GENTLE | {"total_steps": 1_000_000, "throughput": {kind: [0.4, 0.7]}}
    filling = portal.submit(**gentle, gpus={"min": 2, "max": 2})["number"]
    portal.wait_state(filling, "running", timeout_s=FIRST_STEPS_S)
    links.slow(node, kbit_s=16)
    slow_at = time.time()

    other = portal.submit(**gentle, gpus={"min": 1, "max": 1})["number"]
    portal.wait_for("it to shrink", lambda: _gpus(portal, number) == 1, SLOW_CHANGE_S)
    for one in (other, number):
        portal.wait_state(one, "running", timeout_s=SLOW_CHANGE_S)
    shrunk_at = time.time()
    _stay_slow(portal, links, node, until=slow_at + 2 * LEASE_S)
    [stopped] = [one for one in _launches(portal) if one.place.is_relative_to(_files(portal, other))]
    assert stopped.processes()
    with portal.api() as api:
        api.post(f"jobs/{other}/cancel").raise_for_status()
    _wait_for_none(portal, "it to stop", stopped.processes, SLOW_CHANGE_S)
    portal.wait_for("it to grow", lambda: _gpus(portal, number) == 2, SLOW_CHANGE_S)
    assert portal.wait_state(number, "running", timeout_s=SLOW_CHANGE_S)["step"] < STEERED_STEPS
    grown_at = time.time()
    assert not any(_nodes(portal).values())
    links.mend(node)
    took_s = {"shrunk": shrunk_at - slow_at, "grown": grown_at - slow_at}
    print({what: round(after_s, 1) for what, after_s in took_s.items()}, "s after the link was slowed")

    ended = portal.wait_state(number, "succeeded", "failed", timeout_s=240)
    assert (ended["state"], ended["step"], ended["resizes"]) == ("succeeded", STEERED_STEPS, 2)
    assert portal.job(other)["state"] == "cancelled"
    assert portal.job(filling)["state"] == "running"
    assert portal.rows("SELECT count(*), max(attempt) FROM jobs_run") == [(3, 1)]  # no run was taken for lost
    assert portal.rows(OVERLAPS) == [(0,)]
    _check_one_after_the_other(_of_run(portal, first), 3)


def _check_one_after_the_other(launches: list[Launch], number: int) -> None:
    """Each began where the one before it had stopped, and when it had."""
    assert len(launches) == number
    for before, after in itertools.pairwise(launches):
        assert before.exit["reason"] == "stopped"
        assert not before.processes()
        assert after.lines("step")[0]["step"] == before.lines("step")[-1]["step"] + 1
        assert after.lines("step")[0]["t"] > before.exit["at"]


def _stay_slow(portal: LivePortal, links: NodeNetworks, node: str, *, until: float) -> None:
    waits = [_connects_after_s(links, node, portal.port)]
    while time.time() < until:
        time.sleep(1)
        waits.append(_connects_after_s(links, node, portal.port))
    print(f"connections took {min(waits):.2f} to {max(waits):.2f} s")
    assert max(waits) > 0.1  # a hundred times as long as on a link as it was made


def trains(portal: LivePortal, kind: str, **keys: Any) -> tuple[int, Launch, str]:
    """A job with a checkpoint, its first launch, and the node that it trains on."""
    job = GENTLE | {"total_steps": 1_000_000, "throughput": {kind: [0.4, 0.7]}, "gpus": {"min": 1, "max": 1}}
    number = portal.submit(**job | keys)["number"]
    portal.wait_for("a checkpoint", lambda: portal.rows(WITH_CHECKPOINT), FIRST_STEPS_S)
    [launch] = _launches(portal)
    [node] = dict(portal.rows(HOLDS_OF_NODES))
    assert launch.processes()
    return number, launch, node


def _launches(portal: LivePortal) -> list[Launch]:
    return [Launch(path.parent) for path in portal.files.glob("jobs/*/runs/*/*/sdk")]


def _of_run(portal: LivePortal, first: Launch) -> list[Launch]:
    """By their epochs."""
    found = [one for one in _launches(portal) if one.place.parent == first.place.parent]
    return sorted(found, key=lambda one: int(one.place.name))


def _files(portal: LivePortal, number: int) -> Path:
    return portal.files / "jobs" / str(portal.job(number)["id"])


def _gpus(portal: LivePortal, number: int) -> int:
    held = portal.job(number)["allocation"]
    return int(held["count"]) if held else 0


def _later(portal: LivePortal, *earlier: Launch) -> list[Launch]:
    return [one for one in _launches(portal) if one not in earlier and one.lines("step")]


def _nodes(portal: LivePortal) -> dict[str, bool]:
    """Whether each is lost."""
    return dict(portal.rows("SELECT name, lost FROM jobs_node"))


def _belongs(process: psutil.Process, place: str) -> bool:
    command = _command(process)
    return (place in command and WITNESS not in command) or _is_worker(process, place)


def _command(process: psutil.Process) -> list[str]:
    """Nothing of one that has ended."""
    try:
        return process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


def _in_words(process: psutil.Process) -> str:
    try:
        parent, age_s = process.parent(), time.time() - process.create_time()
        below = parent.name() if parent else "nobody"
        command = " ".join(process.cmdline())
        return f"{process.pid} ({process.name()}, {process.status()}, for {age_s:.0f} s, below {below}): {command}"
    except psutil.Error:
        return f"{process.pid}, which has ended since"


def _is_worker(process: psutil.Process, place: str) -> bool:
    try:
        started = process.environ().get("EVENKEEL_SDK_DIR", "").startswith(f"{place}/")
        return started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _connects_after_s(links: NodeNetworks, node: str, port: int) -> float:
    began = time.monotonic()
    with links.of(node).inside():
        socket.create_connection((links.head, port), timeout=20).close()
    return time.monotonic() - began
