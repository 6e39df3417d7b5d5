"""`python -m evenkeel.store`: one process that speaks to a store for another, which can end it at any time.

JSON lines on stdin and stdout. The first says where the store is, with its credentials: these are in no argument and
no environment. Each further one asks for something and is answered by one line with `ok`; while something is carried,
lines with `bytes` are signs of life. For data the first line is empty, and each question says where it lies.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import die_with_parent, prctl
from evenkeel.runner.redaction import Redactor
from evenkeel.store import ERRORS, in_words
from evenkeel.store.cache import make_room
from evenkeel.store.data import Wish, bring_data, look_at_path
from evenkeel.store.objects import Store, Stored
from evenkeel.store.settling import Wanted, bring, note_base, settle

TELL_S = 0.5
PR_SET_DUMPABLE = 4


class Service:
    def __init__(self, opening: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
        self._say, self._reported_at = say, 0.0
        self._store = Store(opening["url"], opening["options"], opening["prefix"], self._tell)
        self._damaged: list[str] = []

    def _tell(self, size: int) -> None:
        if (now := time.monotonic()) - self._reported_at >= TELL_S:
            self._reported_at = now
            self._say({"bytes": size})

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        match asked["ask"]:
            case "settle":
                return self._settle(asked)
            case "bring":
                stored = _stored(asked["stored"])
                fetched = bring(self._store, Path(asked["directory"]), stored, _room(asked))
                return {"fetched": fetched}
            case "upload":
                return self._upload(asked)
            case "list":
                return {"steps": [one.step for one in self._store.complete()][: int(asked["most"])]}
            case "remove":
                for prefix, step in asked["checkpoints"]:
                    self._store.of(str(prefix)).remove(int(step))
                return {}
            case "bring_here":
                return {"moved": self._store.bring_here(str(asked["name"]))}
            case "probe":
                return self._store.probe(int(asked["size"]))
            case other:
                raise ValueError(f"unknown command: {other!r}")

    def _settle(self, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = Wanted(
            owner=asked["owner"],
            expected_step=int(asked["expected_step"]),
            otherwise=Path(asked["otherwise"]) if asked["otherwise"] else None,
            resume=(str(asked["resume"][0]), int(asked["resume"][1])) if asked["resume"] else None,
        )
        settled = settle(self._store, Path(asked["directory"]), wanted, _room(asked))
        self._damaged = settled.damaged
        newest = next((one for one in self._store.complete() if one.id == settled.id), None)
        return asdict(settled) | {"stored": asdict(newest) if newest else None}

    def _upload(self, asked: dict[str, Any]) -> dict[str, Any]:
        directory, began = Path(asked["directory"]), time.monotonic()
        stored = self._store.upload(directory / f"step-{int(asked['step'])}", asked["owner"])
        note_base(directory, stored)
        seconds = round(time.monotonic() - began, 4)
        try:
            self._store.prune(int(asked["keep"]), stored, self._damaged)
        except Exception as error:  # what is too much goes with the next one
            return {"stored": asdict(stored), "seconds": seconds, "left": in_words(error)}
        self._damaged = []
        return {"stored": asdict(stored), "seconds": seconds}


class DataService:
    """What it brought stays locked against eviction for as long as the process lives."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._held: list[int] = []

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        match asked["ask"]:
            case "path":
                return {"place": look_at_path(str(asked["path"]), writable=bool(asked["writable"]))}
            case "data":
                wish = Wish(asked["url"], asked["options"], Path(asked["cache"]), asked["cache_bytes"], asked["wait_s"])
                brought, held = bring_data(wish, self._say)
                self._held.append(held)
                return asdict(brought)
            case other:
                raise ValueError(f"unknown command: {other!r}")


def _stored(content: dict[str, Any]) -> Stored:
    files = tuple((str(name), int(size), str(sha)) for name, size, sha in content["files"])
    return Stored(int(content["step"]), str(content["id"]), files, float(content["written_at"]))


def _room(asked: dict[str, Any]) -> Callable[[int], None]:
    cache, bound = asked.get("cache"), int(asked.get("cache_bytes") or 0)

    def make(size: int) -> None:
        if cache and bound:
            make_room(Path(cache), bound, size)

    return make


def main() -> None:
    die_with_parent(os.getppid())
    prctl(PR_SET_DUMPABLE, 0)  # what runs as the same account cannot read the credentials out of this process
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a driver prints is no answer

    def say(answer: dict[str, Any]) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    opened: Service | DataService | Exception | None = None
    redactor = Redactor(())
    for line in sys.stdin:
        asked = json.loads(line)
        if "options" in asked:
            redactor = Redactor(_values(asked["options"]))
        try:
            if opened is None:
                opened = _open(asked, say) if asked else DataService(say)
            elif isinstance(opened, Exception):
                raise opened
            else:
                say({"ok": True, **opened.answer(asked)})
        except Exception as error:
            kind = next((name for name, of in ERRORS.items() if isinstance(error, of)), "")
            say({"ok": False, "error": redactor.clean_text(in_words(error)), "kind": kind})


def _values(options: dict[str, Any]) -> Iterator[str]:
    """Texts that a driver's message may not repeat: all but the address, which says what is wrong."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _values(value)
        elif isinstance(value, str) and name != "endpoint_url":
            yield value


def _open(asked: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> Service | Exception:
    """Why it cannot be opened is the answer to every question."""
    try:
        return Service(asked, say)
    except Exception as error:
        return error


if __name__ == "__main__":
    main()
