"""Tells people, once in a period, that a money limit is nearly or wholly used."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts import quotas
from accounts.models import BudgetNotice, Quota
from portal.jobs import events
from portal.jobs.holding import CURRENCY
from portal.jobs.quota_use import Uses


def give_notices(now: datetime) -> None:
    """Events of the projects whose money limits of this period have reached 80 % or 100 %.

    A limit on a user everywhere sits on no project, so nobody's events are the place for it: the user reads it with
    their quotas.
    """
    rows = Quota.objects.select_related("project", "user").filter(kind=Quota.Kind.MONEY, project__isnull=False)
    limits = list(rows.filter(limit__gt=0))
    if not limits:
        return
    uses = Uses.of(limits, now)
    for quota in limits:
        used = uses.used(quota)
        for percent in quotas.NOTICES:
            if used * 100 >= quota.limit * percent:
                _give(quota, percent, quotas.shown(quota, used, CURRENCY), now)


@transaction.atomic
def _give(quota: Quota, percent: int, used: str, now: datetime) -> None:
    start, end = quotas.period_of(quota.period, now)
    _, new = BudgetNotice.objects.get_or_create(quota=quota, period_start=start, percent=percent, defaults={"at": now})
    if new:
        limit = quotas.shown(quota, quota.limit, CURRENCY)
        text = (
            f"{percent} % of the {limit} {quotas.name_of(quota)} on {quotas.level_of(quota)} are used: {used}. "
            f"The {quota.period} ends {end:%Y-%m-%d %H:%M %Z}."
        )
        detail = {"percent": percent, "used": used, "limit": limit, "period": quota.period}
        events.append(kind="budget", project=quota.project, text=text, at=now, detail=detail)
