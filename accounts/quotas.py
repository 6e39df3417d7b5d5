"""Limits of projects and people: which limits apply to whom, and their use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from django.db.models import Func, Min, Q, QuerySet
from django.utils import timezone

from accounts.levels import Levels
from accounts.models import BudgetNotice, Project, Quota, User
from accounts.pricing import PRODUCTS_PER_UNIT, midnight
from accounts.tree import ids_above

Kind = Quota.Kind
#: Stored units of a limit per displayed unit: GPU-seconds, and millionths of the currency.
SCALE: Mapping[str, int] = {Kind.GPU_HOURS: 3_600, Kind.MONEY: 10**6}
#: Limits on jobs or GPUs at one moment rather than on use over a period.
AT_ONCE = (Kind.GPUS, Kind.RUNNING_JOBS, Kind.QUEUED_JOBS)
#: Percentages of a budget at which people are notified; the last closes it.
FULL = 100
NOTICES = (80, FULL)
_PLURAL = re.compile(r"\b(GPU|job|GPU-hour)s\b")


@dataclass(frozen=True, slots=True)
class LiveJob:
    """An unfinished job as quotas count it, or several that count alike."""

    project_id: int
    user_id: int | None
    waiting: bool
    min_gpus: int
    types: tuple[str, ...] = ()
    #: GPUs by accelerator type.
    held: Mapping[str, int] = field(default_factory=dict)
    count: int = 1


#: (project, user) -> microseconds of hundredths of a GPU, and products (see accounts.pricing).
Spending = Mapping[tuple[int, int | None], tuple[int, Decimal]]


class QuotaExceeded(Exception):
    """Hard limits refuse a submission; each refusal is (field of the job file, sentence)."""

    def __init__(self, refusals: Sequence[tuple[str, str]]) -> None:
        super().__init__(" ".join(text for _, text in refusals))
        self.refusals = list(refusals)


def binding(project: Project, user: User) -> QuerySet[Quota]:
    """Every limit that applies to the user's jobs in the project, of all levels, outermost project first."""
    above = Q(project__in=ids_above(project))
    rows = Quota.objects.filter((above & (Q(user=None) | Q(user=user))) | Q(project=None, user=user))
    return rows.select_related("project", "user").order_by("project__ancestry__len", "pk")


def budgets(projects: QuerySet[Project], user: User) -> QuerySet[Quota]:
    """Limits of a period that apply to the user's jobs in any of these projects, including those on projects above."""
    levels = projects.order_by().values_list(Func("ancestry", function="unnest"), flat=True)
    there = Q(project__in=levels) & (Q(user=None) | Q(user=user))
    rows = Quota.objects.filter(there | Q(project=None, user=user)).exclude(period="")
    return rows.select_related("project", "user")


def period_of(period: str, now: datetime) -> tuple[datetime, datetime]:
    """The calendar day, week (from Monday) or month of the site's time zone that `now` lies in."""
    zone = timezone.get_default_timezone()
    day = now.astimezone(zone).date()
    if period == Quota.Period.DAY:
        first, after = day, day + timedelta(days=1)
    elif period == Quota.Period.WEEK:
        first = day - timedelta(days=day.weekday())
        after = first + timedelta(days=7)
    else:
        first = day.replace(day=1)
        after = (first + timedelta(days=32)).replace(day=1)
    return midnight(first, zone), midnight(after, zone)


def counts(quota: Quota, levels: Levels, project_id: int, user_id: int | None) -> bool:
    """Whether jobs of that project and user count towards the limit."""
    if quota.user_id is not None and quota.user_id != user_id:
        return False
    return quota.project_id is None or quota.project_id in levels.chain(project_id)


def used(quota: Quota, levels: Levels, jobs: Iterable[LiveJob], spending: Spending) -> Fraction:
    """Present use, in the limit's unit. A hard limit counts admitted jobs, a soft one running ones."""
    if quota.kind in AT_ONCE:
        mine = (job for job in jobs if counts(quota, levels, job.project_id, job.user_id))
        return Fraction(sum(takes(quota, job) * job.count for job in mine))
    rows = [row for (project, user), row in spending.items() if counts(quota, levels, project, user)]
    if quota.kind == Kind.GPU_HOURS:
        return Fraction(sum(gpu for gpu, _ in rows), 100 * 10**6)
    return Fraction(sum((money for _, money in rows), Decimal(0))) * 10**6 / Fraction(PRODUCTS_PER_UNIT)


