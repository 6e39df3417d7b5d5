"""Prepares an epoch's directory and starts its runner, warm with a fork server, otherwise cold."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from evenkeel.program_output import shown_lines
from evenkeel.runner.files import create_private, exists, open_plain
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.spec import LaunchSpec

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import AcceleratorInfo, Data, LaunchRequest, Secret
from scheduling.executors.local.environment import own_environment
from scheduling.executors.local.layout import Layout, checked_name
from scheduling.executors.local.machine import sharing
from scheduling.executors.local.machine.networks import Network
from scheduling.executors.local.preparing import code_dir, environment_dir
from scheduling.executors.local.processes.admitting import limits_in_words
from scheduling.executors.local.processes.watching import LOOK_S, end_holders, run_watched
from scheduling.executors.local.processes.zygotes import Zygotes
from scheduling.executors.local.resuming import bring_checkpoint

log = logging.getLogger(__name__)
START_TIMEOUT_S = 30.0
LOG_BYTES = 10 << 20
LIMITS = {"core": 0, "nofile": 65_536, "nproc": 8_192}


def prepare(
    layout: Layout,
    request: LaunchRequest,
    devices: list[AcceleratorInfo],
    epoch_dir: Path,
    amend: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: content,
    name: str = "launch.json",
) -> None:
    """Everything the runner reads, `launch.json` last, as changed by `amend`. Owned and written by the account."""
    account_dir = layout.job_dir(request.job_id)
    workdir = _workdir(layout, request)
    above = (account_dir / "checkpoints", account_dir / "work", epoch_dir.parent.parent, epoch_dir.parent, epoch_dir)
    places = (epoch_dir / "sdk", epoch_dir / "spool", epoch_dir / "logs", epoch_dir.parent / "artifacts")
    for path in above:  # the job's own directory, above, controls access
        path.mkdir(mode=0o750, exist_ok=True)
    _take_over_files(request, epoch_dir.parent)
    for path in places:
        path.mkdir(mode=0o750, exist_ok=True)
    if request.resume_job_id is not None and request.resume_step is not None:
        _bring(layout, request, request.resume_job_id, request.resume_step)
    if not workdir.is_dir():
        raise ExecutorError(f"the working directory {workdir} is not there", permanent=True)
    write_private(epoch_dir / "token", request.token)
    content = amend(_launch_content(request, devices, account_dir, workdir, epoch_dir))
    if request.environment:
        content["environment"] |= _in_environment(layout, request, content["environment"])
    write_atomically(epoch_dir / name, content)


def _take_over_files(request: LaunchRequest, run_dir: Path) -> None:
    """The artifact directory of the last attempt that had one is moved to this one: nothing is copied, however
    large."""
    own = run_dir / "artifacts"
    for run_id in request.earlier_run_ids:
        theirs = run_dir.parent / checked_name(run_id) / "artifacts"
        if own.exists() or (theirs.is_dir() and not theirs.is_symlink()):
            break
    else:
        return
    if not own.exists():
        theirs.rename(own)


def _bring(layout: Layout, request: LaunchRequest, source_job_id: str, step: int) -> None:
    try:
        bring_checkpoint(layout.jobs, request.job_id, source_job_id, step)
    except ExecutorError:
        if request.checkpoint_store is None:  # otherwise the runner looks for it there
            raise


def _workdir(layout: Layout, request: LaunchRequest) -> Path:
    if request.code_subdir is None:
        return Path(request.workdir) if request.workdir else layout.job_dir(request.job_id) / "work"
    tree = code_dir(layout, request.job_id) / "tree"
    try:
        workdir, top = (tree / request.code_subdir).resolve(), tree.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise ExecutorError(f"subdir {request.code_subdir} cannot be found: {error}", permanent=True) from None
    if not workdir.is_relative_to(top):
        raise ExecutorError(f"subdir {request.code_subdir} leads out of the job's code", permanent=True)
    return workdir


def _in_environment(layout: Layout, request: LaunchRequest, before: dict[str, str]) -> dict[str, str]:
    """Variables of a program in the job's virtual environment, which must have been prepared."""
    owner = request.environment_owner or request.project_key
    place = environment_dir(layout, owner, str(request.environment)) / "venv"
    if not (place / "bin" / "python").exists():
        raise ExecutorError(f"environment {request.environment} is not there any more", permanent=True)
    return {"PATH": f"{place / 'bin'}:{before['PATH']}", "VIRTUAL_ENV": str(place)}


