"""Filters of jobs, for lists and for actions on many."""

from __future__ import annotations

from typing import Annotated, Literal

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Lower
from pydantic import AfterValidator, Field

from accounts.models import Project, User
from portal.api.http.inputs import Address, At, Body, PageQuery, Query, Several, Word
from portal.api.http.named import check_cluster, named_project
from portal.api.shapes.base import JobState
from portal.jobs.access import in_people_states, in_states
from portal.jobs.models import LIVE_VALUES, Job
from scheduling.lifecycle import LIVE
from scheduling.validation import StrictNumbers


def split_label(label: str) -> tuple[str, str | None]:
    """`key:value` or `key=value`, by the first of these signs; a key alone has no value."""
    at = min((place for sign in ":=" if (place := label.find(sign)) >= 0), default=-1)
    return (label, None) if at < 0 else (label[:at], label[at + 1 :])


def _pair(label: str) -> str:
    if not split_label(label)[0]:
        raise ValueError("write key:value or key=value, or a key alone")
    return label


Label = Annotated[Word, AfterValidator(_pair)]


class _Filters(StrictNumbers):
    project: Word | None = Field(None, description="Key of a project.")
    owner: Address | None = Field(None, description="`me`, or the email of a user.")
    array: int | None = Field(None, ge=1, lt=10**18, description="Number of an array.")
    search: Word | None = Field(None, description="Part of the name or of a label, or the number.")
    model_type: Word | None = Field(None, description="Name of a program of the catalogue.")
    cluster: Word | None = Field(None, description="Name of a cluster, a retired one too.")
    partition: Word | None = Field(None, description="Name of a partition.")
    label: list[Label] = Field([], max_length=20, description="`key:value`, or `key` alone; all of them.")
    on_hold: bool | None = Field(None, description="Jobs on hold only, or those that are not.")
    submitted_from_at: At | None = Field(None, description="Submitted then or later.")
    submitted_to_at: At | None = Field(None, description="Submitted before.")


Ordering = Literal["-number", "number", "-submitted_at", "submitted_at"]


class _List(_Filters):
    state: Annotated[list[JobState], Several] = Field([], max_length=20, description="Any of these; `a,b` or repeated.")
    ordering: Ordering = "-number"
    arrays: Literal["jobs", "first"] = Field("jobs", description="`first`: of each array only its first job.")


class JobsQuery(_List, PageQuery):
    limit: int = Field(35, ge=1, le=200, description="Rows of a page.")


class JobsExportQuery(_List, Query):
    """All rows: the same list without pages."""


class JobsFilter(_Filters, Body):
    state: list[JobState] = Field([], max_length=20, description="Any of these.")


def find_jobs(rows: QuerySet[Job], query: _List | JobsFilter, user: User) -> QuerySet[Job]:
    check_cluster(query.cluster, _field(query, "cluster"))
    plain = {
        "project": _project(query, user),
        "model_type__name": query.model_type,
        "array__number": query.array,
        "cluster__name": query.cluster,
        "partition__name": query.partition,
        "submitted_at__gte": query.submitted_from_at,
        "submitted_at__lt": query.submitted_to_at,
    }
    rows = rows.filter(**{name: value for name, value in plain.items() if value is not None})
    if isinstance(query, _List) and query.arrays == "first":
        rows = rows.filter(Q(array=None) | Q(array_index=F("array__first_index")))
    if query.state:
        rows = rows.filter(in_people_states(query.state))
    if query.owner:
        rows = rows.filter(owner=user) if query.owner == "me" else rows.filter(owner__email=query.owner)
    if query.on_hold is not None:
        on_hold = ~Q(hold_kind="") & Q(run__state__in=LIVE_VALUES)
        rows = rows.filter(on_hold, in_states(LIVE)) if query.on_hold else rows.exclude(on_hold)
    for label in query.label:
        key, value = split_label(label)
        rows = rows.filter(labels__has_key=key) if value is None else rows.filter(labels__contains={key: value})
    return _with_text(rows, query.search.strip()) if query.search else rows


def _project(query: _List | JobsFilter, user: User) -> Project | None:
    return None if query.project is None else named_project(user, query.project, _field(query, "project"))


def _field(query: _List | JobsFilter, name: str) -> str:
    return f"filter.{name}" if isinstance(query, JobsFilter) else name


def _with_text(rows: QuerySet[Job], text: str) -> QuerySet[Job]:
    number = text.lstrip("#")
    found = Q(search_text__contains=Lower(Value(text)))
    if number.isascii() and number.isdecimal() and len(number) <= 18:
        found |= Q(number=int(number))
    return rows.filter(found)
