"""Setting guarantees: never more than exists, on any level of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from accounts.audit import record_audit
from accounts.models import Guarantee, Project, User
from accounts.selectors import manageable_projects, visible_projects


@dataclass(frozen=True, slots=True)
class Promise:
    """GPUs in total, and how many of them by type."""

    gpus: int
    by_type: Mapping[str, int] = field(default_factory=dict)


class TooMuch(Exception):
    """More would be guaranteed than exists. `field` is the key of the request."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def check_may_set(actor: User, project: Project) -> None:
    """Administrators anywhere; managers may divide the guarantee of their project among the projects below it."""
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
    _check_change(project, promise, there, seen=_seen_by(actor))
    before = Guarantee.objects.filter(project=project).first()
    values = {"gpus": promise.gpus, "by_type": dict(promise.by_type), "reclaim_within_s": reclaim_within_s}
    row, made = Guarantee.objects.update_or_create(project=project, defaults=values)
    detail = {"before": _values(before) if before else None, "after": _values(row)}
    record_audit(actor=actor, action="guarantee.set", target=project.key, detail=detail)
    return row, made


@transaction.atomic
def remove_guarantee(*, actor: User | None, guarantee: Guarantee) -> None:
    """Guarantees of projects below it stay."""
    _lock()
    before = _values(guarantee)
    guarantee.delete()
    record_audit(actor=actor, action="guarantee.remove", target=guarantee.project.key, detail={"before": before})


def check_places(actor: User) -> None:
    """After a project has moved; raises TooMuch. In a transaction."""
    _lock()
    promises = _promises()
    for total in _totals(promises, Project.objects.in_bulk(list(promises)), None).values():
        total.check(None, _seen_by(actor))


def _lock() -> None:
    """Sums cover many rows: a change of one locks the others. Readers are not blocked."""
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {Guarantee._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")


def _values(row: Guarantee) -> dict[str, Any]:
    return {"gpus": row.gpus, "by_type": row.by_type, "reclaim_within_s": row.reclaim_within_s}


def _promises() -> dict[int, Promise]:
    return {row.project_id: Promise(row.gpus, row.by_type) for row in Guarantee.objects.all()}


def _seen_by(actor: User | None) -> set[int] | None:
    """Projects that error messages may name to this person; None: all."""
    if actor is None or actor.is_superuser:
        return None
    return set(visible_projects(actor).values_list("pk", flat=True))


def _check_change(project: Project, promise: Promise, there: Mapping[str, int], seen: set[int] | None) -> None:
    """Nodes may have left since guarantees were set, so only increases are checked. Above the guarantee that a manager
    divides, a change increases nothing."""
    before = _promises()
    after = before | {project.pk: promise}
    projects = Project.objects.in_bulk(list(after))
    _check_types(project.name, promise, before.get(project.pk, Promise(0)), there)
    known = _totals(before, projects, there)
    for key, total in _totals(after, projects, there).items():
        total.check(known.get(key), seen)


def _check_types(name: str, promise: Promise, before: Promise, there: Mapping[str, int]) -> None:
    typed = sum(promise.by_type.values())
    if typed > promise.gpus:
        raise TooMuch(
            "by_type", f"Project {name}: its types add up to {typed}, and it would have {promise.gpus} in all."
        )
    for kind, count in promise.by_type.items():
        has = there.get(kind, 0)
        if count > max(has, before.by_type.get(kind, 0)):
            raise TooMuch(f"by_type.{kind}", f"Project {name} would have {count} {kind} and the cluster has {has}.")


@dataclass(frozen=True, slots=True)
class _Total:
    """The total guarantee of the next guaranteed projects below a level, and its maximum."""

    level: Project | None  # None: the cluster
    kind: str | None  # None: of all types
    most: int
    parts: Mapping[Project, int]

    @property
    def excess(self) -> int:
        return sum(self.parts.values()) - self.most

    def check(self, before: _Total | None, seen: set[int] | None) -> None:
        if self.excess > max(0, before.excess if before else 0):
            raise TooMuch(f"by_type.{self.kind}" if self.kind else "gpus", self._sentence(seen))

    def _sentence(self, seen: set[int] | None) -> str:
        named = {part.name: count for part, count in self.parts.items() if seen is None or part.pk in seen}
        shown = [f"{name} {count}" for name, count in sorted(named.items())][:10]
        more = len(self.parts) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "") if shown else "Guarantees"
        whose = "the cluster has"
        if self.level is not None:
            may = seen is None or self.level.pk in seen
            whose = f"project {self.level.name} is guaranteed" if may else "a project above is guaranteed"
        return f"{names}: together {sum(self.parts.values())} {self.kind or 'GPUs'}, and {whose} {self.most}."


def _totals(
    promises: Mapping[int, Promise], projects: Mapping[int, Project], there: Mapping[str, int] | None
) -> dict[tuple[int | None, str | None], _Total]:
    """By level, None: the cluster, and type. `there`: its GPUs by type; None if they are not checked."""
    below: dict[int | None, list[int]] = {}
    for pk in promises:
        above = [level for level in projects[pk].ancestry[:-1] if level in promises]
        below.setdefault(above[-1] if above else None, []).append(pk)
    found: dict[tuple[int | None, str | None], _Total] = {}
    for level, inner in below.items():
        if level is None and there is None:
            continue
        most = Promise(sum((there or {}).values()), there or {}) if level is None else promises[level]
        place = None if level is None else projects[level]
        found[level, None] = _Total(place, None, most.gpus, {projects[pk]: promises[pk].gpus for pk in inner})
        for kind in sorted({kind for pk in inner for kind in promises[pk].by_type}) if most.by_type else ():
            typed = {projects[pk]: count for pk in inner if (count := promises[pk].by_type.get(kind, 0))}
            found[level, kind] = _Total(place, kind, most.by_type.get(kind, 0), typed)
    return found