def make_job_dir(layout: Layout, job_id: str, account: Account) -> None:
    path = layout.job_dir(job_id)
    path.mkdir(mode=0o700, exist_ok=True)
    account.take_over(path)


def make_cache_dir(data: Data | None, account: Account) -> None:
    """The project's cache of data belongs to its account alone, below a directory that all may traverse; with one
    account for all the runner creates it."""
    if account.uid is None or data is None or not data.cache_dir:
        return
    above = Path(data.cache_dir.replace("%n", socket.gethostname()))
    if not above.exists():
        above.mkdir(parents=True)
        above.chmod(0o711)  # whatever our umask is
    place = above / checked_name(data.project_key)
    place.mkdir(mode=0o700, exist_ok=True)
    account.adopt(place)


def write_private(path: Path, text: str) -> None:
    with os.fdopen(create_private(path), "w") as file:
        file.write(text)


def _launch_content(
    request: LaunchRequest, devices: list[AcceleratorInfo], job_dir: Path, workdir: Path, epoch_dir: Path
) -> dict[str, Any]:
    emulated = all(device.emulated for device in devices)
    content = asdict(request)
    for name in ("token", "secrets"):
        del content[name]
    visible = "" if emulated else ",".join(device.uuid for device in devices)
    environment = own_environment() | {"HOME": str(job_dir / "work")} | dict(request.env)
    environment |= _job_environment(request, job_dir, epoch_dir)
    environment |= {"CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": _threads(request, len(devices), emulated)}
    if emulated:
        environment["GLOO_SOCKET_IFNAME"] = "lo"
        if request.pace_steps_per_s:
            environment["EVENKEEL_PACE_STEPS_PER_S"] = repr(request.pace_steps_per_s)
    shared = sharing.variables(request, devices, epoch_dir)
    limits = LIMITS | ({"data": request.memory_mib << 20} if request.memory_mib and emulated else {})
    return content | {
        "workdir": str(workdir),
        "workers": len(devices),
        "cuda_visible_devices": visible,
        "environment": environment | shared,
        "gpu_sharing": sharing.in_words(request, devices, shared),
        "limits": limits,
        "limits_in_words": limits_in_words(request, {}, [], emulated=emulated),
        "log_bytes": LOG_BYTES,
        "emulated_devices": _in_words(devices) if emulated else "",
        "device_memory_mib": min(device.memory_mib for device in devices),
        "secret_variables": [secret.env for secret in request.secrets if secret.env],
    }


def _in_words(devices: list[AcceleratorInfo]) -> str:
    counts = Counter(device.type for device in devices)
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items())


