"""Reports that a runner left behind and the portal never received; a job may have put anything in their place.

Read one at a time, outside of rounds: rounds only call `is_spooled`.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from evenkeel.runner.files import parse_json, read_plain

from scheduling.executors.accounts import Account
from scheduling.executors.base import Spooled
from scheduling.executors.local.facts import UNPRINTABLE

#: Size of one report, as over HTTP.
MAX_BYTES = 1 << 20
#: Limits of all reports of one launch; the newest count. Seconds are those of reading, without the caller's work.
MAX_REPORTS, MAX_ALL_BYTES, MAX_S = 1_000, 64 << 20, 10.0
#: Directory entries that are searched for them.
MAX_NAMES = 20_000


def is_spooled(epoch_dir: Path) -> bool:
    try:
        with os.scandir(epoch_dir / "spool") as entries:
            return next(iter(entries), None) is not None
    except OSError:  # missing, or made unreadable by the job
        return False


def spooled_reports(account: Account, epoch_dir: Path) -> Iterator[Spooled]:
    """Oldest first, each read on demand."""
    began, left_s, left_bytes = time.monotonic(), MAX_S, MAX_ALL_BYTES
    with account.files():
        numbers, dropped = _numbers(epoch_dir / "spool")
    left_s -= time.monotonic() - began
    for place, number in enumerate(numbers):
        if left_bytes <= 0 or left_s <= 0:
            dropped += len(numbers) - place
            break
        began = time.monotonic()
        with account.files():  # not while the caller works
            report, size_bytes = _report(epoch_dir / "spool" / f"{number}.json", min(MAX_BYTES, left_bytes))
        left_s -= time.monotonic() - began
        left_bytes -= size_bytes
        if report is None:
            dropped += 1
        else:
            yield Spooled(report)
    if dropped:
        yield Spooled(None, dropped)


def _numbers(spool: Path) -> tuple[list[str], int]:
    """Names of the newest reports, oldest first, and the number of skipped entries."""
    try:
        with os.scandir(spool) as entries:
            names = [entry.name for entry in islice(entries, MAX_NAMES)]
    except OSError:
        return [], 0
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json") and len(name) <= 24]
    sound = [stem for stem in stems if stem.isascii() and stem.isdecimal()]
    newest = heapq.nlargest(MAX_REPORTS, sound, key=int)
    return newest[::-1], len(sound) - len(newest)


def _report(path: Path, max_bytes: int) -> tuple[Mapping[str, Any] | None, int]:
    try:
        text = read_plain(path, max_bytes)
    except OSError:
        return None, 0
    try:
        content = parse_json(text, nan_as_null=True)
    except ValueError:
        return None, len(text)
    return (cleaned(content) if isinstance(content, dict) else None), len(text)


def cleaned(value: Any) -> Any:
    """Without characters that no database accepts; `parse_json` limits its depth."""
    if isinstance(value, str):
        return UNPRINTABLE.sub("", value)
    if isinstance(value, dict):
        return {UNPRINTABLE.sub("", name): cleaned(inner) for name, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list) else value
