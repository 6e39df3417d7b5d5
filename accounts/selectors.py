"""Who may see what of people and projects."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from accounts.models import Membership, Project, User

WRITERS = (Membership.Role.MEMBER, Membership.Role.MANAGER)


def visible_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """Projects whose jobs the user may read: all for administrators, else those of their memberships."""
    if not isinstance(user, User) or not user.is_active:
        return Project.objects.none()
    if user.is_superuser:
        return Project.objects.all()
    return Project.objects.filter(memberships__user=user)


def writable_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """Projects in which the user may submit and change jobs."""
    if not isinstance(user, User) or not user.is_active:
        return Project.objects.none()
    if user.is_superuser:
        return Project.objects.all()
    return Project.objects.filter(memberships__user=user, memberships__role__in=WRITERS)


def role_in(user: User, project: Project) -> str | None:
    if user.is_superuser:
        return Membership.Role.MANAGER
    return Membership.objects.filter(user=user, project=project).values_list("role", flat=True).first()


def projects_with_roles(user: User | AnonymousUser) -> list[tuple[Project, str]]:
    """What the user may see, each with the user's role there: an administrator is a manager everywhere."""
    projects = visible_projects(user)
    if not isinstance(user, User):
        return []
    if user.is_superuser:
        return [(project, Membership.Role.MANAGER.value) for project in projects]
    memberships = Membership.objects.filter(user=user, project__in=projects).select_related("project")
    return [(m.project, m.role) for m in memberships.order_by("project__key")]
