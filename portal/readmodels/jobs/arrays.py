"""Arrays for the API. The number of queries does not grow with arrays or jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, Min, QuerySet

from accounts import ledger, pricing
from portal.accounting import hold_costs
from portal.core import money
from portal.core.times import iso
from portal.jobs.models import Hold, Job, JobArray
from scheduling.lifecycle import TERMINAL, State, coarse_state

_ENDED = {coarse_state(state, rescaling=False) for state in TERMINAL}


def describe_arrays(arrays: Iterable[JobArray], jobs: QuerySet[Job]) -> list[dict[str, Any]]:
    """Each with the states of its jobs in `jobs`; arrays without any are left out."""
    arrays = list(arrays)
    mine = jobs.filter(array__in=arrays).order_by()
    states: dict[int, Counter[str]] = defaultdict(Counter)
    for array, state, trained, count in mine.values_list("array", "run__state", "run__has_trained").annotate(
        count=Count("pk")
    ):
        states[array][coarse_state(State(state), rescaling=trained)] += count
    firsts = dict(mine.values_list("array").annotate(first=Min("number")))
    shown = {job.array_id: job for job in jobs.filter(number__in=firsts.values())}
    return [_describe(array, shown[array.pk], states[array.pk]) for array in arrays if array.pk in shown]


def array_cost(jobs: QuerySet[Job], now: datetime) -> dict[str, Any]:
    """The total cost of the jobs of one array, at most a thousand."""
    ids = list(jobs.order_by().values_list("pk", flat=True))
    holds = hold_costs.held(hold_costs.open_holds(Hold.objects.filter(run__job__in=ids)), now)
    entered = sum(ledger.products_by_job(ids).values(), Decimal(0))
    spent = entered + hold_costs.product_of(hold_costs.book_for(holds, now), holds)
    return {"so_far": str(pricing.amount(spent)), "currency": money.CURRENCY}


def _describe(array: JobArray, first: Job, states: Counter[str]) -> dict[str, Any]:
    return {
        "number": array.number,
        "name": first.name,
        "project": {"key": first.project.key, "name": first.project.name},
        "owner": {"name": str(first.owner), "email": first.owner.email} if first.owner else None,
        "indices": array.indices,
        "size": array.size,
        "max_running": array.max_running,
        "states": dict(states),
        "first_job": first.number,
        "submitted_at": iso(first.submitted_at),
        "ended": set(states) <= _ENDED,
    }
