"""The runner's part in a checkpoint store: at a launch it has the right checkpoint brought, then complete ones carried
away while training goes on, and at the end it waits for the last. The program knows nothing of it.

What the portal hears of as a checkpoint is one that is complete in the store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.secrets import Secrets
from evenkeel.runner.spec import LaunchSpec
from evenkeel.runner.trees import remove_tree
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.store import StoreError, TakenOver, cache
from evenkeel.store.carrier import Address, Carrier

log = logging.getLogger(__name__)

RETRY_S = (1.0, 2.0, 5.0, 15.0, 30.0)  # between attempts, the last one from then on
MIB = 1 << 20
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """`checkpoint_store` of launch.json, and the driver's options, which came with the secrets."""

    url: str
    prefix: str
    keep: int
    job_dir: Path  # where checkpoints of the job lie without a store
    directory: Path  # where they lie on this node
    cache_dir: str = ""
    cache_bytes: int = 0
    end_s: float = 60.0
    fetch_s: float = 480.0
    expected_step: int = 0
    resume: tuple[str, int] | None = None
    owner: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spec: LaunchSpec, secrets: Secrets, node: str = "") -> Terms | None:
        said = spec.checkpoint_store
        if said is None:
            return None
        job_dir = Path(spec.environment["EVENKEEL_CHECKPOINT_DIR"])
        cache_dir = str(said["cache_dir"]).replace("%n", node or spec.node)
        resume = said.get("resume_prefix")
        return cls(
            url=said["url"],
            prefix=said["prefix"],
            keep=int(said["keep"]),
            job_dir=job_dir,
            directory=Path(cache_dir, spec.job_id) if cache_dir else job_dir,
            cache_dir=cache_dir,
            cache_bytes=int(said["cache_bytes"]),
            end_s=float(said["end_s"]),
            fetch_s=float(said["fetch_s"]),
            expected_step=int(said["expected_step"]),
            resume=(resume, int(said["resume_step"])) if resume else None,
            owner={"run_id": spec.run_id, "epoch": spec.epoch},
            options=secrets.store,
        )

    @property
    def places(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "cache": self.cache_dir, "cache_bytes": self.cache_bytes}

    def make_carrier(self) -> Carrier:
        return Carrier(Address(self.url, self.prefix, self.options))

    def hold(self) -> int:
        """Keeps what is used of the cache from being evicted, as long as the descriptor is open."""
        return cache.use(self.directory)


