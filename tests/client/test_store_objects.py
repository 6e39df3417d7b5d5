"""What lies in a store, with the driver of mounted paths: uploads that break off anywhere, torn markers, pruning."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.secrets import Secrets
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.store import STORE_SECRET, Damaged, StoreError, TakenOver, cache
from evenkeel.store.carrier import Address, Carrier, ask_once
from evenkeel.store.objects import Store
from evenkeel.store.settling import Wanted, settle

OWNER = {"run_id": "r", "epoch": 1}
PREFIX = "vision/j1"


class Broken(Exception):
    """The machine goes away."""


class Breaking:
    """A driver that breaks off at the n-th thing asked of it."""

    def __init__(self, fs: Any, at: int) -> None:
        self._fs, self._left = fs, at

    def __getattr__(self, name: str) -> Any:
        if self._left <= 0:
            raise Broken
        self._left -= 1
        return getattr(self._fs, name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(f"file://{tmp_path}/store", {}, PREFIX)
    made.claim(OWNER)
    return made


@pytest.fixture
def node(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "node", 10)


def place(tmp_path: Path, step: int) -> Path:
    return tmp_path / "node" / f"step-{step}"


def steps(store: Store) -> list[int]:
    return [one.step for one in store.complete()]


def test_whatever_breaks_an_upload_off_the_newest_complete_one_is_whole(
    tmp_path: Path, store: Store, node: CheckpointStore
) -> None:
    node.save(10, {"x": 1})
    node.save(20, {"x": 2})
    store.prune(2, store.upload(place(tmp_path, 10), OWNER))
    broken_off, at = 0, 0
    while True:
        trial = Store(f"file://{tmp_path}/store", {}, PREFIX)
        trial._fs = Breaking(trial._fs, at)
        try:
            trial.prune(1, trial.upload(place(tmp_path, 20), OWNER))
            break
        except Broken:
            broken_off += 1
        newest = next(store.complete())
        fetched = tmp_path / f"fetched{at}"
        fetched.mkdir()
        store.fetch(newest, fetched)
        found = CheckpointStore(fetched, 1).load_latest(lambda text: pytest.fail(text))
        assert found in ((10, {"x": 1}), (20, {"x": 2}))
        at += 1
    assert broken_off > 8
    assert steps(store) == [20], "what broken uploads left is gone"
    assert len([path for path in (tmp_path / "store" / PREFIX).iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_torn_marker_is_none(tmp_path: Path, store: Store, node: CheckpointStore, cut: int) -> None:
    node.save(10, {"x": 1})
    made = store.upload(place(tmp_path, 10), OWNER)
    marker = tmp_path / "store" / PREFIX / f"step-10-{made.id}" / "complete.json"
    marker.write_bytes(marker.read_bytes()[:cut])
    assert steps(store) == []


@pytest.mark.parametrize("name", ["../../../../etc/x", "state.sh", "/etc/passwd"])
def test_a_marker_names_nothing_but_a_checkpoints_files(
    tmp_path: Path, store: Store, node: CheckpointStore, name: str
) -> None:
    node.save(10, {"x": 1})
    made = store.upload(place(tmp_path, 10), OWNER)
    marker = tmp_path / "store" / PREFIX / f"step-10-{made.id}" / "complete.json"
    content = json.loads(marker.read_text())
    content["files"][0]["name"] = name
    marker.write_text(json.dumps(content))
    assert steps(store) == []


def test_what_is_damaged_on_the_node_is_not_uploaded(tmp_path: Path, store: Store, node: CheckpointStore) -> None:
    node.save(10, {"x": 1})
    (place(tmp_path, 10) / "state.json").write_text('{"x": 7}')
    with pytest.raises(Damaged):
        store.upload(place(tmp_path, 10), OWNER)
    assert steps(store) == []


def test_who_was_taken_over_completes_nothing(tmp_path: Path, store: Store, node: CheckpointStore) -> None:
    node.save(10, {"x": 1})
    store.claim({"run_id": "r", "epoch": 2})
    with pytest.raises(TakenOver):
        store.upload(place(tmp_path, 10), OWNER)
    assert steps(store) == []


@pytest.mark.parametrize(("keep", "left"), [(1, [40]), (2, [40, 30]), (9, [40, 30, 20, 10])])
def test_the_last_ones_stay_and_the_newest_always(
    tmp_path: Path, store: Store, node: CheckpointStore, keep: int, left: list[int]
) -> None:
    for step in (10, 20, 30, 40):
        node.save(step, {"x": step})
        newest = store.upload(place(tmp_path, step), OWNER)
    store.prune(keep, newest)
    assert steps(store) == left


@pytest.mark.parametrize("more", range(6))  # which of the two ids is listed first is chance
def test_the_same_step_written_anew_is_another_checkpoint(
    tmp_path: Path, store: Store, node: CheckpointStore, more: int
) -> None:
    node.save(10, {"x": 1})
    store.upload(place(tmp_path, 10), OWNER)
    node.save(10, {"x": 2 + more})
    anew = store.upload(place(tmp_path, 10), OWNER)
    assert next(store.complete()).id == anew.id
    assert steps(store) == [10, 10]
    store.prune(1, anew)
    assert [one.id for one in store.complete()] == [anew.id]


def test_jobs_from_before_there_was_a_store_bring_their_checkpoints(
    tmp_path: Path, store: Store, node: CheckpointStore
) -> None:
    node.save(10, {"x": 1})
    settled = settle(store, tmp_path / "cache", Wanted(OWNER, expected_step=10, otherwise=tmp_path / "node"))
    assert (settled.step, settled.uploaded) == (10, True)
    assert steps(store) == [10]


def test_a_job_begins_with_another_jobs_checkpoint_out_of_the_store(
    tmp_path: Path, store: Store, node: CheckpointStore
) -> None:
    node.save(10, {"x": 1})
    store.upload(place(tmp_path, 10), OWNER)
    new = store.of("vision/j2")
    settled = settle(new, tmp_path / "j2", Wanted(OWNER, expected_step=10, resume=(PREFIX, 10)))
    assert settled.step == 10
    assert steps(new) == [10], "a copy: neither's clean-up touches the other"
    with pytest.raises(StoreError, match="step 11 to resume from is not in the store"):
        settle(store.of("vision/j3"), tmp_path / "j3", Wanted(OWNER, expected_step=11, resume=(PREFIX, 11)))


def test_a_job_that_has_made_no_step_begins(tmp_path: Path, store: Store) -> None:
    assert settle(store, tmp_path / "cache", Wanted(OWNER)).step is None


# The process


def test_why_a_store_cannot_be_opened_is_the_answer_to_each_question() -> None:
    carrier = Carrier(Address("nothing://there", "x"))
    try:
        for _ in range(2):
            carrier.ask("list", most=1)
            with pytest.raises(StoreError, match="nothing"):
                carrier.wait(120)
    finally:
        carrier.close()


def test_one_question_has_a_process_of_its_own(tmp_path: Path) -> None:
    assert ask_once(Address(f"file://{tmp_path}", ""), 120, "probe", size=1024)["ok"]


def test_who_asked_is_not_kept_waiting(tmp_path: Path) -> None:
    carrier = Carrier(Address(f"file://{tmp_path}", "x"))
    try:
        os.kill(carrier.pid, signal.SIGSTOP)  # before it has been asked, so that it cannot have answered
        carrier.ask("list", most=1)
        with pytest.raises(StoreError, match="given up"):
            carrier.wait(120, lambda: True)
        assert not carrier.open
    finally:
        carrier.close()


def test_credentials_are_masked_and_other_options_are_not() -> None:
    value = {
        "options": {"endpoint_url": "http://store:9000"},
        "credentials": {"key": "the-key", "a": {"b": "the-token"}},
    }
    fd = os.memfd_create("secrets")
    os.write(fd, json.dumps([{"name": STORE_SECRET, "env": None, "file": None, "value": json.dumps(value)}]).encode())
    secrets = Secrets.read(fd)
    assert secrets.store == {"endpoint_url": "http://store:9000", "key": "the-key", "a": {"b": "the-token"}}
    said = secrets.redactor().clean_text("the-key the-token http://store:9000")
    assert said == "[redacted] [redacted] http://store:9000"
    assert (secrets.variables, secrets.files) == ({}, {})


# The cache of a node


def test_the_least_recently_used_job_goes_first_and_none_that_is_in_use(tmp_path: Path) -> None:
    held = {}
    for number, job in enumerate(("a", "b", "c")):
        held[job] = cache.use(tmp_path / job)
        (tmp_path / job / "state").write_bytes(b"x" * 1000)
        os.utime(tmp_path / job / ".lock", (number, number))
    (tmp_path / "not-ours").mkdir()
    os.close(held["b"])
    os.close(held["c"])
    assert cache.make_room(tmp_path, 3000) == []
    assert cache.make_room(tmp_path, 2500) == ["b"]
    assert cache.make_room(tmp_path, 2500, wanted=1000) == ["c"]
    assert cache.make_room(tmp_path, 0) == []
    os.close(held["a"])
    assert cache.make_room(tmp_path, 0) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["not-ours"]
