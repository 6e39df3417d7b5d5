"""The parts of the SDK at their limits: what is read of the environment, when it saves, what it says, how it shares."""

from __future__ import annotations

import itertools
import json
import math
import stat
import sys
import threading
import time
from collections import OrderedDict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from evenkeel.sdk import control, distributed, state
from evenkeel.sdk.checkpoints import CheckpointStore, Saved
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, NONE, Control, SpanningControl, open_control
from evenkeel.sdk.lines import NAMES_A_RUN, NAMES_A_STEP, STEP_LINE_EVERY_S, Lines, number
from evenkeel.sdk.pace import SLICE_S, Pace
from evenkeel.sdk.sampling import batch_indices, share
from evenkeel.sdk.saver import Saver, unwrapped
from evenkeel.sdk.settings import Settings, read_settings
from evenkeel.sdk.state import CheckpointError

from tests.cases import in_turn
from tests.client.test_sdk import Cluster, cluster

__all__ = ["cluster"]  # the fixture


# What the environment says ----------------------------------------------------------------------------------


def test_without_the_cluster_a_program_is_one_rank_that_saves_nowhere() -> None:
    found = read_settings({})
    assert found == Settings(0, 1, 0, None, None, None, 0, 3, None, 0, None, 300.0)
    assert not found.in_cluster


@in_turn(
    ("variable", "text", "field", "value"),
    [
        ("RANK", "2", "rank", 2),
        ("WORLD_SIZE", "4", "world_size", 4),
        ("LOCAL_RANK", "1", "local_rank", 1),
        ("LOCAL_WORLD_SIZE", "2", "local_world_size", 2),
        ("EVENKEEL_TOTAL_STEPS", "9", "total_steps", 9),
        ("EVENKEEL_TOTAL_STEPS", "0", "total_steps", 0),
        ("EVENKEEL_TOTAL_STEPS", "", "total_steps", None),
        ("EVENKEEL_BATCH_SIZE", "8", "batch_size", 8),
        ("EVENKEEL_BATCH_SIZE", "0", "batch_size", None),
        ("EVENKEEL_CHECKPOINT_EVERY", "5", "checkpoint_every", 5),
        ("EVENKEEL_CHECKPOINT_KEEP", "2", "checkpoint_keep", 2),
        ("EVENKEEL_CHECKPOINT_KEEP", "1", "checkpoint_keep", 1),
        ("EVENKEEL_CHECKPOINT_KEEP", "-1", "checkpoint_keep", 1),
        ("EVENKEEL_CHECKPOINT_DIR", "/c", "checkpoint_dir", Path("/c")),
        ("EVENKEEL_CHECKPOINT_DIR", "", "checkpoint_dir", None),
        ("EVENKEEL_SDK_DIR", "/s", "sdk_dir", Path("/s")),
        ("EVENKEEL_EPOCH", "7", "epoch", 7),
        ("EVENKEEL_PACE_STEPS_PER_S", "2.5", "pace_steps_per_s", 2.5),
        ("EVENKEEL_PACE_STEPS_PER_S", "0", "pace_steps_per_s", None),
        ("EVENKEEL_DISTRIBUTED_TIMEOUT_S", "60", "distributed_timeout_s", 60.0),
        ("EVENKEEL_ARTIFACT_DIR", "/a", "artifact_dir", Path("/a")),
        ("EVENKEEL_GPU_MEMORY_MIB", "512", "gpu_memory_mib", 512),
        ("EVENKEEL_GPU_MEMORY_MIB", "0", "gpu_memory_mib", None),
        ("EVENKEEL_RENDEZVOUS_DIR", "/r", "rendezvous_dir", Path("/r")),
        ("EVENKEEL_DATA_DIR", "/d", "data_dir", Path("/d")),
    ],
)
def test_each_variable_is_one_setting(variable: str, text: str, field: str, value: Any) -> None:
    usual, found = read_settings({}), read_settings({variable: text})
    changed = {name for name in Settings.__slots__ if getattr(found, name) != getattr(usual, name)}
    assert getattr(found, field) == value
    assert changed <= {field}


@in_turn(("local", "spans"), [(None, False), ("1", True), ("3", True), ("4", False)])
def test_a_run_spans_nodes_where_some_of_its_ranks_are_elsewhere(local: str | None, spans: bool) -> None:
    assert read_settings({"WORLD_SIZE": "4"} | ({"LOCAL_WORLD_SIZE": local} if local else {})).spans_nodes is spans


