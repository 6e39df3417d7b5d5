"""What each rank of a training does: who speaks and saves, when it leaves, and how the total grows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import evenkeel
import pytest
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.sdk.control import CHECKPOINT_AND_STOP
from evenkeel.training import GROW_MARGIN, MAX_URL, Run

from tests.client.test_sdk import Cluster, cluster

__all__ = ["cluster"]  # the fixture


class Thing:
    """Something with state, as a model is."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


class Fence:
    def __init__(self) -> None:
        self.passed = 0

    def pass_step(self) -> None:
        self.passed += 1


def alone(**more: Any) -> Run:
    """Outside the cluster."""
    return evenkeel.training(settings=evenkeel.sdk.settings.read_settings({}), **more)


def rank(cluster: Cluster, number: int, **changes: Any) -> Run:
    changes = {"RANK": number, "WORLD_SIZE": 2, "LOCAL_RANK": number} | changes
    return cluster.run(**changes)


def lines_of(cluster: Cluster, number: int) -> str:
    path = cluster.place / "sdk" / f"rank{number}.jsonl"
    return path.read_text() if path.exists() else ""


def asked_in(cluster: Cluster, asked: int, *, fence: Fence | None = None, saved: bool = False) -> None:
    """A program that is asked to leave while it is in a step."""
    with cluster.run() as run:
        run._fence = fence  # type: ignore[assignment]
        for step in run.steps():
            if step == asked:
                cluster.control.request = CHECKPOINT_AND_STOP
            if saved:
                run.save({"step": step})


# Leaving ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fenced", "margin"), [(False, 1), (True, 2)])
def test_a_request_is_answered_with_a_step_that_no_rank_has_passed(cluster: Cluster, fenced: bool, margin: int) -> None:
    fence = Fence() if fenced else None
    with pytest.raises(SystemExit) as ended:
        asked_in(cluster, 3, fence=fence)
    assert ended.value.code == 0
    # Asked for in step 3: seen before step 4, which is done, and one more with a fence.
    assert cluster.control.stop_at == 4 + margin
    assert fence is None or fence.passed == 4 + margin + 1
    assert [line["step"] for line in cluster.said("stopped")] == [4 + margin]
    assert cluster.said("done") == []


@pytest.mark.parametrize(("stop_at", "leaves"), [(None, False), (4, False), (3, True), (2, True), (0, True)])
def test_a_rank_leaves_at_the_step_that_was_named_and_not_before(
    cluster: Cluster, stop_at: int | None, leaves: bool
) -> None:
    with rank(cluster, 1, EVENKEEL_CHECKPOINT_DIR="") as run:
        assert run._control is not None
        run.step = 3
        if stop_at is not None:
            run._control.stop_at = stop_at
        cluster.control.request = CHECKPOINT_AND_STOP
        assert run._goes_on() is not leaves
        assert run.stopping is leaves
        run.stopping = False
    assert cluster.control.stop_at == stop_at  # rank 1 names none


def test_outside_the_cluster_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone() as run:
        assert (list(run.steps(3)), run.finished, run.stopping) == ([0, 1, 2], True, False)
    with alone(total_steps=2) as run:
        assert list(run.steps()) == [0, 1]
        assert list(run.steps()) == []


@pytest.mark.parametrize("saved", [True, False])
def test_who_stops_without_a_checkpoint_of_that_step_says_so(cluster: Cluster, saved: bool) -> None:
    with pytest.raises(SystemExit):
        asked_in(cluster, 6, saved=saved)
    notices = [line["text"] for line in cluster.said("notice")]
    assert notices == ([] if saved else ["stopped at step 8 without a checkpoint of it"])


# The total --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "step", "wanted", "total"),
    [
        (0, 20 - GROW_MARGIN, 30, 30),
        (0, 21 - GROW_MARGIN, 30, 20),
        (0, 0, 20, 20),
        (0, 0, 10, 20),
        (1, 0, 30, 20),
        (0, 0, 0, 20),
    ],
)
def test_rank_0_takes_a_larger_total_while_nobody_can_be_at_the_end(
    cluster: Cluster, number: int, step: int, wanted: int, total: int
) -> None:
    with rank(cluster, number, EVENKEEL_CHECKPOINT_DIR="") as run:
        run.step = step
        cluster.control.total_wanted = wanted
        run._take_total()
        assert run.total_steps == total
        cluster.control.total = 15
        run._take_total()
        assert run.total_steps == total


# Who speaks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_only_rank_0_speaks_for_the_run(cluster: Cluster, number: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "evenkeel"), rank(cluster, number) as run:
        assert run.is_main == (number == 0)
        run.report(loss=1.0)
        assert run._metrics == ({"loss": 1.0} if number == 0 else {})
        run.notice("look")
        run.link("board", "https://example.org/b")
        assert list(run.steps()) == list(range(20))
    said = lines_of(cluster, number)
    for kind in ("ready", "step", "notice", "link", "done"):
        assert (f'"{kind}"' in said) == (number == 0)
    assert ("look" in caplog.text) == (number == 0)


