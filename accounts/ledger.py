"""The ledger: what was occupied, when, at what price. Gets plain values, knows no jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet, Sum

from accounts import usage
from accounts.levels import Levels
from accounts.models import Discount, LedgerEntry, Rate, Resource
from accounts.pricing import WEIGHTS, WHOLE, Charge, Price, Reduction, charge, nearest_at

#: Advisory lock: shared for writing entries, exclusive for changing prices.
_PRICES = 7_203


@dataclass(frozen=True, slots=True)
class Held:
    """An interval of one occupancy: its share of a GPU, and the CPUs and memory billed with it."""

    project_id: int
    user_id: int | None
    job_id: UUID
    run_id: UUID
    hold_id: int
    accelerator_type: str
    from_at: datetime
    to_at: datetime
    gpu_hundredths: int = 100
    cpus: int = 0
    memory_mib: int = 0
    cluster: str = ""

    def quantities(self) -> Iterator[tuple[str, int]]:
        yield Resource.GPU.value, self.gpu_hundredths
        if self.cpus:
            yield Resource.CPU.value, self.cpus
        if self.memory_mib:
            yield Resource.MEMORY.value, self.memory_mib


class PriceBook:
    """Rates and discounts valid at some time since `since`: two queries, three with discounts, and none until a price
    is needed."""

    def __init__(self, since: datetime) -> None:
        self._still = Q(valid_to=None) | Q(valid_to__gt=since)
        self._known: dict[Any, list[Charge]] = {}

    @cached_property
    def _prices(self) -> dict[tuple[str, str, str], list[Price]]:
        prices: dict[tuple[str, str, str], list[Price]] = defaultdict(list)
        for rate in Rate.objects.filter(self._still):
            price = Price(rate.price_micro_per_hour, rate.valid_from, rate.valid_to)
            prices[rate.resource, rate.accelerator_type, rate.cluster].append(price)
        return prices

    @cached_property
    def _reductions(self) -> dict[int, list[Reduction]]:
        """By project."""
        reductions: dict[int, list[Reduction]] = defaultdict(list)
        for row in Discount.objects.filter(self._still):
            reduction = Reduction(WHOLE - row.percent_hundredths, row.valid_from, row.valid_to)
            reductions[row.project_id].append(reduction)
        return reductions

    @cached_property
    def _levels(self) -> Levels:
        return Levels.load() if self._reductions else Levels({})

    def charges(
        self,
        project_id: int,
        resource: str,
        accelerator_type: str,
        from_at: datetime,
        to_at: datetime,
        cluster: str = "",
    ) -> list[Charge]:
        """The interval at the project's prices; the GPUs of a gang share one answer."""
        key = (project_id, resource, accelerator_type, from_at, to_at, cluster)
        if key not in self._known:
            kind = accelerator_type if resource == Resource.GPU else ""
            levels = [self._reductions[p] for p in reversed(self._levels.chain(project_id)) if p in self._reductions]
            prices = self._prices.get((resource, kind, ""), [])
            own = self._prices.get((resource, kind, cluster), []) if cluster else []
            self._known[key] = charge(from_at, to_at, prices, levels, own)
        return self._known[key]

    def product(self, held: Held, from_at: datetime | None = None) -> int:
        """Cost of the interval, or of its part from a time on (see accounts.pricing)."""
        start = max(held.from_at, from_at) if from_at else held.from_at
        if start >= held.to_at:
            return 0
        return sum(
            one.product(resource, quantity)
            for resource, quantity in held.quantities()
            for one in self.charges(held.project_id, resource, held.accelerator_type, start, held.to_at, held.cluster)
        )

    def price_at(
        self, project_id: int, resource: str, accelerator_type: str, at: datetime, cluster: str = ""
    ) -> tuple[int, int]:
        """Micro-units per hour before discount, and the fraction left after it."""
        later = datetime.max.replace(tzinfo=at.tzinfo)
        one = self.charges(project_id, resource, accelerator_type, at, later, cluster)[0]
        return one.price_micro_per_hour, one.kept_hundredths

    def discount_at(self, project_id: int, at: datetime) -> tuple[int, int] | None:
        """(project with the discount, itself or one above, the fraction left); None without one."""
        chain = list(reversed(self._levels.chain(project_id)))
        nearest = nearest_at(at, [self._reductions.get(level, []) for level in chain])
        return (chain[nearest[0]], nearest[1]) if nearest and nearest[1] < WHOLE else None

    def product_per_us(
        self,
        project_id: int,
        accelerator_type: str,
        at: datetime,
        *,
        gpu_hundredths: int,
        cpus: int = 0,
        memory_mib: int = 0,
        cluster: str = "",
    ) -> int:
        """Cost of a gang per microsecond at the prices of `at`."""
        total = 0
        for resource, quantity in (("gpu", gpu_hundredths), ("cpu", cpus), ("memory", memory_mib)):
            price, kept = self.price_at(project_id, resource, accelerator_type, at, cluster)
            total += quantity * price * kept * WEIGHTS[resource]
        return total