# When it saves ----------------------------------------------------------------------------------------------


class Store(CheckpointStore):
    """Takes its time until it is let go, and fails where the test says so."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, 9)
        self.saved, self.about = list[tuple[int, Any, str]](), dict[str, Any]()
        self.go, self.fails = threading.Event(), False
        self.go.set()

    def save(self, step: int, state: Any, **about: Any) -> Saved:
        assert self.go.wait(60)
        if self.fails:
            raise CheckpointError("the disk is full")
        self.saved.append((step, state, threading.current_thread().name))
        self.about = about
        return Saved(step, f"step-{step}", 5, 0.123456)


def saver(place: Path, said: Lines | None = None, **settings: Any) -> tuple[Saver, Store]:
    store = Store(place)
    variables = {"EVENKEEL_CHECKPOINT_EVERY": 5, "EVENKEEL_EPOCH": 3, "EVENKEEL_BATCH_SIZE": 8} | settings
    return Saver(store, read_settings({name: str(value) for name, value in variables.items()}), said), store


@in_turn(
    ("every", "last", "step", "due"),
    [
        (0, None, 5, False),
        (5, None, 4, False),
        (5, None, 5, True),
        (5, None, 6, True),
        (5, 5, 9, False),
        (5, 5, 10, True),
        (5, 7, 9, False),
        (5, 7, 10, True),
        (5, 4, 6, True),
        (1, 4, 5, True),
        (1, None, 1, True),
    ],
)
def test_an_interval_is_over_at_its_next_multiple(
    tmp_path: Path, every: int, last: int | None, step: int, due: bool
) -> None:
    made, _ = saver(tmp_path, EVENKEEL_CHECKPOINT_EVERY=every)
    made.last_step = last
    assert made.interval_due(step) is due


def test_the_first_checkpoint_and_those_asked_for_are_written_before_the_program_goes_on(tmp_path: Path) -> None:
    made, store = saver(tmp_path, WORLD_SIZE=2)
    here = threading.current_thread().name
    made.save(5, "interval", lambda: {"at": 5})
    assert store.about == {"epoch": 3, "world_size": 2, "batch_size": 8}
    store.go.clear()
    values = {"at": 10}
    made.save(10, "interval", lambda: values)
    values["at"] = 11  # what comes after is not what is written
    assert (made.last_step, len(store.saved)) == (10, 1)
    store.go.set()
    made.save(12, "request", lambda: values)  # after the one that is being written
    assert [step for step, _, _ in store.saved] == [5, 10, 12]
    assert [content["state"] for _, content, _ in store.saved] == [{"at": 5}, {"at": 10}, {"at": 11}]
    assert [name == here for _, _, name in store.saved] == [True, False, True]
    made.wait()


def test_what_cannot_be_written_is_told_and_stops_only_who_waits_for_it(tmp_path: Path) -> None:
    said = Lines(tmp_path, 0)
    made, store = saver(tmp_path, said)
    made.save(5, "interval", lambda: 1)
    store.fails = True
    made.save(10, "interval", lambda: 1)
    made.wait()
    with pytest.raises(CheckpointError, match="disk is full"):
        made.save(12, "end", lambda: 1)
    said.close()
    found = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
    assert [line | {"t": 0} for line in found] == [
        {
            "kind": "checkpoint",
            "t": 0,
            "step": 5,
            "path": "step-5",
            "bytes": 5,
            "seconds": 0.1235,
            "reason": "interval",
        },
        {"kind": "notice", "t": 0, "text": "the disk is full"},
    ]


def test_objects_are_saved_by_their_names_and_models_without_their_wrapping(tmp_path: Path) -> None:
    made, store = saver(tmp_path)
    known = [made.has_objects]
    for name in ("a", "b"):
        made.register({name: torch.nn.Linear(1, 1, bias=False)})
        known.append(made.has_objects)
    assert known == [False, True, True]
    made.save(1, "end", lambda: None)
    assert {name: list(item) for name, item in store.saved[0][1]["objects"].items()} == {
        "a": ["weight"],
        "b": ["weight"],
    }
    wrapped = type("DistributedDataParallel", (), {"module": "inner"})()
    assert (unwrapped(wrapped), unwrapped("plain")) == ("inner", "plain")


@in_turn(
    ("content", "kind"),
    [
        ({"a": [1, 2.5, "x", None, True], "b": {"c": []}}, "json"),
        ({1: "key"}, "torch"),
        ({"a": (1, 2)}, "torch"),
        ([{"a": {2}}], "torch"),
        (OrderedDict(a=1), "json"),
        (torch.zeros(1), "torch"),
    ],
)
def test_json_holds_what_it_gives_back_as_it_was(content: Any, kind: str) -> None:
    assert state.format_of(content) == kind


def test_a_copy_keeps_the_kinds_of_what_it_copies() -> None:
    tensor = torch.zeros(2, requires_grad=True)
    before: dict[str, Any] = {"a": OrderedDict(b=[1, {2}]), "c": (tensor, [3]), "d": {"e": bytearray(b"x")}}
    copied = state.copy_state(before)
    before["a"]["b"].append(9)
    before["c"][1].append(9)
    before["d"]["e"].extend(b"y")
    assert type(copied["a"]) is OrderedDict
    assert (copied["a"], copied["c"][1], copied["d"]) == (OrderedDict(b=[1, {2}]), [3], {"e": bytearray(b"x")})
    assert type(copied["c"]) is tuple
    assert not copied["c"][0].requires_grad


def test_without_torch_only_json_can_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    state.write_state(tmp_path / "x", {"a": 1}, "json")
    assert state.read_state(tmp_path / "x", "json") == {"a": 1}
    with pytest.raises(CheckpointError, match="without PyTorch"):
        state.write_state(tmp_path / "y", {1}, "torch")
    kept = {"a": [1]}
    copied = state.copy_state(kept)
    kept["a"].append(2)
    assert copied == {"a": [1]}


# What it says -----------------------------------------------------------------------------------------------


@pytest.fixture
def said(tmp_path: Path) -> Any:
    made = Lines(tmp_path, 3)
    yield made
    made.close()


def told(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "rank3.jsonl").read_text().splitlines()]


def test_a_step_is_said_a_few_times_a_second_and_whenever_it_must_be(
    said: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    found = []
    for step in range(9):
        found.append(said.step(step, {"loss": step}))
        now += STEP_LINE_EVERY_S / 4
    assert found == [True, False, False, False] * 2 + [True]
    assert said.step(9, {"loss": torch.tensor(9.0)}, force=True)
    assert not said.step(10, {})  # the quarter of a second counts from there
    assert [(line["step"], line["metrics"]) for line in told(tmp_path)] == [
        (0, {"loss": 0.0}),
        (4, {"loss": 4.0}),
        (8, {"loss": 8.0}),
        (9, {"loss": 9.0}),
    ]


def test_names_that_are_known_are_kept_when_new_ones_are_too_many(said: Lines, tmp_path: Path) -> None:
    for first in range(0, NAMES_A_RUN, NAMES_A_STEP):
        said.step(first, {f"m{first + n}": 1.0 for n in range(NAMES_A_STEP)}, force=True)
    assert not [line for line in told(tmp_path) if line["kind"] == "notice"]  # exactly as many as may be
    said.step(900, {"new": 1.0, "m0": 2.0, "m199": 3.0}, force=True)
    said.step(901, {f"m{n}": 1.0 for n in range(NAMES_A_STEP + 1)}, force=True)
    found = told(tmp_path)
    assert found[NAMES_A_RUN // NAMES_A_STEP]["metrics"] == {"m0": 2.0, "m199": 3.0}
    assert len(found[-1]["metrics"]) == NAMES_A_STEP
    assert [line["kind"] for line in found].count("notice") == 1


def test_a_line_is_one_of_json_with_its_time_whatever_is_in_it(said: Lines, tmp_path: Path) -> None:
    said.say("notice", text="a\nb", where=Path("/x"))
    (line,) = told(tmp_path)
    assert line | {"t": 0} == {"kind": "notice", "t": 0, "text": "a\nb", "where": "/x"}
    assert line["t"] > 1.7e9
    assert (tmp_path / "rank3.jsonl").stat().st_mode & 0o777 == 0o600


@in_turn(("value", "shown"), [(1, 1.0), ("2.5", 2.5), (-math.inf, None), (math.nan, None)])
def test_a_number_is_finite_or_nothing(value: Any, shown: float | None) -> None:
    assert number(value) == shown


# What the ranks share ---------------------------------------------------------------------------------------


def test_what_the_runner_and_the_ranks_share_begins_with_nothing_asked(tmp_path: Path) -> None:
    runner = Control.create(tmp_path / "control")
    rank = Control(tmp_path / "control")
    assert (rank.request, rank.stop_at, rank.total_wanted, rank.total) == (NONE, None, None, None)
    runner.request, runner.total_wanted = CHECKPOINT_AND_STOP, 0
    rank.stop_at, rank.total = 2**40, 5
    assert (rank.request, rank.total_wanted) == (CHECKPOINT_AND_STOP, 0)
    assert (runner.stop_at, runner.total) == (2**40, 5)
    assert (tmp_path / "control").stat().st_size == control.SIZE
    runner.close()
    assert runner._map.closed


class Counters:
    """A process group's store, as far as it is used."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.asked = 0

    def add(self, key: str, amount: int) -> int:
        self.asked += 1
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


