"""evenkeel-run-as as its caller meets it: what it refuses, and what is left of root's rights afterwards."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executors.people import ALICE, BOB, CAROL, PORTAL, People, people

TELL = (
    "import json, os, sys; print(json.dumps({'uids': os.getresuid(), 'gids': os.getresgid(), "
    "'groups': os.getgroups(), 'environ': dict(os.environ), 'cwd': os.getcwd(), 'argv': sys.argv[1:], "
    "'fds': sorted(map(int, os.listdir('/proc/self/fd'))), 'umask': os.umask(0), "
    "'no_new_privs': 'NoNewPrivs:\\t1' in open('/proc/self/status').read()}))"
)


@pytest.fixture(scope="module")
def there() -> Iterator[People]:
    with people() as made:
        yield made


@pytest.fixture
def helper(there: People, tmp_path: Path) -> People:
    there.configure(tmp_path)
    return there


def ask(helper: People, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(helper.helper), *words], env={"PATH": os.environ["PATH"], **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def refusal(helper: People, *words: str, **environment: str) -> str:
    result = ask(helper, *words, **environment)
    assert result.returncode == 1, (result.stdout, result.stderr)
    assert result.stdout == ""
    assert result.stderr.startswith("evenkeel-run-as refuses: "), result.stderr
    return result.stderr.removeprefix("evenkeel-run-as refuses: ").strip()


@pytest.mark.parametrize(
    "words",
    [
        (), ("serve",), ("serve", "default"), ("serve", "default", ALICE, "more"), ("submit", "default", ALICE),
        ("--help",), ("serve; id", "default", ALICE), ("version", "x"),
    ],
)  # fmt: skip
def test_it_knows_three_verbs_and_no_others(helper: People, words: tuple[str, ...]) -> None:
    assert refusal(helper, *words).startswith("usage: ")


@pytest.mark.parametrize("section", ["", "../x", "a b", "[default]", "other", "Default", "default\nx", "DEFAULT"])
def test_it_reads_its_own_sections_only(helper: People, section: str) -> None:
    assert "section" in refusal(helper, "check", section)


@pytest.mark.parametrize(
    "name",
    ["", "root", "daemon", "nobody", "0", "1000", "-x", "--", "ek-alice;id", "ek-alice\n", "ek alice", "../ek-alice",
     "$(id)", "no-such-account", "x" * 33, "ék-alice", "EK-ALICE"],
)  # fmt: skip
def test_it_becomes_no_other_account(helper: People, name: str) -> None:
    refusal(helper, "serve", "default", name)


def test_it_becomes_only_members_of_the_group_and_never_the_portal(helper: People, tmp_path: Path) -> None:
    assert "is not in the group" in refusal(helper, "serve", "default", CAROL)
    assert "the portal's own account" in refusal(helper, "serve", "default", PORTAL)
    helper.configure(tmp_path, group="*")
    assert "the portal's own account" in refusal(helper, "serve", "default", PORTAL)
    assert ask(helper, "check", "default", CAROL).returncode == 0


def test_uids_are_bounded_and_no_configuration_allows_root(helper: People, tmp_path: Path) -> None:
    uid = pwd.getpwnam(ALICE).pw_uid
    helper.configure(tmp_path, min_uid=str(uid + 1))
    assert f"allowed are {uid + 1} to" in refusal(helper, "serve", "default", ALICE)
    helper.configure(tmp_path, max_uid=str(uid - 1))
    assert f"to {uid - 1}" in refusal(helper, "serve", "default", ALICE)
    helper.configure(tmp_path, min_uid="0", group="*")
    for name in ("root", "daemon"):
        assert "allowed are 100 to" in refusal(helper, "serve", "default", name)
    helper.configure(tmp_path, min_uid="many")
    assert "are numbers" in refusal(helper, "serve", "default", ALICE)


def test_members_of_roots_group_are_refused(helper: People, tmp_path: Path) -> None:
    subprocess.run(["usermod", "--append", "--groups", "root", BOB], check=True)
    try:
        assert "root's group" in refusal(helper, "serve", "default", BOB)
    finally:
        subprocess.run(["gpasswd", "--delete", BOB, "root"], check=True, capture_output=True)


def test_only_the_portal_may_ask(helper: People) -> None:
    alice, portal = pwd.getpwnam(ALICE), pwd.getpwnam(PORTAL)
    assert "only ek-portal may ask" in refusal(helper, "check", "default", SUDO_UID=str(alice.pw_uid), SUDO_USER=ALICE)
    assert ask(helper, "check", "default", SUDO_UID=str(portal.pw_uid), SUDO_USER=PORTAL).returncode == 0


def test_without_root_it_does_nothing(helper: People) -> None:
    result = subprocess.run(
        [str(helper.helper), "serve", "default", ALICE], user=ALICE, group=ALICE, extra_groups=[], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "not run as root" in result.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0o666),
        lambda path: path.chmod(0o664),
        lambda path: os.chown(path, pwd.getpwnam(PORTAL).pw_uid, 0),
        lambda path: (path.rename(path.with_name("other")), path.symlink_to(path.with_name("other"))),
        lambda path: path.unlink(),
        lambda path: path.write_text("no section\n"),
        lambda path: path.write_text(path.read_text().replace("group =", "groups =")),
        lambda path: path.write_text(path.read_text().replace("shared_dir = /", "shared_dir = ")),
    ],
)
def test_a_configuration_that_is_not_roots_alone_or_not_whole_is_refused(helper: People, spoil: Any) -> None:
    try:
        spoil(helper.configuration)
        refusal(helper, "serve", "default", ALICE)
    finally:
        helper.configuration.unlink(missing_ok=True)


def test_a_directory_of_state_that_others_can_change_is_refused(helper: People, tmp_path: Path) -> None:
    state = helper.root / "state"
    state.chmod(0o777)
    assert "is not root's alone" in refusal(helper, "serve", "default", ALICE)
    state.chmod(0o711)
    os.chown(helper.root, pwd.getpwnam(PORTAL).pw_uid, 0)
    try:
        assert "is not root's alone" in refusal(helper, "serve", "default", ALICE)
    finally:
        os.chown(helper.root, 0, 0)


def test_a_link_or_anothers_directory_in_the_place_of_state_is_refused(helper: People, tmp_path: Path) -> None:
    place = helper.root / "state" / BOB
    place.symlink_to(tmp_path)
    try:
        assert "does not belong to ek-bob" in refusal(helper, "serve", "default", BOB)
        place.unlink()
        place.mkdir()
        assert "does not belong to ek-bob" in refusal(helper, "serve", "default", BOB)
    finally:
        place.rmdir()
    assert tmp_path.stat().st_uid == 0


def test_nothing_of_root_is_left(helper: People, tmp_path: Path) -> None:
    program = helper.root / "tell"
    program.write_text(f"#!{sys.executable} -I\n{TELL}\n")
    program.chmod(0o755)
    helper.configure(tmp_path, python=str(program), slurm_conf="/etc/slurm/other.conf")
    spare = os.open("/etc/shadow", os.O_RDONLY)
    try:
        result = subprocess.run(
            [str(helper.helper), "serve", "default", ALICE], capture_output=True, text=True, check=True,
            stdin=subprocess.DEVNULL, pass_fds=[spare], cwd=tmp_path,
            env={"PATH": "/tmp/evil", "LD_PRELOAD": "/tmp/evil.so", "PYTHONPATH": "/tmp/evil", "SLURM_CONF": "/tmp/x",
                 "BASH_ENV": "/tmp/evil", "IFS": "x"},
        )  # fmt: skip
    finally:
        os.close(spare)
    found, alice = json.loads(result.stdout), pwd.getpwnam(ALICE)
    assert found["uids"] == [alice.pw_uid] * 3
    assert found["gids"] == [alice.pw_gid] * 3
    assert sorted(found["groups"]) == sorted(os.getgrouplist(ALICE, alice.pw_gid))
    assert found["environ"] == {
        "HOME": alice.pw_dir, "USER": ALICE, "LOGNAME": ALICE, "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh",
        "PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_CONF": "/etc/slurm/other.conf",
    }  # fmt: skip
    assert (found["cwd"], found["umask"], found["no_new_privs"]) == ("/", 0o027, True)
    assert set(found["fds"]) <= {0, 1, 2, 3}  # 3: of the listing itself
    assert found["argv"][-2:] == [str(tmp_path), str(helper.root / "state" / ALICE)]
    state = (helper.root / "state" / ALICE).stat()
    assert (state.st_uid, state.st_mode & 0o777) == (alice.pw_uid, 0o700)


def test_it_says_what_it_would_do(helper: People, tmp_path: Path) -> None:
    found = json.loads(ask(helper, "check", "default", ALICE).stdout)
    assert found["account"] == {"name": ALICE, "uid": pwd.getpwnam(ALICE).pw_uid, "home": f"/home/{ALICE}"}
    assert (found["version"], found["shared_dir"]) == (1, str(tmp_path))
    assert ask(helper, "version").stdout == "1\n"
