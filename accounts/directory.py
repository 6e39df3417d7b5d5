"""Roles from a directory's groups: at a sign-in by OIDC a person's groups become memberships.

Such roles exist beside those given by managers, and are removed when the group is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from django.db import transaction

from accounts.audit import record_audit
from accounts.grants import Grant
from accounts.models import Membership, Project, User
from accounts.people import LastAdministrator, set_administrator
from accounts.selectors import ROLES

logger = logging.getLogger(__name__)

#: Groups and the roles they give.
GroupRoles = Mapping[str, Sequence[Grant]]


@transaction.atomic
def apply_groups(*, user: User, groups: Iterable[str], mapping: GroupRoles) -> None:
    """Make the user's directory roles exactly those of these groups."""
    grants = [grant for group in groups for grant in mapping.get(group, ())]
    _apply_roles(user, _highest(grants))
    _apply_administration(user, any(grant.project is None for grant in grants))


def _highest(grants: Iterable[Grant]) -> dict[str, str]:
    """The highest role for each project."""
    roles: dict[str, str] = {}
    for grant in grants:
        if grant.project is not None:
            held = roles.get(grant.project, ROLES[0])
            roles[grant.project] = max(held, grant.role, key=lambda role: ROLES.index(Membership.Role(role)))
    return roles


def _apply_roles(user: User, wanted: dict[str, str]) -> None:
    projects = {project.key: project for project in Project.objects.filter(key__in=wanted)}
    for missing in wanted.keys() - projects.keys():
        logger.warning("groups of the directory give roles in %s, which is no project", missing)
    held = {m.project.key: m for m in Membership.objects.select_related("project").filter(user=user, by_directory=True)}
    for key in sorted(held.keys() | projects.keys()):
        before, after = held.get(key), wanted.get(key)
        if before and not after:
            before.delete()
        elif after and (before is None or before.role != after):
            Membership.objects.update_or_create(
                project=projects[key], user=user, by_directory=True, defaults={"role": after}
            )
        else:
            continue
        detail = {"user": user.email, "before": before.role if before else None, "after": after}
        record_audit(actor=None, action="project.member_by_directory", target=key, detail=detail)


def _apply_administration(user: User, wanted: bool) -> None:
    if not wanted and not user.admin_by_directory:
        return  # roles given by administrators are theirs to remove
    try:
        set_administrator(actor=None, user=user, administrator=wanted, by_directory=True)
    except LastAdministrator as error:
        logger.warning("the directory takes administration away, which stays: %s", error)
