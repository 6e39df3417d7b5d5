"""Data directories of one machine never share accounts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors import account_blocks
from scheduling.executors.account_blocks import (
    BLOCK_UIDS,
    FIRST_UID,
    PROJECT_UIDS,
    claim,
    move,
    places_of,
    read_block,
)
from scheduling.executors.accounts import Account, Accounts
from scheduling.executors.local.executor import LocalExecutor

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "registry"


def accounts_file(tmp_path: Path, name: str, content: dict[str, object] | None = None) -> Path:
    path = tmp_path / name / "run" / "accounts.json"
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_text(json.dumps(content))
    return path


def claimed(path: Path, registry: Path) -> int:
    return claim(path, registry, path.parent.parent).first_uid


def test_two_data_directories_have_no_account_in_common(tmp_path: Path, registry: Path) -> None:
    one, two = (claimed(accounts_file(tmp_path, name), registry) for name in ("one", "two"))
    assert abs(one - two) >= BLOCK_UIDS
    assert claimed(tmp_path / "one" / "run" / "accounts.json", registry) == one  # and keeps them


def test_the_first_from_before_blocks_keeps_its_accounts_and_the_second_is_refused(
    tmp_path: Path, registry: Path
) -> None:
    old, older = (accounts_file(tmp_path, name, {"vision": 1, "speech": 2}) for name in ("old", "older"))
    assert claimed(accounts_file(tmp_path, "new"), registry) != FIRST_UID
    assert claimed(old, registry) == FIRST_UID
    assert read_block(old).projects == {"vision": 1, "speech": 2}  # type: ignore[union-attr]
    with pytest.raises(ExecutorError, match=r"in use by .*/old/run/accounts.json.*manage.py move_accounts"):
        claimed(older, registry)
    assert claimed(old, registry) == FIRST_UID


def test_a_copy_is_refused_beside_the_original_and_takes_its_place_when_that_is_gone(
    tmp_path: Path, registry: Path
) -> None:
    original = accounts_file(tmp_path, "original")
    first = claimed(original, registry)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    with pytest.raises(ExecutorError, match="in use by"):
        claimed(tmp_path / "copy" / "run" / "accounts.json", registry)
    original.unlink()
    assert claimed(tmp_path / "copy" / "run" / "accounts.json", registry) == first


def test_a_directory_that_was_moved_or_is_reached_by_a_link_keeps_its_accounts(tmp_path: Path, registry: Path) -> None:
    first = claimed(accounts_file(tmp_path, "before"), registry)
    (tmp_path / "before").rename(tmp_path / "after")
    (tmp_path / "link").symlink_to(tmp_path / "after")
    assert claimed(tmp_path / "after" / "run" / "accounts.json", registry) == first
    assert claimed(tmp_path / "link" / "run" / "accounts.json", registry) == first
    assert places_of(registry, first) == (tmp_path / "after", tmp_path / "link")


def test_a_block_is_given_again_only_when_none_is_left_and_its_directory_is_gone(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_blocks, "BLOCKS", 3)
    one, two = (claimed(accounts_file(tmp_path, name), registry) for name in ("one", "two"))
    with pytest.raises(ExecutorError, match="all 2 blocks of accounts are in use"):
        claimed(accounts_file(tmp_path, "three"), registry)
    shutil.rmtree(tmp_path / "two")
    assert claimed(tmp_path / "three" / "run" / "accounts.json", registry) == two
    assert one != two


def test_what_users_own_containers_were_promised_is_left_out(tmp_path: Path, registry: Path) -> None:
    subuids = tmp_path / "subuid"
    subuids.write_text(f"somebody:{FIRST_UID + BLOCK_UIDS + 5}:65536\nnonsense\n")
    path = accounts_file(tmp_path, "one")
    assert claim(path, registry, path.parent.parent, subuids).first_uid >= FIRST_UID + BLOCK_UIDS + 5 + 65_536


@pytest.mark.parametrize("damage", ["", "[]", '{"2110000": 5}', '{"2110000": {"file": 1}}'])
def test_a_damaged_registry_stops_the_start_and_says_where_it_is(tmp_path: Path, registry: Path, damage: str) -> None:
    registry.mkdir()
    (registry / "blocks.json").write_text(damage)
    with pytest.raises(ExecutorError, match="registry"):
        claimed(accounts_file(tmp_path, "one"), registry)


def test_a_block_ends(tmp_path: Path, registry: Path) -> None:
    block = claim(accounts_file(tmp_path, "one"), registry, tmp_path / "one")
    assert block.contains(block.uid(PROJECT_UIDS - 1))
    assert not block.contains(block.first_uid)
    assert not block.contains(None)
    with pytest.raises(ExecutorError, match="used all"):
        block.uid(PROJECT_UIDS)


@as_root
def test_an_executor_of_a_copy_starts_and_ends_nothing(tmp_path: Path, registry: Path) -> None:
    first = LocalExecutor(tmp_path / "first", "titan_xp:1", accounts_registry=registry)
    assert first._accounts.of_project("vision") != Account(None)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    second = LocalExecutor(tmp_path / "second", "titan_xp:1", accounts_registry=registry)
    assert "move_accounts" in (second.isolation_problem or "")
    for call in (
        lambda: second.kill("run", 1),
        lambda: second.checkpoint_and_stop("run", 1),
        lambda: second.reap_orphans([]),
        lambda: second.observe([("run", 1)]),
        lambda: second.discard("vision", ["jobs/a/work"]),
    ):
        with pytest.raises(ExecutorError, match="in use by"):
            call()


@as_root
def test_a_copy_is_given_accounts_of_its_own_with_all_its_files(tmp_path: Path, registry: Path) -> None:
    (tmp_path / "first").mkdir()
    before = Accounts(tmp_path / "first" / "accounts.json", place=tmp_path / "first", separate=True, registry=registry)
    (tmp_path / "first" / "run" / "local").mkdir(parents=True)
    old = before.of_project("vision").uid
    files = tmp_path / "first" / "jobs" / "a" / "work"
    files.mkdir(parents=True)
    (files / "link").symlink_to("/etc/passwd")
    (files / "model").write_text("x")
    for path in (files, files / "link", files / "model"):
        os.chown(path, old or 0, old or 0, follow_symlinks=False)
    (tmp_path / "first" / "run" / "local" / "r.json").write_text(json.dumps({"job_id": "a", "uid": old}))
    shutil.copytree(tmp_path / "first", tmp_path / "second", symlinks=True)
    for name in ("", "link", "model"):
        os.chown(tmp_path / "second/jobs/a/work" / name, old or 0, old or 0, follow_symlinks=False)

    place = tmp_path / "second"
    move(place / "accounts.json", registry, [place], [place / "jobs", place / "environments"])

    after = Accounts(place / "accounts.json", place=place, separate=True, registry=registry)
    new = after.of_project("vision").uid
    assert new != old
    assert after.problem is None
    moved = [place / "jobs/a/work" / name for name in ("", "link", "model")]
    assert {path.stat(follow_symlinks=False).st_uid for path in moved} == {new}
    assert json.loads((place / "run/local/r.json").read_text())["uid"] == new
    assert (Path("/etc/passwd").stat().st_uid, (files / "model").stat().st_uid) == (0, old)
    assert before.of_project("vision").uid == old
