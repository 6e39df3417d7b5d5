"""Data through the real runner: links and variables of the program, one download, what is said meanwhile, and ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.store import variable_of

from tests.client.s3 import KEY, S3, SECRET, s3_server
from tests.client.test_runner import Portal, exit_of, launch, until
from tests.client.test_runner import portal as portal  # a fixture
from tests.client.test_runner_nodes import runners

#: Prints what it finds, and trains as many steps as there are lines.
READING = """
import os, evenkeel
with evenkeel.training(total_steps=3) as run:
    place = run.data("numbers")
    print("reads", sorted(os.listdir(place)), (place / "a.txt").read_text(), os.environ["EVENKEEL_DATA_NUMBERS"])
    for step in run.steps():
        pass
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    made.mkdir()
    (made / "a.txt").write_text("seven")
    (made / "b.txt").write_text("nine")
    return made


def start(place: Path, portal: Portal, *entries: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
    place.mkdir(exist_ok=True)
    return launch(place, portal, more.pop("program", READING), **told(place, *entries, **more))


def told(place: Path, *entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = [{"path": None, "url": None, "read_only": True} | entry for entry in entries]
    cache = str(more.pop("cache", place.parent / "cache-%n"))
    data = {"entries": whole, "project_key": "vision", "cache_dir": cache, "cache_bytes": 0, "fetch_s": 60.0}
    data |= more.pop("data", {})
    return {"data": data, "environment": {"EVENKEEL_TOTAL_STEPS": "3"}} | more


def log_of(place: Path, rank: int = 0) -> str:
    return (place / "epoch" / "logs" / f"rank{rank}.log").read_text()


def notices(portal: Portal) -> list[str]:
    return [notice for report in portal.reports for notice in report["notices"] if notice.startswith("data ")]


def test_a_program_finds_what_it_names(tmp_path: Path, portal: Portal, source: Path) -> None:
    entries = ({"name": "numbers", "url": f"file://{source}"}, {"name": "raw-files", "path": str(source)})
    assert start(tmp_path / "one", portal, *entries).wait(60) == 0
    assert exit_of(tmp_path / "one")["reason"] == "done"
    folder = tmp_path / "one" / "epoch" / "data"
    assert f"reads ['a.txt', 'b.txt'] seven {folder / 'numbers'}" in log_of(tmp_path / "one")
    assert (folder / "raw-files").readlink() == source
    assert notices(portal) == ["data numbers: 0.0 MiB in 2 files, 0.0 MiB fetched in " + notices(portal)[0][-5:]]
    assert start(tmp_path / "two", portal, *entries).wait(60) == 0
    assert notices(portal)[1] == "data numbers: 0.0 MiB in 2 files, here already"
    targets = {(tmp_path / name / "epoch" / "data" / "numbers").readlink() for name in ("one", "two")}
    assert len(targets) == 1


def test_variables_are_names_in_capitals() -> None:
    assert variable_of("image-net2") == "EVENKEEL_DATA_IMAGE_NET2"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"path": "/nowhere/at/all"}, "data numbers: /nowhere/at/all: /nowhere/at/all: No such file or directory"),
        ({"url": "file:///nowhere/at/all"}, "data numbers: file:///nowhere/at/all: FileNotFoundError"),
    ],
)
def test_what_is_not_there_ends_it_for_good(tmp_path: Path, portal: Portal, entry: Any, says: str) -> None:
    assert start(tmp_path / "one", portal, {"name": "numbers"} | entry).wait(60) == 0
    ended = exit_of(tmp_path / "one")
    assert (ended["reason"], ended["permanent"], ended["nodes_fault"]) == ("data_unavailable", True, None)
    assert ended["message"].startswith(says)
    until(lambda: portal.reports and portal.reports[-1]["exit"])
    assert not (tmp_path / "one" / "epoch" / "logs" / "rank0.log").exists() or "reads" not in log_of(tmp_path / "one")


def test_a_cache_that_cannot_be_used_is_the_nodes_fault(tmp_path: Path, portal: Portal, source: Path) -> None:
    (tmp_path / "file").write_text("")
    run = start(tmp_path / "one", portal, {"name": "numbers", "url": f"file://{source}"}, cache=tmp_path / "file")
    assert run.wait(60) == 0
    ended = exit_of(tmp_path / "one")
    assert (ended["reason"], ended["permanent"], ended["nodes_fault"]) == ("data_unavailable", False, True)


def test_every_node_has_its_data_before_any_worker_starts(tmp_path: Path, portal: Portal, source: Path) -> None:
    place = tmp_path / "one"
    place.mkdir()
    changes = told(place, {"name": "numbers", "url": f"file://{source}"})
    with runners(place, portal, READING, **changes) as both:
        assert both[0].wait(60) == 0
        assert both[1].wait(60) == 0
    assert exit_of(place)["reason"] == "done"
    for rank, folder in ((0, "data"), (1, "node-b/data"), (2, "node-b/data")):
        assert f"reads ['a.txt', 'b.txt'] seven {place / 'epoch' / folder / 'numbers'}" in log_of(place, rank)
    assert len(list(tmp_path.glob("cache-*/vision/*/data"))) == 2, "each node has a cache"


