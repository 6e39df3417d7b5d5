"""Items that people save: views of the list of jobs, and job templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from accounts.models import Project, User
from accounts.selectors import manageable_projects, visible_projects, writable_projects
from accounts.services import record_audit
from portal.core.problems import FieldProblem, Problems
from portal.jobs.access import why_not_writable
from portal.jobs.models import JobTemplate, SavedView

MOST_VIEWS = 50
MOST_TEMPLATES = 100


class SavedConflict(Problems):
    """The request is valid, but conflicts with what is saved already."""

    @classmethod
    def of(cls, message: str, code: str) -> SavedConflict:
        return cls([FieldProblem("name", message, code)])


def _save(row: Model, others: QuerySet[Any], of_whom: QuerySet[Any], most: int, noun: str) -> None:
    """Store a row. `others`: all of the same kind; their owner is locked, so that two requests do not exceed `most`."""
    with transaction.atomic():
        of_whom.select_for_update(no_key=True).get()
        if row.pk is not None:  # ... DoesNotExist if it was removed meanwhile
            others.only("pk").get(pk=row.pk)
        if row.pk is None and others.count() >= most:
            raise SavedConflict.of(
                f"would be one {noun} too many: there are {most:,} already; remove one first", "full"
            )
        try:
            with transaction.atomic():
                row.save(force_update=row.pk is not None)
        except IntegrityError:
            raise SavedConflict.of(
                f"is the name of another {noun}; choose another, or change that one", "taken"
            ) from None


def save_view(*, view: SavedView) -> SavedView:
    """A new view, or a changed one. Raises SavedConflict."""
    view.changed_at = timezone.now()
    whose = User.objects.filter(pk=view.owner_id)
    _save(view, SavedView.objects.filter(owner=view.owner_id), whose, MOST_VIEWS, "view")
    return view


def visible_templates(user: User) -> QuerySet[JobTemplate]:
    """The user's own, and those of their projects."""
    rows = JobTemplate.objects.select_related("project", "author")
    shared = Q(project__in=visible_projects(user))
    return rows.filter(shared if bound_to_project(user) else Q(owner=user) | shared)


def bound_to_project(user: User) -> bool:
    """A token that is bound to a project gives access to nothing outside of it; personal items belong to no project."""
    return user.acting_token is not None and user.acting_token.project_id is not None


def own_views(user: User) -> QuerySet[SavedView]:
    rows = SavedView.objects.filter(owner=user.pk)
    return rows.none() if bound_to_project(user) else rows


@dataclass(frozen=True)
class MayChange:
    """Which templates a user may change: their own, those they wrote in projects where they may write, and those of
    projects they manage."""

    user: User
    written: frozenset[int]
    managed: frozenset[int]

    @classmethod
    def of(cls, user: User, rows: list[JobTemplate]) -> MayChange:
        shared = {row.project_id for row in rows if row.project_id}
        if not shared:
            return cls(user, frozenset(), frozenset())
        found = [
            frozenset(projects.filter(pk__in=shared).values_list("pk", flat=True))
            for projects in (writable_projects(user), manageable_projects(user))
        ]
        return cls(user, *found)

    def __call__(self, row: JobTemplate) -> bool:
        if row.project_id is None:
            return row.owner_id == self.user.pk
        written = row.project_id in self.written
        return written and (row.author_id == self.user.pk or row.project_id in self.managed)


def template_to_change(user: User, pk: int) -> JobTemplate:
    """JobTemplate.DoesNotExist if the user may not see it, PermissionError if only others may change it."""
    row = visible_templates(user).get(pk=pk)
    if not MayChange.of(user, [row])(row):
        assert row.project is not None
        raise PermissionError(f"Only its author and managers of {row.project.name} change this template.")
    return row


def check_unbound(user: User, what: str) -> None:
    """Raises PermissionError."""
    if bound_to_project(user):
        raise PermissionError(f"This token is bound to a project and makes nothing outside of it: not {what}.")


def new_template(*, user: User, project: Project | None) -> JobTemplate:
    """Not stored yet. Raises PermissionError if the user may only read."""
    if project is None:
        check_unbound(user, "a template of your own")
        return JobTemplate(owner=user, author=user)
    if not writable_projects(user).filter(pk=project.pk).exists():
        raise PermissionError(why_not_writable(project))
    return JobTemplate(project=project, author=user)


def save_template(*, actor: User, template: JobTemplate) -> JobTemplate:
    """A new template, or a changed one. Raises SavedConflict. Templates of projects are audited."""
    action = "template.create" if template.pk is None else "template.change"
    shared = template.project is not None
    whose: QuerySet[Any] = (Project if shared else User).objects.filter(pk=template.project_id or actor.pk)
    same = JobTemplate.objects.filter(project=template.project_id, owner=template.owner_id)
    template.changed_at = timezone.now()
    with transaction.atomic():
        _save(template, same, whose, MOST_TEMPLATES, "template")
        _audit(actor, action, template)
    return template


@transaction.atomic
def remove_template(*, actor: User, template: JobTemplate) -> None:
    _audit(actor, "template.remove", template)
    template.delete()


def _audit(actor: User, action: str, template: JobTemplate) -> None:
    if template.project is not None:
        record_audit(actor=actor, action=action, target=template.project.key, detail={"name": template.name})
