"""A directory of this machine that some of its processes do not see, as if it lay on another host's disk."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

_SCRIPT = 'mount -t tmpfs -o mode=0755 none "$0" && exec "$@"'


def without(place: Path, *command: str) -> tuple[str, ...]:
    """The command in a mount namespace where `place` is empty."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", _SCRIPT, str(place), *command)


@functools.cache
def can_hide(place: Path) -> bool:
    """Whether this machine lets us, which takes root and more than most containers have."""
    try:
        return subprocess.run(without(place, "true"), capture_output=True, check=False, timeout=20).returncode == 0
    except OSError:
        return False
