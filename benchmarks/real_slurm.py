"""A throw-away Slurm on loopback, brought up by ../shared/scripts/slurm_up.sh and ended again, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

SHARED = Path(os.environ.get("EVENKEEL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SCRIPT = SHARED / "scripts" / "slurm_up.sh"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sshare", "sprio", "sdiag", "runuser")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDING_S = 10.0


def missing() -> str | None:
    """What it lacks here; None where it can be brought up."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not lacking and SCRIPT.exists() and os.geteuid() == 0:
        return None
    return f"it needs root, {SCRIPT} and {', '.join(lacking) or 'nothing else'}"


@contextmanager
def slurm(*, nodes: int, env: dict[str, str], scheduler: str = "") -> Iterator[None]:
    """Its daemons; gone afterwards, also where a signal ends this process. `scheduler`: more SchedulerParameters."""
    root = Path(tempfile.mkdtemp(prefix="sp-", dir="/tmp"))
    root.chmod(0o755)
    text = SCRIPT.read_text()
    text = text.replace("ClusterName=ref\n", "ClusterName=ref\nCommunicationParameters=NoInAddrAny\n", 1)
    text = text.replace("batch_sched_delay=0", f"batch_sched_delay=0{scheduler}", 1)
    os.environ["SLURM_CONF"] = str(root / "etc" / "slurm.conf")
    command = ["bash", "-s", "--", "up", str(nodes)]
    with ended_by_signals():
        try:
            subprocess.run(
                command, input=text, env=os.environ | {"SLURM_ROOT": str(root)} | env, text=True, check=False,
                timeout=180, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            yield
        finally:
            for number in SIGNALS:  # a second one does not cut the ending short
                signal.signal(number, signal.SIG_IGN)
            end_all(root)
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within, a signal to end raises SystemExit, so that what is begun is also taken down."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_all(root: Path) -> None:
    """Everything that was started with this root: daemons, their jobs' steps, and what was still bringing it up.

    By environment, not by the files of process ids: a daemon that has just been started has written none.
    """
    ends = time.monotonic() + ENDING_S
    asked = set[int]()
    while found := started_with(root):
        late = time.monotonic() > ends
        for pid in found if late else found - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked |= found
        time.sleep(0.1)


def started_with(root: Path) -> set[int]:
    """Processes whose environment names the root; this one does too, and is left out."""
    found, name = set[int](), f"{root}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if any(value.split(b"=", 1)[-1].startswith(name) for value in _environment(entry)):
                    found.add(int(entry.name))
    return found


def _environment(process: Path) -> list[bytes]:
    state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
    return [] if state == b"Z" else (process / "environ").read_bytes().split(b"\0")


def ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def until(ready: Callable[[], object], limit_s: float) -> None:
    ends = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > ends:
            raise TimeoutError(f"Slurm was not ready in {limit_s:.0f} s")
        time.sleep(0.5)
