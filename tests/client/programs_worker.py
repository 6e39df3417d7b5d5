"""Runs a catalogue program in this process and keeps what it did: `python -m tests.client.programs_worker OUT NAME`.

OUT.<rank>.json gets the loss of each step and the samples this rank took. WORLD_SIZE=2 forks: importing PyTorch once
is slow enough.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import evenkeel
from evenkeel.programs._data import Images, Text

Record = dict[str, list[Any]]


def run_program(name: str, *arguments: str) -> Record:
    """Losses by step and sample numbers by step."""
    record: Record = {"losses": [], "samples": []}
    takes = {kind: kind.take for kind in (Images, Text)}

    def report(run: evenkeel.Run, **metrics: float) -> None:
        record["losses"].append(metrics["loss"])

    def take(samples: Any, indices: list[int]) -> Any:
        record["samples"].append(indices)
        return takes[type(samples)](samples, indices)

    with (
        mock.patch.object(evenkeel.Run, "report", report),
        mock.patch.object(Images, "take", take),
        mock.patch.object(Text, "take", take),
        mock.patch.object(sys, "argv", [name, *arguments]),
    ):
        importlib.import_module(f"evenkeel.programs.{name}").main()
    return record


if __name__ == "__main__":
    if os.environ.get("WORLD_SIZE") == "2":
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = "1" if os.fork() == 0 else "0"
    record = run_program(*sys.argv[2:])
    rank = os.environ.get("RANK", "0")
    Path(f"{sys.argv[1]}.{rank}.json").write_text(json.dumps(record))
    if rank == "0" and os.environ.get("WORLD_SIZE") == "2":
        os.wait()
