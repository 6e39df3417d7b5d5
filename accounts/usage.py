"""Usage: the ledger rolled up by job and day, and reports over it including present occupancy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from accounts.models import LedgerEntry, Resource, UsageDay
from accounts.pricing import WEIGHTS, by_day

GroupBy = Literal["project", "user", "job", "day", "month", "type"]
#: Keys by which rows are grouped, and their display form. Grouping texts would take twice as long.
_KEYS: dict[GroupBy, tuple[str, str]] = {
    "project": ("project_id", "name::text"),
    "user": ("coalesce(user_id, 0)", "coalesce(nullif(name, 0)::text, '')"),
    "job": ("job_id", "name::text"),
    "day": ("day", "to_char(name, 'YYYY-MM-DD')"),
    "month": ("date_trunc('month', day::timestamp)", "to_char(name, 'YYYY-MM')"),
    "type": ("accelerator_type", "name"),
}
_COLUMNS = "day, project_id, user_id, job_id, accelerator_type, gpu_us_hundredths, product"
#: Its measured and utilised parts; present occupancy adds to them continuously (accounts.utilisation).
_USE = "measured_us_hundredths, used_us_hundredths"


@dataclass(frozen=True, slots=True)
class Part:
    """Usage of one job on one day that is occupied now and not in the ledger yet."""

    day: date
    project_id: int
    user_id: int | None
    job_id: UUID
    accelerator_type: str
    gpu_us_hundredths: int
    product: int


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    jobs: int
    product: Decimal
    #: Microseconds of hundredths of a GPU by accelerator type: occupied, measured, and utilised.
    gpu_us_hundredths: dict[str, int]
    measured_us_hundredths: dict[str, int]
    used_us_hundredths: dict[str, int]


def parts_of(entry: LedgerEntry) -> Iterator[Part]:
    """An entry cut at the site's midnights; together exactly the entry."""
    factor = entry.quantity * entry.price_micro_per_hour * entry.kept_hundredths * WEIGHTS[entry.resource]
    for day, start, end in by_day(entry.from_at, entry.to_at, timezone.get_default_timezone()):
        delta = end - start
        held_us = (delta.days * 86_400 + delta.seconds) * 10**6 + delta.microseconds
        gpu = held_us * entry.quantity if entry.resource == Resource.GPU else 0
        yield Part(day, entry.project_id, entry.user_id, entry.job_id, entry.accelerator_type, gpu, held_us * factor)


