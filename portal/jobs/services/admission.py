"""Whether limits let a new job in. Race-free: who would be counted together waits for the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q
from django.utils import timezone

from accounts.models import Project, Quota, User
from accounts.quotas import AT_ONCE, QuotaExceeded, binding, closed_budgets, refusal
from portal.jobs.holding import CURRENCY
from portal.jobs.quota_use import Uses


def admit(
    *,
    user: User,
    project: Project,
    min_gpus: int,
    types: Sequence[str],
    count: int = 1,
    moved_from: Project | None = None,
) -> None:
    """Raises QuotaExceeded with every limit that refuses the job, or all `count` of an array; to be called in the
    transaction that stores them.

    Hard limits on what there is at once are locked in the order of their ids until that transaction ends, so that
    each submission counts those before it; without such a limit nothing is locked.
    """
    already = set(binding(moved_from, user).values_list("pk", flat=True)) if moved_from else set()
    rows = [row for row in binding(project, user) if row.pk not in already]  # those count a job that moves as it is
    at_once = [row.pk for row in rows if row.hard and row.kind in AT_ONCE]
    if at_once:
        locked = Quota.objects.select_for_update(no_key=True).filter(pk__in=at_once).order_by("pk")
        fresh = {row.pk: row for row in locked}
        for row in rows:
            if row.pk in fresh:
                row.limit, row.hard = fresh[row.pk].limit, fresh[row.pk].hard
    counted = [row for row in rows if row.hard or row.kind == Quota.Kind.GPUS]
    if not counted:
        return
    now = timezone.now()
    uses = Uses.of(counted, now, _jobs_of(counted))
    closed = closed_budgets(now) if any(row.kind not in AT_ONCE for row in counted) else set()
    refusals = []
    for row in counted:
        shut, used = row.pk in closed, uses.used(row)
        text = refusal(row, used, min_gpus=min_gpus, types=types, count=count, currency=CURRENCY, closed=shut)
        if text:
            refusals.append(("gpus.min" if row.kind == Quota.Kind.GPUS else "project", text))
    if refusals:
        raise QuotaExceeded(refusals)


def _jobs_of(rows: list[Quota]) -> Q:
    """Jobs that could count towards any of the limits."""
    condition = Q(pk__in=[])
    for row in rows:
        inside = Q(project__ancestry__contains=[row.project_id]) if row.project_id else Q()
        condition |= inside & Q(owner=row.user_id) if row.user_id else inside
    return condition
