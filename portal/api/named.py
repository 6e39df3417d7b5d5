"""What lists are narrowed down to, by name."""

from __future__ import annotations

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.errors import Refused
from portal.jobs.schema import FieldProblem


def named_project(user: User, key: str) -> Project:
    """404 for one that is not there just as for one that the user may not see: an empty list would say neither."""
    project = visible_projects(user).filter(key=key).first()
    if project is None:
        unknown = FieldProblem("project", "is none that you may see", "unknown")
        raise Refused(404, f"project {unknown.message}", [unknown])
    return project
