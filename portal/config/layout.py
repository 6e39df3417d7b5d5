"""Paths below the data directory, and the addresses of the embedded servers.

The addresses depend on the path alone, so the settings of any process have them even if the servers do not run.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from portal.config.service_account import service_account
from portal.config.setup_errors import SetupError

LAYOUT_VERSION = 1
MINIMUM_FREE_BYTES = 200 * 1024 * 1024
SOCKET_PATH_LIMIT = 100  # bytes; the kernel's limit is 108
DATABASE = OWNER = "evenkeel"
APPLICATION = "evenkeel_app"  # the role of the portal's processes; portal.supervisor.ownership


@dataclass(frozen=True)
class Layout:
    data: Path

    @property
    def run(self) -> Path:
        return self.data / "run"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]

    @cached_property
    def servers(self) -> Path:
        """Folder of the servers' files: the data directory, unless their account cannot access it."""
        inside = service_account().reaches(self.data / "postgres")
        return self.data if inside else Path("/var/lib/evenkeel") / self._digest

    @cached_property
    def sockets(self) -> Path:
        inside = self.servers / "run"
        if len(os.fsencode(inside / "postgres" / ".s.PGSQL.5432")) <= SOCKET_PATH_LIMIT:
            return inside
        short = "/run" if os.geteuid() == 0 else "/tmp"  # noqa: S108 (its owner is checked in prepare)  # nosec B108
        return Path(short) / f"evenkeel-{self._digest}"

    @property
    def postgres_data(self) -> Path:
        return self.servers / "postgres"

    @property
    def postgres_sockets(self) -> Path:
        return self.sockets / "postgres"

    @property
    def valkey_data(self) -> Path:
        return self.servers / "valkey"

    @property
    def valkey_socket(self) -> Path:
        return self.sockets / "valkey" / "valkey.sock"

    @property
    def database_url(self) -> str:
        return self._database_url(APPLICATION, "postgres_app_password")

    @property
    def owner_database_url(self) -> str:
        return self._database_url(OWNER, "postgres_password")

    def _database_url(self, role: str, password: str) -> str:
        directory = quote(str(self.postgres_sockets), safe="/")
        return f"postgresql://{role}:{self.secret(password)}@/{DATABASE}?host={directory}"

    @property
    def redis_url(self) -> str:
        return f"unix://:{self.secret('valkey_password')}@{quote(str(self.valkey_socket), safe='/')}"

    def secret(self, name: str) -> str:
        """A random secret, generated once. If it cannot be written, it lasts as long as the process."""
        path = self.data / name
        try:
            return path.read_text().strip()
        except PermissionError:
            raise SetupError(
                f"{path} cannot be read: the data directory belongs to {_owner_of(self.data)}."
                " Run this as that account, or set EVENKEEL_DATA to a directory of your own."
            ) from None
        except FileNotFoundError:
            return self._new_secret(path)

    def _new_secret(self, path: Path) -> str:
        value = secrets.token_urlsafe(48)
        try:
            self.data.mkdir(mode=0o755, parents=True, exist_ok=True)
            draft = self.data / f".{path.name}.{os.getpid()}"
            draft.touch(mode=0o600)
            draft.write_text(value + "\n")
            with contextlib.suppress(FileExistsError):  # another process was first: its value counts
                os.link(draft, path)
            draft.unlink()
        except OSError:
            return value
        return path.read_text().strip()

    def prepare(self) -> None:
        """Create the directories and refuse an unusable setup, in one sentence."""
        try:
            for path in (self.data, self.servers):
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
            for path in (self.run, self.servers / "run", self.logs, self.servers / "logs"):
                path.mkdir(mode=0o711, exist_ok=True)
            self._own_directory(self.sockets)
            self._check_space()
            self._check_version()
        except PermissionError as error:
            raise SetupError(f"Cannot write to {error.filename or self.data}: {error.strerror}.") from error
        except OSError as error:
            raise SetupError(f"Cannot use the data directory {self.data}: {error.strerror}.") from error

    def _own_directory(self, path: Path) -> None:
        path.mkdir(mode=0o711, exist_ok=True)
        if path.is_symlink() or path.stat().st_uid != os.geteuid():
            raise SetupError(f"{path} belongs to another account; remove it or choose a shorter EVENKEEL_DATA.")

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.servers).free
        if free < MINIMUM_FREE_BYTES:
            raise SetupError(
                f"The disk of {self.servers} is full: {free // 2**20} MB are free,"
                f" {MINIMUM_FREE_BYTES // 2**20} MB are needed."
            )

    def _check_version(self) -> None:
        path = self.data / "VERSION"
        if not path.exists():
            path.write_text(f"{LAYOUT_VERSION}\n")
        found = path.read_text().strip()
        if not found.isdigit():
            raise SetupError(f"{path} does not hold a layout number but {found[:40]!r}.")
        if int(found) > LAYOUT_VERSION:
            raise SetupError(
                f"The data directory {self.data} was written by a newer version (layout {found}, this one knows"
                f" {LAYOUT_VERSION}); update Evenkeel or choose another EVENKEEL_DATA."
            )


def _owner_of(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError):  # an account without a name, or an unreadable directory
        return "another account"
