"""The executor with the rights of one person: run by evenkeel-run-as after it has switched to the account.

It reads one request a line from standard input and answers each with one line, until the portal closes the pipe or
sends nothing for ten minutes. It has no state except the notes in its account's state directory.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import select
import sys
import syslog
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from evenkeel.runner.files import create_private, exists
from evenkeel.runner.processes import PR_SET_DUMPABLE, prctl

from scheduling.errors import ExecutorError
from scheduling.executors.base import NO_SOFTWARE, LaunchRequest, Software
from scheduling.executors.local.environment import ALLOWED
from scheduling.executors.local.preparing import PROXIES
from scheduling.executors.slurm.as_person import LAUNCH, MAX_LINE, PREPARATION, QUEUE, VERSION
from scheduling.executors.slurm.cluster.partitions import KnownPartitions
from scheduling.executors.slurm.cluster.waiting import Watch
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.seeing import Notes, Seen

IDLE_S = 600.0
CHUNK = 1 << 20
MAX_STAGED = 16 << 30
TRIAL_WAIT_S = 20
TRIAL = """
import json, os, pwd
account = pwd.getpwuid(os.getuid())
home = os.access(account.pw_dir, os.R_OK | os.W_OK | os.X_OK)
print("TRIAL " + json.dumps({"name": account.pw_name, "uid": os.getuid(), "home": account.pw_dir, "has_home": home}))
"""
_TAKEN = ALLOWED | frozenset(PROXIES)
_PATH = re.compile(r"jobs/[A-Za-z0-9-]{1,64}/.+", re.DOTALL)


class PersonsExecutor(SlurmExecutor):
    """Its notes are in `state`, the account's own directory; Slurm's data may come from the portal's observation."""

    def __init__(self, shared_dir: Path, state: Path, options: Mapping[str, Any]) -> None:
        super().__init__(shared_dir, **options)
        state.mkdir(mode=0o700, exist_ok=True)
        self._layout.own = state
        self._notes = Notes(state)
        self._commands = Commands(self._options.conf, self._options.command_timeout_s)
        self._partitions = KnownPartitions(self._commands)
        self._watch = Watch(self._commands)
        self.given: Seen | None = None
        self.beside = frozenset[int]()

    def _our_jobs(self) -> set[int]:
        """Including other persons' launches of the same portal."""
        return super()._our_jobs() | self.beside

    def _see(self, commands: Commands | None = None) -> Seen:
        return self.given or super()._see(commands)

    def reap_seen(self, known: Set[tuple[str, int]], min_age_s: float, seen: Seen | None) -> list[tuple[str, int]]:
        """`seen`: what the portal's look has of this account; None where it has none."""
        return self._reap(known, min_age_s, seen or self._see())

    def trial(self) -> Any:
        options = self._options
        words = self._commands.run(
            "srun", *options.arguments(), "--nodes=1", "--ntasks=1", f"--immediate={TRIAL_WAIT_S}", "--mem=64M",
            "--time=1", "--job-name=evenkeel-doctor", "--export=NONE", "--chdir=/", options.python, "-c", TRIAL,
            timeout_s=TRIAL_WAIT_S + 15.0,
        )  # fmt: skip
        said = [line.removeprefix("TRIAL ") for line in words.splitlines() if line.startswith("TRIAL ")]
        if not said:
            raise ExecutorError("its job said nothing", permanent=False)
        return json.loads(said[-1])

    def job_number(self, run_id: str, epoch: int) -> int | None:
        return self._notes.job_id(run_id, epoch)

    def directory_of(self, job_id: str) -> Path:
        return self._layout.job_dir(job_id)


