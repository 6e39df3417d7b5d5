"""What a job has cost and will cost, and what its moves cost."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from accounts.ledger import current_prices, prices_for
from accounts.pricing import Price, amount, charge, total_product
from portal.dashboard.spans import GangSpan, changes_of, gangs_of, split
from portal.jobs.describe import CURRENCY, describe_jobs
from portal.jobs.models import Job
from scheduling.lifecycle import TERMINAL, State

_US = timedelta(microseconds=1)
HOUR_US = 3_600 * 10**6


def job_cost(job: Job, now: datetime) -> dict[str, Any]:
    described = describe_jobs([job], now)[0]
    gangs = gangs_of(job)
    prices = _prices(gangs, now)
    allocation, rate = described["allocation"], None
    if allocation:
        rate = current_prices(now).get(allocation["type"], 0)
    by_type = _by_type(gangs, prices, now)
    low, high = (
        _until(described, described[key], rate, now) for key in ("expected_end_low_at", "expected_end_high_at")
    )
    return {
        "currency": CURRENCY,
        "so_far": described["cost"]["so_far"],
        "estimated": described["cost"]["estimated"],
        "estimated_low": low or described["cost"]["estimated"],
        "estimated_high": high or described["cost"]["estimated"],
        "basis": _basis(job, described),
        "gpu_hours": round(sum(entry["gpu_hours"] for entry in by_type), 6),
        "rate_per_gpu_hour": str(amount(rate * HOUR_US)) if rate is not None else None,
        "rate_per_hour": str(amount(rate * allocation["count"] * HOUR_US)) if rate is not None else None,
        "by_type": by_type,
        "lost_to_restarts": str(amount(_lost(gangs, prices, now))),
    }


def _prices(gangs: list[GangSpan], now: datetime) -> dict[str, list[Price]]:
    types: dict[str, datetime] = {}
    for gang in gangs:
        types[gang.type] = min(gang.from_at, types.get(gang.type, gang.from_at))
    return {kind: prices_for(kind, start, now) for kind, start in types.items()}


def _product(gang: GangSpan, from_at: datetime, to_at: datetime, prices: dict[str, list[Price]]) -> int:
    return gang.count * total_product(charge(from_at, max(from_at, to_at), prices[gang.type]))


def _by_type(gangs: list[GangSpan], prices: dict[str, list[Price]], now: datetime) -> list[dict[str, Any]]:
    products: dict[str, int] = defaultdict(int)
    held_us: dict[str, int] = defaultdict(int)
    for gang in gangs:
        end = max(gang.from_at, gang.to_at or now)
        products[gang.type] += _product(gang, gang.from_at, end, prices)
        held_us[gang.type] += gang.count * ((end - gang.from_at) // _US)
    return [
        {"type": kind, "gpu_hours": round(held_us[kind] / HOUR_US, 6), "amount": str(amount(products[kind]))}
        for kind in sorted(products)
    ]


def _lost(gangs: list[GangSpan], prices: dict[str, list[Price]], now: datetime) -> int:
    """Held while it was saved and stopped, and while it was launched anew; the first launch is no restart."""
    changes = changes_of({gang.run_id for gang in gangs})
    lost = 0
    for position, gang in enumerate(gangs):
        for part in split(gang.from_at, gang.to_at, changes.get((gang.run_id, gang.epoch), [])):
            if part["kind"] == "moving" or (part["kind"] == "launching" and position > 0):
                lost += _product(gang, part["from_at"], part["to_at"] or now, prices)
    return lost


def _until(described: dict[str, Any], end: str | None, rate: int | None, now: datetime) -> str | None:
    """The cost if it ends then on the GPUs that it has."""
    if end is None or rate is None:
        return None
    seconds_us = max(0, (datetime.fromisoformat(end) - now) // _US)
    ahead = amount(rate * described["allocation"]["count"] * seconds_us)
    return str(Decimal(described["cost"]["so_far"]) + ahead)


def _basis(job: Job, described: dict[str, Any]) -> str:
    assert job.run is not None
    throughput, allocation = described["throughput"], described["allocation"]
    speed = throughput["predicted_steps_per_s"] or throughput["steps_per_s"]
    if State(job.run.state) in TERMINAL:
        return "It has ended: this is what its GPUs were held for, at their rates."
    if not allocation:
        return "It holds no GPUs now, so there is no speed to estimate from."
    if not speed:
        return f"Nothing is known yet of its speed on {allocation['count']} × {allocation['type']}."
    left = max(0, job.total_steps - job.run.step)
    source = throughput["source"] or "measured"
    return (
        f"{left:,} steps left at {speed:.3g} steps/s ({source}) on {allocation['count']} × {allocation['type']}, "
        "if it keeps them."
    )
