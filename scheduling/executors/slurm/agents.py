"""The portal's side of agents: one process per account, started on demand through sudo and the helper.

Each process of the portal has its own, which end with it: an agent exits when its pipe is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.program_output import shown_lines
from evenkeel.runner.files import parse_json

from scheduling.errors import ExecutorError
from scheduling.executors.local.environment import own_environment
from scheduling.executors.local.preparing import PROXIES
from scheduling.executors.slurm.as_person import ACCOUNT_NAME, MAX_LINE, MAX_NODES, VERSION

HELPER = "/usr/local/libexec/evenkeel-run-as"
SUDO = "sudo"
START_S = 30.0
CHUNK = 1 << 16
WAIT_S = 2.0
#: Abandoned agents that have not ended yet.
_leaving: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class RunAs:
    """How this cluster's jobs run as their person: the helper's path, and the section of its configuration."""

    helper: str = HELPER
    section: str = "default"
    sudo: str = SUDO

    def command(self, *words: str) -> list[str]:
        return [self.sudo, "-n", "--", self.helper, *words]

    def ask(self, *words: str, timeout_s: float = 10.0) -> str:
        """The helper's output; ExecutorError with its message if it refused."""
        try:
            result = subprocess.run(
                self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=timeout_s, check=False, cwd="/",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExecutorError(f"{self.sudo} cannot start {self.helper}: {error}", permanent=False) from error
        if result.returncode != 0:
            raise ExecutorError(
                _last_line(result.stderr) or f"{self.helper}: code {result.returncode}", permanent=False
            )
        return result.stdout


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    errors: Any
    owner: int = field(default_factory=os.getpid)

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.popen.poll() is None


class Link:
    """Connection to the agent of one account. One request at a time; a timeout ends the agent."""

    def __init__(self, account: str, run_as: RunAs, settings: Mapping[str, Any]) -> None:
        if not ACCOUNT_NAME.fullmatch(account):
            raise ExecutorError(f"{account!r} is no name of an account", permanent=True)
        self.account, self._run_as, self._settings = account, run_as, settings
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def ask(self, call: str, timeout_s: float, *, source: Path | None = None, **arguments: Any) -> Any:
        """`source`: a file that follows the request. Each request may be repeated: an agent that has exited since the
        last one is replaced."""
        if not self._lock.acquire(timeout=timeout_s):
            raise ExecutorError(f"the agent of {self.account} is busy", permanent=False)
        try:
            began = self._process is None or not self._process.alive
            if began:
                self._start()
            try:
                return self._exchange(call, timeout_s, source, arguments)
            except (BrokenPipeError, EOFError):
                if began:
                    raise self._lost() from None
            self._start()
            try:
                return self._exchange(call, timeout_s, source, arguments)
            except (BrokenPipeError, EOFError):
                raise self._lost() from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the agent; the next request starts another."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        self._end()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            popen = subprocess.Popen(
                self._run_as.command("serve", self._run_as.section, self.account),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd="/", bufsize=0,
            )  # fmt: skip
        except OSError as error:
            text = f"{self._run_as.sudo} cannot be started: {error.strerror}"
            raise ExecutorError(text, permanent=False) from error
        self._process = _Process(popen, errors)
        environment = {name: os.environ[name] for name in PROXIES if name in os.environ} | own_environment()
        try:
            hello = self._exchange("hello", START_S, None, {"options": self._settings, "environment": environment})
        except (BrokenPipeError, EOFError):
            raise self._lost() from None
        if not isinstance(hello, dict) or hello.get("version") != VERSION:
            self._end()
            raise ExecutorError(f"the agent of {self.account} has another version", permanent=False)

    def _exchange(self, call: str, timeout_s: float, source: Path | None, arguments: Mapping[str, Any]) -> Any:
        process = self._process
        assert process is not None and process.popen.stdin is not None  # noqa: PT018
        until = time.monotonic() + timeout_s
        try:
            self._send(process.popen.stdin.fileno(), json.dumps({"call": call, **arguments}).encode() + b"\n", until)
            if source is not None:
                with source.open("rb") as file:
                    while part := file.read(1 << 20):
                        self._send(process.popen.stdin.fileno(), part, until)
            answer = parse_json(self._read_line(process, until), MAX_NODES, nan_as_null=True)
        except TimeoutError:
            self._end()
            text = f"the agent of {self.account} had no answer within {timeout_s:g} s"
            raise ExecutorError(text, permanent=False) from None
        except ValueError as error:
            self._end()
            raise ExecutorError(f"the agent of {self.account} gave no answer: {error}", permanent=False) from None
        if not isinstance(answer, dict) or not ("result" in answer or "error" in answer):
            self._end()
            raise ExecutorError(f"the agent of {self.account} gave no answer", permanent=False)
        if "error" in answer:
            raise ExecutorError(
                f"{self.account}: {str(answer['error'])[:2_000]}",
                permanent=bool(answer.get("permanent")),
                by_engine=bool(answer.get("by_engine")),
            )
        return answer["result"]

    @staticmethod
    def _send(fd: int, data: bytes, until: float) -> None:
        os.set_blocking(fd, False)
        rest = memoryview(data)
        while rest:
            if not select.select([], [fd], [], max(0.0, until - time.monotonic()))[1]:
                raise TimeoutError
            try:
                rest = rest[os.write(fd, rest[:CHUNK]) :]
            except BlockingIOError:
                continue

    @staticmethod
    def _read_line(process: _Process, until: float) -> bytes:
        assert process.popen.stdout is not None
        fd, data = process.popen.stdout.fileno(), bytearray()
        while not data.endswith(b"\n"):
            if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(fd, CHUNK)
            if not part:
                raise EOFError
            data += part
            if len(data) > MAX_LINE:
                raise ValueError("more than a line may have")
        return bytes(data)

    def _lost(self) -> ExecutorError:
        process, said = self._process, ""
        if process is not None:
            if process.owner == os.getpid():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.popen.wait(WAIT_S)  # it may be about to print the reason
            process.errors.seek(0)
            said = _last_line(process.errors.read(4_000).decode(errors="replace"))
            self._end()
        return ExecutorError(said or f"the agent of {self.account} ended", permanent=False)

    def _end(self) -> None:
        """Close the pipes, which ends it once it has answered: as it runs under another account, after sudo, our
        signals may not reach it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.errors.close()
        if process.owner != os.getpid():
            return
        for pipe in (process.popen.stdin, process.popen.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.popen.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                process.popen.kill()
            _leaving.append(process.popen)
        _leaving[:] = [one for one in _leaving if one.poll() is None]


def _last_line(text: str) -> str:
    lines = shown_lines(text.encode().strip())
    return lines[-1][:500] if lines else ""
