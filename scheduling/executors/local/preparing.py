"""Work on a project's files outside its runs: a detached process under the project's account, identified by its lock.

If the lock is free and this attempt has no result, it may be started (at most three times); the process inherits the
lock, so it is free once the process is gone, for any reason.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from evenkeel.runner.files import create_private, read_object
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.trees import remove_below, remove_tree

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import Preparation, Progress
from scheduling.executors.local.layout import Layout, checked_name
from scheduling.executors.local.processes.watching import end_holders, run_watched
from scheduling.executors.preparation_results import MAX_RESULT_BYTES, MAX_RESULT_NODES, checked_detail

log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
MAX_STARTS = 3
OVERTIME_S = 120.0
#: For one path at a time: others wait behind it.
DISCARD_ENTRIES, DISCARD_S = 500_000, 3.0
_KEY_BYTES = 32
MAX_MESSAGE = 500
SHARED = "_shared"  # no project's key
_KINDS = frozenset({"environment", "git", "bundle", "artifacts"})
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PIP_DEFAULT_TIMEOUT")


def directory_of(layout: Layout, preparation: Preparation) -> Path:
    key = checked_name(preparation.key)
    match preparation.kind:
        case "environment":
            return environment_dir(layout, preparation.project_key, key)
        case "git" | "bundle":
            return code_dir(layout, key)
        case _:
            return layout.job_dir(preparation.job_id) / "runs" / key / "listing"


def environment_dir(layout: Layout, owner: str, digest: str) -> Path:
    return layout.data / "environments" / (owner if owner == SHARED else checked_name(owner)) / checked_name(digest)


def code_dir(layout: Layout, job_id: str) -> Path:
    return layout.job_dir(job_id) / "code"


def prepare(layout: Layout, account: Account, preparation: Preparation, environ: dict[str, str]) -> Progress:
    if preparation.kind not in _KINDS:
        raise ExecutorError(f"{preparation.kind!r} is no kind of preparation", permanent=True)
    directory = directory_of(layout, preparation)
    own = layout.own / "prepare"
    own.mkdir(mode=0o700, exist_ok=True)
    name = f"{preparation.kind}-{preparation.project_key}-{checked_name(preparation.key)}"
    lock_path = own / f"{name}.lock"
    lock = os.open(lock_path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            end_holders(lock_path, account, stopped_only=True)  # a process that another one stopped would never finish
            return _under_way(own / f"{name}.starts", preparation)
        account.adopt(_top_of(layout, preparation))
        nonce = _nonce(own, preparation)
        with account.files():
            progress = _progress(directory / "result.json", preparation, nonce)
        if progress is not None:
            _forget_starts(own, name, preparation.kind)
            return progress
        if preparation.kind == "artifacts" and _nothing_there(account, directory.parent / "artifacts"):
            return Progress("done", "", {"files": [], "left_out": 0})
        if not _may_start(own / f"{name}.starts", preparation.attempt):
            return Progress("failed", "It ended without a result that makes sense, several times.")
        _make_directory(layout, account, preparation, directory)
        _start(account, preparation, directory, lock, lock_path, environ, nonce)
    except OSError as error:
        raise ExecutorError(f"cannot prepare {preparation.kind}: {error}", permanent=False) from error
    finally:
        os.close(lock)
    return Progress("working")


def _under_way(path: Path, preparation: Preparation) -> Progress:
    """It ends by itself in time, unless the project's account has stopped its process: then it is abandoned."""
    begun = (read_object(path) or {}).get("at")
    limit_s = preparation.timeout_s + OVERTIME_S
    if isinstance(begun, int | float) and time.time() > begun + limit_s:
        return Progress("failed", f"It had not ended {limit_s:g} s after it was started.")
    return Progress("working")


def _nonce(own: Path, preparation: Preparation) -> str:
    """Known only to the process that we start: a result without it was forged."""
    about = f"{preparation.kind}\0{preparation.key}\0{preparation.attempt}\0{preparation.project_key}"
    return hmac.new(_secret_of(own / "key"), about.encode(), hashlib.sha256).hexdigest()


