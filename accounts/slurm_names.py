"""Names of a project in Slurm: account, QOS, partition, wckey and reservation of its jobs. Missing ones are inherited
from the project above."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.audit import record_audit
from accounts.models import SLURM_NAMES, Project, User
from accounts.tree import ancestors

#: The format of Slurm's own names; several partitions are allowed, of which Slurm uses the first free one.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
SEVERAL = rf"{NAME}(,{NAME}){{0,7}}"


def check_name(field: str, name: str) -> None:
    """Raises ValidationError with a sentence."""
    if not re.fullmatch(SEVERAL if field == "partition" else NAME, name, re.ASCII):
        raise ValidationError({field: "is no name of Slurm's: letters, digits and _.@+-, at most 64 characters"})


def effective(project: Project) -> dict[str, str]:
    """The names of its jobs, its own before those of projects above."""
    return _together(ancestors(project).values_list("slurm", flat=True))


def inherited(project: Project) -> dict[str, str]:
    """The names without its own."""
    return _together(ancestors(project).exclude(pk=project.pk).values_list("slurm", flat=True))


def of_all_projects(by: Literal["pk", "key"]) -> dict[Any, dict[str, str]]:
    """`effective` of each project, by its id or its key, in one query."""
    rows = list(Project.objects.values_list("pk", by, "ancestry", "slurm"))
    own = {pk: names for pk, _, _, names in rows}
    return {key: _together(own.get(one, {}) for one in ancestry) for _, key, ancestry, _ in rows}


def _together(names: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """From the top of the tree downwards: lower levels override."""
    found: dict[str, str] = {}
    for some in names:
        found |= some
    return found


@transaction.atomic
def set_slurm(*, actor: User, project: Project, names: Mapping[str, str | None]) -> None:
    """None: inherit from the project above. Raises ValidationError for the field."""
    before = Project.objects.select_for_update().values_list("slurm", flat=True).get(pk=project.pk)
    for field, name in names.items():
        if name is not None:
            check_name(field, name)
    wanted = {**before, **names}
    after = {field: name for field in SLURM_NAMES if (name := wanted.get(field))}
    if after == before:
        return
    project.slurm = after
    project.save(update_fields=["slurm"])
    record_audit(actor=actor, action="project.slurm", target=project.key, detail={"before": before, "after": after})
