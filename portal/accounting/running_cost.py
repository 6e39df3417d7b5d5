"""Costs of jobs so far: ledger entries, and their present occupancy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from accounts import ledger
from accounts.ledger import Held, PriceBook
from portal.accounting import hold_costs
from portal.jobs.models import Hold, Job


@dataclass(frozen=True)
class CostFacts:
    """Costs of some jobs at one moment, by job."""

    now: datetime
    spent: dict[UUID, Decimal]
    holds: dict[UUID, list[Held]]
    book: PriceBook


def cost_facts(jobs: Iterable[Job], now: datetime) -> CostFacts:
    """Two statements, however many jobs; a newly submitted job has cost nothing."""
    ids = [job.pk for job in jobs if job.run is None or job.run.had_gpus]
    held = hold_costs.held(hold_costs.open_holds(Hold.objects.filter(run__job__in=ids)), now) if ids else []
    holds: dict[UUID, list[Held]] = defaultdict(list)
    for one in held:
        holds[one.job_id].append(one)
    return CostFacts(now, ledger.products_by_job(ids) if ids else {}, holds, hold_costs.book_for(held, now))


def so_far_products(job: Job, costs: CostFacts) -> Decimal:
    """Ledger entries, and the cost of open occupancy until now (see accounts.pricing)."""
    return Decimal(costs.spent.get(job.pk, 0)) + hold_costs.product_of(costs.book, costs.holds.get(job.pk, []))