def current_prices(now: datetime, cluster: str = "") -> dict[str, int]:
    """List price in micro-units per GPU-hour by accelerator type; a cluster's own prices precede the general ones."""
    rates = Rate.objects.filter(Q(valid_to=None) | Q(valid_to__gt=now), resource=Resource.GPU, valid_from__lte=now)
    rates = rates.filter(cluster__in={"", cluster}).order_by("cluster", "valid_from")  # the empty name sorts first
    return {r.accelerator_type: r.price_micro_per_hour for r in rates}


def lock_prices(*, exclusively: bool) -> None:
    """Until the transaction ends. A change of prices waits for entries that are being written at the old ones."""
    kind = "pg_advisory_xact_lock" if exclusively else "pg_advisory_xact_lock_shared"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {kind}(%s)", [_PRICES])


def record_holds(holds: Sequence[Held]) -> None:
    """Enter ended occupancy, and roll it up, in the caller's transaction. Repeated entries change nothing."""
    known = set(LedgerEntry.objects.filter(hold_id__in=[h.hold_id for h in holds]).values_list("hold_id", flat=True))
    new = [held for held in holds if held.hold_id not in known and held.from_at < held.to_at]
    if not new:
        return
    lock_prices(exclusively=False)
    book = PriceBook(min(held.from_at for held in new))
    entries = [entry for held in new for entry in _entries(book, held)]
    LedgerEntry.objects.bulk_create(entries)
    usage.roll_up(entries)


def _entries(book: PriceBook, held: Held) -> Iterator[LedgerEntry]:
    for resource, quantity in held.quantities():
        charges = book.charges(held.project_id, resource, held.accelerator_type, held.from_at, held.to_at, held.cluster)
        for one in charges:
            if resource == Resource.GPU or one.price_micro_per_hour:
                yield LedgerEntry(
                    project_id=held.project_id,
                    user_id=held.user_id,
                    job_id=held.job_id,
                    run_id=held.run_id,
                    hold_id=held.hold_id,
                    resource=resource,
                    accelerator_type=held.accelerator_type,
                    from_at=one.from_at,
                    to_at=one.to_at,
                    quantity=quantity,
                    held_us=one.held_us,
                    price_micro_per_hour=one.price_micro_per_hour,
                    kept_hundredths=one.kept_hundredths,
                )


def product_sum(entries: QuerySet[LedgerEntry]) -> Decimal:
    """Exact sum over entries, in products (see `pricing.amount`)."""
    return entries.aggregate(total=Sum("product"))["total"] or Decimal(0)


def products_by_job(job_ids: Sequence[UUID]) -> dict[UUID, Decimal]:
    """Entries by job: one query."""
    rows = LedgerEntry.objects.filter(job_id__in=job_ids).values("job_id").annotate(total=Sum("product"))
    return dict(rows.order_by("job_id").values_list("job_id", "total"))


def parts_now(book: PriceBook, holds: Iterable[Held]) -> list[usage.Part]:
    """The roll-up rows of open occupancy, as if it were entered now."""
    return [part for held in holds for entry in _entries(book, held) for part in usage.parts_of(entry)]
