"""Limits and their present use: for the scheduler's snapshot, for people, and for budget notices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from django.db.models import Count, Q
from django.utils import timezone

from accounts import quotas, usage
from accounts.ledger import PriceBook
from accounts.levels import Levels
from accounts.models import Quota
from accounts.quotas import AT_ONCE, LiveJob, Spending
from portal.accounting.hold_costs import held, open_holds
from portal.core.money import CURRENCY
from portal.jobs.access import in_states
from portal.jobs.models import Assignment, Cluster, Job, Qos
from scheduling import domain
from scheduling.lifecycle import LIVE, WAITING


def live_jobs(condition: Q | None = None) -> list[LiveJob]:
    """Every job that has not ended, as quotas count it; waiting ones are counted in the database."""
    planned: dict[object, dict[str, int]] = defaultdict(dict)
    rows = Assignment.objects.filter(during__upper_inf=True).values_list(
        "run_id", "accelerator__node__accelerator_type"
    )
    for run, kind, count in rows.annotate(count=Count("pk")):
        planned[run][kind] = count
    jobs = Job.objects.filter(condition or Q()).order_by()
    alike = ("project_id", "owner_id", "min_gpus", "accelerator_types")
    waiting = jobs.filter(in_states(WAITING)).values_list(*alike).annotate(count=Count("pk"))
    others = jobs.filter(in_states(LIVE - WAITING)).values_list(*alike, "run_id")
    return [
        LiveJob(project, owner, waiting=True, min_gpus=least, types=tuple(types), count=count)
        for project, owner, least, types, count in waiting
    ] + [
        LiveJob(project, owner, waiting=False, min_gpus=least, types=tuple(types), held=planned.get(run, {}))
        for project, owner, least, types, run in others
    ]


def spending(periods: Iterable[str], now: datetime, ahead_s: float = 0.0) -> dict[str, Spending]:
    """period -> what each user used in each project since it began: the roll-up, and the present occupancy.

    `ahead_s`: including its use until that much later.
    """
    wanted = sorted(set(periods))
    if not wanted:
        return {}
    holds = held(open_holds(), now + timedelta(seconds=ahead_s))
    starts = {period: quotas.period_of(period, now)[0] for period in wanted}
    book = PriceBook(min(starts.values()))
    found: dict[str, Spending] = {}
    for period, start in starts.items():
        sums: dict[tuple[int, int | None], tuple[int, Decimal]] = dict(usage.totals_since(start.date()))
        for one in holds:
            key = (one.project_id, one.user_id)
            gpu, money = sums.get(key, (0, Decimal(0)))
            delta = one.to_at - max(one.from_at, start)
            held_us = max(0, (delta.days * 86_400 + delta.seconds) * 10**6 + delta.microseconds)
            sums[key] = (gpu + held_us * one.gpu_hundredths, money + book.product(one, start))
        found[period] = sums
    return found


@dataclass(frozen=True)
class Uses:
    """Data needed for the use of any of some limits, fetched once."""

    now: datetime
    levels: Levels
    jobs: Sequence[LiveJob]
    spending: Mapping[str, Spending]

    @classmethod
    def of(cls, rows: Iterable[Quota], now: datetime, condition: Q | None = None, ahead_s: float = 0.0) -> Uses:
        rows = list(rows)
        at_once = any(row.kind in AT_ONCE for row in rows)
        return cls(
            now=now,
            levels=Levels.load(),
            jobs=live_jobs(condition) if at_once else [],
            spending=spending((row.period for row in rows if row.period), now, ahead_s),
        )

    def used(self, quota: Quota) -> Fraction:
        return quotas.used(quota, self.levels, self.jobs, self.spending.get(quota.period, {}))


def limits_of(
    jobs: Sequence[Job], cluster: Cluster, now: datetime
) -> tuple[dict[str, domain.Limit], dict[object, tuple[str, ...]]]:
    """The limits of a snapshot, and which of them apply to each job, outermost level first. Use on other clusters is
    subtracted."""
    levels, of_level = _limits_of_qos_and_arrays(jobs, cluster)
    rows = list(Quota.objects.select_related("project", "user").order_by("project__ancestry__len", "pk"))
    if not rows:
        return levels, of_level
    periods = [row for row in rows if row.period]
    uses = Uses(now, Levels.load(), _elsewhere(cluster), spending((row.period for row in periods), now))
    closed = quotas.closed_budgets(now) if periods else set()
    limits = dict(levels)
    kept: list[tuple[str, Quota]] = []
    for row in rows:
        limit = _limit(row, uses, closed)
        if limit is not None:
            limits[f"quota-{row.pk}"] = limit
            kept.append((f"quota-{row.pk}", row))
    known: dict[tuple[int, int | None], tuple[str, ...]] = {}
    for job in jobs:
        who = (job.project_id, job.owner_id)
        if who not in known:
            known[who] = tuple(key for key, row in kept if quotas.counts(row, uses.levels, *who))
    return limits, {job.pk: known[job.project_id, job.owner_id] + of_level.get(job.pk, ()) for job in jobs}


def _elsewhere(cluster: Cluster) -> list[LiveJob]:
    """Jobs of other clusters that have not ended."""
    return live_jobs(~Q(cluster=cluster)) if Cluster.objects.exclude(pk=cluster.pk).exists() else []


def _limits_of_qos_and_arrays(
    jobs: Sequence[Job], cluster: Cluster
) -> tuple[dict[str, domain.Limit], dict[object, tuple[str, ...]]]:
    """Limits of QoS and of arrays."""
    limits, bound = limits_of_levels(jobs, cluster)
    for job in jobs:
        if job.array is not None and job.array.max_running is not None:
            key = f"array-{job.array.pk}"
            limits[key] = domain.Limit("running_jobs", job.array.max_running, level=f"array {job.array}")
            bound[job.pk] = (*bound.get(job.pk, ()), key)
    return limits, bound


def limits_of_levels(
    jobs: Sequence[Job], cluster: Cluster
) -> tuple[dict[str, domain.Limit], dict[object, tuple[str, ...]]]:
    """Limits of QoS, in total and by user, and which of them apply to each job."""
    limits: dict[str, domain.Limit] = {}
    bound: dict[object, tuple[str, ...]] = {}
    known: dict[tuple[int, int | None], tuple[str, ...]] = {}
    elsewhere = _of_levels_elsewhere(cluster)
    for job in jobs:
        if job.qos is None:
            continue
        who = (job.qos.pk, job.owner_id)
        if who not in known:
            found = _limits_of_level(job.qos, job.owner_id, elsewhere)
            limits |= found
            known[who] = tuple(found)
        bound[job.pk] = known[who]
    return limits, bound


def _of_levels_elsewhere(cluster: Cluster) -> list[tuple[int, int | None, int]]:
    """(QoS, user, GPUs) of each job on other clusters."""
    if not Cluster.objects.exclude(pk=cluster.pk).exists():
        return []
    rows = Assignment.objects.filter(during__upper_inf=True, run__job__qos__isnull=False).order_by()
    rows = rows.exclude(run__job__cluster=cluster)
    by_job = rows.values_list("run", "run__job__qos", "run__job__owner").annotate(count=Count("pk"))
    return [(qos, owner, count) for _, qos, owner, count in by_job]


def _limits_of_level(
    qos: Qos, user_id: int | None, elsewhere: Sequence[tuple[int, int | None, int]]
) -> dict[str, domain.Limit]:
    """`QOSGrpGRES`, `QOSGrpJobs`, `QOSMaxGRESPerUser` and `QOSMaxJobsPerUser` in Slurm's words."""
    there = [(owner, count) for level, owner, count in elsewhere if level == qos.pk]
    own = [count for owner, count in there if owner == user_id]
    gpus, own_gpus = sum(count for _, count in there), sum(own)
    parts: list[tuple[str, Literal["gpus", "running_jobs"], int | None, str, int]] = [
        ("gpus", "gpus", qos.max_gpus, f"level {qos.name}", gpus),
        ("jobs", "running_jobs", qos.max_running_jobs, f"level {qos.name}", len(there)),
        (f"gpus-{user_id}", "gpus", qos.max_gpus_per_user, f"each user of level {qos.name}", own_gpus),
        (f"jobs-{user_id}", "running_jobs", qos.max_running_jobs_per_user, f"each user of level {qos.name}", len(own)),
    ]
    return {
        f"qos-{qos.pk}-{key}": _less(kind, most, None, level, used)
        for key, kind, most, level, used in parts
        if most is not None
    }