class Storing:
    """Nothing here blocks but `settle` and `finish`, and these ask `given_up` again and again."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._carrier: Carrier | None = terms.make_carrier()
        self._held = -1
        self.stored: Answer | None = None  # the newest that is in the store, as reports say it
        self.chosen: Answer | None = None  # what other nodes have to bring
        self.notices: list[str] = []
        self._offered: Answer | None = None  # the newest on the node
        self._waiting: Answer | None = None  # to be uploaded
        self._under_way: Answer | None = None
        self._failures, self._try_at = 0, 0.0
        self._said = self._last_error = ""
        self._over = False  # another launch has taken the job over

    @property
    def pid(self) -> int | None:
        return self._carrier.pid if self._carrier else None

    @property
    def directory(self) -> Path:
        return self._terms.directory

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    # At a launch

    def settle(self, given_up: Callable[[], bool], most_s: float = float("inf")) -> None:
        """Raises StoreError where it is not known which checkpoint is the newest, or it cannot be had."""
        terms, began = self._terms, time.monotonic()
        with contextlib.suppress(OSError):
            self._held = terms.hold()
        carrier = self._ready_carrier()
        carrier.ask("settle", owner=dict(terms.owner), expected_step=terms.expected_step, resume=terms.resume,
                    otherwise=str(terms.job_dir), **terms.places)  # fmt: skip
        answer = carrier.wait(min(terms.fetch_s, most_s), given_up)
        self.notices += answer["notices"]
        self.chosen = answer["stored"]
        step, seconds = answer["step"], time.monotonic() - began
        if step is None:
            log.info("the store has no checkpoint of the job: it begins")
            return
        how = "fetched" if answer["fetched"] else "uploaded" if answer["uploaded"] else "here already"
        log.info("checkpoint step %s (%.1f MiB) is %s after %.1f s", step, answer["bytes"] / MIB, how, seconds)
        self._offered = self.stored = {"step": step, "path": f"step-{step}", "bytes": answer["bytes"], "seconds": 0.0,
                                       "at": time.time()}  # fmt: skip

    # While it trains

    def offer(self, checkpoint: Answer | None) -> None:
        """The newest checkpoint that the program wrote. One that still waits is passed over for it."""
        if checkpoint is not None and checkpoint != self._offered:
            self._offered = checkpoint
            self._waiting = None if self._over else checkpoint

    def tick(self) -> bool:
        """True when a checkpoint has come into the store."""
        try:
            if self._under_way is not None and self._carrier is not None:
                answer = self._carrier.poll()
                return answer is not None and self._took(answer)
            if self._waiting is not None and time.monotonic() >= self._try_at:
                self._begin(self._waiting)
        except StoreError as error:
            self._failed(error)
        return False

    def _begin(self, checkpoint: Answer) -> None:
        self._waiting, self._under_way = None, checkpoint
        terms = self._terms
        self._ready_carrier().ask("upload", directory=str(terms.directory), step=int(checkpoint["step"]),
                                  owner=dict(terms.owner), keep=terms.keep)  # fmt: skip

    def _took(self, answer: Answer) -> bool:
        done, self._under_way = self._under_way, None
        assert done is not None
        size = sum(int(file[1]) for file in answer["stored"]["files"])
        self.stored = done | {"bytes": size, "seconds": round(float(done["seconds"]) + float(answer["seconds"]), 4)}
        self._said, self._failures, self._try_at = "", 0, 0.0
        log.info("checkpoint step %s is in the store: %.1f MiB in %.2f s", done["step"], size / MIB, answer["seconds"])
        if answer.get("left"):
            log.warning("older checkpoints stay in the store: %s", answer["left"])
        return True

    def _failed(self, error: StoreError) -> None:
        """It is tried again, ever more rarely, until it is there, or a newer one takes its place."""
        failed, self._under_way = self._waiting or self._under_way, None
        if failed is None:
            return
        why, over = str(error), isinstance(error, TakenOver)
        log.warning("checkpoint step %s is not in the store: %s", failed["step"], why)
        self._waiting = None if over else failed
        self._try_at = time.monotonic() + RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        if why != self._said and (over or self._failures > 1):
            self._said = why
            self.notices.append(f"checkpoint step {failed['step']} is not in the store: {why}"
                                f"{'' if over else '; it is tried again'}")  # fmt: skip
        self._last_error, self._over = why, over

    def _ready_carrier(self) -> Carrier:
        if self._carrier is None or not self._carrier.open:
            self._carrier = self._terms.make_carrier()
        return self._carrier

    # At the end

    def finish(self, tick: Callable[[], None], given_up: Callable[[], bool], asked: bool) -> str:
        """Waits until the last checkpoint is in the store, no longer than `end_s`; one sentence on what is not."""
        give_up_at, began = time.monotonic() + self._terms.end_s, time.monotonic()
        self._failures, self._try_at = 0, 0.0  # what waits is tried at once
        self._last_error = self._last_error if self._over else ""
        while not self._is_stored() and (self._waiting or self._under_way):
            if given_up() or time.monotonic() >= give_up_at:
                break
            self.tick()
            tick()
            time.sleep(0.02)
        if not self._is_stored():
            return self._lost(given_up())
        if asked and self.stored is not None:
            size, step = self.stored["bytes"] / MIB, self.stored["step"]
            self.notices.append(f"checkpoint step {step} is in the store ({size:.1f} MiB), "
                                f"{time.monotonic() - began:.1f} s after the program left")  # fmt: skip
        return ""

    def _is_stored(self) -> bool:
        newest = self._offered
        return newest is None or (self.stored is not None and int(self.stored["step"]) == int(newest["step"]))

    def _lost(self, killed: bool) -> str:
        last, step = self._offered, int(self.stored["step"]) if self.stored else 0
        assert last is not None
        reason = self._last_error or f"it took longer than {self._terms.end_s:g} s"
        reason = "the run was killed" if killed else reason
        lost = int(last["step"]) - step
        text = f"checkpoint step {last['step']} did not reach the store: {reason}; the newest there is of step {step}"
        text = f"{text}: {lost} steps are lost unless the job continues on this node"
        self.notices.append(text)
        return text

    def close(self) -> None:
        """What is under way is given up; the cache may have what we used."""
        if self._carrier is not None:
            self._carrier.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        if self._terms.cache_dir and self._terms.cache_bytes:
            with contextlib.suppress(OSError):
                cache.make_room(Path(self._terms.cache_dir), self._terms.cache_bytes)


def bring_elsewhere(terms: Terms, chosen: Answer, alive: Callable[[], bool]) -> int:
    """On a node that is not the first: exactly the checkpoint that the first one chose. The descriptor that holds it
    in the cache; raises StoreError."""
    held = terms.hold()
    carrier = terms.make_carrier()
    try:
        carrier.ask("bring", stored=chosen, **terms.places)
        carrier.wait(terms.fetch_s, lambda: not alive())
    except StoreError:
        os.close(held)
        raise
    finally:
        carrier.close()
    return held


def forget_checkpoints(directory: Path) -> None:
    """On a node that is not the first, at the job's start: local checkpoints do not count."""
    for step in CheckpointStore(directory, 0).steps():
        remove_tree(directory / f"step-{step}")
