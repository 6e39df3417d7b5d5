"""What requests name."""

from __future__ import annotations

from difflib import get_close_matches

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.errors import Refused
from portal.jobs.offers import known_accelerator_types
from portal.jobs.schema import FieldProblem

_MOST_NAMED = 20


def named_project(user: User, key: str) -> Project:
    """404 for one that is not there just as for one that the user may not see: an empty list would say neither."""
    project = visible_projects(user).filter(key=key).first()
    if project is None:
        unknown = FieldProblem("project", "is none that you may see", "unknown")
        raise Refused(404, f"project {unknown.message}", [unknown])
    return project


def check_accelerator_type(kind: str | None) -> None:
    """A price or a limit of a mistyped type would hold for nothing, and nobody would notice."""
    if kind is None or kind in (known := known_accelerator_types()):
        return
    alike = get_close_matches(kind, known, n=1)
    hint = f"did you mean {alike[0]}? " if alike else ""
    names = ", ".join(sorted(known)[:_MOST_NAMED])
    wrong = FieldProblem(
        "accelerator_type", f"is no type that is known here; {hint}Known are {names}, and what nodes report.", "unknown"
    )
    raise Refused(400, f"accelerator_type {wrong.message}", [wrong])