@in_turn("asks", [True, False])
def test_what_rank_0_decides_reaches_other_nodes_by_the_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    store = Counters()
    monkeypatch.setattr(control, "process_group_store", lambda: store)
    for name in ("here", "there"):
        Control.create(tmp_path / name)
    first = SpanningControl(tmp_path / "here", tells=True, asks=False)
    other = SpanningControl(tmp_path / "there", tells=False, asks=asks)
    other.refresh()
    assert (other.stop_at, other.total) == (None, None)
    assert store.asked == asks  # before each step: once where there is no news
    other._map[24:32] = (70).to_bytes(8, "little")  # by its runner
    first.stop_at = 7
    other.refresh()
    assert (other.stop_at, other.total) == (7 if asks else None, 70)
    first.total = 40
    other.refresh()
    assert other.total == (40 if asks else 70)
    first.stop_at, first.total = 0, 50
    other.refresh()
    assert (other.stop_at, other.total) == ((0, 50) if asks else (None, 70))
    assert (first.stop_at, first.total) == (0, 50)
    before = store.asked
    first.refresh()
    other.stop_at = 3
    assert store.asked == before  # only rank 0 tells, and only the others ask


def test_without_a_process_group_each_node_goes_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "process_group_store", lambda: None)
    Control.create(tmp_path / "control")
    made = SpanningControl(tmp_path / "control", tells=True, asks=True)
    made.stop_at, made.total = 4, 9
    made.refresh()
    assert (made.stop_at, made.total) == (4, 9)


