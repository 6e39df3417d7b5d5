"""Setting what projects are guaranteed: never more than there is, on any level of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from accounts.audit import record_audit
from accounts.models import Guarantee, Project, User
from accounts.selectors import manageable_projects


@dataclass(frozen=True, slots=True)
class Promise:
    """GPUs in all, and how many of them are of one type."""

    gpus: int
    by_type: Mapping[str, int] = field(default_factory=dict)


class TooMuch(Exception):
    """More would be guaranteed than there is. `field` is the key of the request that says so."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def check_may_set(actor: User, project: Project) -> None:
    """Administrators anywhere; managers divide among the projects below theirs what theirs is guaranteed."""
    if actor.is_superuser:
        return
    above = Guarantee.objects.filter(project__in=project.ancestry).exclude(project=project)
    if not above.filter(project__in=manageable_projects(actor)).exists():
        raise PermissionDenied(
            "Administrators guarantee GPUs; managers of a project that has some divide them among those below it."
        )


@transaction.atomic
def set_guarantee(
    *, actor: User | None, project: Project, promise: Promise, reclaim_within_s: int, there: Mapping[str, int]
) -> tuple[Guarantee, bool]:
    """(the guarantee, whether it is new). `there`: the cluster's GPUs by type. Raises TooMuch."""
    _lock()
    check(_promises() | {project.pk: promise}, there)
    before = Guarantee.objects.filter(project=project).first()
    values = {"gpus": promise.gpus, "by_type": dict(promise.by_type), "reclaim_within_s": reclaim_within_s}
    row, made = Guarantee.objects.update_or_create(project=project, defaults=values)
    detail = {"before": _values(before) if before else None, "after": _values(row)}
    record_audit(actor=actor, action="guarantee.set", target=project.key, detail=detail)
    return row, made


@transaction.atomic
def remove_guarantee(*, actor: User | None, guarantee: Guarantee) -> None:
    """What projects below it are guaranteed stays so."""
    _lock()
    before = _values(guarantee)
    guarantee.delete()
    record_audit(actor=actor, action="guarantee.remove", target=guarantee.project.key, detail={"before": before})


def check_places() -> None:
    """After a project has moved; raises TooMuch. In a transaction."""
    _lock()
    check(_promises(), None)


def _lock() -> None:
    """Sums are over many rows: whoever changes one of them keeps the others still. Readers are not kept."""
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {Guarantee._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")


def _values(row: Guarantee) -> dict[str, Any]:
    return {"gpus": row.gpus, "by_type": row.by_type, "reclaim_within_s": row.reclaim_within_s}


def _promises() -> dict[int, Promise]:
    return {row.project_id: Promise(row.gpus, row.by_type) for row in Guarantee.objects.all()}


def check(promises: Mapping[int, Promise], there: Mapping[str, int] | None) -> None:
    """`there`: the cluster's GPUs by type; None where they are not looked at. Raises TooMuch."""
    projects = Project.objects.in_bulk(list(promises))
    below: dict[int | None, list[int]] = {}
    for pk in promises:
        above = [level for level in projects[pk].ancestry[:-1] if level in promises]
        below.setdefault(above[-1] if above else None, []).append(pk)
    for pk, promise in promises.items():
        _check_one(projects[pk].name, promise, there)
        inner = {projects[one].name: promises[one] for one in below.get(pk, [])}
        _check_sum(f"project {projects[pk].name} is guaranteed", promise, inner)
    if there is not None:
        outer = {projects[one].name: promises[one] for one in below.get(None, [])}
        _check_sum("the cluster has", Promise(sum(there.values()), there), outer)


def _check_one(name: str, promise: Promise, there: Mapping[str, int] | None) -> None:
    typed = sum(promise.by_type.values())
    if typed > promise.gpus:
        raise TooMuch(
            "by_type", f"Project {name}: its types add up to {typed}, and it would have {promise.gpus} in all."
        )
    for kind, count in promise.by_type.items() if there is not None else ():
        if count > (there or {}).get(kind, 0):
            has = (there or {}).get(kind, 0)
            raise TooMuch(f"by_type.{kind}", f"Project {name} would have {count} {kind} and the cluster has {has}.")


def _check_sum(whose: str, most: Promise, parts: Mapping[str, Promise]) -> None:
    whole = {name: part.gpus for name, part in parts.items()}
    if sum(whole.values()) > most.gpus:
        raise TooMuch("gpus", _sentence(whole, "GPUs", whose, most.gpus))
    kinds = {kind for part in parts.values() for kind in part.by_type} if most.by_type else set()
    for kind in sorted(kinds):
        typed = {name: part.by_type[kind] for name, part in parts.items() if part.by_type.get(kind)}
        if sum(typed.values()) > most.by_type.get(kind, 0):
            raise TooMuch(f"by_type.{kind}", _sentence(typed, kind, whose, most.by_type.get(kind, 0)))


def _sentence(parts: Mapping[str, int], unit: str, whose: str, most: int) -> str:
    shown = [f"{name} {count}" for name, count in sorted(parts.items())]
    names = ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
    return f"{names}: together {sum(parts.values())} {unit}, and {whose} {most}."