class Agent:
    def __init__(self, shared_dir: Path, state: Path, source: BinaryIO) -> None:
        self._shared, self._state, self._source = shared_dir, state, source
        self._made: PersonsExecutor | None = None
        self._spooled: dict[tuple[str, int], Iterator[Any]] = {}
        self._account = pwd.getpwuid(os.getuid())
        self._calls: dict[str, Callable[..., Any]] = {
            "hello": self.hello, "launch": self.launch, "stop": self.stop, "kill": self.kill, "observe": self.observe,
            "spooled": self.spooled, "prepare": self.prepare, "stage": self.stage, "discard": self.discard,
            "reap": self.reap, "trial": self.trial,
        }  # fmt: skip

    def answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            call = self._calls[request.pop("call")]
            return {"result": call(**request)}
        except ExecutorError as error:
            return {"error": str(error)[:2_000], "permanent": error.permanent, "by_engine": error.by_engine}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", "permanent": False}

    @property
    def _executor(self) -> PersonsExecutor:
        if self._made is None:
            raise ExecutorError("the agent was not greeted", permanent=False)
        return self._made

    def hello(self, options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
        """Settings of the portal, and those variables of its environment that jobs inherit."""
        os.environ.update({name: str(value) for name, value in environment.items() if name in _TAKEN})
        settings = {"software": NO_SOFTWARE} | dict(options)
        if isinstance(settings["software"], dict):
            settings["software"] = Software(**settings["software"])
        conf = os.environ.get("SLURM_CONF", "") or settings.get("conf", "")
        settings |= {"person": self._account.pw_name, "conf": conf}
        self._made = PersonsExecutor(self._shared, self._state, settings)
        groups = sorted(os.getgroups())
        return {"version": VERSION, "uid": os.getuid(), "groups": groups, "home": self._account.pw_dir}

    def launch(self, request: Mapping[str, Any], ours: list[int]) -> int | None:
        """`ours`: Slurm ids of the portal's launches, of all people: other jobs have none of them."""
        wanted = LAUNCH.validate_python(request)
        self._note(f"launches run {wanted.run_id} epoch {wanted.epoch}")
        self._own_directory(wanted.job_id)
        self._executor.beside = frozenset(map(int, ours))
        self._executor.launch(with_own_caches(wanted, self._account.pw_name))
        return self._executor.job_number(wanted.run_id, wanted.epoch)

    def stop(self, run_id: str, epoch: int) -> None:
        self._note(f"stops run {run_id} epoch {epoch}")
        self._executor.checkpoint_and_stop(run_id, epoch)

    def kill(self, run_id: str, epoch: int) -> None:
        self._note(f"kills run {run_id} epoch {epoch}")
        self._executor.kill(run_id, epoch)

    def observe(self, known: list[list[Any]], renewed: list[float | None], queue: Any, at: float) -> Any:
        pairs = [(str(run_id), int(epoch)) for run_id, epoch in known]
        times = {pair: when for pair, when in zip(pairs, renewed, strict=True) if when is not None}
        executor = self._executor
        executor.given = self._seen(queue, at)
        try:
            return [asdict(fact) for fact in executor.observe(pairs, times)]
        finally:
            executor.given = None

    def _seen(self, queue: Any, at: float) -> Seen | None:
        return None if queue is None else Seen(at, QUEUE.validate_python(queue), self._executor._notes)

    def spooled(self, run_id: str, epoch: int, first: bool) -> Any:
        """The next report; None after the last."""
        pair = (run_id, int(epoch))
        if first or pair not in self._spooled:
            self._spooled = {pair: self._executor.spooled(*pair)}
        found = next(self._spooled[pair], None)
        return asdict(found) if found else None

    def prepare(self, preparation: Mapping[str, Any], has_source: bool) -> Any:
        """None if the source must be sent first."""
        wanted = PREPARATION.validate_python(preparation)
        self._own_directory(wanted.job_id)
        staged = self._staged(wanted.kind, wanted.key)
        if has_source and not exists(staged):
            return None
        self._note(f"prepares {wanted.kind} {wanted.key}")
        found = self._executor.prepare(replace(wanted, source=str(staged) if has_source else None))
        if found.state != "working":
            staged.unlink(missing_ok=True)
        return asdict(found)

    def stage(self, kind: str, key: str, size: int) -> None:
        """The file that `prepare` unpacks: this many bytes follow the request."""
        try:
            self._take(self._staged(kind, key), size)
        except (OSError, ExecutorError) as error:
            raise SystemExit(str(error)) from None  # what follows is no request

    def _take(self, staged: Path, size: int) -> None:
        if not 0 <= size <= MAX_STAGED:
            raise OSError("more than may be sent")
        draft, left = staged.with_name(f".{staged.name}"), size
        with os.fdopen(create_private(draft), "wb") as file:
            while left:
                part = self._source.read(min(CHUNK, left))
                if not part:
                    raise OSError("the portal broke off")
                file.write(part)
                left -= len(part)
        draft.replace(staged)

    def _staged(self, kind: str, key: str) -> Path:
        if not re.fullmatch(r"[a-z]{1,20}-[A-Za-z0-9-]{1,64}", f"{kind}-{key}"):
            raise ExecutorError(f"{kind} {key} cannot name a file", permanent=True)
        return self._state / f"{kind}-{key}.source"

    def discard(self, project_key: str, paths: list[str]) -> None:
        if wrong := [path for path in paths if not _PATH.fullmatch(path)]:
            raise ExecutorError(f"{wrong[0][:200]!r} is nothing that can be discarded", permanent=True)
        self._note(f"discards {len(paths)} paths")
        self._executor.discard(project_key, paths)

    def reap(self, known: list[list[Any]], min_age_s: float, queue: Any, at: float) -> Any:
        pairs = {(str(run_id), int(epoch)) for run_id, epoch in known}
        reaped = self._executor.reap_seen(pairs, min_age_s, self._seen(queue, at))
        if reaped:
            self._note(f"ended {len(reaped)} launches that the portal does not know")
        return reaped

    def trial(self) -> Any:
        """A one-second job under this account: its report on itself."""
        return self._executor.trial()

    def _own_directory(self, job_id: str) -> None:
        """The job's directory, created by its person. Another owner's directory with its name is not touched."""
        path = self._executor.directory_of(job_id)
        try:
            path.mkdir(mode=0o750)
        except FileExistsError:
            found = path.lstat()
            if found.st_uid != os.getuid():
                text = f"the files of the job belong to {_name_of(found.st_uid)}, and it would run as "
                text += f"{self._account.pw_name}: submit it again"
                raise ExecutorError(text, permanent=True) from None
        except OSError as error:
            raise ExecutorError(f"{path} cannot be made: {error.strerror}", permanent=False) from None

    def _note(self, what: str) -> None:
        syslog.syslog(syslog.LOG_INFO, f"{self._account.pw_name}: {what}"[:400])


def with_own_caches(request: LaunchRequest, account: str) -> LaunchRequest:
    """Each account has its own caches on nodes: another's files could be neither used nor removed."""
    store, data = request.checkpoint_store, request.data
    if store and store.cache_dir:
        request = replace(request, checkpoint_store=replace(store, cache_dir=f"{store.cache_dir}/{account}"))
    if data and data.cache_dir:
        request = replace(request, data=replace(data, cache_dir=f"{data.cache_dir}/{account}"))
    return request


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"account {uid}"


def serve(agent: Agent, source: BinaryIO, answers: BinaryIO) -> None:
    while line := _next_line(source):
        answers.write(json.dumps(agent.answer(line)).encode() + b"\n")
        answers.flush()


def _next_line(source: Any) -> bytes:
    """Empty at the end, after a long silence, and for lines that are too long."""
    ready, _, _ = select.select([source], [], [], IDLE_S)
    if not ready:  # the buffer is empty: the portal sends a request only after an answer
        return b""
    line: bytes = source.readline(MAX_LINE + 1)
    return line if line.endswith(b"\n") else b""


def main() -> None:
    """`sys.argv`: the tree, the shared directory, the directory of state."""
    if os.getuid() == 0 or os.geteuid() == 0:
        sys.exit("the agent does not run as root")
    prctl(PR_SET_DUMPABLE, 0)  # programs of the same person must not be able to trace it
    syslog.openlog("evenkeel-agent", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not corrupt answers
    source = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    serve(Agent(Path(sys.argv[2]), Path(sys.argv[3]), source), source, answers)
