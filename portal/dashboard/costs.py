"""Past and expected costs of a job, and the cost of its moves."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import F

from accounts.ledger import Held, PriceBook
from accounts.pricing import HOUR_US, amount
from accounts.utilisation import use_of
from portal.accounting.hold_costs import book_for, held, product_of
from portal.core.money import CURRENCY
from portal.dashboard.spans import GangSpan, changes_of, gangs_of, split
from portal.dashboard.usage import used_hours
from portal.forecasts.estimates import describe_price
from portal.jobfile.gpu_text import gang_words
from portal.jobs.models import Hold, Job, RunActivity
from portal.readmodels.jobs.summary import PageContext, describe_job, gather, product_per_us
from scheduling.lifecycle import TERMINAL, TRAINING, State

_US = timedelta(microseconds=1)


def job_cost(job: Job, now: datetime) -> dict[str, Any]:
    ctx = gather([job], now)
    described = describe_job(job, ctx)
    holds = held(Hold.objects.filter(run__job=job), now)
    book = book_for(holds, now)
    per_us, by_type = product_per_us(job, ctx), _by_type(holds, book)
    low, high = (_until(described, described[key], per_us, now) for key in _ENDS)
    return {
        "currency": CURRENCY,
        "so_far": described["cost"]["so_far"],
        "estimated": described["cost"]["estimated"],
        "estimated_low": low or described["cost"]["estimated"],
        "estimated_high": high or described["cost"]["estimated"],
        "basis": _basis(job, described),
        "price": _price(job, described, ctx, now),
        "gpu_hours": round(sum(entry["gpu_hours"] for entry in by_type), 6),
        **used_hours(*use_of(job.pk)),
        "utilisation": _utilisation(job),
        "price_per_gpu_hour": _rate_per_gpu_hour(job, described, ctx, now),
        "price_per_hour": str(amount(per_us * HOUR_US)) if described["allocation"] else None,
        "by_type": by_type,
        "by_resource": _by_resource(holds, book),
        "lost_to_restarts": str(amount(_lost(job, book, now))),
        "emulated": described["emulated"],
    }


def _utilisation(job: Job) -> float | None:
    found = RunActivity.objects.filter(run=job.run_id, epoch=F("run__epoch"), run__state__in=list(TRAINING)).first()
    return None if found is None or found.mean_utilisation is None else round(found.mean_utilisation, 3)


_ENDS = ("expected_end_low_at", "expected_end_high_at")


def _rate_per_gpu_hour(job: Job, described: dict[str, Any], ctx: PageContext, now: datetime) -> str | None:
    """Its price of a GPU-hour, after discount."""
    if not described["allocation"]:
        return None
    kind = described["allocation"]["type"]
    return str(
        amount(
            ctx.costs.book.product_per_us(job.project_id, kind, now, gpu_hundredths=100, cluster=job.cluster.name)
            * HOUR_US
        )
    )


def _price(job: Job, described: dict[str, Any], ctx: PageContext, now: datetime) -> dict[str, Any] | None:
    if not described["allocation"]:
        return None
    return describe_price(ctx.costs.book, job.project_id, described["allocation"]["type"], now, job.cluster.name)


def _by_type(holds: list[Held], book: PriceBook) -> list[dict[str, Any]]:
    products: dict[str, int] = defaultdict(int)
    held_us: dict[str, int] = defaultdict(int)
    for one in holds:
        products[one.accelerator_type] += book.product(one)
        held_us[one.accelerator_type] += one.gpu_hundredths * ((one.to_at - one.from_at) // _US)
    return [
        {"type": kind, "gpu_hours": round(held_us[kind] / (100 * HOUR_US), 6), "amount": str(amount(products[kind]))}
        for kind in sorted(products)
    ]


def _by_resource(holds: list[Held], book: PriceBook) -> dict[str, str]:
    products = dict.fromkeys(("gpu", "cpu", "memory"), 0)
    for one in holds:
        for resource, quantity in one.quantities():
            for part in book.charges(one.project_id, resource, one.accelerator_type, one.from_at, one.to_at):
                products[resource] += part.product(resource, quantity)
    return {resource: str(amount(product)) for resource, product in products.items()}


def _lost(job: Job, book: PriceBook, now: datetime) -> Decimal:
    """Occupied while it was saved and stopped, and while it was launched again; the first launch is not a restart."""
    gangs = gangs_of(job)
    changes = changes_of({gang.run_id for gang in gangs})
    lost = Decimal(0)
    for position, gang in enumerate(gangs):
        for part in split(gang.from_at, gang.to_at, changes.get((gang.run_id, gang.epoch), [])):
            if part["kind"] == "moving" or (part["kind"] == "launching" and position > 0):
                lost += product_of(book, [_held(job, gang, part["from_at"], part["to_at"] or now)])
    return lost


def _held(job: Job, gang: GangSpan, from_at: datetime, to_at: datetime) -> Held:
    nodes = len({node for node, _ in gang.gpus})
    return Held(
        project_id=job.project_id,
        user_id=job.owner_id,
        job_id=job.pk,
        run_id=gang.run_id,
        hold_id=0,
        accelerator_type=gang.type,
        from_at=from_at,
        to_at=max(from_at, to_at),
        gpu_hundredths=job.gpu_share_percent * gang.count,
        cpus=nodes * int(job.spec.get("cpus") or 0),
        memory_mib=nodes * int(job.spec.get("memory") or 0),
    )


def _until(described: dict[str, Any], end: str | None, per_us: int, now: datetime) -> str | None:
    """The cost if it ends at that time on its present GPUs."""
    if end is None or not described["allocation"]:
        return None
    ahead_us = max(0, (datetime.fromisoformat(end) - now) // _US)
    return str(Decimal(described["cost"]["so_far"]) + amount(per_us * ahead_us))


def _basis(job: Job, described: dict[str, Any]) -> str:
    assert job.run is not None
    throughput, allocation = described["throughput"], described["allocation"]
    speed = throughput["predicted_steps_per_s"] or throughput["steps_per_s"]
    if State(job.run.state) in TERMINAL:
        return "It has ended: this is what its GPUs cost until they were free, at their prices."
    if not allocation:
        return "It holds no GPUs now, so there is no speed to estimate from."
    words = gang_words(allocation["count"], allocation["type"], allocation["share_percent"])
    if not speed:
        return f"Nothing is known yet of its speed on {words}."
    left = max(0, job.total_steps - job.run.step)
    source = throughput["source"] or "measured"
    age = f", {throughput['age_s'] / 3600:.1f} h old" if throughput["age_s"] is not None else ""
    return (
        f"{left:,} steps left at {speed:.3g} steps/s ({source}{age}) on {words}, "
        "if it keeps them, at the prices of now."
    )