def _secret_of(path: Path) -> bytes:
    while True:
        with contextlib.suppress(FileNotFoundError):
            if len(key := path.read_bytes()) == _KEY_BYTES:
                return key
        draft = path.with_name(f".key.{os.getpid()}")
        with os.fdopen(create_private(draft), "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()


def _progress(path: Path, preparation: Preparation, nonce: str) -> Progress | None:
    """The result of this attempt; None without a valid one: it is started again, a few times."""
    result = read_object(path, MAX_RESULT_BYTES, MAX_RESULT_NODES) or {}
    if result.get("attempt") != preparation.attempt or result.get("nonce", "") != nonce:
        return None
    message = "".join(c for c in str(result.get("message") or "")[: 4 * MAX_MESSAGE] if c.isprintable())[:MAX_MESSAGE]
    if result.get("state") != "done":
        return Progress("failed", message)
    try:
        return Progress("done", message, checked_detail(preparation, result.get("detail")))
    except ValueError as error:
        log.warning("result of %s %s: %s", preparation.kind, preparation.key, error)
        return None


def _may_start(path: Path, attempt: int) -> bool:
    """Counts the starts of an attempt where the account has no access."""
    before = read_object(path) or {}
    starts = int(before.get("starts", 0)) if before.get("attempt") == attempt else 0
    if starts >= MAX_STARTS:
        return False
    write_atomically(path, {"attempt": attempt, "starts": starts + 1, "at": time.time()})
    return True


def _forget_starts(own: Path, name: str, kind: str) -> None:
    """A finished attempt is not started again. Environments are rebuilt, and keep their lock: another process may wait
    for it."""
    (own / f"{name}.starts").unlink(missing_ok=True)
    if kind != "environment":
        (own / f"{name}.lock").unlink(missing_ok=True)


def _nothing_there(account: Account, directory: Path) -> bool:
    try:
        with account.files(), os.scandir(directory) as entries:
            return next(iter(entries), None) is None
    except (FileNotFoundError, NotADirectoryError):
        return True
    except PermissionError:  # the listing process reports that
        return False


def _top_of(layout: Layout, preparation: Preparation) -> Path:
    """The directory below which everything belongs to the account."""
    if preparation.kind == "environment":
        return directory_of(layout, preparation).parent
    return layout.job_dir(preparation.job_id)


def _make_directory(layout: Layout, account: Account, preparation: Preparation, directory: Path) -> None:
    if preparation.kind == "environment":
        above, mode = layout.data / "environments", 0o711
        above.mkdir(mode=mode, exist_ok=True)
        above.chmod(mode)
    top = _top_of(layout, preparation)
    top.mkdir(mode=0o700, exist_ok=True)
    account.adopt(top)
    shared = preparation.project_key == SHARED
    with account.files():
        if shared:
            top.chmod(0o755)
        if preparation.kind == "artifacts":  # whatever the job created in its place
            _clear(directory)
        directory.mkdir(mode=0o755 if shared else 0o700, parents=True, exist_ok=True)
        for name in ("result.json", "log"):
            _clear(directory / name)


def _clear(path: Path) -> None:
    if not remove_tree(path):
        raise OSError(errno.EBUSY, "has too much in it to be removed at once", str(path))


def _start(
    account: Account,
    preparation: Preparation,
    directory: Path,
    lock: int,
    lock_path: Path,
    environ: dict[str, str],
    nonce: str,
) -> None:
    with contextlib.ExitStack() as stack:
        options, passed = dict(preparation.options), [lock]
        if preparation.source is not None:
            source = stack.enter_context(Path(preparation.source).open("rb"))
            options["source_fd"] = source.fileno()
            passed.append(source.fileno())
        if preparation.kind == "artifacts":
            options["root"] = str(directory.parent / "artifacts")
        request = {
            "kind": preparation.kind,
            "directory": str(directory),
            "attempt": preparation.attempt,
            "nonce": nonce,
            "options": options,
            "secret": preparation.secret,
            "timeout_s": preparation.timeout_s,
            "max_bytes": preparation.max_bytes,
            "umask": 0o022 if preparation.project_key == SHARED else 0o077,
            "limits": {"core": 0, "fsize": preparation.max_bytes + (64 << 20), "nproc": 4_096},
        }
        kept = {name: os.environ[name] for name in PROXIES if name in os.environ}
        begun = run_watched(
            [sys.executable, "-m", "evenkeel.preparation"],
            what="the preparation",
            timeout_s=START_TIMEOUT_S,
            account=account,
            lock=lock_path,
            env=environ | kept,
            cwd="/",
            input=json.dumps(request).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=passed,
            start_new_session=True,
            **account.spawn_as(),
        )
    if begun.returncode != 0:
        said = begun.stderr.decode(errors="replace")[-500:]
        raise ExecutorError(f"the preparation did not start: {said}", permanent=False)


def discard_all(layout: Layout, account: Account, paths: Iterable[str]) -> None:
    """Each of them; then ExecutorError, if some could not be removed."""
    failed: list[ExecutorError] = []
    for path in paths:
        try:
            discard(layout, account, path)
        except ExecutorError as error:
            failed.append(error)
        except Exception as error:
            failed.append(ExecutorError(f"cannot remove {path}: {error}", permanent=False))
    if failed:
        more = f" (and {len(failed) - 1:,} more)" if len(failed) > 1 else ""
        raise ExecutorError(f"{failed[0]}{more}", permanent=all(error.permanent for error in failed))


def discard(layout: Layout, account: Account, path: str) -> None:
    """Remove what the account may remove, without following links."""
    parts = path.split("/")
    if parts[0] not in ("jobs", "environments") or len(parts) < 3 or any(p in ("", ".", "..") for p in parts):
        raise ExecutorError(f"{path!r} is nothing that can be discarded", permanent=True)
    account.adopt(layout.data / parts[0] / parts[1])
    with account.files():
        removed = remove_below(layout.data, parts, max_entries=DISCARD_ENTRIES, max_s=DISCARD_S)
    if not removed:
        text = f"{path} has more in it than is removed within {DISCARD_S:g} s; the next attempt continues"
        raise ExecutorError(text, permanent=False)
