import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from portal.config.layout import Layout
from portal.config.setup_errors import SetupError
from portal.supervisor import child as child_module
from portal.supervisor.child import Child
from portal.supervisor.lock import DirectoryLock
from portal.supervisor.process import wait_gone
from portal.supervisor.supervisor import Supervisor

PARENT_AND_CHILD = (
    "import subprocess, time; subprocess.Popen(['sleep', '600']); print('up', flush=True); time.sleep(600)"
)
TOY = """
import logging, os, sys
from pathlib import Path
from portal.supervisor.child import Child
from portal.config.layout import Layout
from portal.supervisor.supervisor import Supervisor

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
layout = Layout(Path(sys.argv[1]))

class Told(Child):
    def stop(self):
        print("stop", self.name, flush=True)
        super().stop()

def start(supervisor):
    for name in ("first", "second"):
        supervisor.launch(Told(name, ["sleep", "600"], env={}, cwd=Path("/"), run=layout.run, logs=layout.logs))
    print("started", flush=True)

sys.exit(Supervisor(layout).run(start))
"""


def eventually(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def make_child(layout: Layout, *command: str, nice: int = 0) -> Child:
    folders = {"cwd": Path("/"), "run": layout.run, "logs": layout.logs}
    return Child("toy", command, env=os.environ, **folders, stop_timeout_s=5, nice=nice)


def test_one_that_stands_back_does_so_among_sessions_too(layout: Layout) -> None:
    child = make_child(layout, "sleep", "600", nice=15)
    child.start()
    try:
        assert psutil.Process(child.pid).nice() == 15
        grouped = Path(f"/proc/{child.pid}/autogroup")
        if grouped.exists():
            assert grouped.read_text().split()[-1] == "15"
    finally:
        child.stop()


@pytest.fixture
def toy(layout: Layout) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", TOY, str(layout.data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line == "started\n":
                break
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    for name in ("first", "second"):
        Child(name, [], env={}, cwd=Path("/"), run=layout.run, logs=layout.logs).clear_leftovers()


def pid_of(layout: Layout, name: str) -> int:
    return int((layout.run / f"{name}.pid").read_text().split()[0])


def test_a_killed_child_is_started_again(layout: Layout, toy: Callable[[], subprocess.Popen[str]]) -> None:
    process = toy()
    first = pid_of(layout, "first")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: (layout.run / "first.pid").exists() and pid_of(layout, "first") != first)
    process.terminate()
    output, _ = process.communicate(timeout=10)
    assert "first stopped unexpectedly; starting it again in 0.2 s.\nfirst runs again.\n" in output


def test_sigterm_stops_everything_in_reverse_order(layout: Layout, toy: Callable[[], subprocess.Popen[str]]) -> None:
    process = toy()
    pids = [pid_of(layout, name) for name in ("first", "second")]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert output.endswith("stop second\nstop first\n")
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert (layout.run / "supervisor.lock").read_text() == ""


def test_further_signals_do_not_disturb_the_stopping(layout: Layout, toy: Callable[[], subprocess.Popen[str]]) -> None:
    process = toy()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert output.endswith("stop second\nstop first\n")


def test_a_second_supervisor_is_refused_and_a_stale_lock_taken_over(
    layout: Layout, toy: Callable[[], subprocess.Popen[str]]
) -> None:
    process = toy()
    with pytest.raises(SetupError, match=f"Another supervisor \\(process {process.pid}\\) runs on {layout.data}"):
        DirectoryLock(layout.run / "supervisor.lock").acquire()
    process.kill()
    process.wait()
    lock = DirectoryLock(layout.run / "supervisor.lock")
    assert lock.acquire() == process.pid
    lock.release()


def test_a_child_dies_with_all_of_its_session(layout: Layout) -> None:
    child = make_child(layout, sys.executable, "-c", PARENT_AND_CHILD)
    child.start()
    assert child.pid is not None
    eventually(lambda: child.last_words() == "up")
    members = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
    assert len(members) == 2
    child.stop()
    assert all(wait_gone(member, 5) for member in members)


def test_what_an_earlier_supervisor_left_is_cleared(layout: Layout) -> None:
    earlier = make_child(layout, sys.executable, "-c", PARENT_AND_CHILD)
    earlier.start()
    eventually(lambda: earlier.last_words() == "up")
    assert make_child(layout, "true").clear_leftovers() == 2
    assert not earlier.alive()
    assert make_child(layout, "true").clear_leftovers() == 0


def test_a_pid_that_was_given_to_somebody_else_is_left_alone(layout: Layout) -> None:
    (layout.run / "toy.pid").write_text(f"{os.getpid()} 1.0")
    assert make_child(layout, "true").clear_leftovers() == 0


def test_a_child_that_cannot_start_ends_the_start_with_its_last_words(layout: Layout) -> None:
    supervisor = Supervisor(layout)
    child = make_child(layout, "sh", "-c", "echo no such module; exit 1")
    supervisor.launch(child)
    with pytest.raises(SetupError, match=r"The toy process does not start; see .*: no such module"):
        supervisor.wait_for(child, lambda: False, 20)


def test_logs_rotate_while_the_child_writes(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "LOG_LIMIT_BYTES", 10)
    child = make_child(layout, "sh", "-c", "echo before the rotation; read x; echo after")
    child.log.write_text("a line of before\n")
    for _ in range(5):
        child.rotate_log()
        child.log.write_text("more than ten bytes\n")
    kept = sorted(path.name for path in layout.logs.glob("toy.log*"))
    assert kept == ["toy.log", "toy.log.1", "toy.log.2", "toy.log.3"]
