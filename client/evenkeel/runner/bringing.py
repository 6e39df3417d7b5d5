"""The runner's part in the data that a job names: on its node before any worker starts, in a folder of links.

A process of its own speaks to the stores (evenkeel.store); it has the job's account, so what that may not read the
job does not get.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.secrets import Secrets
from evenkeel.runner.spec import LaunchSpec
from evenkeel.store import Denied, NodeFault, StoreError, cache, variable_of
from evenkeel.store.carrier import Carrier

log = logging.getLogger(__name__)

RETRY_S = (1.0, 5.0, 15.0)  # before another attempt where it may pass
STALL_S = 300.0  # listing gives no sign of life
LOG_EVERY_S = 5.0


class DataUnavailable(Exception):
    """Which of the data, and why. `permanent`: trying again changes nothing."""

    def __init__(self, message: str, *, permanent: bool = False, nodes_fault: bool = False) -> None:
        super().__init__(message)
        self.permanent, self.nodes_fault = permanent, nodes_fault


class GivenUp(Exception):
    """The run is to end."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`data` of launch.json (scheduling.executors.base.Data); the drivers' options came with the secrets."""

    entries: Sequence[Mapping[str, Any]]
    cache: Path | None
    cache_bytes: int
    fetch_s: float
    options: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, spec: LaunchSpec, secrets: Secrets, node: str = "") -> Terms | None:
        said = spec.data
        if said is None:
            return None
        place = str(said["cache_dir"]).replace("%n", node or spec.node)
        return cls(
            entries=said["entries"],
            cache=Path(place, str(said["project_key"])) if place else None,
            cache_bytes=int(said["cache_bytes"]),
            fetch_s=float(said["fetch_s"]),
            options=secrets.data,
        )


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What is done and asked again and again while data comes."""

    tell: Callable[[str], None]
    given_up: Callable[[], bool]
    give_up_at: float


class Bringing:
    """Made before the job's limits hold: its process is not the job's."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._carrier = Carrier(None, STALL_S)
        self._held: list[int] = []
        self.notices: list[str] = []

    @property
    def pid(self) -> int:
        return self._carrier.pid

    def bring(self, directory: Path, tell: Callable[[str], None], given_up: Callable[[], bool]) -> dict[str, str]:
        """All of it, as links in `directory`; the variables that say so. `tell(words)` is called again and again.
        Raises DataUnavailable and GivenUp."""
        meanwhile = Meanwhile(tell, given_up, time.monotonic() + self._terms.fetch_s)
        variables = {"EVENKEEL_DATA_DIR": str(directory)}
        for entry in self._terms.entries:
            target = self._bring_one(entry, meanwhile)
            variables[variable_of(entry["name"])] = str(_link(directory / entry["name"], target))
        self._carrier.close()
        return variables

    def _bring_one(self, entry: Mapping[str, Any], meanwhile: Meanwhile) -> str:
        name = entry["name"]
        for pause_s in (*RETRY_S, None):
            try:
                return self._ask(entry, meanwhile)
            except (Denied, NodeFault) as error:
                why = f"data {name}: {entry['url'] or entry['path']}: {error}"
                fault = isinstance(error, NodeFault)
                raise DataUnavailable(why, permanent=not fault, nodes_fault=fault) from error
            except StoreError as error:
                log.warning("data %s: %s", name, error)
                if pause_s is None or time.monotonic() + pause_s >= meanwhile.give_up_at:
                    raise DataUnavailable(f"data {name}: {entry['url'] or entry['path']}: {error}") from error
                _pause(pause_s, f"data {name} is tried again: {error}", meanwhile)
        raise AssertionError("the last attempt raises")

    def _ask(self, entry: Mapping[str, Any], meanwhile: Meanwhile) -> str:
        if not self._carrier.open:
            self._carrier = Carrier(None, STALL_S)
        name, terms, began = entry["name"], self._terms, time.monotonic()
        if entry["path"]:
            self._carrier.ask("path", path=entry["path"], writable=not entry["read_only"])
        elif terms.cache is None:
            raise Denied("this cluster has no folder for data of URLs")
        else:
            self._carrier.ask("data", url=entry["url"], options=dict(terms.options.get(name, {})),
                              cache=str(terms.cache), cache_bytes=terms.cache_bytes,
                              wait_s=max(1.0, meanwhile.give_up_at - began))  # fmt: skip
        while (answer := self._carrier.poll(0.1)) is None:
            meanwhile.tell(_progress(name, self._carrier.progress))
            if meanwhile.given_up():
                self._carrier.close()
                raise GivenUp
            if time.monotonic() >= meanwhile.give_up_at:
                self._carrier.close()
                raise StoreError(f"it took longer than {terms.fetch_s:g} s")
        if entry["url"]:
            self._hold(name, answer, time.monotonic() - began)
        return str(answer["place"])

    def _hold(self, name: str, answer: Mapping[str, Any], seconds: float) -> None:
        """For as long as we live it stays in the cache; until now the process held it there."""
        try:
            self._held.append(cache.use(Path(answer["held"])))
        except OSError as error:
            raise NodeFault(f"the data cache cannot be used: {error}") from error
        size, files = _size(answer["bytes"]), f"{answer['files']:,} file{'' if answer['files'] == 1 else 's'}"
        fetched = int(answer["fetched_bytes"])
        how = f"{_size(fetched)} fetched in {seconds:.1f} s" if fetched else "here already"
        text = f"data {name}: {size} in {files}, {how}"
        log.info("%s", text)
        self.notices.append(text)

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    def close(self) -> None:
        self._carrier.close()
        for fd in self._held:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._held = []


def _pause(pause_s: float, words: str, meanwhile: Meanwhile) -> None:
    go_on_at = time.monotonic() + pause_s
    while time.monotonic() < go_on_at:
        meanwhile.tell(words)
        if meanwhile.given_up():
            raise GivenUp
        time.sleep(0.1)


def _link(link: Path, target: str) -> Path:
    try:
        link.parent.mkdir(mode=0o700, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    except OSError as error:
        raise DataUnavailable(f"data {link.name} cannot be linked: {error}", nodes_fault=True) from error
    return link


def _progress(name: str, progress: Mapping[str, Any]) -> str:
    if progress.get("waiting"):
        return f"waiting for data {name}: another run fetches it on this node"
    if "of" not in progress:
        return f"listing data {name}"
    return f"fetching data {name}: {_of(int(progress['bytes']), int(progress['of']))}"


def _of(done: int, whole: int) -> str:
    unit, words = _unit(whole)
    return f"{done / unit:.1f} of {whole / unit:.1f} {words}"


def _size(size: int) -> str:
    unit, words = _unit(size)
    return f"{size / unit:.1f} {words}"


def _unit(size: int) -> tuple[int, str]:
    return (1 << 30, "GiB") if size >= 1 << 30 else (1 << 20, "MiB")
