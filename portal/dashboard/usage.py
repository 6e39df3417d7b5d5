"""Usage as people read it: who used how much, with what is held now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from accounts import usage
from accounts.ledger import parts_now
from accounts.levels import Levels
from accounts.models import Project, User
from accounts.pricing import HOUR_US, amount
from accounts.usage import Question, Row
from portal.jobs.holding import book_for, held, open_holds
from portal.jobs.models import Hold, Job


def usage_rows(question: Question, now: datetime, *, offset: int, limit: int) -> list[dict[str, Any]]:
    """A page of groups; a project's row is that of its subtree."""
    holds = held(open_holds(Hold.objects.filter(run__job__project__in=question.project_ids)), now)
    parts = usage.grouped(parts_now(book_for(holds, now), holds))
    if question.group_by == "project":
        rows = _subtrees(question, usage.report(question, parts))[offset : offset + limit]
    else:
        rows = usage.report(question, parts, offset=offset, limit=limit)
    names = _names(question, [row.key for row in rows])
    return [_describe(row, *names.get(row.key, (row.key, row.key))) for row in rows]


def _subtrees(question: Question, own: Iterable[Row]) -> list[Row]:
    levels, rows = Levels.load(), {int(row.key): row for row in own}
    found = []
    for project in question.project_ids:
        below = [rows[one] for one in levels.under(project) if one in rows]
        if below:
            found.append(_sum(str(project), below))
    return sorted(found, key=lambda row: (-row.product, int(row.key)))


def _sum(key: str, rows: list[Row]) -> Row:
    held_us: dict[str, int] = {}
    for row in rows:
        for kind, value in row.gpu_us_hundredths.items():
            held_us[kind] = held_us.get(kind, 0) + value
    product = sum((row.product for row in rows), Decimal(0))
    return replace(rows[0], key=key, jobs=sum(row.jobs for row in rows), product=product, gpu_us_hundredths=held_us)


def _names(question: Question, keys: list[str]) -> Mapping[str, tuple[str, str]]:
    """Key in the database -> (key, label) for people."""
    match question.group_by:
        case "project":
            rows = Project.objects.filter(pk__in=keys).values_list("pk", "key", "name")
            return {str(pk): (key, name) for pk, key, name in rows}
        case "user":
            users = User.objects.filter(pk__in=[key for key in keys if key])
            return {str(user.pk): (user.email, str(user)) for user in users} | {"": ("", "nobody any more")}
        case "job":
            jobs = Job.objects.filter(pk__in=[UUID(key) for key in keys]).values_list("pk", "number", "name")
            return {str(pk): (str(number), name) for pk, number, name in jobs}
    return {}


def _describe(row: Row, key: str, label: str) -> dict[str, Any]:
    hours = {kind: value / (100 * HOUR_US) for kind, value in sorted(row.gpu_us_hundredths.items())}
    return {
        "key": key,
        "label": label,
        "jobs": row.jobs,
        "gpu_hours": round(sum(hours.values()), 6),
        "by_type": [{"type": kind, "gpu_hours": round(value, 6)} for kind, value in hours.items()],
        "cost": str(amount(row.product)),
    }