def takes(quota: Quota, job: LiveJob) -> int:
    """How much of a concurrent limit one such job uses."""
    if quota.kind == Kind.QUEUED_JOBS:
        return int(job.waiting)
    if quota.kind == Kind.RUNNING_JOBS:
        return int(quota.hard or not job.waiting)
    kind = quota.accelerator_type
    held = job.held.get(kind, 0) if kind else sum(job.held.values())
    return max(held, least(quota, job.min_gpus, job.types)) if quota.hard else held


def least(quota: Quota, min_gpus: int, types: Sequence[str]) -> int:
    """The least GPUs of the limit's type that a job needs; one that may use another type needs none of it."""
    return min_gpus if not quota.accelerator_type or set(types) == {quota.accelerator_type} else 0


def name_of(quota: Quota) -> str:
    if quota.kind == Kind.GPUS:
        return f"{quota.accelerator_type} GPUs at once" if quota.accelerator_type else "GPUs at once"
    label = str(Kind(quota.kind).label)
    return f"{label} per {quota.period}" if quota.period else label


def level_of(quota: Quota) -> str:
    user = f"user {quota.user}" if quota.user else ""
    project = f"project {quota.project}" if quota.project else ""
    return " in ".join(part for part in (user, project) if part)


def shown(quota: Quota, value: int | Fraction, currency: str = "") -> str:
    """A limit or a use for display; use is rounded down, so that it never appears larger than it is."""
    scale = SCALE.get(quota.kind, 1)
    if scale == 1:
        return f"{int(value):,}"
    exact = Fraction(value) / scale
    if quota.kind == Kind.GPU_HOURS:
        return f"{_down(exact, 5 if exact < 1 else 2):,}".rstrip("0").rstrip(".")
    return f"{_down(exact, _places(quota.limit)):,} {currency}".strip()


def _places(limit_micro: int) -> int:
    """Decimals of a limit of money, at least cents: its use is shown with as many."""
    exponent = Decimal(limit_micro).scaleb(-6).normalize().as_tuple().exponent
    return max(2, -exponent) if isinstance(exponent, int) else 2


def _down(value: Fraction, places: int) -> Decimal:
    return Decimal(int(value * 10**places)).scaleb(-places)


def amount(quota: Quota, currency: str = "") -> str:
    """The limit with its unit: `8 GPUs at once`, `1 running job`, `25.00 USD per month`."""
    text = shown(quota, quota.limit, currency)
    if quota.kind == Kind.MONEY:
        return f"{text} per {quota.period}"
    name = name_of(quota)
    one = _PLURAL.sub(r"\1", name, count=1)
    return f"{text} {one if text == '1' else name}"


def refusal(
    quota: Quota,
    present: Fraction,
    *,
    min_gpus: int,
    types: Sequence[str],
    currency: str,
    count: int = 1,
    closed: bool = False,
) -> str | None:
    """The sentence with which the limit refuses a new job, or several of the kind at once, if it does. `closed`: as for
    `spent_sentence`."""
    needs = least(quota, min_gpus, types) if quota.kind == Kind.GPUS else 0
    if needs > quota.limit:
        where, limit, now = level_of(quota), amount(quota, currency), shown(quota, present, currency)
        return f"The limit of {limit} on {where} ({now} in use) can never hold this job, which needs {needs}."
    if not quota.hard:
        return None
    return shortage(quota, present, needs=needs, currency=currency, count=count, closed=closed)


