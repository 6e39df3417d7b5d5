"""What the portal's secrets become for a program: variables, and files that are there only while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.files import create_private
from evenkeel.runner.redaction import Redactor
from evenkeel.store import STORE_SECRET


@dataclass(frozen=True, slots=True)
class Secrets:
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    store: dict[str, Any] = field(default_factory=dict, repr=False)  # options of the checkpoint store's driver
    _hidden: tuple[str, ...] = field(default=(), repr=False)  # those of its values that are credentials

    @classmethod
    def read(cls, fd: int | None) -> Secrets:
        """From the descriptor that the executor handed over; it is closed."""
        if fd is None:
            return cls()
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            entries = json.load(file)
        stores = (json.loads(entry["value"]) for entry in entries if entry["name"] == STORE_SECRET)
        store: dict[str, Any] = next(stores, {"options": {}, "credentials": {}})
        return cls(
            {entry["env"]: entry["value"] for entry in entries if entry["env"]},
            {entry["file"]: entry["value"] for entry in entries if entry["file"]},
            {**store["options"], **store["credentials"]},
            tuple(_strings(store["credentials"])),
        )

    def redactor(self) -> Redactor:
        return Redactor([*self.variables.values(), *self.files.values(), *self._hidden])

    @contextlib.contextmanager
    def files_in(self, directory: Path) -> Iterator[None]:
        """The files, readable by this account only, until the program has ended."""
        if not self.files:
            yield
            return
        directory.mkdir(mode=0o700, exist_ok=True)
        try:
            for name, value in self.files.items():
                with os.fdopen(create_private(directory / name), "w") as file:
                    file.write(value)
            yield
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
