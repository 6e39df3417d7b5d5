"""An executor's files (docs/contracts.md, "Data directory").

DATA/run/local/ belongs to the local executor: `<run_id>.json` has the owner of the run, `<run_id>.lock` serialises
launches of a run, `<run_id>.<epoch>.void` forbids a launch that was cancelled before it arrived,
`<run_id>.<epoch>.runner` says that a launch was started and, once known, which process its runner is: the job can
change neither of them through its own directory. `<run_id>.<epoch>.asked` was created when its program was asked to
end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from evenkeel.runner.files import read_object
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.trees import remove_tree

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.local.processes.sweeping import RunnerIdentity

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_EPOCH = re.compile(r"[0-9]{1,9}")
LOCK_TIMEOUT_S = 5.0  # commands are sent again
#: Entries of a job's own directories that are read: it has a few, unless it creates more in the names of runs and
#: launches.
MAX_NAMES = 1_000
MAX_REMOVALS = 20


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ExecutorError(f"{name!r} cannot name a job or run", permanent=True)
    return name


@dataclass(frozen=True, slots=True)
class RunRecord:
    run_id: str
    job_id: str
    uid: int | None

    @property
    def account(self) -> Account:
        return Account(self.uid)


class Layout:
    def __init__(self, data: Path, engine: str = "local") -> None:
        self.data = data
        self.jobs = data / "jobs"
        self.own = data / "run" / engine

    def prepare(self) -> None:
        self.data.mkdir(mode=0o755, parents=True, exist_ok=True)
        for path, mode in ((self.data / "run", 0o711), (self.jobs, 0o711), (self.own, 0o700)):
            path.mkdir(mode=mode, exist_ok=True)

    # Runs

    def job_dir(self, job_id: str) -> Path:
        return self.jobs / checked_name(job_id)

    def run_dir(self, record: RunRecord) -> Path:
        return self.job_dir(record.job_id) / "runs" / record.run_id

    def epoch_dir(self, record: RunRecord, epoch: int) -> Path:
        return self.run_dir(record) / str(int(epoch))

    def epochs(self, record: RunRecord) -> list[int]:
        """Epochs with a directory, and epochs that were started, whatever their outcome."""
        names = {path.name.split(".")[-2] for path in self.own.glob(f"{record.run_id}.*.runner")}
        with record.account.files(), contextlib.suppress(OSError):
            names.update(_names_in(self.run_dir(record)))
        return sorted(int(name) for name in names if _EPOCH.fullmatch(name))

    def records(self) -> list[RunRecord]:
        """Every run with a directory; records of others are removed."""
        found = [record for path in sorted(self.own.glob("*.json")) if (record := self.record(path.stem))]
        for record in found:
            if not self.job_dir(record.job_id).exists():
                for path in self.own.glob(f"{record.run_id}.*"):
                    path.unlink(missing_ok=True)
        return [record for record in found if self.job_dir(record.job_id).exists()]

    def runs_of_job(self, record: RunRecord) -> list[RunRecord]:
        """Runs with a directory in the job's, and those in our records."""
        known = (self.record(path.stem) for path in self.own.glob("*.json"))
        names = {other.run_id for other in known if other and other.job_id == record.job_id}
        with record.account.files(), contextlib.suppress(OSError):
            names.update(_names_in(self.job_dir(record.job_id) / "runs"))
        return [RunRecord(name, record.job_id, record.uid) for name in sorted(names) if _NAME.fullmatch(name)]

    def record(self, run_id: str) -> RunRecord | None:
        with contextlib.suppress(FileNotFoundError):
            content = json.loads((self.own / f"{checked_name(run_id)}.json").read_bytes())
            return RunRecord(run_id, content["job_id"], content["uid"])
        return None

    def remember(self, record: RunRecord) -> None:
        if self.record(record.run_id) != record:
            write_atomically(self.own / f"{record.run_id}.json", {"job_id": record.job_id, "uid": record.uid})

    # Runners, as far as known without the job's own files

    def begin(self, run_id: str, epoch: int) -> None:
        self._runner_file(run_id, epoch).touch(mode=0o600)

    def begun(self, run_id: str, epoch: int) -> bool:
        return self._runner_file(run_id, epoch).exists()

    def runner(self, run_id: str, epoch: int) -> RunnerIdentity | None:
        return RunnerIdentity.parse(read_object(self._runner_file(run_id, epoch)))

    def remember_runner(self, run_id: str, epoch: int, runner: RunnerIdentity) -> None:
        write_atomically(self._runner_file(run_id, epoch), asdict(runner))

    def _runner_file(self, run_id: str, epoch: int) -> Path:
        return self.own / f"{checked_name(run_id)}.{int(epoch)}.runner"

    # Processes that outlived their run and were killed, as a sentence

    def note_strays(self, run_id: str, epoch: int, text: str) -> None:
        write_atomically(self._strays_file(run_id, epoch), {"text": text})

    def strays(self, run_id: str, epoch: int) -> str:
        content = read_object(self._strays_file(run_id, epoch))
        return str(content["text"]) if content else ""

    def _strays_file(self, run_id: str, epoch: int) -> Path:
        return self.own / f"{checked_name(run_id)}.{int(epoch)}.strays"

    def asked_to_end_s(self, run_id: str, epoch: int) -> float:
        """Seconds since the first call for the launch: since its program was first asked to end."""
        mark = self.own / f"{checked_name(run_id)}.{int(epoch)}.asked"
        with contextlib.suppress(FileExistsError):
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return time.time() - mark.stat().st_mtime

    # Forbidden launches

    def call_off(self, run_id: str, epoch: int) -> None:
        (self.own / f"{checked_name(run_id)}.{int(epoch)}.void").touch(mode=0o600)

    def called_off(self, run_id: str, epoch: int) -> bool:
        return (self.own / f"{run_id}.{int(epoch)}.void").exists()

    # Removals that a limit interrupted

    def remove_secrets(self, record: RunRecord, epoch: int, *, max_entries: int, max_s: float) -> None:
        """Those of a killed runner. `continue_removals` completes what is too much for now."""
        mark = self.own / f"{checked_name(record.run_id)}.{int(epoch)}.unremoved"
        try:
            with record.account.files():
                removed = remove_tree(self.epoch_dir(record, epoch) / "secrets", max_entries=max_entries, max_s=max_s)
        except OSError as error:
            log.warning("run %s epoch %s: its secrets stay: %s", record.run_id, epoch, error)
            removed = True
        if removed:
            mark.unlink(missing_ok=True)
        else:
            mark.touch(mode=0o600)

    def continue_removals(self) -> None:
        for mark in islice(self.own.glob("*.*.unremoved"), MAX_REMOVALS):
            run_id, epoch = mark.name.split(".")[:2]
            if (record := self.record(run_id)) is not None:
                self.remove_secrets(record, int(epoch), max_entries=500_000, max_s=2.0)
            else:
                mark.unlink(missing_ok=True)

    # Locks

    def lock_path(self, run_id: str) -> Path:
        return self.own / f"{checked_name(run_id)}.lock"

    def open_lock(self, run_id: str) -> int:
        return os.open(self.lock_path(run_id), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def lock_is_free(self, run_id: str) -> bool:
        fd = self.open_lock(run_id)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        finally:
            os.close(fd)
        return True

    @contextlib.contextmanager
    def locked(self, run_id: str, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[int]:
        """The launch lock of a run. It belongs to the open file, so a runner that inherited it keeps it when we close
        ours, or die."""
        fd = self.open_lock(run_id)
        try:
            give_up_at = time.monotonic() + timeout_s
            while not try_lock(fd):
                if time.monotonic() > give_up_at:
                    raise ExecutorError(f"run {run_id} is being launched by somebody else", permanent=False)
                time.sleep(0.02)
            yield fd
        finally:
            os.close(fd)


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _names_in(directory: Path) -> list[str]:
    """Names in a directory that belongs to a user: at most as many as we are willing to read."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, MAX_NAMES)]
