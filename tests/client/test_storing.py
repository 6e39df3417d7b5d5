"""Checkpoints in a store, through the real runner and SDK: two nodes that share nothing but an S3 server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import descendants

from tests.client.s3 import KEY, S3, SECRET, s3_server, secret_of
from tests.client.test_runner import Portal, exit_of, launch, until
from tests.client.test_runner import portal as portal  # a fixture
from tests.client.test_runner_nodes import GLOO

#: Its state is the sum of its steps, so that what a later run goes on from can be read off it.
SUMMING = """
import os, time, evenkeel
ballast = "x" * int(os.environ.get("BALLAST", "0"))
with evenkeel.training() as run:
    state = run.load() or {"seen": []}
    with open(os.environ["BEGAN"], "a") as file:
        file.write(f"{run.step} {len(state['seen'])}\\n")
    for step in run.steps():
        state["seen"].append(step)
        state["ballast"] = ballast
        time.sleep(float(os.environ.get("PAUSE", "0.01")))
        run.save(state)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as made:
        yield made


@pytest.fixture
def s3(server: S3) -> Iterator[S3]:
    yield server
    server.door.shut, server.door.bytes_per_s = False, 0
    if server.files().exists(f"{server.bucket}/evenkeel"):
        server.files().rm(f"{server.bucket}/evenkeel", recursive=True)


class Node:
    """A machine of its own: its job directory is nobody else's."""

    def __init__(self, place: Path, name: str, s3: S3, portal: Portal) -> None:
        self.place, self.s3, self.portal, self.epoch = place / name, s3, portal, 0
        self.began = self.place / "began"
        self.runs: list[subprocess.Popen[bytes]] = []

    def start(self, epoch: int, steps: int = 100_000, expected: int = 0, **more: Any) -> subprocess.Popen[bytes]:
        place = self.place / str(epoch)
        place.mkdir(parents=True)
        environment = {
            "EVENKEEL_TOTAL_STEPS": str(steps),
            "EVENKEEL_CHECKPOINT_EVERY": "10",
            "EVENKEEL_CHECKPOINT_KEEP": "2",
            "EVENKEEL_CHECKPOINT_DIR": str(self.place / "job-checkpoints"),
            "BEGAN": str(self.began),
            **more.pop("environment", {}),
        }
        store = {"url": self.s3.url, "prefix": "vision/j1", "keep": 2, "cache_dir": str(self.place / "cache"),
                 "cache_bytes": 0, "end_s": 100.0, "fetch_s": 300.0, "expected_step": expected}  # fmt: skip
        store |= more.pop("store", {})
        (place / "epoch").mkdir()
        (place / "epoch" / "secrets.json").write_text(secret_of(self.s3))
        run = launch(place, self.portal, SUMMING, environment=environment, checkpoint_store=store, epoch=epoch, **more)
        self.runs.append(run)
        self.epoch = epoch
        return run

    def stop(self) -> None:
        (self.place / str(self.epoch) / "epoch" / "stop").touch()

    @property
    def exit(self) -> dict[str, Any]:
        return exit_of(self.place / str(self.epoch))

    @property
    def checkpoints(self) -> Path:
        return self.place / "cache" / "j1"

    def begins(self) -> list[int]:
        """The steps at which its programs began; each had trained exactly so many."""
        lines = [tuple(map(int, line.split())) for line in self.began.read_text().splitlines()]
        assert all(step == seen for step, seen in lines)
        return [step for step, _ in lines]


@pytest.fixture
def node(tmp_path: Path, s3: S3, portal: Portal) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def make(name: str) -> Node:
        made.append(Node(tmp_path, name, s3, portal))
        return made[-1]

    yield make
    for one in made:
        for run in one.runs:
            run.kill()
            run.wait()


def counted_on(portal: Portal) -> int:
    """The newest checkpoint that the portal was told of."""
    told = [report["checkpoint"]["step"] for report in portal.reports if report["checkpoint"]]
    return max(told, default=0)


def notices(portal: Portal) -> str:
    return "\n".join(notice for report in portal.reports for notice in report["notices"])


