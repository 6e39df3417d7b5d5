"""Data in the cache of a node, with the driver of mounted paths: what is listed, fetched once, kept, and let go."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evenkeel.store import Denied, NodeFault, StoreError, cache
from evenkeel.store.data import Brought, Item, Source, Wish, _batches, bring_data, look_at_path
from hypothesis import given
from hypothesis import strategies as st


class Place:
    """A node's cache of one project, and a folder that is fetched to it."""

    def __init__(self, path: Path, bound: int = 0) -> None:
        self.source, self.cache, self.bound = path / "source", path / "cache", bound
        self.said: list[dict[str, Any]] = []

    def write(self, name: str, text: str) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def empty(self) -> None:
        shutil.rmtree(self.source)
        self.source.mkdir()

    def bring(self, below: str = "", **changes: Any) -> tuple[Brought, int]:
        url = f"file://{self.source}{below}"
        wish = Wish(url, {}, self.cache, self.bound, changes.get("wait_s", 10.0))
        return bring_data(wish, self.said.append)

    def fetch(self, below: str = "") -> Brought:
        """And nobody uses it afterwards."""
        brought, held = self.bring(below)
        os.close(held)
        return brought

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.cache.iterdir() if path.is_dir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write("a.txt", "one")
    made.write("below/b.txt", "twice")
    return made


def content(brought: Brought) -> dict[str, str]:
    top = Path(brought.place)
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_a_folder_comes_whole_and_a_second_time_costs_no_download(place: Place) -> None:
    first = place.fetch()
    assert content(first) == {"a.txt": "one", "below/b.txt": "twice"}
    assert (first.bytes, first.files, first.fetched_bytes) == (8, 2, 8)
    assert place.said[0] == {"bytes": 0, "of": 8}
    place.said.clear()
    again = place.fetch()
    assert (again.place, again.fetched_bytes, place.said) == (first.place, 0, [])
    assert Path(first.place, "a.txt").stat().st_mode & 0o777 == 0o400
    assert place.cache.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in Path(first.held).iterdir()) == [".fetching", ".lock", "data"]


def test_a_single_file_is_a_file(place: Place) -> None:
    brought = place.fetch("/below/b.txt")
    assert (Path(brought.place).name, Path(brought.place).read_text()) == ("b.txt", "twice")


def test_what_changed_is_fetched_anew_and_who_reads_the_old_one_keeps_it(place: Place) -> None:
    old, held = place.bring()
    place.write("a.txt", "new")
    os.utime(place.source / "a.txt", (1, 1))
    new = place.fetch()
    assert (content(old)["a.txt"], content(new)["a.txt"], len(place.kept())) == ("one", "new", 2)
    os.close(held)


def test_a_file_that_somebody_cut_short_is_repaired_where_it_lies(place: Place) -> None:
    brought = place.fetch()
    damaged = Path(brought.place, "a.txt")
    damaged.unlink()
    damaged.write_text("o")
    again = place.fetch()
    assert (again.place, again.fetched_bytes, content(again)["a.txt"]) == (brought.place, 3, "one")


def test_several_at_once_download_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    get = Source.get

    def slowly(self: Source, items: Any, targets: Any) -> None:
        fetched.append(len(items))
        time.sleep(0.7)
        get(self, items, targets)

    monkeypatch.setattr(Source, "get", slowly)
    found: list[Brought] = []
    threads = [threading.Thread(target=lambda: found.append(place.fetch())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == [2]
    assert len({one.place for one in found}) == 1
    assert sorted(one.fetched_bytes for one in found) == [0, 0, 8]
    assert {"waiting": True} in place.said


def test_waiting_for_another_has_an_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    going, over = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        going.set()
        over.wait(30)
        raise StoreError("it broke off")

    monkeypatch.setattr(Source, "get", hang)

    def first() -> None:
        with pytest.raises(StoreError, match="broke off"):
            place.bring()

    thread = threading.Thread(target=first)
    thread.start()
    going.wait(10)
    with pytest.raises(StoreError, match=r"another run has been fetching it for 0\.5 s"):
        place.bring(wait_s=0.5)
    over.set()
    thread.join()


def test_a_download_that_broke_off_goes_on_and_has_no_name_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenkeel.store.data.BATCH_FILES", 1)
    get, left = Source.get, [1]

    def once(self: Source, items: Any, targets: Any) -> None:
        if not left:
            Path(targets[0]).write_text("half")
            raise StoreError("the line is cut")
        left.pop()
        get(self, items, targets)

    monkeypatch.setattr(Source, "get", once)
    with pytest.raises(StoreError, match="the line is cut"):
        place.bring()
    [key] = place.kept()
    assert not (place.cache / key / "data").exists()
    monkeypatch.setattr(Source, "get", get)
    brought = place.fetch()
    assert brought.fetched_bytes == 5  # the other file was whole
    assert content(brought) == {"a.txt": "one", "below/b.txt": "twice"}


def test_what_a_machine_that_went_down_left_is_not_used(place: Place) -> None:
    brought = place.fetch()
    held = Path(brought.held)
    (held / "data").rename(held / ".draft-boot1234")  # of another boot: its files may have holes
    assert place.fetch().fetched_bytes == 8
    assert not (held / ".draft-boot1234").exists()


def test_a_file_that_comes_short_or_changes_meanwhile_is_no_data(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    get = Source.get

    def short(self: Source, items: Any, targets: Any) -> None:
        get(self, items, targets)
        Path(targets[-1]).write_text("tw")

    monkeypatch.setattr(Source, "get", short)
    with pytest.raises(StoreError, match=r"below/b\.txt has 2 of 5 bytes"):
        place.bring()

    def changing(self: Source, items: Any, targets: Any) -> None:
        get(self, items, targets)
        os.utime(place.source / "a.txt", (7, 7))

    monkeypatch.setattr(Source, "get", changing)
    with pytest.raises(StoreError, match="changed while it was fetched"):
        place.bring()


def test_the_least_recently_used_goes_first_and_never_what_is_in_use(tmp_path: Path) -> None:
    place = Place(tmp_path, bound=250)
    for name in "abc":
        place.write(f"{name}/file", name * 100)
    (a, held), b = place.bring("/a"), place.fetch("/b")
    os.utime(Path(a.held, ".lock"), (1, 1))  # the oldest, but in use
    c = place.fetch("/c")
    assert place.kept() == sorted(Path(one.held).name for one in (a, c))
    assert not Path(b.place).exists()
    other = place.bring("/c")[1]
    with pytest.raises(StoreError, match="do not fit into"):
        place.bring("/b")
    os.close(other)
    assert place.fetch("/b").bytes == 100
    os.close(held)


def test_what_is_about_to_come_counts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one, two = place.cache / "one", place.cache / "two"
    held = [cache.use(one), cache.use(two)]
    cache.reserve(place.cache, one, 100, 70)
    with pytest.raises(StoreError, match="40 bytes more do not fit"):
        cache.reserve(place.cache, two, 100, 40)
    cache.unreserve(one)
    cache.reserve(place.cache, two, 100, 40)
    for fd in held:
        os.close(fd)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.booleans()), max_size=12))
