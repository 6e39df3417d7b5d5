"""Who may see which people and projects. Roles are inherited downwards; the highest on the path to the root counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Case, F, Func, IntegerField, QuerySet, Subquery, Value, When

from accounts.models import Membership, Project, User
from accounts.tree import ancestors, below, ids_above, is_above

WRITERS = (Membership.Role.MEMBER, Membership.Role.MANAGER)
#: From least to most rights.
ROLES = (Membership.Role.VIEWER, Membership.Role.MEMBER, Membership.Role.MANAGER)
#: To sort memberships by their rights.
RANK = Case(*(When(role=role, then=Value(rank)) for rank, role in enumerate(ROLES)), output_field=IntegerField())


def visible_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """Projects whose jobs the user may read: all for administrators, else those in which they have a role."""
    return _with_role(user, ROLES)


def writable_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """Projects in which the user may submit and change jobs; archived ones excluded."""
    return _with_role(user, WRITERS).filter(archived_at=None)


def manageable_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """Projects that the user may change, with their members and subprojects."""
    return _with_role(user, (Membership.Role.MANAGER,))


def _with_role(user: User | AnonymousUser, roles: tuple[Membership.Role, ...]) -> QuerySet[Project]:
    if not isinstance(user, User) or not user.is_active:
        return Project.objects.none()
    if user.is_superuser:
        return Project.objects.all()
    granted = Membership.objects.filter(user=user, role__in=roles).values("project")
    return _within_token(user).filter(ancestry__overlap=Array(granted))


def _within_token(user: User) -> QuerySet[Project]:
    """All projects, or those that this request's token is bound to."""
    token = user.acting_token
    return below(token.project_id) if token and token.project_id else Project.objects.all()


class Array(Subquery):
    """`ARRAY(SELECT ...)`: evaluated once, so that the index on ancestries is used."""

    template = "ARRAY(%(subquery)s)"


def role_in(user: User, project: Project) -> str | None:
    """The user's role there, own or inherited; None without one."""
    ranked = _ranked(user, visible_projects(user).filter(pk=project.pk))
    return next((role for _, role in ranked), None)


def projects_with_roles(user: User | AnonymousUser, *, most: int | None = None) -> list[tuple[Project, str]]:
    """Projects that the user may see, each with the user's role there: an administrator is a manager everywhere.

    At most `most`, active ones before archived ones.
    """
    if not isinstance(user, User):
        return []
    in_use_first = visible_projects(user).order_by(F("archived_at").asc(nulls_first=True), "key")
    return [(project, project.role) for project in with_roles(user, in_use_first)[:most]]


def with_roles(user: User, projects: QuerySet[Project]) -> QuerySet[Any]:
    """Each with the user's role there as `role`."""
    if user.is_superuser:
        return projects.annotate(role=Value(Membership.Role.MANAGER.value))
    highest = Membership.objects.filter(is_above("ancestry"), user=user).order_by(RANK.desc()).values("role")[:1]
    return projects.annotate(role=Subquery(highest))


def _ranked(user: User, projects: QuerySet[Project]) -> list[tuple[Project, str]]:
    return [(project, project.role) for project in with_roles(user, projects)]


def access_project(
    user: User | AnonymousUser, key: str, *, role: Membership.Role = Membership.Role.VIEWER
) -> tuple[Project, str]:
    """The project and the user's role there. Project.DoesNotExist also if the user may not see it.

    PermissionError if the user's role is lower than `role`.
    """
    found = visible_projects(user).filter(key=key)
    project, own = next(iter(_ranked(user, found) if isinstance(user, User) else []), (None, ""))
    if project is None:
        raise Project.DoesNotExist
    if ROLES.index(Membership.Role(own)) < ROLES.index(role):
        raise PermissionError(f"This needs the role {role} in {project.name}; yours is {own}.")
    return project, own


def roles_among(user_ids: Iterable[int], projects: Iterable[Project]) -> set[tuple[int, int]]:
    """Which of the people have a role in which of the projects, own or inherited: (user, project), in one query."""
    wanted = {project.pk: project for project in projects}
    levels = {level for project in wanted.values() for level in project.ancestry}
    granted = Membership.objects.filter(user__in=set(user_ids), project__in=levels).values_list("user_id", "project_id")
    at: dict[int, set[int]] = {}
    for user_id, level in granted:
        at.setdefault(level, set()).add(user_id)
    return {(user, pk) for pk, project in wanted.items() for level in project.ancestry for user in at.get(level, ())}


def memberships_reaching(project: Project) -> QuerySet[Membership]:
    """Memberships of the project and of those above it, the highest role of each person first, the nearest first."""
    return (
        Membership.objects.filter(project__in=ancestors(project).order_by())
        .select_related("user", "project")
        .order_by("user_id", RANK.desc(), "-project__ancestry__len")
    )


def projects_above(user: User, project: Project) -> QuerySet[Any]:
    """Projects above it that the user may see, outermost first, each with the user's role there as `role`."""
    above = visible_projects(user).filter(pk__in=ids_above(project)).exclude(pk=project.pk)
    return with_roles(user, above.order_by("ancestry__len"))


def member_counts(project_ids: Iterable[int]) -> dict[int, int]:
    """The number of active people with a role there, own or inherited."""
    reaching = Membership.objects.filter(is_above("ancestry"), user__kind=User.Kind.PERSON, user__is_active=True)
    people = Func(F("user_id"), template="count(DISTINCT %(expressions)s)", output_field=IntegerField())
    counted = reaching.order_by().annotate(people=people).values("people")
    rows = Project.objects.filter(pk__in=list(project_ids)).order_by().annotate(people=Subquery(counted))
    return dict(rows.values_list("pk", "people"))
