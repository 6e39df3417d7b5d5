"""`python -m evenkeel.runner EPOCH_DIR [--detach] [--lock-fd N] [--secrets-fd N] [--gate-fd N] [--follow NODE]`"""

from __future__ import annotations

import argparse
from pathlib import Path

from evenkeel.runner.entry import Handed, detach, follow_epoch, run_epoch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evenkeel.runner", description="Run one epoch of a run.")
    parser.add_argument("epoch_dir", type=Path)
    parser.add_argument("--detach", action="store_true", help="leave the caller's session first")
    parser.add_argument("--lock-fd", type=int, help="closed once runner.json is written")
    parser.add_argument("--secrets-fd", type=int, help="where the secrets can be read, once")
    parser.add_argument("--gate-fd", type=int, help="where to wait until our processes are limited")
    parser.add_argument(
        "--follow", metavar="NODE", help="be the runner of this node, which is not the first of several"
    )
    options = parser.parse_args()
    epoch_dir = options.epoch_dir.resolve()
    if options.detach:
        detach()
    if options.follow:
        follow_epoch(epoch_dir, options.follow)
    run_epoch(epoch_dir, Handed(options.lock_fd, options.secrets_fd, options.gate_fd), can_fork=False)


if __name__ == "__main__":
    main()