def test_a_node_that_cannot_have_its_data_says_which(tmp_path: Path, portal: Portal, source: Path) -> None:
    place = tmp_path / "one"
    place.mkdir()
    (tmp_path / "cache-b").write_text("no folder")
    changes = told(place, {"name": "numbers", "url": f"file://{source}"})
    with runners(place, portal, READING, **changes) as both:
        assert both[0].wait(60) == 0
        both[1].wait(60)
    ended = exit_of(place)
    assert (ended["reason"], ended["nodes_fault"]) == ("data_unavailable", True)
    assert ended["message"].endswith("(on b)")


# A real store


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as made:
        yield made


@pytest.fixture
def s3(server: S3) -> Iterator[S3]:
    files = server.files()
    files.pipe_file(f"{server.bucket}/data/a.txt", b"seven")
    files.pipe_file(f"{server.bucket}/data/deep/weights.bin", bytes(8 << 20))
    yield server
    server.door.shut, server.door.answers_bytes_per_s = False, 0


def from_s3(place: Path, portal: Portal, s3: S3, below: str = "data", **more: Any) -> subprocess.Popen[bytes]:
    (place / "epoch").mkdir(parents=True)
    options = {"numbers": s3.options | more.pop("options", {})}
    secret = {"name": "evenkeel.data", "env": None, "file": None, "value": json.dumps(options)}
    (place / "epoch" / "secrets.json").write_text(json.dumps([secret]))
    return start(place, portal, {"name": "numbers", "url": f"s3://{s3.bucket}/{below}"}, **more)


def test_two_runs_at_once_download_once_and_say_how_far_it_is(tmp_path: Path, portal: Portal, s3: S3) -> None:
    s3.door.answers_bytes_per_s = 3 << 20
    runs = [from_s3(tmp_path / name, portal, s3, report_interval_s=0.1) for name in ("one", "two")]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert [exit_of(tmp_path / name)["reason"] for name in ("one", "two")] == ["done", "done"]
    said = sorted(notice.partition(", ")[2].partition(" in ")[0] for notice in notices(portal))
    assert said == ["8.0 MiB fetched", "here already"]
    fetching = [report["fetching"] for report in portal.reports if report["fetching"]]
    assert any(text.startswith("fetching data numbers: ") and text.endswith(" of 8.0 MiB") for text in fetching)
    assert "waiting for data numbers: another run fetches it on this node" in fetching
    assert {report["phase"] for report in portal.reports if report["fetching"]} == {"launching"}
    assert portal.reports[-1]["fetching"] is None
    assert "[evenkeel] data numbers: 8.0 MiB in 2 files, " in log_of(tmp_path / "one")
    assert "reads ['a.txt', 'deep'] seven" in log_of(tmp_path / "two")


@pytest.mark.whole
def test_a_changed_object_is_a_new_download_and_the_cache_outlives_the_store(
    tmp_path: Path, portal: Portal, s3: S3
) -> None:
    assert from_s3(tmp_path / "one", portal, s3).wait(60) == 0
    s3.files().pipe_file(f"{s3.bucket}/data/a.txt", b"eight")
    before = s3.door.carried
    assert from_s3(tmp_path / "two", portal, s3).wait(60) == 0
    assert "seven" in log_of(tmp_path / "one")
    assert "eight" in log_of(tmp_path / "two")
    downloaded = s3.door.carried - before
    before = s3.door.carried
    assert from_s3(tmp_path / "three", portal, s3).wait(60) == 0
    assert s3.door.carried - before < downloaded / 2, "one listing"
    assert len([notice for notice in notices(portal) if "here already" in notice]) == 1


@pytest.mark.parametrize(("below", "says"), [("none", "FileNotFoundError"), ("../x", "FileNotFoundError")])
def test_the_stores_no_is_an_answer(tmp_path: Path, portal: Portal, s3: S3, below: str, says: str) -> None:
    assert from_s3(tmp_path / "one", portal, s3, below).wait(60) == 0
    ended = exit_of(tmp_path / "one")
    assert (ended["reason"], ended["permanent"]) == ("data_unavailable", True)
    assert says in ended["message"]


@pytest.mark.whole
def test_a_vanished_store_is_asked_again_and_then_it_may_be_tried_later(tmp_path: Path, portal: Portal, s3: S3) -> None:
    s3.door.shut = True
    options = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}}}
    run = from_s3(tmp_path / "one", portal, s3, options=options, data={"fetch_s": 25.0})
    assert run.wait(120) == 0
    ended = exit_of(tmp_path / "one")
    assert (ended["reason"], ended["permanent"], ended["nodes_fault"]) == ("data_unavailable", False, None)
    assert "data numbers: s3://" in ended["message"]
    fetching = {report["fetching"] for report in portal.reports if report["fetching"]}
    assert any(text.startswith("data numbers is tried again: ") for text in fetching)
    files = [path.read_text(errors="replace") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert not [text for text in files if SECRET in text or KEY in text]


def test_it_can_be_stopped_while_it_fetches(tmp_path: Path, portal: Portal, s3: S3) -> None:
    s3.door.answers_bytes_per_s = 200_000
    run = from_s3(tmp_path / "one", portal, s3, report_interval_s=0.1)
    until(lambda: any((report["fetching"] or "").startswith("fetching") for report in portal.reports))
    (tmp_path / "one" / "epoch" / "stop").touch()
    assert run.wait(30) == 0
    assert (exit_of(tmp_path / "one")["reason"], exit_of(tmp_path / "one")["message"]) == (
        "stopped",
        "stopped before it started",
    )
