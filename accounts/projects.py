"""Changes of the tree of projects and of memberships, each audited."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from accounts import guarantees
from accounts.audit import record_audit
from accounts.cluster_shares import ClusterShare, weights_of
from accounts.models import MAX_DEPTH, Membership, Project, User
from accounts.tree import ancestors, descendants


class BadPlace(Exception):
    """A project cannot be put there."""


class NoSuchMember(Exception):
    """A membership that does not exist, or that cannot be changed in this project."""


@transaction.atomic
def rename_project(*, actor: User, project: Project, name: str) -> None:
    before, project.name = project.name, name
    project.full_clean(exclude=["key", "parent", "ancestry"])
    project.save(update_fields=["name"])
    detail = {"before": before, "after": name}
    record_audit(actor=actor, action="project.rename", target=project.key, detail=detail)


@transaction.atomic
def set_share(*, actor: User, project: Project, weight: float, inner_rule: str, priority: int | None) -> None:
    """The project's share under policies, how it divides that, and its contribution to its jobs' priority."""
    after = {"share_weight": weight, "inner_rule": inner_rule, "priority": priority}
    before = {name: getattr(project, name) for name in after}
    if before == after:
        return
    for name, value in after.items():
        setattr(project, name, value)
    project.full_clean(exclude=["key", "parent", "ancestry"])
    project.save(update_fields=list(after))
    record_audit(actor=actor, action="project.share", target=project.key, detail={"before": before, "after": after})


@transaction.atomic
def set_cluster_shares(*, actor: User, project: Project, weights: Mapping[str, float | None]) -> None:
    """The project's weight on these clusters; None: its general one."""
    before = weights_of(project.pk)
    for cluster, weight in weights.items():
        if weight is None:
            ClusterShare.objects.filter(project=project, cluster=cluster).delete()
        else:
            ClusterShare.objects.update_or_create(project=project, cluster=cluster, defaults={"weight": weight})
    after = weights_of(project.pk)
    if before != after:
        detail = {"before": before, "after": after}
        record_audit(actor=actor, action="project.cluster_share", target=project.key, detail=detail)


@transaction.atomic
def move_project(*, actor: User, project: Project, parent: Project | None) -> None:
    """Put the project and its subprojects under `parent`, None: at the top. Raises BadPlace."""
    project = Project.objects.select_for_update().get(pk=project.pk)
    check_place(project, parent)
    before = project.parent
    project.parent = parent
    project.save(update_fields=["parent"])
    try:
        guarantees.check_places(actor)
    except guarantees.TooMuch as error:
        raise BadPlace(f"Guaranteed GPUs would not add up. {error}") from None
    detail = {"before": before.key if before else None, "after": parent.key if parent else None}
    record_audit(actor=actor, action="project.move", target=project.key, detail=detail)


def check_place(project: Project | None, parent: Project | None) -> None:
    """The database refuses these as well; here they get a message. `project` None: a new one."""
    if parent is None:
        return
    above = [p.pk for p in ancestors(parent)]
    if project and project.pk in above:
        raise BadPlace(f"{parent.name} is {project.name} itself or below it.")
    if parent.archived_at:
        raise BadPlace(f"{parent.name} is archived.")
    levels = 1
    if project:
        depths = descendants(project).values_list("ancestry__len", flat=True)
        levels = max(depths) - min(depths) + 1
    if len(above) + levels > MAX_DEPTH:
        raise BadPlace(f"Projects may be nested {MAX_DEPTH} levels deep at most.")


@transaction.atomic
def archive_project(*, actor: User, project: Project, now: datetime) -> None:
    """Nothing new is allowed in it and below; existing data stays readable. Archiving it again changes nothing."""
    if descendants(project).filter(archived_at=None).update(archived_at=now):
        record_audit(actor=actor, action="project.archive", target=project.key)


@transaction.atomic
def restore_project(*, actor: User, project: Project) -> None:
    """The project and all its subprojects become active again. Raises BadPlace below an archived one."""
    if ancestors(project).exclude(pk=project.pk).exclude(archived_at=None).exists():
        raise BadPlace("The project above it is archived: restore that one.")
    if descendants(project).exclude(archived_at=None).update(archived_at=None):
        record_audit(actor=actor, action="project.restore", target=project.key)


@transaction.atomic
def remove_member(*, actor: User, project: Project, user: User) -> None:
    """Remove the role that was given here. Raises NoSuchMember: an inherited one, or one from groups, is removed
    there."""
    given = Membership.objects.filter(project=project, user=user)
    own = given.filter(by_directory=False, user__kind=User.Kind.PERSON)
    if not own.delete()[0]:
        why = "It follows the person's groups." if given.filter(by_directory=True) else "It was not given here."
        raise NoSuchMember(f"{user} has no role in {project.name} that could be taken away. {why}")
    record_audit(actor=actor, action="project.member_removed", target=project.key, detail={"user": user.email})