def _threads(request: LaunchRequest, workers: int, emulated: bool) -> str:
    wanted = request.env.get("OMP_NUM_THREADS")
    return wanted or str(1 if emulated or not request.cpus else max(1, request.cpus // workers))


def _job_environment(request: LaunchRequest, job_dir: Path, epoch_dir: Path) -> dict[str, str]:
    return {
        "USER": request.project_key,
        "LOGNAME": request.project_key,
        "EVENKEEL_JOB_ID": request.job_id,
        "EVENKEEL_RUN_ID": request.run_id,
        "EVENKEEL_EPOCH": str(request.epoch),
        "EVENKEEL_API_URL": request.api_url,
        "EVENKEEL_TOKEN_FILE": str(epoch_dir / "token"),
        "EVENKEEL_CHECKPOINT_DIR": str(job_dir / "checkpoints"),
        "EVENKEEL_CHECKPOINT_EVERY": str(request.checkpoint_every_steps),
        "EVENKEEL_CHECKPOINT_KEEP": str(request.checkpoint_keep),
        "EVENKEEL_TOTAL_STEPS": str(request.total_steps),
        "EVENKEEL_BATCH_SIZE": str(request.batch_size),
        "EVENKEEL_SDK_DIR": str(epoch_dir / "sdk"),
        "EVENKEEL_ARTIFACT_DIR": str(epoch_dir.parent / "artifacts"),
        "EVENKEEL_SECRETS_DIR": str(epoch_dir / "secrets"),
    }


def start(
    epoch_dir: Path,
    account: Account,
    lock_fd: int,
    lock: Path,
    zygotes: Zygotes,
    secrets: tuple[Secret, ...] = (),
    gate_fd: int | None = None,
    network: Network | None = None,
) -> None:
    """Secrets are passed in memory: an anonymous file whose descriptor the runner inherits."""
    with account.files():
        warm = LaunchSpec.read(epoch_dir).python_arguments() is not None
    with _in_memory(secrets) as secrets_fd:
        named = {"lock": lock_fd, "secrets": secrets_fd, "gate": gate_fd}
        fds = {name: fd for name, fd in named.items() if fd is not None}
        if warm and zygotes.fork_runner(account, epoch_dir, fds):
            return
        if network is None:
            _start_cold(epoch_dir, account, fds, lock)
        else:
            network.run(partial(_start_cold, epoch_dir, account, fds, lock, (network.users,)))


@contextlib.contextmanager
def _in_memory(secrets: tuple[Secret, ...]) -> Iterator[int | None]:
    if not secrets:
        yield None
        return
    fd = os.memfd_create("evenkeel-secrets", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=True) as file:
        file.write(json.dumps([asdict(secret) for secret in secrets]).encode())
        file.flush()
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd


def _start_cold(
    epoch_dir: Path, account: Account, fds: dict[str, int], lock: Path, inherited: tuple[int, ...] = ()
) -> None:
    handed = [f"--{name}-fd={fd}" for name, fd in fds.items()]
    result = run_watched(
        [sys.executable, "-m", "evenkeel.runner", str(epoch_dir), "--detach", *handed],
        what="the runner",
        timeout_s=START_TIMEOUT_S,
        account=account,
        lock=lock,
        env=own_environment(),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(*fds.values(), *inherited),
        start_new_session=True,
        umask=0o077,
        **account.spawn_as(),
    )
    if result.returncode != 0:
        raise ExecutorError(
            f"the runner did not start: {result.stderr.decode(errors='replace')[-500:]}", permanent=False
        )


def await_runner(layout: Layout, run_id: str, epoch_dir: Path, account: Account) -> None:
    """Until `runner.json` exists. The runner holds the launch lock until then; called after we released ours. A runner
    that was stopped meanwhile is killed: it would hold the lock forever."""
    began = looked = time.monotonic()
    while time.monotonic() < began + START_TIMEOUT_S:
        free = layout.lock_is_free(run_id)
        with account.files():
            if exists(epoch_dir / "runner.json"):
                return
            if free:
                raise ExecutorError(f"the runner ended before it began: {_last_line(epoch_dir)}", permanent=False)
        if time.monotonic() > looked + LOOK_S:
            end_holders(layout.lock_path(run_id), account, stopped_only=True)
            looked = time.monotonic()
        time.sleep(0.005)
    end_holders(layout.lock_path(run_id), account)
    raise ExecutorError(f"the runner did not begin within {START_TIMEOUT_S:g} s", permanent=False)


def _last_line(epoch_dir: Path) -> str:
    try:
        with open_plain(epoch_dir / "logs" / "runner.log") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
            lines = shown_lines(file.read(2000).strip())
    except OSError:
        return "no log"
    return lines[-1] if lines else "it said nothing"
