"""What root writes for itself is nobody else's, from the first byte on."""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from portal.supervisor.child import LOG_LIMIT_BYTES, Child
from portal.supervisor.control_plane import PrivateLog
from portal.supervisor.management.commands import backup


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _usual_umask() -> None:
    os.umask(0o022)


@pytest.mark.django_db
def test_a_backup_is_private_from_its_first_byte_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, dump = tmp_path / "backup.dump", backup._run
    seen: list[int] = []
    file.write_text("an older one")
    file.chmod(0o666)

    def watched(command: list[str], env: dict[str, str]) -> None:
        seen.extend(mode(path) for path in tmp_path.iterdir() if path != file)
        dump(command, env)
        seen.extend(mode(path) for path in tmp_path.iterdir() if path != file)

    monkeypatch.setattr(backup, "_run", watched)
    call_command("backup", str(file))
    assert file.read_bytes().startswith(b"PGDMP")
    assert (seen, mode(file)) == ([0o600, 0o600], 0o600)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.django_db
def test_a_backup_that_fails_leaves_the_older_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], env: dict[str, str]) -> None:
        Path(command[-1]).write_text("half of it")
        raise CommandError("pg_dump ended with status 1.")

    monkeypatch.setattr(backup, "_run", fail)
    file = tmp_path / "backup.dump"
    file.write_text("an older one")
    with pytest.raises(CommandError):
        call_command("backup", str(file))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("backup.dump", "an older one")]


@pytest.mark.django_db
def test_a_backup_follows_a_link_and_writes_into_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "disk" / "backup.dump")
    call_command("backup", str(link))
    assert link.is_symlink()
    assert mode(tmp_path / "disk" / "backup.dump") == 0o600
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    call_command("backup", str(pipe))
    reader.join(30)
    assert read[0].startswith(b"PGDMP")


def test_a_backup_into_no_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        backup._dump(tmp_path / "none" / "backup.dump", {})


def test_logs_stay_private_when_they_are_rotated(tmp_path: Path) -> None:
    for folder in ("run", "logs"):
        (tmp_path / folder).mkdir()
    child = Child("web", ["true"], env={}, cwd=tmp_path, run=tmp_path / "run", logs=tmp_path / "logs")
    child.log.write_bytes(b"x" * LOG_LIMIT_BYTES)
    (tmp_path / "logs" / "web.log.1").write_text("older")
    child.rotate_log()
    assert mode(tmp_path / "logs" / "web.log.1") == 0o600
    log = PrivateLog(tmp_path / "supervisor.log", maxBytes=10, backupCount=1)
    for _ in range(3):
        log.emit(logging.LogRecord("a", logging.INFO, "", 0, "a line of some length", None, None))
    log.close()
    assert {mode(path) for path in tmp_path.glob("supervisor.log*")} == {0o600}
