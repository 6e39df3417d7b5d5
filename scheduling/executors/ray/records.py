"""The executor's records of an epoch, inaccessible to its job: below DATA/run/ray/ (see `Layout`).

`RUN.EPOCH.runner`: its nodes, written before anything starts, and the ids of its actors as soon as they are known.
`RUN.EPOCH.lost`: since when one of its nodes is known to be lost. `RUN.EPOCH.silent`: since when one does not answer.
`RUN.EPOCH.forgotten`: Ray's head was restarted without its state. `RUN.EPOCH.ended`: certainly nothing of it is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evenkeel.runner.files import read_object
from evenkeel.runner.reports import write_atomically

from scheduling.executors.local.layout import Layout, checked_name


@dataclass(frozen=True, slots=True)
class Place:
    """One node of an epoch: `rank` is its index in the epoch, `node_id` Ray's id."""

    rank: int
    name: str
    node_id: str
    address: str
    gpus: int
    actor_id: str | None = None

    def for_agent(self) -> dict[str, str | int]:
        return {
            "rank": self.rank,
            "name": self.name,
            "node_id": self.node_id,
            "address": self.address,
            "gpus": self.gpus,
        }


class Records:
    def __init__(self, layout: Layout) -> None:
        self._own = layout.own

    def places(self, run_id: str, epoch: int) -> list[Place]:
        """Empty: it was never started."""
        content = read_object(self._file(run_id, epoch, "runner")) or {}
        return [Place(**row) for row in content.get("places", [])]

    def remember(self, run_id: str, epoch: int, places: Sequence[Place], cluster: str | None = None) -> None:
        """`cluster`: Ray's id of it; None: as recorded before."""
        cluster = self.cluster(run_id, epoch) if cluster is None else cluster
        rows = [asdict(place) for place in places]
        write_atomically(self._file(run_id, epoch, "runner"), {"places": rows, "cluster": cluster})

    def cluster(self, run_id: str, epoch: int) -> str:
        """The cluster in which it was started; empty: unknown."""
        return str((read_object(self._file(run_id, epoch, "runner")) or {}).get("cluster") or "")

    def forget(self, run_id: str, epoch: int) -> None:
        self._file(run_id, epoch, "forgotten").touch(mode=0o600)

    def forgotten(self, run_id: str, epoch: int) -> bool:
        return self._file(run_id, epoch, "forgotten").exists()

    def lost_for_s(self, run_id: str, epoch: int) -> float:
        """Seconds since one of its nodes was first seen to be lost; 0 the first time."""
        return _age_s(self._file(run_id, epoch, "lost"))

    def silent_for_s(self, run_id: str, epoch: int) -> float:
        """Seconds since the first unanswered question to one of its nodes, with no answer since."""
        return _age_s(self._file(run_id, epoch, "silent"))

    def note_silence(self, run_id: str, epoch: int, silent: bool) -> None:
        if silent:
            self.silent_for_s(run_id, epoch)
        else:
            self._file(run_id, epoch, "silent").unlink(missing_ok=True)

    def ended(self, run_id: str, epoch: int) -> bool:
        return self._file(run_id, epoch, "ended").exists()

    def end(self, run_id: str, epoch: int) -> None:
        self._file(run_id, epoch, "ended").touch(mode=0o600)

    def age_s(self, run_id: str, epoch: int) -> float:
        """Since its launch was started; minus infinity if it was not."""
        try:
            return time.time() - self._file(run_id, epoch, "runner").stat().st_mtime
        except FileNotFoundError:
            return float("-inf")

    def _file(self, run_id: str, epoch: int, what: str) -> Path:
        return self._own / f"{checked_name(run_id)}.{int(epoch)}.{what}"


def _age_s(path: Path) -> float:
    """Of a mark, which is created if missing."""
    if not path.exists():
        path.touch(mode=0o600)
    return max(0.0, time.time() - path.stat().st_mtime)