def test_whatever_comes_the_bound_holds_and_what_is_used_stays(wanted: list[tuple[int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top, used = Path(name), dict[Path, int]()
        for number, size, stays in wanted:
            place = top / str(number)
            if place in used:
                continue
            held = cache.use(place)
            try:
                cache.reserve(top, place, 100, size)
            except StoreError:
                assert sum(cache._size(path) for path in used) + cache._size(place) + size > 100
                os.close(held)
                continue
            with (place / str(len(list(place.iterdir())))).open("wb") as file:
                file.truncate(size)
            cache.unreserve(place)
            if stays:
                used[place] = held
            else:
                os.close(held)
            assert all(path.exists() for path in used)
            assert sum(cache._size(path) for path in top.iterdir() if path.is_dir()) <= 100
        for fd in used.values():
            os.close(fd)


def test_more_than_the_cache_holds_is_refused_for_good(tmp_path: Path) -> None:
    place = Place(tmp_path, bound=5)
    place.write("file", "0123456789")
    with pytest.raises(Denied, match="it has 10 bytes, the node's cache has room for 5"):
        place.bring()


def test_a_full_disk_is_the_nodes_fault(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.get", full)
    with pytest.raises(NodeFault, match="disk is full"):
        place.bring()
    monkeypatch.setattr(Source, "get", full)
    (place.cache.parent / "file").write_text("")
    place.cache = place.cache.parent / "file"
    with pytest.raises(NodeFault, match="the data cache cannot be used"):
        place.bring()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda place: shutil.rmtree(place.source), "FileNotFoundError"),
        (lambda place: place.empty(), "there is nothing below it"),
        (lambda place: (place.source / "link").symlink_to(place.source / "below"), "a link to a folder"),
        (lambda place: os.mkfifo(place.source / "pipe"), "pipe is a other, not a file"),
    ],
)
def test_what_cannot_be_had_is_refused(place: Place, prepare: Callable[[Place], Any], message: str) -> None:
    prepare(place)
    with pytest.raises(Denied, match=message):
        place.bring()


def test_a_link_to_a_file_is_read(place: Place) -> None:
    (place.source / "link").symlink_to(place.source / "below" / "b.txt")
    assert content(place.fetch())["link"] == "twice"


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    class Fs:
        async_impl = True

        def __init__(self, *names: str) -> None:
            self._names = names

        def find(self, root: str, detail: bool) -> dict[str, Any]:
            return {f"{root}/{name}": {"size": 1, "type": "file", "ETag": "x"} for name in self._names}

    source = Source(f"file://{tmp_path}", {})
    for names in (("../b",), ("a/../b",), ("/b",), ("a//b",), ("a", "a/b")):
        source._protocol, source._fs = "s3", Fs(*names)
        with pytest.raises(Denied):
            source.items()
    source._fs = Fs("a/", "a/b")  # the first is how some stores mark a folder
    assert [item.name for item in source.items()] == ["a/b"]


def test_a_path_is_looked_at_as_the_account(tmp_path: Path) -> None:
    assert look_at_path(str(tmp_path), writable=True) == str(tmp_path)
    with pytest.raises(Denied, match="No such file or directory"):
        look_at_path(str(tmp_path / "none"), writable=False)


items = st.lists(st.tuples(st.text("ab", min_size=1), st.integers(0, 9), st.text("xy")), min_size=1, max_size=4)


@given(items, items)
def test_two_listings_have_one_key_only_where_they_are_the_same(one: Any, other: Any) -> None:
    source = Source("file:///data", {})
    listed = [[Item(name, size, version, name) for name, size, version in listing] for listing in (one, other)]
    assert (source.key_of(listed[0]) == source.key_of(listed[1])) == (one == other)


@given(st.lists(st.integers(0, 300 << 20), max_size=200))
def test_batches_keep_the_order_and_their_bounds(sizes: list[int]) -> None:
    listed = [Item(str(number), size, "", "") for number, size in enumerate(sizes)]
    batches = list(_batches(listed))
    assert [item for batch in batches for item in batch] == listed
    assert all(1 <= len(batch) <= 64 for batch in batches)
    assert all(len(batch) == 1 or sum(item.size for item in batch) <= 256 << 20 for batch in batches)