def test_a_job_moves_between_nodes_that_share_nothing(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    first, second = node("a"), node("b")
    run = first.start(1)
    until(lambda: counted_on(portal) >= 20)
    first.stop()
    assert run.wait(60) == 0
    stopped = first.exit
    assert (stopped["reason"], stopped["message"]) == ("stopped", "")
    assert counted_on(portal) == stopped["step"] == s3.complete()[-1]
    assert len(s3.complete()) == 2  # checkpoint.keep
    assert f"checkpoint step {stopped['step']} is in the store" in notices(portal)
    assert second.start(2, stopped["step"] + 30, expected=stopped["step"]).wait(60) == 0
    assert second.exit["reason"] == "done"
    assert second.begins() == [stopped["step"]]
    assert s3.complete()[-1] == counted_on(portal) == stopped["step"] + 30
    assert not (second.place / "job-checkpoints").exists()
    state = json.loads((second.checkpoints / f"step-{stopped['step'] + 30}" / "state.json").read_text())
    assert state["state"]["seen"] == list(range(stopped["step"] + 30))


def test_what_is_on_the_node_already_is_not_fetched(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    assert only.start(1, 30).wait(60) == 0
    assert only.start(2, 50, expected=30).wait(60) == 0
    assert only.begins() == [0, 30]
    log = (only.place / "2" / "epoch" / "logs" / "runner.log").read_text()
    assert "checkpoint step 30" in log
    assert "is here already" in log


def test_a_runner_that_is_killed_amid_an_upload_leaves_nothing_to_resume_from(
    node: Callable[[str], Node], s3: S3, portal: Portal
) -> None:
    first, second = node("a"), node("b")
    run = first.start(1, environment={"BALLAST": "3000000", "PAUSE": "0.05"})
    until(lambda: s3.complete())
    s3.door.bytes_per_s = 1_000_000
    before, carried = s3.complete()[-1], s3.door.carried
    until(lambda: s3.door.carried > carried + 500_000)
    carriers = [process.pid for process in descendants(run.pid)]
    run.kill()
    run.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in carriers))
    s3.door.bytes_per_s = 0
    newest = s3.complete()[-1]
    assert newest >= before
    assert second.start(2, newest + 10, expected=newest).wait(60) == 0
    assert second.begins() == [newest]
    markers = [name for name in s3.names() if name.endswith("complete.json")]
    assert {name.rpartition("/")[0] for name in s3.names() if "/step-" in name} == {
        name.rpartition("/")[0] for name in markers
    }, "what the killed upload left is gone"


def test_work_that_never_reached_the_store_is_kept_where_nobody_went_on_without_it(
    node: Callable[[str], Node], s3: S3, portal: Portal
) -> None:
    only = node("a")
    run = only.start(1)
    until(lambda: counted_on(portal) >= 10)
    s3.door.shut = True
    s3.door.cut()
    behind = counted_on(portal)
    until(lambda: portal.reports[-1]["step"] > behind + 40)
    run.kill()
    run.wait()
    s3.door.shut = False
    local = max(int(path.name.removeprefix("step-")) for path in only.checkpoints.glob("step-*"))
    assert local > s3.complete()[-1]
    assert only.start(2, local + 10, expected=counted_on(portal)).wait(60) == 0
    assert only.begins() == [0, local]
    assert f"checkpoint step {local} was on the node alone" in notices(portal)


