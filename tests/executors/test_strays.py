"""What ended is gone, and a process that was stopped stops nobody: with real processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import all_processes, read_process, real_uid

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest
from scheduling.executors.local import executor as local_executor
from scheduling.executors.local import launching
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.layout import RunRecord
from scheduling.executors.local.processes import strays, watching, zygotes
from tests.executors.contract import ended, reason, requests_for, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")

#: Leaves its session with an empty environment, as a child of init, then does what it is told to.
ESCAPING = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, ["escaped", "-c", sys.argv[1]], {})
    os._exit(0)
os.wait()
"""
SLEEPING = "import time; time.sleep(600)"
#: Is another process each time it is looked for.
HOPPING = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork():
        os._exit(0)
"""
#: Each lives for a moment only; few enough a second for any init to take in those that ended, else numbers run out.
SWARMING = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(2):
    os.fork()
while True:
    time.sleep(0.01)
    if os.fork():
        os._exit(0)
"""
KILL_RUNNER = "time.sleep(0.5)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-strays-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def executor(place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:6", preload=())
    yield made
    made.reap_orphans([], min_age_s=-2.0)


@pytest.fixture
def request_for(executor: LocalExecutor, place: Path) -> Any:
    return requests_for(executor, place)


def account_of(executor: LocalExecutor, request: LaunchRequest) -> Account:
    return executor._accounts.of_project(request.project_key)


def running(executor: LocalExecutor, request: LaunchRequest) -> set[int]:
    account = account_of(executor, request)
    assert account.uid is not None
    every = (process.pid for process in all_processes() if process.alive)
    return {pid for pid in every if real_uid(pid) == account.uid}


def any_alive(executor: LocalExecutor, request: LaunchRequest) -> bool:
    """As the kernel says, which sees also those that are another process at each look; the dead that nobody has taken
    in yet are among them, for a moment."""
    uid = account_of(executor, request).uid
    assert uid is not None

    def gone() -> bool:
        try:
            os.getpriority(os.PRIO_USER, uid)
        except ProcessLookupError:
            return True
        return False

    return not until(gone, "the end of every process")


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def stop_all(executor: LocalExecutor, request: LaunchRequest) -> None:
    for pid in running(executor, request):
        os.kill(pid, signal.SIGSTOP)


def script(place: Path, text: str) -> tuple[str, ...]:
    """A program that starts warm."""
    path = place / "program.py"
    path.write_text(text)
    path.chmod(0o644)
    return ("python", str(path))


@as_root
def test_a_process_that_escaped_is_ended_with_the_run_and_the_run_says_so(
    executor: LocalExecutor, request_for: Any
) -> None:
    request = request_for(ESCAPING + KILL_RUNNER, SLEEPING)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert running(executor, request) == set()
    assert fact.strays.startswith("1 process outlived the run and was ended: ")


@as_root
def test_a_cancelled_job_leaves_nothing(executor: LocalExecutor, request_for: Any) -> None:
    request = request_for(ESCAPING + "time.sleep(600)", SLEEPING)
    executor.launch(request)
    until(lambda: _children_escaped(executor, request), "the escape")
    executor.kill(request.run_id, 1)
    assert running(executor, request) == set()
    assert ended(executor, request.run_id).kind == "exited"


def _children_escaped(executor: LocalExecutor, request: LaunchRequest) -> bool:
    return any(_words(pid)[:1] == ["escaped"] for pid in running(executor, request))


@as_root
def test_what_live_runs_of_the_project_started_goes_on(executor: LocalExecutor, request_for: Any) -> None:
    other = request_for(ESCAPING + "time.sleep(600)", SLEEPING, workers=1)
    stranger = request_for("import time; time.sleep(600)", project_key="speech")
    executor.launch(other)
    executor.launch(stranger)
    until(lambda: _children_escaped(executor, other), "its escape")
    before = running(executor, other)
    request = request_for(ESCAPING + KILL_RUNNER, SLEEPING)
    executor.launch(request)
    assert ended(executor, request.run_id).strays
    assert running(executor, other) == before
    assert running(executor, stranger)
    kinds = [fact.kind for fact in executor.observe([(other.run_id, 1), (stranger.run_id, 1)])]
    assert kinds == ["alive", "alive"]


@as_root
@pytest.mark.parametrize("program", [HOPPING, SWARMING])
def test_what_forks_faster_than_it_is_found_is_ended_too(
    executor: LocalExecutor, request_for: Any, program: str
) -> None:
    stranger = request_for("import time; time.sleep(600)", project_key="speech")
    executor.launch(stranger)
    request = request_for(ESCAPING + KILL_RUNNER, program)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    if program == SWARMING:
        assert "outlived the run" in fact.strays
    assert not any_alive(executor, request)
    assert running(executor, stranger)


