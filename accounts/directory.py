"""Roles that follow a directory's groups: what a sign-in by OIDC says of somebody's groups becomes memberships.

Such roles stand beside those that managers gave, and are taken away when the group is gone.
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

#: Groups and what they give.
GroupRoles = Mapping[str, Sequence[Grant]]


@transaction.atomic
def apply_groups(*, user: User, groups: Iterable[str], mapping: GroupRoles) -> None:
    """Make the user's roles from the directory exactly what these groups give."""
    grants = [grant for group in groups for grant in mapping.get(group, ())]
    _apply_roles(user, _highest(grants))
    _apply_administration(user, any(grant.project is None for grant in grants))


def _highest(grants: Iterable[Grant]) -> dict[str, str]:
    """Per project the highest role."""
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
        return  # what an administrator gave is theirs to take
    try:
        set_administrator(actor=None, user=user, administrator=wanted, by_directory=True)
    except LastAdministrator as error:
        logger.warning("the directory takes administration away, which stays: %s", error)