def roll_up(entries: Iterable[LedgerEntry]) -> None:
    """Add new entries. Each row belongs to one job, so that jobs that end at the same time never wait for each
    other."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        for part in parts_of(entry):
            total = sums[part.day, part.project_id, part.user_id, part.job_id, part.accelerator_type]
            total[0] += part.gpu_us_hundredths
            total[1] += part.product
    if not sums:
        return
    rows = [(*key, *sums[key]) for key in sorted(sums, key=str)]
    sql = f"""
        INSERT INTO accounts_usageday ({_COLUMNS})
        SELECT * FROM {_unnested()}
        ON CONFLICT (job_id, day, accelerator_type, project_id) DO UPDATE SET
            gpu_us_hundredths = accounts_usageday.gpu_us_hundredths + excluded.gpu_us_hundredths,
            product = accounts_usageday.product + excluded.product"""  # noqa: S608 - constants
    with connection.cursor() as cursor:
        cursor.execute(sql, _columns(rows))


def _unnested() -> str:
    return "unnest(%s::date[], %s::bigint[], %s::bigint[], %s::uuid[], %s::text[], %s::bigint[], %s::numeric[])"


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(7)]
    columns[3] = [str(job) for job in columns[3]]
    return columns


def totals_since(day: date) -> dict[tuple[int, int | None], tuple[int, Decimal]]:
    """(project, user) -> microseconds of hundredths of a GPU, and products, from a day on: one query."""
    rows = UsageDay.objects.filter(day__gte=day).values("project_id", "user_id").order_by("project_id", "user_id")
    summed = rows.annotate(gpu=Sum("gpu_us_hundredths"), money=Sum("product"))
    return {(row["project_id"], row["user_id"]): (int(row["gpu"]), row["money"]) for row in summed}


@dataclass(frozen=True, slots=True)
class Question:
    """The requested usage: of these projects, from a day to a day, both included."""

    group_by: GroupBy
    project_ids: Sequence[int]
    first: date
    last: date
    user_ids: Sequence[int] | None = None

    def covers(self, part: Part) -> bool:
        mine = self.user_ids is None or part.user_id in self.user_ids
        return mine and part.project_id in set(self.project_ids) and self.first <= part.day <= self.last


def report(question: Question, now: Iterable[Part], *, offset: int = 0, limit: int | None = None) -> list[Row]:
    """Groups with the largest cost first (days and months: newest first), including present occupancy."""
    source, parameters = _source(question, now)
    key, written = _KEYS[question.group_by]
    if question.group_by == "job":
        sql = _JOBS.format(source=source)
    else:
        order = "name DESC" if question.group_by in ("day", "month") else "total DESC, name"
        sql = _GROUPS.format(source=source, key=key, written=written, order=order)
    groups: dict[str, Row] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_MEMORY)
        cursor.execute(sql, [*parameters, limit, offset])
        for name, product, kind, held, measured, used in cursor.fetchall():
            row = groups.setdefault(name, Row(name, 1, cast("Decimal", product), {}, {}, {}))
            row.gpu_us_hundredths[kind] = int(held)
            row.measured_us_hundredths[kind], row.used_us_hundredths[kind] = int(measured), int(used)
        if question.group_by == "job":
            return list(groups.values())
        cursor.execute(_COUNTS.format(source=source, key=key, written=written), parameters)
        jobs = dict(cursor.fetchall())
    return [replace(row, jobs=jobs[row.key]) for row in groups.values()]


def job_count(question: Question, now: Iterable[Part]) -> int:
    """The number of jobs in all groups together, each counted once."""
    source, parameters = _source(question, now)
    with connection.cursor() as cursor:
        cursor.execute(_JOB_COUNT.format(source=source), parameters)
        return int(cursor.fetchone()[0])


#: Until the transaction's end: groups of 100,000 jobs fit in memory, otherwise they would be sorted on disk.
_MEMORY = "SET LOCAL work_mem = '32MB'"
#: All rows once, into few groups.
_GROUPS = """{source}, by_type AS (
        SELECT {key} AS name, accelerator_type, sum(gpu_us_hundredths) AS held, sum(product) AS money,
               sum(measured_us_hundredths) AS measured, sum(used_us_hundredths) AS used
        FROM parts GROUP BY 1, 2
    ), page AS (
        SELECT name, sum(money) AS total FROM by_type GROUP BY 1 ORDER BY {order} LIMIT %s OFFSET %s
    ) SELECT {written}, total, accelerator_type, held, measured, used FROM page JOIN by_type USING (name)
    ORDER BY {order}, accelerator_type"""
#: As many groups as jobs: types only for those of the page, which have an index.
_JOBS = """{source}, page AS (
        SELECT job_id, sum(product) AS total FROM parts GROUP BY 1 ORDER BY total DESC, job_id LIMIT %s OFFSET %s
    ), by_type AS (
        SELECT job_id, accelerator_type, sum(gpu_us_hundredths) AS held,
               sum(measured_us_hundredths) AS measured, sum(used_us_hundredths) AS used
        FROM parts WHERE job_id = ANY(ARRAY(SELECT job_id FROM page)) GROUP BY 1, 2
    ) SELECT job_id::text, total, accelerator_type, held, measured, used FROM page JOIN by_type USING (job_id)
    ORDER BY total DESC, job_id, accelerator_type"""
#: By job first: counting distinct ones in each group would sort all rows.
_COUNTS = """{source} SELECT {written}, count(*) FROM (
        SELECT {key} AS name, job_id FROM parts GROUP BY 1, 2
    ) AS by_job GROUP BY name"""


_JOB_COUNT = "{source} SELECT count(DISTINCT job_id) FROM parts"


def _source(question: Question, now: Iterable[Part]) -> tuple[str, list[Any]]:
    live = [
        (p.day, p.project_id, p.user_id, p.job_id, p.accelerator_type, p.gpu_us_hundredths, p.product)
        for p in now
        if question.covers(p)
    ]
    users = "" if question.user_ids is None else "AND user_id = ANY(%s)"
    sql = f"""WITH parts ({_COLUMNS}, {_USE}) AS NOT MATERIALIZED (
        SELECT {_COLUMNS}, {_USE} FROM accounts_usageday
        WHERE day BETWEEN %s AND %s AND project_id = ANY(%s) {users}
        UNION ALL SELECT *, 0, 0 FROM {_unnested()})"""  # noqa: S608 - constants
    parameters: list[Any] = [question.first, question.last, list(question.project_ids)]
    parameters += [] if question.user_ids is None else [list(question.user_ids)]
    return sql, [*parameters, *_columns(live)]


def grouped(parts: Iterable[Part]) -> list[Part]:
    """Merged parts: one for each job, day and type."""
    sums: dict[tuple[date, int, int | None, UUID, str], list[int]] = defaultdict(lambda: [0, 0])
    for part in parts:
        total = sums[part.day, part.project_id, part.user_id, part.job_id, part.accelerator_type]
        total[0] += part.gpu_us_hundredths
        total[1] += part.product
    return [Part(*key, *total) for key, total in sums.items()]
