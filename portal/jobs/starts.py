"""Expected starts as people read them: kept in the cache, at most some seconds old, each with the time it was said."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core.cache import cache
from redis.exceptions import RedisError

from portal.jobs.forecasting import Expectation
from portal.jobs.models import Job
from scheduling.forecast.calibration import LONGEST_S

logger = logging.getLogger(__name__)
#: What nobody renews is forgotten.
_KEPT_S = 600
#: What would change by less than this part of the wait, or these seconds, stands until it is so old.
_SAME_PART, _SAME_S, _STANDS_S = 0.05, 2.0, 60.0
_TEXTS = {
    "held": "It is held, so it starts after its release.",
    "dependency": "It starts after what it depends on, which cannot be foreseen.",
    "never": "No accelerators that can be used now could ever run it.",
    "limit": "A limit keeps it back, and when that lets it start cannot be foreseen.",
    "unknown": "As things are it does not start.",
    "pending": "It is being worked out.",
}


@dataclass(frozen=True, slots=True)
class Said:
    """Of one job; times are POSIX seconds. Without times `why` says why not."""

    as_of: float
    p10: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    simulated: bool = True
    run_time: str = ""
    outcomes: int = 0
    why: str = ""

    def stands_for(self, new: Said) -> bool:
        """Whether it says the same as `new` and need not be said again."""
        if self.why or new.why:
            return self.why == new.why and new.as_of - self.as_of < _STANDS_S
        slack = max(_SAME_S, _SAME_PART * (new.p50 - new.as_of))
        moved = max(abs(self.p10 - new.p10), abs(self.p50 - new.p50), abs(self.p90 - new.p90))
        return moved <= slack and new.as_of - self.as_of < _STANDS_S and self.simulated == new.simulated


def _key(job_id: str) -> str:
    return f"expected-start/{job_id}"


def store(expected: Expectation) -> None:
    """What is foreseen of each job that waits replaces what was before."""
    at = expected.at.timestamp()
    found = {key: Said(at, why=why) for key, why in expected.forecast.unsaid.items()}
    for key in expected.forecast.starts:
        if (start := expected.start(key)) is None:
            continue
        if start.p50_s >= LONGEST_S:
            found[key] = Said(at, why="unknown")
        else:
            found[key] = Said(
                at,
                at + start.p10_s,
                at + start.p50_s,
                at + min(start.p90_s, LONGEST_S),
                start.simulated,
                expected.run_times.get(key, "default"),
                expected.calibration.outcomes if expected.calibration.fitted else 0,
            )
    before: dict[str, Said] = cache.get_many([_key(job_id) for job_id in found])
    named = {_key(job_id): said for job_id, said in found.items()}
    kept = {key: old if (old := before.get(key)) and old.stands_for(new) else new for key, new in named.items()}
    cache.set_many(kept, _KEPT_S)


def expected_starts(waiting: Iterable[Job]) -> dict[UUID, dict[str, Any]]:
    """Of jobs that wait; one look into the cache, for these jobs alone."""
    jobs = list(waiting)
    known: dict[str, Said] = {}
    try:
        known = cache.get_many([_key(str(job.pk)) for job in jobs]) if jobs else {}
    except RedisError as error:
        logger.warning("expected starts cannot be read: %s", error)
    return {job.pk: _describe(job, known.get(_key(str(job.pk)))) for job in jobs}


def _describe(job: Job, said: Said | None) -> dict[str, Any]:
    if job.hold_kind:
        said = replace(said, why="held") if said else Said(0.0, why="held")
    elif said is None or said.why == "held":
        said = Said(0.0, why="pending")
    told = not said.why
    return {
        "p10_at": _iso(said.p10) if told else None,
        "p50_at": _iso(said.p50) if told else None,
        "p90_at": _iso(said.p90) if told else None,
        "as_of": _iso(said.as_of) if said.as_of else None,
        "basis": ("simulated" if said.simulated else "interpolated") if told else None,
        "run_time": said.run_time if told else None,
        "outcomes": said.outcomes,
        "reason": {"token": said.why, "text": _TEXTS[said.why]} if said.why else None,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
