"""A cache of Slurm's answers, shared by all processes of the portal: in quiet times Slurm is asked only every `look_s`
seconds.

Each `squeue` and each `scontrol show node` is two requests to slurmctld. Runs report their own start and end to the
portal, so rounds between two calls can use the last answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

from evenkeel.runner.files import read_object
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.slurm.commands import CONFIG, PARTITIONS, Commands
from scheduling.executors.slurm.seeing import Notes

#: For this long after a launch, a stop or an end of ours, Slurm is always asked.
QUICK_S = 120.0
#: Maximum age of answers for a plan that moves something.
MOMENT_S = 2.0
MAX_BYTES = 64 << 20
#: Maximum age of an administrator's configuration, and of values that only a new slurm.conf changes.
SETTINGS_S, CONFIG_S = 120.0, 600.0


class RememberingCommands(Commands):
    """Caches the output of read-only commands in files below `own`, a private directory of the portal."""

    def __init__(self, conf: str, timeout_s: float, own: Path, look_s: float) -> None:
        super().__init__(conf, timeout_s)
        self._looks, self._look_s = own / "looks", look_s
        self._settings = self._looks / "settings"  # separate: plans with moves never use these

    def recalling(self, oldest_s: float | None = None) -> Commands:
        return _Recalling(self, self._looks, self._look_s if oldest_s is None else min(oldest_s, self._look_s))

    def recalling_settings(self) -> Commands:
        return _RecallingSettings(self, self._settings, SETTINGS_S if self._look_s else 0.0)

    def forget(self) -> bool:
        found = False
        for file in self._looks.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > MOMENT_S:
                    file.unlink()
                    found = True
        return found


class _Recalling(Commands):
    def __init__(self, commands: Commands, looks: Path, oldest_s: float) -> None:
        self._real, self._looks, self._oldest_s = commands, looks, oldest_s

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        file = self._looks / f"{hashlib.sha256(chr(0).join(command).encode()).hexdigest()[:32]}.json"
        now = time.time()
        known = (read_object(file, MAX_BYTES) if self._oldest_s > 0 else None) or {}
        at, text = known.get("at"), known.get("text")
        if isinstance(at, int | float) and isinstance(text, str) and 0 <= now - at <= self._oldest_s:
            self.asked_at = min(at, self.asked_at or at)
            return text
        try:
            text = self._real.run(*command, timeout_s=timeout_s)
        except ExecutorError:
            file.unlink(missing_ok=True)  # its answers must no longer be trusted
            raise
        with contextlib.suppress(OSError):  # without it Slurm is asked the next time
            for folder in (self._looks.parent, self._looks):
                folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(file, {"at": now, "text": text}, durable=False)
        return text


class _RecallingSettings(_Recalling):
    def partitions(self) -> tuple[str, str]:
        config = _Recalling(self._real, self._looks, CONFIG_S if self._oldest_s else 0.0)
        return self.run(*PARTITIONS), config.run(*CONFIG)


def is_in_motion(notes: Notes, epoch_dir: Path, run_id: str, epoch: int) -> bool:
    """It was launched, asked to stop or has ended recently, or its launch is not confirmed."""
    marks = (notes.file(run_id, epoch), notes.kill_mark(run_id, epoch), epoch_dir / "stop", epoch_dir / "exit.json")
    return not marks[0].exists() or any(map(_is_recent, marks))


def _is_recent(path: Path) -> bool:
    """By either clock."""
    try:
        return abs(time.time() - path.stat().st_mtime) < QUICK_S
    except OSError:
        return False
