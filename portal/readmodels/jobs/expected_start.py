"""Expected starts for display: cached, a few seconds old at most, each with the time of its forecast."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from portal.core.times import moment
from portal.jobs.models import Job, Run
from scheduling.domain.reason_codes import WINDOWS, find_code
from scheduling.forecast.calibration import LONGEST_S
from scheduling.forecast.forecast import Start
from scheduling.lifecycle import WAITING

logger = logging.getLogger(__name__)

#: Lifetime of entries that are not renewed.
KEPT_S = 600

#: Changes below this fraction of the wait, or these seconds, are not shown until the entry is this old.
_SAME_PART, _SAME_S, _STANDS_S = 0.05, 2.0, 60.0
_TEXTS = {
    "held": "It is on hold, so it starts after its release.",
    "dependency": "It starts after its dependencies, whose end cannot be predicted.",
    "never": "No accelerators here could ever run it.",
    "no_profile": "Its throughput on the accelerators that it may use is unknown, so it does not start.",
    "node_unavailable": "Nodes that it needs are drained, lost or being checked; it is not known when they return.",
    "period": "Its budget is used up{until}; it starts after that, or when the limit is raised.",
    "limit": "A limit keeps it back, and when that lets it start cannot be foreseen.",
    "unknown": "As things are it does not start.",
    "pending": "It is being worked out.",
}


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """Of one job; times are POSIX seconds. Without times `why` gives the reason."""

    as_of: float
    p10: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    simulated: bool = True
    run_time: str = ""
    outcomes: int = 0
    why: str = ""

    def stands_for(self, new: ExpectedStart) -> bool:
        """Whether it is equivalent to `new`, so that no update is needed."""
        if self.why or new.why:
            return self.why == new.why and new.as_of - self.as_of < _STANDS_S
        slack = max(_SAME_S, _SAME_PART * (new.p50 - new.as_of))
        moved = max(abs(self.p10 - new.p10), abs(self.p50 - new.p50), abs(self.p90 - new.p90))
        return moved <= slack and new.as_of - self.as_of < _STANDS_S and self.simulated == new.simulated


def cache_key(job_id: str) -> str:
    return f"expected-start/{job_id}"


def said_of(at: float, start: Start | None, *, run_time: str, outcomes: int, why: str = "unknown") -> ExpectedStart:
    """The entry for a forecast made at `at`; `why`: the reason if it has no time."""
    if start is None or start.p50_s >= LONGEST_S:
        return ExpectedStart(at, why=why)
    times = (at + start.p10_s, at + start.p50_s, at + min(start.p90_s, LONGEST_S))
    return ExpectedStart(at, *times, start.simulated, run_time, outcomes)


def waiting_again() -> dict[str, float]:
    """Since when jobs wait that had GPUs before: earlier forecasts were about another start."""
    again = Run.objects.filter(state__in=[state.value for state in WAITING]).exclude(attempt=1, epoch=0)
    return {str(job): since.timestamp() for job, since in again.values_list("job_id", "state_since")}


def expected_starts(waiting: Iterable[Job]) -> dict[UUID, dict[str, Any]]:
    """Of waiting jobs; one read of the cache, for these jobs only."""
    jobs = list(waiting)
    known: dict[str, ExpectedStart] = {}
    try:
        known = cache.get_many([cache_key(str(job.pk)) for job in jobs]) if jobs else {}
    except RedisError as error:
        logger.warning("expected starts cannot be read: %s", error)
    now = timezone.now().timestamp()
    said = {job: _holds(job, known.get(cache_key(str(job.pk))), now) for job in jobs}
    return {job.pk: describe_start(one, _until(job)) for job, one in said.items()}


def _holds(job: Job, said: ExpectedStart | None, now: float) -> ExpectedStart:
    """The stored forecast, if it is compatible with the latest round's reason for the job."""
    run = job.run
    if job.hold_kind:
        return replace(said or ExpectedStart(0.0), why="held")
    code = find_code(run.reason_token) if run is not None else None
    if code is not None and code.row.no_start:
        return replace(said or ExpectedStart(0.0), why=code.row.no_start.value)
    if said is None or said.why == "held" or (not said.why and said.p90 < now - _STANDS_S):
        return ExpectedStart(0.0, why="pending")
    if run is None or said.why:
        return said
    if (run.attempt > 1 or run.epoch > 0) and said.as_of < run.state_since.timestamp():
        return ExpectedStart(0.0, why="pending")
    barred = run.reason_token in WINDOWS and not run.reason_detail.get("elsewhere")
    until = float(run.reason_detail.get("until", 0.0)) if barred else 0.0
    return replace(said, p10=max(said.p10, until), p50=max(said.p50, until), p90=max(said.p90, until))


def _until(job: Job) -> str:
    """When the period of a used-up budget ends."""
    at = moment(job.run.reason_detail.get("expected_start_at"), timezone.now()) if job.run else None
    return f" until {at:%Y-%m-%d %H:%M} UTC" if at is not None else ""


def describe_start(said: ExpectedStart, until: str = "") -> dict[str, Any]:
    text = _TEXTS.get(said.why, "").format(until=until or " for its period")
    reason = {"code": said.why, "text": text} if said.why else None
    is_known = not said.why
    return {
        "p10_at": _iso(said.p10) if is_known else None,
        "p50_at": _iso(said.p50) if is_known else None,
        "p90_at": _iso(said.p90) if is_known else None,
        "as_of": _iso(said.as_of) if said.as_of else None,
        "basis": ("simulated" if said.simulated else "interpolated") if is_known else None,
        "run_time": said.run_time if is_known else None,
        "outcomes": said.outcomes,
        "reason": reason,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