@as_root
def test_what_forks_faster_than_it_is_found_is_ended_without_the_live_runs_beside_it(
    executor: LocalExecutor, request_for: Any
) -> None:
    sibling = request_for("import time\nwhile True:\n    time.sleep(0.01)")
    executor.launch(sibling)
    until(lambda: len(running(executor, sibling)) > 1, "its worker")
    before = running(executor, sibling)
    request = request_for(ESCAPING + KILL_RUNNER, SWARMING)
    executor.launch(request)
    assert "outlived the run" in ended(executor, request.run_id).strays
    assert running(executor, sibling) == before
    assert not any(process.state == "T" for process in map(read_process, before) if process)
    [fact] = executor.observe([(sibling.run_id, 1)])
    assert fact.kind == "alive"
    executor.kill(sibling.run_id, 1)
    assert not any_alive(executor, sibling)


def test_a_look_at_a_launch_without_a_runner_is_as_short_as_at_others(
    executor: LocalExecutor, request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runner was killed before it said who it is, and what it started leaves anew again and again."""
    patience: list[float] = []

    def end(self: Any, account: Account, patience_s: float, **_: Any) -> None:
        patience.append(patience_s)
        raise ExecutorError("they start anew faster than they end", permanent=False)

    request = request_for()
    record = RunRecord(request.run_id, request.job_id, account_of(executor, request).uid)
    executor._layout.remember(record)
    executor._layout.begin(request.run_id, 1)
    with monkeypatch.context() as patched:
        patched.setattr(strays.Strays, "end", end)
        [fact] = executor.observe([(request.run_id, 1)])
        assert fact.kind == "alive"
        assert 0 < patience[0] <= local_executor.LOOK_S
        patched.setattr(local_executor, "OBSERVE_S", 0.0)
        [fact] = executor.observe([(request.run_id, 1)])
        assert (fact.kind, len(patience)) == ("alive", 1)  # the next look goes on
    [fact] = executor.observe([(request.run_id, 1)])
    assert fact.kind == "absent"


def test_what_is_known_to_have_ended_needs_no_time_to_be_said(
    executor: LocalExecutor, request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for("pass")
    executor.launch(request)
    assert ended(executor, request.run_id).kind == "exited"
    monkeypatch.setattr(local_executor, "OBSERVE_S", 0.0)  # others have used it up
    assert [fact.kind for fact in executor.observe([(request.run_id, 1)])] == ["exited"]


@as_root
def test_orphans_of_no_run_at_all_are_reaped(executor: LocalExecutor, request_for: Any) -> None:
    request = request_for()
    command = [sys.executable, "-c", SLEEPING]
    with subprocess.Popen(command, start_new_session=True, env={}, **account_of(executor, request).spawn_as()) as stray:
        executor.reap_orphans([], min_age_s=60.0)
        assert stray.poll() is None  # it may belong to what began after the caller looked
        executor.reap_orphans([], min_age_s=-2.0)
        assert stray.wait(30) == -signal.SIGKILL


@as_root
def test_accounts_of_other_data_directories_are_left_alone(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    neighbour = LocalExecutor(place / "neighbour", "titan_xp:6", warm_start=False)
    request = request_for("import time; time.sleep(600)")
    executor.launch(request)
    until(lambda: len(running(executor, request)) > 1, "its worker")
    neighbour._accounts.of_project("vision")
    neighbour.reap_orphans([], min_age_s=-2.0)
    foreign = account_of(executor, request)
    assert neighbour._strays.end(foreign, 1.0).names == {}
    neighbour._strays._signal_account(foreign, signal.SIGKILL)
    [fact] = executor.observe([(request.run_id, 1)])
    assert fact.kind == "alive"
    assert len(running(executor, request)) > 1


def test_as_one_user_nothing_is_ended_by_its_account(place: Path) -> None:
    alone = LocalExecutor(place / "data", "titan_xp:1", isolation="none", warm_start=False)
    assert alone._strays.accounts_in_use() == set()
    assert alone._strays.end(Account(os.getuid()), 1.0).names == {}
    assert alone._strays.end(Account(None), 1.0).names == {}


@as_root
def test_a_kill_needs_no_consent_of_a_runner_that_was_stopped_while_it_starts(
    executor: LocalExecutor, request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the launch lock, and lets go of it only when it has written who it is."""
    request = request_for("import time; time.sleep(600)")
    begun: list[subprocess.Popen[bytes]] = []

    def start(epoch_dir: Path, account: Account, lock_fd: int, *_: object) -> None:
        command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
        begun.append(subprocess.Popen(command, pass_fds=[lock_fd], start_new_session=True, **account.spawn_as()))
        until(lambda: (process := read_process(begun[0].pid)) and process.state == "T", "its stop")
        raise ExecutorError("the portal was stopped meanwhile", permanent=False)

    monkeypatch.setattr(launching, "start", start)
    with pytest.raises(ExecutorError, match="meanwhile"):
        executor.launch(request)
    assert not executor._layout.lock_is_free(request.run_id)
    executor.kill(request.run_id, 1)
    assert executor._layout.lock_is_free(request.run_id)
    assert running(executor, request) == set()
    [fact] = executor.observe([(request.run_id, 1)])
    assert fact.kind != "alive"
    assert begun[0].wait(30) == -signal.SIGKILL


class Watcher(threading.Thread):
    """Stops the first process that holds the launch lock of a run."""

    def __init__(self, executor: LocalExecutor, request: LaunchRequest) -> None:
        super().__init__(daemon=True)
        self._path, self._account = executor._layout.lock_path(request.run_id), account_of(executor, request)

    def run(self) -> None:
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            for process in watching.holders(self._path, self._account):
                os.kill(process.pid, signal.SIGSTOP)
                return


@as_root
@pytest.mark.parametrize("warm", [False, True])
def test_a_launch_whose_runner_is_stopped_gives_up_and_can_be_repeated(
    place: Path, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = LocalExecutor(place / "data", "titan_xp:6", warm_start=warm, preload=())
    request = requests_for(executor, place)(argv=script(place, "print('ran')"))
    Watcher(executor, request).start()
    monkeypatch.setattr(launching, "START_TIMEOUT_S", 600.0)  # it is the state that is seen, not the time
    with contextlib.suppress(ExecutorError):
        executor.launch(request)
    executor.launch(request)  # which does nothing where the first one succeeded
    assert reason(ended(executor, request.run_id)) == "done"
    executor.reap_orphans([], min_age_s=-2.0)


@as_root
def test_a_fork_server_that_was_stopped_is_replaced(
    executor: LocalExecutor, request_for: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes, "READY_TIMEOUT_S", 600.0)
    request = request_for(argv=script(place, "print('ran')"))
    account = account_of(executor, request)
    executor.warm_up(["vision"])
    [before] = executor._zygotes.running(account)
    os.kill(before.pid, signal.SIGSTOP)
    executor.launch(request)
    assert reason(ended(executor, request.run_id)) == "done"
    executor.warm_up(["vision"])
    [after] = executor._zygotes.running(account)
    assert after.pid != before.pid


@as_root
def test_a_job_cannot_stop_its_fork_server(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    executor.warm_up(["vision"])
    [server] = executor._zygotes.running(account_of(executor, request_for()))
    program = f"""
import os, signal
try:
    os.kill({server.pid}, signal.SIGSTOP)
except PermissionError:
    os.kill(os.getpid(), 0)
    print("refused", os.getresuid())
"""
    request = request_for(argv=script(place, program))
    executor.launch(request)
    assert reason(ended(executor, request.run_id)) == "done"
    uid = account_of(executor, request).uid
    directory = executor._layout.epoch_dir(executor._layout.record(request.run_id), 1)  # type: ignore[arg-type]
    assert f"refused {(uid, uid, uid)}" in (directory / "logs" / "rank0.log").read_text()


@as_root
@pytest.mark.parametrize("beside", [False, True])
def test_ending_all_of_an_account_leaves_fork_servers_alone(
    executor: LocalExecutor, request_for: Any, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own and those of other projects; with a live run beside it, the account is stopped for a moment."""
    keys = ("vision", "speech")
    executor.warm_up(keys)
    accounts = [executor._accounts.of_project(key) for key in keys]
    before = [executor._zygotes.running(account) for account in accounts]
    if beside:
        monkeypatch.setattr(strays.Strays, "_unexplained", lambda self, account, min_age_s: ([], True))
        executor.launch(request_for(SLEEPING))
    request = request_for(ESCAPING + KILL_RUNNER, SLEEPING)
    executor.launch(request)
    ended(executor, request.run_id)
    assert all(before)
    assert [executor._zygotes.running(account) for account in accounts] == before
    states = [process.state for [server] in before if (process := read_process(server.pid))]
    assert len(states) == len(keys)
    assert "T" not in states


@as_root
def test_a_kill_ends_a_job_of_which_everything_was_stopped(executor: LocalExecutor, request_for: Any) -> None:
    request = request_for(ESCAPING + "time.sleep(600)", SLEEPING, workers=2)
    executor.launch(request)
    until(lambda: _children_escaped(executor, request), "its escape")
    stop_all(executor, request)
    executor.kill(request.run_id, 1)
    assert running(executor, request) == set()
    assert ended(executor, request.run_id).kind == "exited"


@as_root
def test_another_projects_job_cannot_reach_where_ranks_meet(executor: LocalExecutor, request_for: Any) -> None:
    program = """
import evenkeel, torch, torch.distributed as dist, time
with evenkeel.training() as run:
    run.init_process_group()
    one = torch.ones(1)
    dist.all_reduce(one)
    print("met", int(one), flush=True)
    time.sleep(600)
"""
    request = request_for(program, workers=2)
    executor.launch(request)
    directory = executor._layout.epoch_dir(executor._layout.record(request.run_id), 1)  # type: ignore[arg-type]
    log = directory / "logs" / "rank0.log"
    until(lambda: log.exists() and "met 2" in log.read_text(), "the ranks to meet")
    uid = account_of(executor, request).uid
    assert [address for address in _listening(uid) if not address.endswith("0100007F")] == []  # 127.0.0.1
    stores = list((directory / "rendezvous").iterdir())
    assert stores
    other = executor._accounts.of_project("speech")
    with other.files(), pytest.raises(PermissionError):
        stores[0].open("rb")
    executor.kill(request.run_id, 1)


def _listening(uid: int | None) -> list[str]:
    """Local addresses, in hexadecimal, of the account's sockets that take connections."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and int(columns[7]) == uid:
                found.append(columns[1].partition(":")[0])
    return found


def test_what_takes_its_time_is_given_its_input_once() -> None:
    program = "import sys, time; read = sys.stdin.read(); time.sleep(1.2); print(len(read))"
    done = watching.run_watched(
        [sys.executable, "-c", program],
        what="it",
        timeout_s=60,
        account=Account(None),
        input=b"x" * 200_000,
        stdout=subprocess.PIPE,
    )
    assert done.stdout.strip() == b"200000"


@pytest.mark.parametrize("by_us", [True, False])
def test_what_the_portal_stops_for_a_moment_goes_on(tmp_path: Path, by_us: bool) -> None:
    """A launch or preparation beside a run of the project that ends; what a job stops is given up all the same."""
    account, pid_file = Account(None, tmp_path / "stopping"), tmp_path / "pid"
    program = f"import os, pathlib, signal; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); "
    command = [sys.executable, "-c", program + "os.kill(os.getpid(), signal.SIGSTOP); print('went on')"]
    outcome: list[str] = []

    def run() -> None:
        try:
            done = watching.run_watched(command, what="it", timeout_s=60, account=account, stdout=subprocess.PIPE)
            outcome.append(done.stdout.decode().strip())
        except ExecutorError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    with account.stop_lock.open("a") as lock:  # type: ignore[union-attr]
        if by_us:
            fcntl.flock(lock, fcntl.LOCK_EX)
        thread.start()
        if by_us:
            until(lambda: pid_file.exists() and bool(pid_file.read_text()), "its process")
            pid = int(pid_file.read_text())
            until(lambda: (process := read_process(pid)) is not None and process.state == "T", "its stop")
            thread.join(3 * watching.LOOK_S)
            os.kill(pid, signal.SIGCONT)
    thread.join(60)
    assert outcome == ["went on" if by_us else "it was stopped by another process of its account"]


@as_root
def test_the_account_counts_as_stopped_by_the_portal_while_it_is(
    executor: LocalExecutor, request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(SLEEPING)
    executor.launch(request)
    account = account_of(executor, request)
    [pid, *_] = running(executor, request)
    seen: list[bool] = []
    unexplained = strays.Strays._unexplained

    def look(self: strays.Strays, account: Account, min_age_s: float) -> Any:
        process = read_process(pid)
        if process is not None and process.state == "T" and account.stop_lock is not None:
            with account.stop_lock.open("a") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                seen.append(False)
                return unexplained(self, account, min_age_s)
            seen.append(True)
        return unexplained(self, account, min_age_s)

    monkeypatch.setattr(strays.Strays, "_unexplained", look)
    executor._strays._end_while_stopped(account, 0.0, strays.Found())
    assert seen
    assert all(seen)


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(ExecutorError, match="it took over") as refusal:
        watching.run_watched([sys.executable, "-c", SLEEPING], what="it", timeout_s=0.1, account=Account(None))
    assert not refusal.value.permanent


def test_what_was_found_is_one_sentence() -> None:
    found = strays.Found({(1, 1): "sleep", (2, 2): "sleep", (3, 3): "python"})
    assert found.in_words() == "3 processes outlived the run and were ended: 2 × sleep, python."
    assert strays.Found({(1, 1): "a"}).in_words() == "1 process outlived the run and was ended: a."
    many = strays.Found({(number, 0): f"p{number}" for number in range(9)}, uncounted=True)
    assert many.in_words() == "At least 9 processes outlived the run and were ended: p0, p1, p2, p3, p4, ...."
    assert strays.Found().in_words() == ""
