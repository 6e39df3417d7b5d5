"""Starts workers, cold (a new program) or warm (a fork of this interpreter), and knows how each ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from evenkeel.runner import warm
from evenkeel.runner.output import Output
from evenkeel.runner.processes import descendants, die_first_for_memory, die_with_parent, signal_quietly
from evenkeel.runner.secrets import Secrets
from evenkeel.runner.spec import LaunchSpec, Place


@dataclass(slots=True)
class Worker:
    rank: int
    pid: int
    output: Output
    exit_code: int | None = None
    signal: int | None = None
    ended_at: float | None = None
    signalled: bool = False  # by us
    order: int = field(default=0)  # how many ended before it
    guarded: bool = False  # it waits for the program, and would take it along if a signal ended it first

    @property
    def running(self) -> bool:
        return self.ended_at is None

    @property
    def failed(self) -> bool:
        return not self.running and self.exit_code != 0

    @property
    def killed(self) -> bool:
        """By SIGKILL, itself or the child of which it only passes on the end, as a shell does."""
        return self.signal == signal.SIGKILL or self.exit_code == 128 + signal.SIGKILL

    def end(self, status: int, order: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)
        self.ended_at, self.order = time.time(), order

    def send(self, number: int) -> None:
        """To the worker and its process group."""
        if not self.running:
            return
        self.signalled = True
        program = descendants(self.pid) if self.guarded and number != signal.SIGKILL else []
        for process in program:
            signal_quietly(process.pid, number)
        if not program:
            signal_quietly(-self.pid, number)
            signal_quietly(self.pid, number)


def start_workers(
    spec: LaunchSpec, logs: Path, can_fork: bool, secrets: Secrets, place: Place | None = None
) -> list[Worker]:
    """Raises OSError when the program cannot be started; nothing is left running then."""
    arguments = spec.python_arguments() if can_fork else None
    command, redactor = spec.command(), secrets.redactor()
    place = place or spec.alone(free_port())
    workers: list[Worker] = []
    try:
        for local_rank in range(spec.workers):
            rank = place.first_rank + local_rank
            output = Output(logs / f"rank{rank}.log", spec.log_bytes, redactor)
            output.begin(spec.first_lines())
            environment = spec.worker_environment(local_rank, place) | secrets.variables
            if arguments is None:
                pid = _spawn(command, environment, spec.workdir, output.write_fd)
            else:
                pid = _fork(partial(warm.run_program, arguments, environment, spec.workdir), output.write_fd)
            output.close_write()
            workers.append(Worker(rank, pid, output, guarded=spec.is_guarded))
    except OSError:
        for worker in workers:
            worker.send(9)
        raise
    return workers


def _spawn(command: list[str], environment: dict[str, str], workdir: str, output: int) -> int:
    parent = os.getpid()
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=workdir,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
        preexec_fn=lambda: _at_the_mercy_of(parent),
    )
    process.returncode = 0  # reaped by the runner's loop, not by Popen
    return process.pid


def _fork(program: Callable[[], None], output: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        _at_the_mercy_of(parent)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        program()
    finally:
        os._exit(1)


def _at_the_mercy_of(runner: int) -> None:
    die_with_parent(runner)
    die_first_for_memory()


def free_port(address: str = "127.0.0.1") -> int:
    """A port without a listener. Rank 0 binds it a moment later; a clash fails the launch, which is retried."""
    with socket.create_server((address, 0)) as probe:
        return int(probe.getsockname()[1])
