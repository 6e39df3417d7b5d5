"""Stores expected starts for display."""

from __future__ import annotations

from django.core.cache import cache

from portal.forecasts.inputs import Expectation
from portal.readmodels.jobs.expected_start import KEPT_S, ExpectedStart, cache_key, said_of, waiting_again


def store(expected: Expectation) -> None:
    """The forecast of each waiting job replaces its previous one."""
    at = expected.at.timestamp()
    found = {key: ExpectedStart(at, why=why) for key, why in expected.forecast.unsaid.items()}
    outcomes = expected.calibration.outcomes if expected.calibration.fitted else 0
    for key in expected.forecast.starts:
        if start := expected.start(key):
            run_time = expected.run_times.get(key, "default")
            found[key] = said_of(at, start, run_time=run_time, outcomes=outcomes)
    before: dict[str, ExpectedStart] = cache.get_many([cache_key(job_id) for job_id in found])
    for job_id, since in waiting_again().items():
        if (old := before.get(cache_key(job_id))) and old.as_of < since:
            del before[cache_key(job_id)]
    named = {cache_key(job_id): said for job_id, said in found.items()}
    kept = {key: old if (old := before.get(key)) and old.stands_for(new) else new for key, new in named.items()}
    cache.set_many(kept, KEPT_S)