def _less(
    kind: Literal["gpus", "running_jobs"], most: int, accelerator_type: str | None, level: str, used: int
) -> domain.Limit:
    """`used` on other clusters is not available here."""
    said = f"{level} (without the {used} on other clusters)" if used else level
    return domain.Limit(kind, max(0, most - used), accelerator_type, said)


def _limit(quota: Quota, uses: Uses, closed: Container[int]) -> domain.Limit | None:
    """A period's limit restricts the scheduler only once it is reached; before, it does not affect plans."""
    level = quotas.level_of(quota)
    match quota.kind:
        case Quota.Kind.GPUS:
            return _less("gpus", quota.limit, quota.accelerator_type or None, level, int(uses.used(quota)))
        case Quota.Kind.RUNNING_JOBS:
            return _less("running_jobs", quota.limit, None, level, int(uses.used(quota)))
        case Quota.Kind.QUEUED_JOBS:
            return domain.Limit("queued_jobs", quota.limit, level=level)
    full = quota.hard and quota.pk in closed
    text = quotas.spent_sentence(quota, uses.used(quota), uses.now, CURRENCY, closed=full)
    if text is None:
        return None
    end = quotas.period_of(quota.period, uses.now)[1].timestamp()
    return domain.Limit("spent", level=level, text=text, parks=quota.hard, until=end)


def ends_at(quota: Quota, now: datetime) -> datetime | None:
    return quotas.period_of(quota.period, now)[1].astimezone(timezone.get_default_timezone()) if quota.period else None
