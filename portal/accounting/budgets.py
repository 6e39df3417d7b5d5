"""Notifies people, once in a period, that a budget is nearly or completely used, and closes hard ones before they are
exceeded.

A notice is a row (`BudgetNotice`) and, if the budget belongs to a project, an event of kind `budget` in that project's
stream, with its figures. Mail and webhooks use either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from accounts import quotas
from accounts.models import BudgetNotice, Quota
from portal.accounting.quota_usage import Uses
from portal.core.money import CURRENCY
from portal.jobs import events
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import Run
from scheduling.lifecycle import HOLDING

#: Time from a written checkpoint until the processes are gone, and from a decision until its command is carried out.
_LEAVE_S = 5.0
#: The cost of stopping jobs is only computed if this fraction of a hard budget is used.
_NEAR_PERCENT = 50


def give_notices(now: datetime) -> None:
    """For all budgets that have reached 80 % or 100 % in their present period."""
    rows = Quota.objects.select_related("project", "user").exclude(kind__in=quotas.AT_ONCE)
    budgets = list(rows.filter(limit__gt=0))
    Loop(LoopName.BUDGETS).together(budgets, _of_quota, lambda some: _give_all(some, now))


def _of_quota(quota: Quota) -> Item:
    return Item(str(quota.pk), f"budget {quota.pk} of {quotas.level_of(quota)}")


def _give_all(budgets: Sequence[Quota], now: datetime) -> list[Quota]:
    uses, noticed = Uses.of(budgets, now), quotas.notices_of(now)
    used = {quota.pk: uses.used(quota) for quota in budgets}
    near = [quota for quota in budgets if quota.hard and used[quota.pk] * 100 >= quota.limit * _NEAR_PERCENT]
    full = _full_soon(near, now)
    for quota in budgets:
        for percent in quotas.NOTICES:
            soon = percent == quotas.FULL and full.get(quota.pk, False)
            if (soon or used[quota.pk] * 100 >= quota.limit * percent) and (quota.pk, percent) not in noticed:
                _give(quota, percent, used[quota.pk], now)
    return list(budgets)


def _full_soon(hard: list[Quota], now: datetime) -> Mapping[int, bool]:
    """Whether a budget is used up by the time jobs that are stopped now have written a checkpoint and left."""
    if not hard:
        return {}
    slowest_s = Run.objects.filter(state__in=[state.value for state in HOLDING]).aggregate(s=Max("checkpoint_s"))["s"]
    ahead_s = settings.EVENKEEL_ROUND_INTERVAL_S + (slowest_s or 0.0) + _LEAVE_S
    uses = Uses.of(hard, now, ahead_s=ahead_s)
    return {quota.pk: uses.used(quota) >= quota.limit for quota in hard}


@transaction.atomic
def _give(quota: Quota, percent: int, used: Fraction, now: datetime) -> None:
    start, end = quotas.period_of(quota.period, now)
    values = {"limit": quota.limit, "at": now}
    row, new = BudgetNotice.objects.select_for_update().get_or_create(
        quota=quota, period_start=start, percent=percent, defaults=values
    )
    if not new and row.limit >= quota.limit:
        return  # another process was faster
    if not new:
        row.limit, row.at = quota.limit, now
        row.save(update_fields=["limit", "at"])
    if quota.project is None:
        return  # on a user across projects: no project's events fit, they see it with their limits
    limit = quotas.shown(quota, quota.limit, CURRENCY)
    detail = {
        "percent": percent,
        "used": quotas.shown(quota, used, CURRENCY),
        "limit": limit,
        "period": quota.period,
        "quota": quota.pk,
        "kind": quota.kind,
        "hard": quota.hard,
        "ends_at": end.isoformat(),
    }
    events.append(kind="budget", project=quota.project, text=_text(quota, percent, used, end), at=now, detail=detail)


def _text(quota: Quota, percent: int, used: Fraction, end: datetime) -> str:
    limit, where = quotas.amount(quota, CURRENCY), f"on {quotas.level_of(quota)}"
    now = quotas.shown(quota, used, CURRENCY)
    text = f"{percent} % of the {limit} {where} are used: {now}."
    if used * 100 < quota.limit * percent:
        text = f"The {limit} {where} are used up by the time that running jobs can have left: {now} now."
    if percent == quotas.FULL and quota.hard:
        text += " Running jobs write a checkpoint and are suspended; those that cannot be checkpointed continue."
    elif percent == quotas.FULL:
        text += " Running jobs continue and do not grow; others wait."
    return f"{text} The {quota.period} ends {end:%Y-%m-%d %H:%M %Z}."
