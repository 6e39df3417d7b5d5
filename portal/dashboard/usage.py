"""Usage for display, including present occupancy."""

from __future__ import annotations

from collections import Counter
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
from portal.accounting.hold_costs import book_for, held, open_holds
from portal.jobs.models import Hold, Job, Node


def usage_rows(question: Question, now: datetime, *, offset: int, limit: int) -> list[dict[str, Any]]:
    """A page of groups; a project's row includes its subtree."""
    parts = _held_now(question, now)
    if question.group_by == "project":
        rows = _subtrees(question, usage.report(question, parts))[offset : offset + limit]
    else:
        rows = usage.report(question, parts, offset=offset, limit=limit)
    names = _names(question, [row.key for row in rows])
    virtual = emulated_types()
    return [_describe(row, virtual, *names.get(row.key, (row.key, row.key))) for row in rows]


def usage_total(question: Question, now: datetime) -> dict[str, Any]:
    """One row over all groups, rounded once. Rows of projects overlap, as each includes a subtree; this counts each job
    once."""
    parts = _held_now(question, now)
    rows = usage.report(replace(question, group_by="type"), parts)
    total = replace(_sum("total", rows), jobs=usage.job_count(question, parts))
    return _describe(total, emulated_types(), "total", "Total")


def _held_now(question: Question, now: datetime) -> list[usage.Part]:
    holds = held(open_holds(Hold.objects.filter(run__job__project__in=question.project_ids)), now)
    return usage.grouped(parts_now(book_for(holds, now), holds))


def _subtrees(question: Question, own: Iterable[Row]) -> list[Row]:
    levels, rows = Levels.load(), {int(row.key): row for row in own}
    found = []
    for project in question.project_ids:
        below = [rows[one] for one in levels.under(project) if one in rows]
        if below:
            found.append(_sum(str(project), below))
    return sorted(found, key=lambda row: (-row.product, int(row.key)))


def _sum(key: str, rows: list[Row]) -> Row:
    held, measured, used = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        held.update(row.gpu_us_hundredths)
        measured.update(row.measured_us_hundredths)
        used.update(row.used_us_hundredths)
    product = sum((row.product for row in rows), Decimal(0))
    return Row(key, sum(row.jobs for row in rows), product, dict(held), dict(measured), dict(used))


def _names(question: Question, keys: list[str]) -> Mapping[str, tuple[str, str]]:
    """Key in the database -> (key, label) for people."""
    match question.group_by:
        case "project":
            rows = Project.objects.filter(pk__in=keys).values_list("pk", "key", "name")
            return {str(pk): (key, name) for pk, key, name in rows}
        case "user":
            users = User.objects.filter(pk__in=[key for key in keys if key])
            return {str(user.pk): (user.email, str(user)) for user in users} | {"": ("", "deleted user")}
        case "job":
            jobs = Job.objects.filter(pk__in=[UUID(key) for key in keys]).values_list("pk", "number", "name")
            return {str(pk): (str(number), name) for pk, number, name in jobs}
    return {}


def emulated_types() -> set[str]:
    return set(Node.objects.filter(emulated=True).values_list("accelerator_type", flat=True).distinct())


def hours_of(us_hundredths: int) -> float:
    return round(us_hundredths / (100 * HOUR_US), 6)


def used_hours(measured_us_hundredths: int, used_us_hundredths: int) -> dict[str, float | None]:
    """Null: no utilisation was reported, which does not mean that the GPUs were idle."""
    used = hours_of(used_us_hundredths) if measured_us_hundredths else None
    return {"measured_gpu_hours": hours_of(measured_us_hundredths), "used_gpu_hours": used}


def _describe(row: Row, virtual: set[str], key: str, label: str) -> dict[str, Any]:
    kinds = sorted(row.gpu_us_hundredths)
    return {
        "key": key,
        "label": label,
        "jobs": row.jobs,
        "gpu_hours": hours_of(sum(row.gpu_us_hundredths.values())),
        **used_hours(sum(row.measured_us_hundredths.values()), sum(row.used_us_hundredths.values())),
        "emulated": any(kind in virtual for kind in kinds),
        "by_type": [
            {
                "type": kind,
                "gpu_hours": hours_of(row.gpu_us_hundredths[kind]),
                **used_hours(row.measured_us_hundredths[kind], row.used_us_hundredths[kind]),
                "emulated": kind in virtual,
            }
            for kind in kinds
        ],
        "cost": str(amount(row.product)),
    }
