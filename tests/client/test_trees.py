"""Removing and reading what a program may have made of its files: deep, wide, closed, and changed meanwhile."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from evenkeel.runner.files import MAX_DEPTH, MAX_NODES, parse_json, read_object, read_plain
from evenkeel.runner.trees import Bounds, OutOfBounds, remove_below, remove_tree, walk

from benchmarks.hostile_files import Hostile
from scheduling.executors.account_blocks import FIRST_UID
from scheduling.executors.accounts import Account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-trees-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


# Removing


@pytest.mark.usefixtures("few_descriptors")
def test_a_tree_deeper_than_paths_stacks_and_descriptors_is_removed(place: Path) -> None:
    Hostile(0, depth=6_000).put(place / "tree", "deep")
    assert remove_tree(place / "tree", max_s=60)
    assert list(place.iterdir()) == []


def test_what_a_bound_interrupts_is_continued(place: Path) -> None:
    Hostile(0, depth=400).put(place / "tree", "deep")
    Hostile(0, width=400).put(place / "tree" / "wide", "wide")
    calls = 1
    while not remove_tree(place / "tree", max_entries=100):
        calls += 1
        assert calls < 50
    assert calls > 4
    assert not (place / "tree").exists()


def test_no_time_is_spent_beyond_the_bound(place: Path) -> None:
    Hostile(0, depth=400).put(place / "tree", "deep")
    assert not remove_tree(place / "tree", max_s=0)
    assert (place / "tree").exists()


@pytest.mark.parametrize("kind", sorted(Hostile(0).kinds))
def test_whatever_lies_there_is_removed(place: Path, kind: str) -> None:
    Hostile(1, depth=1_500, width=300).put(place / "it", kind)
    assert os.path.lexists(place / "it")
    assert remove_tree(place / "it")
    assert not os.path.lexists(place / "it")


def test_what_is_not_there_counts_as_removed(place: Path) -> None:
    (place / "file").touch()
    assert remove_tree(place / "none")
    assert remove_tree(place / "file" / "below")
    assert remove_below(place, ("none", "of", "these"))


def test_no_link_is_followed(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (place / "tree").mkdir()
    (place / "tree" / "link").symlink_to(kept)
    (place / "way").symlink_to("kept")
    assert remove_below(place, ("way", "file"))
    assert remove_tree(place / "tree")
    assert remove_tree(place / "way")
    assert (kept / "file").exists()


@as_root
def test_its_owner_removes_what_the_job_has_closed(place: Path) -> None:
    account = Account(FIRST_UID + 1)
    (place / "job").mkdir()
    account.give(place / "job")
    with account.files():
        (place / "job" / "above").mkdir()
        for name in ("top", "other"):
            below = place / "job" / "above" / name / "below" / "deeper"
            below.mkdir(parents=True)
            (below / "file").touch()
            for path in (below, below.parent, below.parent.parent):
                path.chmod(0)
        (place / "job" / "above").chmod(0o100)
        assert remove_tree(place / "job" / "above" / "top")
        (place / "job").chmod(0)
        assert remove_below(place, ("job", "above"))
    assert list((place / "job").iterdir()) == []


@as_root
def test_what_is_another_accounts_stays_and_all_else_goes(place: Path) -> None:
    account = Account(FIRST_UID + 1)
    (place / "job").mkdir()
    account.give(place / "job")
    with account.files():
        (place / "job" / "mine" / "below").mkdir(parents=True)
        (place / "job" / "theirs").mkdir()
    (place / "job" / "theirs" / "dir").mkdir()
    (place / "job" / "theirs" / "dir" / "file").touch()
    with account.files(), pytest.raises(PermissionError):
        remove_tree(place / "job")
    left = {path.name for path in (place / "job").rglob("*")}
    assert "file" in left
    assert not left & {"mine", "below"}


# Walking


def test_a_walk_ends_where_a_directory_was_moved_away_under_it(place: Path) -> None:
    (place / "top" / "a" / "b").mkdir(parents=True)
    (place / "elsewhere").mkdir()

    def visit(directory: int, name: str) -> bool:
        if name == "b":
            (place / "top" / "a").rename(place / "elsewhere" / "a")
        return True

    top = os.open(place / "top", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="moved while"):
            walk(top, Bounds(), visit)
    finally:
        os.close(top)


@pytest.mark.usefixtures("few_descriptors")
def test_a_walk_is_as_deep_as_the_tree_and_leaves_each_directory_last(place: Path) -> None:
    Hostile(0, depth=3_000).put(place / "tree", "deep")
    top, left = os.open(place / "tree", os.O_RDONLY), list[int]()
    try:
        walk(top, Bounds(), lambda directory, name: True, lambda directory: left.append(os.fstat(directory).st_ino))
        assert len(set(left)) == 3_001
        assert left[-1] == os.fstat(top).st_ino
        with pytest.raises(OutOfBounds):
            walk(top, Bounds(max_entries=100), lambda directory, name: True)
    finally:
        os.close(top)
    remove_tree(place / "tree")


# Reading


@pytest.mark.parametrize(
    "text",
    [
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
        b"[" + b"[]," * MAX_NODES + b"[]]",
        b"[" + b"1," * MAX_NODES + b"1]",
        b'["a", NaN]',
        b'["a", -Infinity]',
        b"[1e999]",
        b"[" + b"9" * 5_000 + b"]",
        b'"unfinished',
        b"\xff",
        b"",
    ],
)
def test_what_makes_no_sense_or_too_much_is_not_parsed(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_a_string_that_does_not_end_is_read_once() -> None:
    """Were what follows each of its quotes looked at again, 64 KiB of them would take a minute."""
    with pytest.raises(ValueError, match="Unterminated string"):
        parse_json(b'{"a": "' + b'\\"[,' * 100, max_nodes=10)


def test_no_bracket_is_counted_after_more_were_closed_than_opened() -> None:
    with pytest.raises(ValueError, match="closes more brackets"):
        parse_json(b"]" * 100)


def test_brackets_in_strings_are_no_values() -> None:
    said = {"a": "[{," * MAX_NODES + '"\\', "b": [1.5, None, True]}
    assert parse_json(json.dumps(said).encode()) == said
    assert parse_json(b'{"loss": NaN, "rate": 1e999}', nan_as_null=True) == {"loss": None, "rate": None}


def test_few_nodes_are_built_of_many_brackets(tmp_path: Path) -> None:
    """What would take a hundred times its size in memory is refused before."""
    path = tmp_path / "it.json"
    path.write_bytes(b'{"a": [' + b"[]," * 300_000 + b"[]]}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_object(path) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024


@pytest.mark.parametrize("kind", ["deep", "sparse", "pipe", "socket", "device", "link", "loop", "closed", "names"])
def test_whatever_lies_there_is_no_object(place: Path, kind: str) -> None:
    Hostile(2, depth=50).put(place / "it.json", kind)
    assert read_object(place / "it.json") is None


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path, over = tmp_path / "it.json", threading.Event()
    path.write_bytes(b"{}")

    def grow() -> None:
        with path.open("ab") as file:
            while not over.is_set():
                file.write(b" " * 4_096)
                file.flush()

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        give_up_at = time.monotonic() + 30
        with pytest.raises(OSError, match="more than"):  # noqa: PT012
            while time.monotonic() < give_up_at:
                assert len(read_plain(path, 1 << 20)) <= 1 << 20
    finally:
        over.set()
        growing.join()