@in_turn(
    ("rank", "local_rank", "local_world", "tells_asks"),
    [
        ("0", "0", "2", (True, False)),
        ("1", "1", "2", (False, False)),
        ("2", "0", "2", (False, True)),
        ("0", "0", "4", None),
    ],
)
def test_who_tells_and_who_asks_follows_from_the_place_of_the_rank(
    tmp_path: Path, rank: str, local_rank: str, local_world: str, tells_asks: tuple[bool, bool] | None
) -> None:
    Control.create(tmp_path / "control")
    settings = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": local_world}
    made = open_control(tmp_path / "control", read_settings(settings))
    found = (made._tells, made._asks) if isinstance(made, SpanningControl) else None
    assert found == tells_asks


# Pace and samples -------------------------------------------------------------------------------------------


def test_a_pace_sleeps_in_slices_and_ends_when_it_is_interrupted() -> None:
    now, slept, asked = 0.0, list[float](), 0

    def sleep(duration_s: float) -> None:
        nonlocal now
        now += duration_s
        slept.append(duration_s)

    def interrupted() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    pace = Pace(5, clock=lambda: now, sleep=sleep)
    pace.wait()
    assert slept == []
    pace.wait()
    assert now == pytest.approx(0.2)
    assert slept == pytest.approx([SLICE_S] * 4)
    slept.clear()
    pace.wait(interrupted)
    assert slept == pytest.approx([SLICE_S] * 3)


@in_turn(
    ("batch", "world", "parts"),
    [(8, 1, [(0, 8)]), (8, 3, [(0, 3), (3, 6), (6, 8)]), (2, 3, [(0, 1), (1, 2), (2, 2)]), (0, 2, [(0, 0), (0, 0)])],
)
def test_the_first_ranks_take_what_is_left_over(batch: int, world: int, parts: list[tuple[int, int]]) -> None:
    assert [share(batch, rank, world) for rank in range(world)] == parts