@pytest.mark.whole
def test_work_that_others_went_on_without_is_not_used(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    first, second = node("a"), node("b")
    run = first.start(1)
    until(lambda: counted_on(portal) >= 10)
    s3.door.shut = True
    s3.door.cut()
    until(lambda: portal.reports[-1]["step"] > counted_on(portal) + 40)
    run.kill()
    run.wait()
    s3.door.shut = False
    left, base = max(int(path.name[5:]) for path in first.checkpoints.glob("step-*")), s3.complete()[-1]
    assert second.start(2, base + 10, expected=base).wait(60) == 0
    assert left > base + 10
    assert first.start(3, base + 20, expected=base + 10).wait(60) == 0
    assert first.begins() == [0, base + 10]
    assert f"checkpoint step {left} on the node is not used" in notices(portal)


@pytest.mark.whole
def test_a_damaged_object_falls_back_to_the_one_before(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    first, second, third = node("a"), node("b"), node("c")
    assert first.start(1, 40).wait(60) == 0
    [older, newest] = s3.complete()
    [state] = [name for name in s3.names() if f"step-{newest}-" in name and name.endswith("state.json")]
    path = f"{s3.bucket}/evenkeel/{state}"
    content = bytearray(s3.files().cat_file(path))
    content[-2] ^= 1
    s3.files().pipe_file(path, bytes(content))
    assert second.start(2, older + 10, expected=newest).wait(60) == 0
    assert second.begins() == [older]
    assert f"checkpoint step {newest} in the store is damaged, falling back to step {older}" in notices(portal)
    assert third.start(3, older + 20, expected=newest).wait(60) == 0
    assert third.begins() == [older + 10], "the damaged one was removed once there was a newer good one"


def test_nothing_starts_anew_where_the_store_has_lost_all(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("b")
    assert only.start(2, 40, expected=30).wait(60) == 0
    assert only.exit["reason"] == "launch_failed"
    assert "no complete checkpoint is in the store, though step 30 was" in only.exit["message"]
    assert not only.began.exists()


def test_nothing_starts_while_the_store_is_away(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    s3.door.shut = True
    assert only.start(1, 20).wait(90) == 0
    assert only.exit["reason"] == "launch_failed"
    assert "the checkpoint to begin with cannot be had" in only.exit["message"]
    assert not only.began.exists()


def test_training_goes_on_while_the_store_is_away(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    run = only.start(1)
    until(lambda: counted_on(portal) >= 10)
    s3.door.shut = True
    s3.door.cut()
    time.sleep(0.5)  # what had arrived may still be reported
    known, step = counted_on(portal), portal.reports[-1]["step"]
    until(lambda: portal.reports[-1]["step"] > step + 60)
    assert counted_on(portal) == known, "the portal counts on nothing that is on the node alone"
    s3.door.shut = False
    until(lambda: counted_on(portal) > known)
    only.stop()
    assert run.wait(60) == 0
    assert counted_on(portal) == only.exit["step"] == s3.complete()[-1]


@pytest.mark.whole
def test_a_slow_store_holds_the_end_up_for_so_long_and_no_longer(
    node: Callable[[str], Node], s3: S3, portal: Portal
) -> None:
    only = node("a")
    run = only.start(1, store={"end_s": 2.0}, environment={"BALLAST": "2000000", "PAUSE": "0.05"})
    until(lambda: counted_on(portal) >= 10)
    s3.door.bytes_per_s = 50_000
    only.stop()
    assert run.wait(60) == 0
    known = counted_on(portal)
    assert only.exit["reason"] == "stopped"
    assert only.exit["step"] > known
    said = f"did not reach the store: it took longer than 2 s; the newest there is of step {known}"
    assert said in only.exit["message"]
    assert f"{only.exit['step'] - known} steps are lost unless the job continues on this node" in notices(portal)


def test_a_kill_does_not_wait_for_the_store(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    run = only.start(1, store={"end_s": 600.0}, environment={"BALLAST": "2000000", "PAUSE": "0.05"})
    until(lambda: counted_on(portal) >= 10)
    s3.door.bytes_per_s = 20_000
    only.stop()
    until(lambda: portal.reports[-1]["phase"] == "checkpointing" and not _workers_of(run))
    run.send_signal(signal.SIGUSR1)
    assert run.wait(60) == 0
    assert "the run was killed" in only.exit["message"]


def _workers_of(run: subprocess.Popen[bytes]) -> list[int]:
    command = [Path(f"/proc/{one.pid}/cmdline") for one in descendants(run.pid)]
    return [1 for path in command if path.exists() and b"run.load()" in path.read_bytes()]


def test_a_launch_that_was_taken_over_uploads_nothing_more(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    lost, second = node("a"), node("b")
    run = lost.start(1)
    until(lambda: counted_on(portal) >= 10)
    os.kill(run.pid, signal.SIGSTOP)  # a node that nobody reaches; its program trains on
    base = s3.complete()[-1]
    assert second.start(2, base + 10, expected=base).wait(60) == 0
    before = s3.names()
    os.kill(run.pid, signal.SIGCONT)
    until(lambda: "another launch of the job has taken its checkpoints over" in notices(portal))
    run.kill()
    run.wait()
    assert [name for name in s3.names() if name.endswith("complete.json")] == [
        name for name in before if name.endswith("complete.json")
    ]


def test_the_key_is_in_no_environment_argument_file_or_log(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    run = only.start(1)
    until(lambda: counted_on(portal) >= 10)
    own = descendants(run.pid)
    words = b"".join(Path(f"/proc/{one.pid}/cmdline").read_bytes() for one in own)
    words += b"".join(Path(f"/proc/{one.pid}/environ").read_bytes() for one in own)
    only.stop()
    assert run.wait(60) == 0
    words += b"".join(path.read_bytes() for path in only.place.rglob("*") if path.is_file())
    words += json.dumps(portal.reports).encode()
    assert KEY.encode() not in words
    assert SECRET.encode() not in words


@pytest.mark.whole
def test_a_node_keeps_within_its_bound(node: Callable[[str], Node], s3: S3, portal: Portal) -> None:
    only = node("a")
    bound = {"cache_bytes": 3_000_000}
    for epoch, job in enumerate(("old", "older", "new"), 1):
        store = {**bound, "prefix": f"vision/{job}"}
        environment = {"BALLAST": "1200000", "EVENKEEL_CHECKPOINT_EVERY": "100"}
        assert only.start(epoch, 5, store=store, job_id=job, environment=environment).wait(60) == 0
    assert sorted(path.name for path in (only.place / "cache").iterdir()) == ["new", "older"]
    assert len(s3.complete()) == 3


#: Every rank says at which step it began, and what sums it had seen by then.
ADDING = """
import os, time, torch, torch.distributed as dist, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"sums": []}
    with open(os.environ["BEGAN"] + str(run.rank), "a") as file:
        file.write(f"{run.step} {len(state['sums'])}\\n")
    run.init_process_group()
    for step in run.steps():
        value = torch.tensor(float(run.rank + 1))
        dist.all_reduce(value)
        state["sums"].append(float(value))
        time.sleep(0.02)
        run.save(state)
"""


@pytest.mark.whole
def test_all_nodes_of_a_launch_begin_with_the_same_checkpoint(tmp_path: Path, s3: S3, portal: Portal) -> None:
    pytest.importorskip("torch")
    with spread(tmp_path / "1", s3, portal, ("a", "b"), epoch=1) as both:
        until(lambda: counted_on(portal) >= 10)
        (tmp_path / "1" / "epoch" / "stop").touch()
        assert [run.wait(60) for run in both] == [0, 0]
    stopped = exit_of(tmp_path / "1")["step"]
    assert counted_on(portal) == stopped
    assert not list((tmp_path / "1").glob("cache-b/j1/step-*")), "only rank 0 writes"
    (tmp_path / "2" / "cache-c" / "j1" / "step-7000").mkdir(parents=True)  # what b or c had does not count
    with spread(tmp_path / "2", s3, portal, ("b", "c"), epoch=2, expected=stopped, steps=stopped + 10) as both:
        assert [run.wait(60) for run in both] == [0, 0]
    assert exit_of(tmp_path / "2")["reason"] == "done"
    began = [(tmp_path / "2" / f"began{rank}").read_text() for rank in range(3)]
    assert began == [f"{stopped} {stopped}\n"] * 3


def test_a_node_without_the_checkpoint_keeps_the_launch_from_beginning(tmp_path: Path, s3: S3, portal: Portal) -> None:
    pytest.importorskip("torch")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cache-b").write_text("not a directory")
    with spread(tmp_path / "1", s3, portal, ("a", "b"), epoch=1) as both:
        assert both[0].wait(60) == 0
    assert exit_of(tmp_path / "1")["reason"] == "launch_failed"
    assert "no checkpoint to begin with on b: " in exit_of(tmp_path / "1")["message"]


@contextlib.contextmanager
def spread(
    place: Path, s3: S3, portal: Portal, names: tuple[str, str], *, epoch: int, expected: int = 0, steps: int = 100_000
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runners of two nodes that have their caches for themselves."""
    nodes = [
        {"name": name, "address": "127.0.0.1", "workers": count} for name, count in zip(names, (1, 2), strict=True)
    ]
    environment = {**GLOO, "EVENKEEL_TOTAL_STEPS": str(steps), "EVENKEEL_CHECKPOINT_EVERY": "10"}
    environment["BEGAN"] = str(place / "began")
    store = {"url": s3.url, "prefix": "vision/j1", "keep": 2, "cache_dir": str(place / "cache-%n"), "cache_bytes": 0,
             "end_s": 100.0, "fetch_s": 300.0, "expected_step": expected}  # fmt: skip
    (place / "epoch").mkdir(parents=True)
    (place / "epoch" / "secrets.json").write_text(secret_of(s3))
    head = launch(place, portal, ADDING, nodes=nodes, environment=environment, checkpoint_store=store, epoch=epoch)
    command = [sys.executable, "-m", "evenkeel.runner", str(place / "epoch"), "--follow", names[1]]
    both = [head, subprocess.Popen(command, start_new_session=True)]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            process.wait()
