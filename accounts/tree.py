"""The tree of projects. Every function is one query or a part of one, however deep the tree is."""

from __future__ import annotations

from django.db.models import BooleanField, Func, OuterRef, QuerySet

from accounts.models import Project


def is_above(ancestry: str) -> Func:
    """In a subquery over memberships: its project is in the outer row's `ancestry` column."""
    return Func(
        "project_id",
        OuterRef(ancestry),
        template="%(expressions)s)",
        arg_joiner=" = ANY(",
        output_field=BooleanField(),
    )


def ancestors(project: Project) -> QuerySet[Project]:
    """Root first, the project itself last."""
    return Project.objects.filter(pk__in=ids_above(project)).order_by("ancestry__len")


def ids_above(project: Project) -> QuerySet[Project, int]:
    """Its ancestors and itself, for a condition: evaluated by the database."""
    mine = Project.objects.filter(pk=project.pk).order_by()
    return mine.values_list(Func("ancestry", function="unnest"), flat=True)


def descendants(project: Project) -> QuerySet[Project]:
    """The project itself and all its subprojects."""
    return below(project.pk)


def below(project_id: int) -> QuerySet[Project]:
    return Project.objects.filter(ancestry__contains=[project_id])
