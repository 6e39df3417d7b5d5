"""Says in the shared directory that nothing of an epoch is left on a node, where the engine's process there has died
(`hosting.Host`) and may not be asked any more: `python -m evenkeel.runner.witness EPOCH_DIR WORD RUNNER START_TICKS`.

Its input ends with that process. It has no parent, so that the engine does not end it with its own.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from evenkeel.runner.entry import detach
from evenkeel.runner.hosting import sweep

AGAIN_S = 1.0


def main() -> None:
    epoch_dir, word, runner, start_ticks = sys.argv[1:]
    detach()
    sys.stdin.buffer.read()
    while not sweep(epoch_dir, int(runner), int(start_ticks)):
        time.sleep(AGAIN_S)
    with contextlib.suppress(OSError):  # the run's files may have been removed meanwhile
        Path(word).touch(mode=0o600)


if __name__ == "__main__":
    main()