def shortage(
    quota: Quota, present: Fraction, *, needs: int, currency: str, count: int = 1, closed: bool = False
) -> str | None:
    """What the limit lacks for a new job, or several at once; for a soft one, for which they wait. `needs`: GPUs that
    it counts of one."""
    where, limit, now = level_of(quota), amount(quota, currency), shown(quota, present, currency)
    if quota.kind == Kind.GPUS:
        if needs and present + count * needs > quota.limit:
            who = f"these {count:,} jobs need {count * needs:,}" if count > 1 else f"this job needs {needs}"
            return f"The limit of {limit} on {where} has {now} in use, and {who} more."
        return None
    if count > 1 and quota.kind in AT_ONCE and present < quota.limit < present + count:
        return f"The limit of {limit} on {where} has {now} in use, and these are {count:,} jobs more."
    if present < quota.limit and not closed:
        return None
    if quota.kind in AT_ONCE:
        more = f"these are {count:,} more" if count > 1 else "this is one more"
        return f"The limit of {limit} on {where} is reached: {now} in use, and {more}."
    said = _spent(quota, present, currency)
    who = "these jobs use" if count > 1 else "this job uses"
    return f"{said} What {who} would come on top: wait for the {quota.period}'s end, or have the limit raised."


def _spent(quota: Quota, present: Fraction, currency: str) -> str:
    """Use of a period's limit that is reached now, or by the time that jobs have left."""
    limit, now = f"The limit of {amount(quota, currency)} on {level_of(quota)}", shown(quota, present, currency)
    if present < quota.limit:
        return f"{limit} counts as reached: {now} used, the rest is kept for jobs to write a checkpoint and leave."
    over = present - quota.limit
    more = f", {shown(quota, over, currency)} more than it" if shown(quota, over) != shown(quota, 0) else ""
    return f"{limit} is reached: {now} used{more}."


def spent_sentence(
    quota: Quota, present: Fraction, now: datetime, currency: str, *, closed: bool = False
) -> str | None:
    """Why jobs wait for a period's end; None while the limit is not reached. `closed`: it would have been reached by
    jobs that were suspended meanwhile."""
    if quota.kind in AT_ONCE or (present < quota.limit and not closed):
        return None
    _, end = period_of(quota.period, now)
    starts = f"It starts when the {quota.period} ends, {end:%Y-%m-%d %H:%M %Z}, or when the limit is raised."
    return f"{_spent(quota, present, currency)} {starts}"


def closed_budgets(now: datetime) -> set[int]:
    """Budgets that are used up in the present periods, at least by the time that suspended jobs have left."""
    return {quota for quota, percent in notices_of(now) if percent == FULL}


def notices_of(now: datetime) -> dict[tuple[int, int], BudgetNotice]:
    """(budget, percent) -> the notice of the present periods, unless the budget was raised since."""
    starts = {period: period_of(period, now)[0] for period in Quota.Period.values}
    rows = BudgetNotice.objects.filter(period_start__in=set(starts.values())).select_related("quota")
    return {
        (row.quota_id, row.percent): row
        for row in rows
        if row.period_start == starts[row.quota.period] and row.limit >= row.quota.limit
    }


def gpu_limits() -> dict[int, int]:
    """Concurrent GPUs by project id, for projects with their own limit."""
    own = Quota.objects.filter(kind=Kind.GPUS, accelerator_type="", user=None, project__isnull=False)
    return {project: limit for project, limit in own.values_list("project_id", "limit") if project is not None}


def month_budgets_micro(project_ids: Iterable[int]) -> dict[int, int]:
    """Monthly budget by project id, for projects with their own limit."""
    own = Quota.objects.filter(
        kind=Kind.MONEY, period=Quota.Period.MONTH, user=None, project__in=list(project_ids)
    ).values_list("project_id", "limit")
    return {project: limit for project, limit in own if project is not None}


def month_budget_micro() -> int | None:
    """Monthly budget of all projects together; None while one at the top has no limit."""
    whole = Q(quotas__kind=Kind.MONEY, quotas__period=Quota.Period.MONTH, quotas__user=None)
    tops = Project.objects.filter(parent=None, archived_at=None).annotate(budget=Min("quotas__limit", filter=whole))
    budgets = list(tops.values_list("budget", flat=True))
    return sum(budgets) if budgets and None not in budgets else None
