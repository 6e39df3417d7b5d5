"""What the portal's secrets become for a program: variables, and files that are there only while it runs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenkeel.runner.files import create_private, open_plain
from evenkeel.runner.redaction import Redactor
from evenkeel.runner.trees import remove_quietly
from evenkeel.store import DATA_SECRET, STORE_SECRET

#: Options of drivers that are no secrets.
PLAIN_OPTIONS = frozenset({"endpoint_url", "region_name", "username", "host"})


@dataclass(frozen=True, slots=True)
class Secrets:
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    store: dict[str, Any] = field(default_factory=dict, repr=False)  # options of the checkpoint store's driver
    data: dict[str, Any] = field(default_factory=dict, repr=False)  # name of data -> options of its driver
    _hidden: tuple[str, ...] = field(default=(), repr=False)  # those of its values that are credentials

    @classmethod
    def read(cls, fd: int | None) -> Secrets:
        """From the descriptor that the executor handed over; it is closed."""
        if fd is None:
            return cls()
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            entries = json.load(file)
        ours = {entry["name"]: entry["value"] for entry in entries if entry["name"] in (STORE_SECRET, DATA_SECRET)}
        store = json.loads(ours.get(STORE_SECRET, '{"options": {}, "credentials": {}}'))
        data = json.loads(ours.get(DATA_SECRET, "{}"))
        return cls(
            {entry["env"]: entry["value"] for entry in entries if entry["env"]},
            {entry["file"]: entry["value"] for entry in entries if entry["file"]},
            {**store["options"], **store["credentials"]},
            data,
            (*_strings(store["credentials"]), *_strings(data)),
        )

    def hiding(self, token: str) -> Secrets:
        """These and the token of the run, with which anybody can report for it; its random part by itself, too."""
        return replace(self, _hidden=(*self._hidden, token, token.removeprefix("ekr_")))

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
            remove_quietly(directory)


def token_of(epoch_dir: Path) -> str:
    """With which the runner of this epoch reports."""
    with open_plain(epoch_dir / "token") as file:
        return file.read().decode().strip()


def _strings(value: Any) -> Iterator[str]:
    """What a log may not repeat: all but the address, which says what is wrong."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in PLAIN_OPTIONS:
                yield from _strings(inner)