def test_a_batch_goes_from_one_pass_into_the_next_and_each_pass_has_its_own_order() -> None:
    passes = [batch_indices(number, 7, 7, seed=1) for number in range(3)]
    assert all(sorted(one) == list(range(7)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    stream = [index for one in passes for index in one]
    assert batch_indices(1, 7, 5, seed=1) == stream[5:10]
    assert batch_indices(0, 1, 3, seed=1) == [0, 0, 0]
    with pytest.raises(ValueError, match="empty"):
        batch_indices(0, 0, 1, seed=1)


# Distribution -----------------------------------------------------------------------------------------------


def test_one_rank_needs_no_process_group_and_a_machine_without_gpus_is_a_cpu(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not distributed.init_process_group(cluster.settings(), "cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert distributed.pick_device(cluster.settings()) == "cpu"


def test_ranks_meet_in_a_directory_of_the_job_alone_where_all_see_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "meeting"
    monkeypatch.setattr(distributed, "_groups", itertools.count())
    settings, timeout = read_settings({"EVENKEEL_RENDEZVOUS_DIR": str(place)}), timedelta(seconds=7)
    stores = [distributed._private_store(settings, timeout) for _ in range(2)]
    assert sorted(path.name for path in place.iterdir()) == ["store-0", "store-1"]  # a file serves one group
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert [store.timeout for store in stores] == [timeout, timeout]
    assert distributed._private_store(read_settings({}), timeout) is None


def test_threads_of_gloo_are_known_by_their_name_and_whether_they_sleep() -> None:
    named, over = threading.Event(), threading.Event()

    def rest() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(distributed.GLOO_THREAD)
        named.set()
        over.wait()

    thread = threading.Thread(target=rest)
    thread.start()
    assert named.wait(60)
    try:
        give_up_at = time.monotonic() + 60
        while not (found := distributed._gloo_threads())[str(thread.native_id)][0]:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
    finally:
        over.set()
        thread.join()
    assert [*found] == [str(thread.native_id)]
    assert int(found[str(thread.native_id)][1]) >= 1
    assert distributed._gloo_threads() == {}


@pytest.mark.parametrize(("local_rank", "devices", "device"), [(0, 2, "cuda:0"), (1, 2, "cuda:1"), (3, 1, "cuda:0")])
def test_a_rank_takes_the_device_of_its_place_on_the_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, local_rank: int, devices: int, device: str
) -> None:
    limited = list[int]()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(distributed, "limit_gpu_memory", lambda settings: limited.append(settings.local_rank))
    assert distributed.pick_device(cluster.settings(LOCAL_RANK=local_rank)) == device
    assert limited == [local_rank]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert distributed.pick_device(cluster.settings()) == "cpu"


@in_turn(
    ("seen", "rests"),
    [
        ([{}], 0),
        ([{"1": (True, "5")}, {"1": (True, "5")}], 1),
        ([{"1": (True, "5")}, {"1": (True, "6")}, {"1": (True, "6")}], 2),
        ([{"1": (False, "5")}, {"1": (False, "5")}, {"1": (True, "6")}, {"1": (True, "6")}], 3),
        ([{"1": (True, "5")}, {}], 1),
    ],
)
def test_the_end_waits_until_all_threads_of_gloo_rest(
    monkeypatch: pytest.MonkeyPatch, seen: list[dict[str, tuple[bool, str]]], rests: int
) -> None:
    slept, left = list[float](), list(seen)
    monkeypatch.setattr(distributed, "_gloo_threads", lambda: left.pop(0))
    monkeypatch.setattr(time, "sleep", slept.append)
    distributed.wait_for_gloo()
    assert (len(slept), left) == (rests, [])


def test_the_host_stays_one_step_ahead_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = list[str]()

    class Event:
        made = 0

        def __init__(self) -> None:
            Event.made += 1
            self.number = Event.made

        def record(self) -> None:
            happened.append(f"record {self.number}")

        def synchronize(self) -> None:
            happened.append(f"wait for {self.number}")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    fence = distributed.StepFence()
    for _ in range(3):
        fence.pass_step()
    assert happened == ["record 1", "record 2", "wait for 1", "record 3", "wait for 2"]
