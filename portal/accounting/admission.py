"""Whether limits let a new job in. Race-free: submissions that count towards the same limit lock the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from accounts.models import Project, Quota, User
from accounts.quotas import (
    AT_ONCE,
    QuotaExceeded,
    binding,
    closed_budgets,
    least,
    refusal,
    shortage,
    spent_sentence,
)
from portal.accounting.quota_usage import Uses
from portal.core.money import CURRENCY


@dataclass(frozen=True, slots=True)
class Asked:
    """What limits count for a new job, or for each of `count` jobs of an array."""

    min_gpus: int
    types: Sequence[str]
    count: int = 1


def admit(
    *,
    user: User,
    project: Project,
    min_gpus: int,
    types: Sequence[str],
    count: int = 1,
    moved_from: Project | None = None,
) -> None:
    """Raises QuotaExceeded with every limit that refuses the job, or all `count` of an array; called in the transaction
    that stores them.

    Hard limits on concurrent use are locked in the order of their ids until that transaction ends, so that each
    submission counts the previous ones; without such a limit nothing is locked.
    """
    already = set(binding(moved_from, user).values_list("pk", flat=True)) if moved_from else set()
    rows = [row for row in binding(project, user) if row.pk not in already]  # those count a moved job as it is
    at_once = [row.pk for row in rows if row.hard and row.kind in AT_ONCE]
    if at_once:
        locked = Quota.objects.select_for_update(no_key=True).filter(pk__in=at_once).order_by("pk")
        fresh = {row.pk: row for row in locked}
        for row in rows:
            if row.pk in fresh:
                row.limit, row.hard = fresh[row.pk].limit, fresh[row.pk].hard
    counted = [row for row in rows if row.hard or row.kind == Quota.Kind.GPUS]
    if refused := _refusals(counted, Asked(min_gpus, types, count)):
        raise QuotaExceeded(refused)


def foresee(*, user: User, project: Project, asked: Asked) -> tuple[list[str], list[str]]:
    """What `admit` would refuse now, and what soft limits lack that the job would wait for; nothing is locked."""
    rows, now = list(binding(project, user)), timezone.now()
    if not rows:
        return [], []
    uses, closed = _uses(rows, now)
    refused = [text for row in rows if (text := _refusal(row, uses, closed, asked))]
    lacking = [text for row in rows if not row.hard and (text := _shortage(row, uses, asked))]
    return refused, lacking


def _refusals(rows: list[Quota], asked: Asked) -> list[tuple[str, str]]:
    """(field of the job file, sentence)"""
    if not rows:
        return []
    uses, closed = _uses(rows, timezone.now())
    texts = ((row, _refusal(row, uses, closed, asked)) for row in rows)
    return [("gpus.min" if row.kind == Quota.Kind.GPUS else "project", text) for row, text in texts if text]


def _uses(rows: list[Quota], now: datetime) -> tuple[Uses, set[int]]:
    """The use of each limit, and which budgets are used up."""
    closed = closed_budgets(now) if any(row.kind not in AT_ONCE for row in rows) else set()
    return Uses.of(rows, now, _jobs_of(rows)), closed


def _refusal(row: Quota, uses: Uses, closed: set[int], asked: Asked) -> str | None:
    shut, used = row.pk in closed, uses.used(row)
    return refusal(
        row, used, min_gpus=asked.min_gpus, types=asked.types, count=asked.count, currency=CURRENCY, closed=shut
    )


def _shortage(row: Quota, uses: Uses, asked: Asked) -> str | None:
    """Of a soft limit. A budget's own text says until when."""
    needs = least(row, asked.min_gpus, asked.types) if row.kind == Quota.Kind.GPUS else 0
    if needs > row.limit:  # that refuses it
        return None
    used = uses.used(row)
    if row.kind in AT_ONCE:
        return shortage(row, used, needs=needs, currency=CURRENCY, count=asked.count)
    return spent_sentence(row, used, uses.now, CURRENCY)


def _jobs_of(rows: list[Quota]) -> Q:
    """Jobs that could count towards any of the limits."""
    condition = Q(pk__in=[])
    for row in rows:
        inside = Q(project__ancestry__contains=[row.project_id]) if row.project_id else Q()
        condition |= inside & Q(owner=row.user_id) if row.user_id else inside
    return condition
