"""How a process becomes the runner of an epoch, started cold or forked by the fork server."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from evenkeel.runner import bringing
from evenkeel.runner.bringing import Bringing
from evenkeel.runner.engine import Runner
from evenkeel.runner.files import open_plain
from evenkeel.runner.following import FollowingRunner
from evenkeel.runner.processes import adopt_orphans, forbid_new_privileges, identity, limit_resources, set_name
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.secrets import Secrets
from evenkeel.runner.slurm_end import leave_slurm
from evenkeel.runner.spec import LaunchSpec
from evenkeel.runner.storing import Storing, Terms
from evenkeel.runner.verdict import Order

log = logging.getLogger(__name__)

GATE_TIMEOUT_S = 30.0
SECRETS_FILE = "secrets.json"  # mode 0600


def detach() -> None:
    """Become a child of init in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()


@dataclass(frozen=True, slots=True)
class Handed:
    """Descriptors from the executor: the launch lock, held until `runner.json` is written, so that a launch under way
    is never taken for one that did not happen; the secrets; a gate to wait at before any worker starts."""

    lock: int | None = None
    secrets: int | None = None
    gate: int | None = None


def run_epoch(epoch_dir: Path, handed: Handed, *, can_fork: bool) -> None:
    """The whole life of a runner. Never returns."""
    code = 1
    try:
        os.chdir(epoch_dir)
        _redirect(epoch_dir / "logs" / "runner.log")
        begun = (epoch_dir / "runner.json").exists()
        code = 0 if begun else _claim_and_run(epoch_dir, handed, can_fork)
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(code)


def follow_epoch(epoch_dir: Path, node: str) -> None:
    """The whole life of the runner of a node that is not the first. Never returns."""
    code = 1
    try:
        os.chdir(epoch_dir)
        _redirect(epoch_dir / "logs" / f"runner-{node}.log")
        spec = LaunchSpec.read(epoch_dir)
        set_name(f"ek-runner-{spec.epoch}")
        adopt_orphans()
        forbid_new_privileges()
        secrets = read_secrets(epoch_dir)
        data = _bringing(spec, secrets, node)
        limit_resources(spec.limits)
        runner = FollowingRunner(epoch_dir, spec, node, secrets, data)
        signal.signal(signal.SIGTERM, lambda *_: runner.ask_to_end())
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        with secrets.files_in(epoch_dir / f"node-{node}" / "secrets"):
            runner.run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(code)


def read_secrets(epoch_dir: Path) -> Secrets:
    """From the file of an executor that cannot hand a descriptor over; it is removed when the run ends."""
    try:
        with open_plain(epoch_dir / SECRETS_FILE) as file:
            return Secrets.read(os.dup(file.fileno()))
    except FileNotFoundError:
        return Secrets()


def _bringing(spec: LaunchSpec, secrets: Secrets, node: str = "") -> Bringing | None:
    terms = bringing.Terms.of(spec, secrets, node)
    return Bringing(terms) if terms else None


def _claim_and_run(epoch_dir: Path, handed: Handed, can_fork: bool) -> int:
    """The exit code of this process: under Slurm the program's, which its accounting keeps."""
    spec = LaunchSpec.read(epoch_dir)
    set_name(f"ek-runner-{spec.epoch}")
    adopt_orphans()
    forbid_new_privileges()
    secrets = Secrets.read(handed.secrets) if handed.secrets is not None else read_secrets(epoch_dir)
    terms = Terms.of(spec, secrets)
    storing = Storing(terms) if terms else None  # its process is not the job's: before the limits
    data = _bringing(spec, secrets)
    limit_resources(spec.limits)
    runner = Runner(epoch_dir, spec, can_fork=can_fork, secrets=secrets, storing=storing, data=data)
    signal.signal(signal.SIGTERM, lambda *_: runner.order(Order.STOP))
    signal.signal(signal.SIGUSR1, lambda *_: runner.order(Order.KILL))
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # ignoring would be inherited by the workers
    write_atomically(epoch_dir / "runner.json", identity())
    if handed.lock is not None:
        os.close(handed.lock)
    for line in (_limits(spec, handed.gate), spec.gpu_sharing):
        if line:
            log.info("%s", line)
    try:
        with secrets.files_in(epoch_dir / "secrets"):
            runner.run()
    finally:
        if storing:
            storing.close()
        if data:
            data.close()
        (epoch_dir / SECRETS_FILE).unlink(missing_ok=True)
    if "SLURM_JOB_ID" not in os.environ:
        return 0
    return leave_slurm(runner.exit_code, epoch_dir, on_request=runner.ended_on_request)


def _limits(spec: LaunchSpec, gate: int | None) -> str:
    """Which limits hold, and why no control group does where none does."""
    in_words, otherwise = _pass(gate), spec.limits_in_words
    if in_words or not otherwise:
        return in_words
    why = "no cgroup may be written here" if gate is None else "it was not put into its cgroup in time"
    return f"{otherwise}: {why}"


def _pass(gate: int | None) -> str:
    """Waits until the executor has put us where our processes are limited, and returns what it says of that: nothing
    where it failed, or is gone. Should another process of its keep the pipe open, we do not wait forever."""
    if gate is None:
        return ""
    try:
        ready, _, _ = select.select([gate], [], [], GATE_TIMEOUT_S)
        return os.read(gate, 4096).decode() if ready else ""
    finally:
        os.close(gate)


def _redirect(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(nothing)
    sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", force=True)
