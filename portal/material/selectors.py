"""The only access to a project's objects besides its jobs. Objects that a user may not see do not exist for them."""

from __future__ import annotations

from accounts.models import Project, User
from accounts.selectors import manageable_projects, visible_projects, writable_projects
from portal.jobs.access import access_job, why_not_writable
from portal.material.models import Artifact, Bundle, Environment, Secret


def project_for_viewer(user: User, key: str) -> Project:
    return visible_projects(user).get(key=key)


def project_for_member(user: User, key: str) -> Project:
    """PermissionError if the user may only read."""
    project = project_for_viewer(user, key)
    if not writable_projects(user).filter(pk=project.pk).exists():
        raise PermissionError(why_not_writable(project))
    return project


def project_for_manager(user: User, key: str) -> Project:
    project = project_for_viewer(user, key)
    if not manageable_projects(user).filter(pk=project.pk).exists():
        raise PermissionError(f"Only managers of {project.name} may do this.")
    return project


def access_bundle(user: User, key: str, sha256: str, *, write: bool = False) -> Bundle:
    project = project_for_member(user, key) if write else project_for_viewer(user, key)
    return Bundle.objects.select_related("project", "uploaded_by").get(project=project, sha256=sha256)


def access_environment(user: User, key: str, digest: str, *, write: bool = False) -> Environment:
    """The one of the cluster on which it was last used."""
    project = project_for_member(user, key) if write else project_for_viewer(user, key)
    rows = Environment.objects.select_related("project", "cluster").filter(project=project, digest=digest)
    return rows.order_by("-last_used_at")[:1].get()


def access_secret(user: User, key: str, name: str) -> Secret:
    """For managers."""
    return Secret.objects.select_related("project").get(project=project_for_manager(user, key), name=name)


def access_artifact(user: User, job: str, number: int, *, write: bool = False) -> Artifact:
    found = Artifact.objects.select_related("run__job__project")
    return found.get(pk=number, run__job=access_job(user, job, write=write), removed_at=None)
