import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from portal.config import env
from portal.config.layout import LAYOUT_VERSION, Layout
from portal.config.setup_errors import SetupError, unreachable
from portal.settings import BASE_DIR
from scheduling.executors.accounts import isolation_problem

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the servers an account of their own")


def test_it_generates_a_secret_once_and_keeps_it_private(layout: Layout) -> None:
    first = layout.secret("example")
    assert len(first) >= 40
    assert Layout(layout.data).secret("example") == first
    assert (layout.data / "example").stat().st_mode & 0o777 == 0o600


def test_a_secret_that_cannot_be_kept_is_still_given(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        (file / "below").mkdir()
    assert len(Layout(tmp_path / "missing" / "dir").secret("example")) >= 40


def test_a_directory_of_another_account_is_named_in_one_sentence(layout: Layout) -> None:
    layout.secret("secret_key")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": 65_534, "group": 65_534, "extra_groups": []}
        if problem := isolation_problem(layout.data, None):
            pytest.skip(problem)
    else:
        (layout.data / "secret_key").chmod(0)
    command, env = [sys.executable, "manage.py", "up"], os.environ | {"EVENKEEL_DATA": str(layout.data)}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    result = subprocess.run(command, cwd=BASE_DIR, env=env, capture_output=True, text=True, timeout=120, **user)
    assert result.returncode == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"{layout.data / 'secret_key'} cannot be read")
    assert f"belongs to {layout.data.owner()}" in sentence
    assert "EVENKEEL_DATA" in sentence


def test_it_notes_the_layout_version(layout: Layout) -> None:
    assert (layout.data / "VERSION").read_text() == f"{LAYOUT_VERSION}\n"
    layout.prepare()


def test_it_refuses_a_directory_of_a_newer_version(layout: Layout) -> None:
    (layout.data / "VERSION").write_text(f"{LAYOUT_VERSION + 1}\n")
    with pytest.raises(SetupError, match=r"was written by a newer version \(layout 2, this one knows 1\)"):
        layout.prepare()


def test_it_refuses_a_version_it_cannot_read(layout: Layout) -> None:
    (layout.data / "VERSION").write_text("what?")
    with pytest.raises(SetupError, match="does not hold a layout number"):
        layout.prepare()


def test_it_refuses_a_full_disk(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=150 * 2**20))
    with pytest.raises(SetupError, match="is full: 150 MB are free, 200 MB are needed"):
        layout.prepare()


def test_it_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="Cannot use the data directory"):
        Layout(tmp_path / "file" / "data").prepare()


def test_sockets_of_a_long_path_lie_in_a_short_directory(data: Path) -> None:
    layout = Layout(data / ("x" * 90))
    layout.prepare()
    try:
        assert len(str(layout.postgres_sockets)) < 60
        assert layout.sockets.stat().st_uid == os.geteuid()
    finally:
        layout.sockets.rmdir() if not any(layout.sockets.iterdir()) else None


def test_sockets_of_a_short_path_lie_in_the_data_directory(layout: Layout) -> None:
    assert layout.postgres_sockets == layout.data / "run" / "postgres"


@as_root
def test_servers_live_elsewhere_where_their_account_cannot_enter(data: Path) -> None:
    closed = data / "closed"
    closed.mkdir(mode=0o700)
    layout = Layout(closed / "data")
    assert not layout.servers.is_relative_to(data)
    assert layout.run == closed / "data" / "run"


def test_addresses_follow_from_the_directory(layout: Layout) -> None:
    assert layout.database_url == Layout(layout.data).database_url
    assert layout.secret("postgres_password") in layout.owner_database_url
    assert layout.secret("postgres_app_password") in layout.database_url
    assert layout.redis_url.startswith("unix://:")


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("titan_xp:4,v100:2", "needs a name for each node"),
        ("a=titan_xp:4,a=v100:2", "declares node 'a' twice"),
        ("titan xp", "must look like"),
    ],
)
def test_virtual_accelerators_that_make_no_cluster_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: str, wrong: str
) -> None:
    monkeypatch.setenv("EVENKEEL_VIRTUAL_ACCELERATORS", given)
    with pytest.raises(env.BadSetting, match=wrong):
        env.virtual_accelerators("EVENKEEL_VIRTUAL_ACCELERATORS")


@pytest.mark.parametrize("command", [["backup", "saved"], ["verify_audit"], ["changepassword", "a@example.org"]])
def test_without_the_database_a_command_says_what_to_start(tmp_path: Path, command: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")}
    command = [sys.executable, "manage.py", *command]
    env |= {"EVENKEEL_DATA": str(tmp_path / "data")}
    result = subprocess.run(command, cwd=BASE_DIR, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith("The database cannot be reached: start the portal first; the data directory is ")
    assert f"{tmp_path / 'data'} (EVENKEEL_DATA)" in sentence


def test_a_command_of_another_account_than_the_portals_says_whose_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    settings.EVENKEEL_DATA = tmp_path
    assert "start the portal first" in unreachable("no such file\nIs it running?")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    owner = pwd.getpwuid(tmp_path.stat().st_uid).pw_name
    said = unreachable("no such file\nIs it running?")
    assert f"belongs to {owner}: run this command as that account. (no such file)" in said
