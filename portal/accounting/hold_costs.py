"""Occupancy for the ledger: with the CPUs and memory of the job file, once for each node of a launch."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from accounts.ledger import Held, PriceBook
from portal.jobs.models import Hold


def held(holds: QuerySet[Hold], until: datetime) -> list[Held]:
    """Each occupancy as a value, up to its end or, if it is open, up to `until`: one query.

    A launch's CPUs and memory belong to its first row on each node, so that they are billed once.
    """
    asked = {name: KeyTextTransform(name, "run__job__spec") for name in ("cpus", "memory")}
    rows = holds.annotate(**asked).order_by("pk")
    columns = ("pk", "run_id", "epoch", "during", "share_percent", "accelerator__node_id", "cpus", "memory")
    further = (
        "run__job__cluster__name",
        "accelerator__node__accelerator_type",
        "run__job_id",
        "run__job__project_id",
        "run__job__owner_id",
    )
    found, carried = [], set[Any]()
    for row in rows.values(*columns, *further):
        node = (row["run_id"], row["epoch"], row["accelerator__node_id"])
        first = node not in carried
        carried.add(node)
        start = row["during"].lower
        found.append(
            Held(
                project_id=row["run__job__project_id"],
                user_id=row["run__job__owner_id"],
                job_id=row["run__job_id"],
                run_id=row["run_id"],
                hold_id=row["pk"],
                accelerator_type=row["accelerator__node__accelerator_type"],
                from_at=start,
                to_at=max(start, row["during"].upper or until),
                gpu_hundredths=row["share_percent"],
                cpus=int(row["cpus"] or 0) if first else 0,
                memory_mib=int(row["memory"] or 0) if first else 0,
                cluster=row["run__job__cluster__name"],
            )
        )
    return found


def open_holds(holds: QuerySet[Hold] | None = None) -> QuerySet[Hold]:
    return (Hold.objects.all() if holds is None else holds).filter(during__upper_inf=True)


def book_for(holds: Iterable[Held], now: datetime) -> PriceBook:
    """The prices that apply to the occupancy, and the present ones."""
    return PriceBook(min((one.from_at for one in holds), default=now))


def product_of(book: PriceBook, holds: Iterable[Held], from_at: datetime | None = None) -> Decimal:
    """Cost of the occupancy, in total or from a time on (see accounts.pricing)."""
    return Decimal(sum(book.product(one, from_at) for one in holds))