def test_an_error_is_told_by_each_rank_and_at_most_so_long(cluster: Cluster) -> None:
    for number in (0, 1):
        with pytest.raises(ValueError, match="x"), rank(cluster, number):
            raise ValueError("x" * 2001)
        assert '"error"' in lines_of(cluster, number)
        assert "x" * 2000 in lines_of(cluster, number)
        assert "x" * 2001 not in lines_of(cluster, number)


@pytest.mark.parametrize(
    "url", ["", "ftp://example.org", "example.org/b", "https://u:p@example.org/", "https://e.org/" + "x" * MAX_URL]
)
def test_a_link_is_an_address_of_the_web(cluster: Cluster, url: str) -> None:
    with cluster.run() as run:
        with pytest.raises(ValueError, match=r"^link\('board'\): url must|^link\('board'\): url may"):
            run.link("board", url)
        list(run.steps())
    assert cluster.said("link") == []
    with alone() as run:  # the same mistake is the same everywhere
        with pytest.raises(ValueError, match="board"):
            run.link("board", url)
        run.link("board", "http://localhost:6006")


# What is saved ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_only_rank_0_saves(cluster: Cluster, number: int) -> None:
    with rank(cluster, number) as run:
        for step in run.steps():
            assert run.save({"step": step}) == (number == 0 and (step + 1) % 5 == 0)
        assert run.save({"step": "end"}) is False  # it is saved already
    assert cluster.steps_saved() == ([20, 15] if number == 0 else [])


def test_objects_are_saved_when_due_and_at_the_end_and_programs_without_any_save_themselves(cluster: Cluster) -> None:
    with cluster.run(EVENKEEL_TOTAL_STEPS=7) as run:
        thing = Thing()
        assert run.checkpoint(thing=thing) is False
        for step in run.steps():
            thing.value = step + 1
    assert cluster.steps_saved() == [7, 5]
    with cluster.run(EVENKEEL_TOTAL_STEPS=14) as run:
        thing = Thing()
        assert run.checkpoint(thing=thing) is True
        assert (thing.value, run.step) == (7, 7)
        list(run.steps())
    assert [line["reason"] for line in cluster.said("checkpoint")] == ["interval", "end", "interval", "end"]


def test_without_objects_nothing_is_saved_that_was_not_asked_for(cluster: Cluster) -> None:
    with cluster.run() as run:
        list(run.steps())
        assert run.load() is None
    assert cluster.steps_saved() == []


def test_a_run_without_a_place_for_checkpoints_saves_nothing(cluster: Cluster) -> None:
    with cluster.run(EVENKEEL_CHECKPOINT_DIR="") as run:
        assert run.checkpoint(thing=Thing()) is False
        for step in run.steps():
            assert run.save({"step": step}, force=True) is False
    assert not (cluster.place / "checkpoints").exists()


# Places -----------------------------------------------------------------------------------------------------


def test_artefacts_are_left_where_the_cluster_says_or_beside_the_program(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "deep" / "kept"
    with cluster.run(EVENKEEL_ARTIFACT_DIR=place) as run:
        for _ in range(2):
            assert run.artifact_dir == place
        assert place.is_dir()
        list(run.steps())
    with alone() as run:
        for _ in range(2):
            assert run.artifact_dir == Path("artifacts")
    assert (tmp_path / "artifacts").is_dir()


# Checkpoints on disk ----------------------------------------------------------------------------------------


def test_names_that_are_no_checkpoints_are_passed_over(tmp_path: Path) -> None:
    for name in ("step-7", "step-10", "step-", "step-1x", "xstep-3", "latest", ".draft-9-1"):
        (tmp_path / name).mkdir()
    assert CheckpointStore(tmp_path, 2).steps() == [10, 7]


def test_where_all_are_damaged_each_is_named_once(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
    said: list[str] = []
    assert CheckpointStore(tmp_path, 2).load_latest(said.append) is None
    assert said == ["checkpoint step 2, 1 is damaged and there is none before; starting at step 0"]


def test_only_the_first_checkpoint_of_a_process_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("evenkeel.sdk.checkpoints.read_state", lambda path, kind: read.append(kind))
    store = CheckpointStore(tmp_path, 2)
    for step in (1, 2, 3):
        store.save(step, {"n": step})
    assert (read, store.steps()) == (["json"], [3, 2])
    CheckpointStore(tmp_path, 2).save(4, {"n": 4})
    assert read == ["json", "json"]
