"""Projects: their tree, use and costs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import slurm_names
from accounts.cluster_shares import weights_of
from accounts.models import MOST_PRIORITY, SLURM_NAMES, Membership, Project, User
from accounts.projects import (
    BadPlace,
    archive_project,
    check_place,
    move_project,
    rename_project,
    restore_project,
    set_cluster_shares,
    set_share,
)
from accounts.selectors import (
    access_project,
    manageable_projects,
    projects_above,
    visible_projects,
    with_roles,
)
from accounts.services import create_project
from accounts.tree import descendants
from portal.api.http import editing
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.people.members import inherited_from
from portal.api.shapes.people import ProjectDetail, ProjectPage
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.core.times import iso
from portal.dashboard.projects import describe_projects
from portal.jobfile.fields import OneLine
from portal.jobs.models import Cluster, Job
from scheduling.lifecycle import LIVE

Name = Annotated[str, OneLine, Field(min_length=1, max_length=120)]
Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
MANAGER = Membership.Role.MANAGER
#: The editable part of a project; its use changes by itself.
EDITED = editing.only(
    "key", "name", "parent", "archived_at", "share_weight", "cluster_shares", "inner_rule", "priority", "slurm"
)


class ProjectWish(Body):
    key: Key = Field(examples=["vision"], description="Kept for good: accounts on nodes are named after it.")
    name: Name = Field(examples=["Computer vision"])
    parent: Key | None = Field(None, description="Key of the project above. At the top only administrators create.")


SlurmName = Annotated[str, Field(pattern=f"^{slurm_names.NAME}$")]


class SlurmNamesChange(Body):
    """Missing keys stay; null: as in the project above."""

    account: SlurmName | None = None
    qos: SlurmName | None = None
    partition: Annotated[str, Field(pattern=f"^{slurm_names.SEVERAL}$", max_length=200)] | None = Field(
        None, description="One, or several with commas, which all have the nodes that the cluster has here."
    )
    wckey: SlurmName | None = None
    reservation: SlurmName | None = None


class ProjectChange(Body):
    name: Name | None = None
    parent: Key | None = Field(None, description="Move it, with all below it, under this project; null: to the top.")
    share_weight: float | None = Field(
        None, ge=0.001, le=1000, description="Its part of what the project above gets; set by managers of that one."
    )
    cluster_shares: dict[Word, Annotated[float, Field(ge=0.001, le=1000)] | None] = Field(
        {}, max_length=16, description="Its part on a cluster, by the cluster's name; null: its share_weight there too."
    )
    inner_rule: Literal["fairness", "fifo"] | None = Field(None, description="How its own jobs divide its part.")
    priority: int | None = Field(
        None,
        ge=0,
        le=MOST_PRIORITY,
        description="Against other projects', set by administrators; null: as the one above.",
    )
    slurm: SlurmNamesChange | None = Field(
        None, description="What its jobs are submitted as where a cluster is a Slurm; set by administrators."
    )


class ProjectsQuery(PageQuery):
    search: Word | None = Field(None, description="Part of a name or of a key.")
    archived: bool | None = Field(None, description="False: those in use only.")


class ProjectsView(APIView):
    parser_classes = [JsonParser]

    @operation("list_projects", ProjectPage, access=Access.SIGNED_IN, tag="projects", query=ProjectsQuery)
    def get(self, request: Request, query: ProjectsQuery) -> Response:
        """Projects that I may see, oldest first, with their limits and present use."""
        user = signed_in(request)
        rows = with_roles(user, visible_projects(user))
        if query.search:
            words = query.search.strip()
            rows = rows.filter(Q(name__icontains=words) | Q(key__icontains=words))
        if query.archived is not None:
            rows = rows.filter(archived_at__isnull=not query.archived)
        found, links = take_page(request, rows, query, key="id", newest_first=False)
        described = describe_projects(user, [(project, project.role) for project in found], timezone.now())
        return Response({**links, "results": described})

    @operation(
        "create_project",
        ProjectDetail,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        status=201,
        body=ProjectWish,
        problems=(409,),
    )
    def post(self, request: Request, query: Query, body: ProjectWish) -> Response:
        """Create a project, below one that I manage; at the top for administrators."""
        user = signed_in(request)
        parent = _place(user, body.parent)
        _refuse_bad_place(None, parent)
        if Project.objects.filter(key=body.key).exists():
            taken = FieldProblem("key", "is taken; keys are unique in the whole portal", "taken")
            raise Refused(409, f"key {taken.message}", [taken])
        create_project(actor=user, key=body.key, name=body.name, parent=parent)
        return Response(_detail(user, body.key), status=201)


class ProjectView(APIView):
    parser_classes = [JsonParser]

    @operation("get_project", ProjectDetail, access=Access.VIEWER, tag="projects", path=["project"], version=EDITED)
    def get(self, request: Request, project: str, query: Query) -> Response:
        """One project, and the origin of my role in it."""
        return Response(_detail(signed_in(request), project))

    @operation(
        "change_project",
        ProjectDetail,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project"],
        body=ProjectChange,
        problems=(409,),
    )
    def patch(self, request: Request, project: str, query: Query, body: ProjectChange) -> Response:
        """Rename or move it, set its share. Moving needs managers of the project, of the one above it and of the new
        one above it."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        if "parent" in body.model_fields_set:
            _move(user, row, body.parent)
        if body.name is not None and body.name != row.name:
            rename_project(actor=user, project=row, name=body.name)
            transaction.on_commit(wake.schedule_round)  # the next round words the reasons of its jobs with the new name
        if body.model_fields_set & {"share_weight", "inner_rule", "priority"}:
            _share(user, row, body)
        if body.slurm is not None and (names := body.slurm.model_dump(exclude_unset=True)):
            _slurm(user, row, names)
        if body.cluster_shares:
            _cluster_shares(user, row, body.cluster_shares)
        return Response(_detail(user, project))


class ArchiveView(APIView):
    @operation(
        "archive_project",
        ProjectDetail,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project"],
        problems=(409,),
    )
    def post(self, request: Request, project: str, query: Query) -> Response:
        """Archive the project and those below it: nothing new is allowed, and its data stays readable. 409 while jobs
        are queued or running."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        live = Job.objects.filter(project__in=descendants(row), run__state__in=[s.value for s in LIVE]).count()
        if live:
            raise Refused(409, f"{live} jobs are queued or running in it or below: let them end, or cancel them.")
        archive_project(actor=user, project=row, now=timezone.now())
        return Response(_detail(user, project))


class RestoreView(APIView):
    @operation(
        "restore_project",
        ProjectDetail,
        access=Access.MANAGER,
        scope="admin",
        tag="projects",
        path=["project"],
        problems=(409,),
    )
    def post(self, request: Request, project: str, query: Query) -> Response:
        """Restore an archived project, and those below it."""
        user = signed_in(request)
        row, _ = access_project(user, project, role=MANAGER)
        try:
            restore_project(actor=user, project=row)
        except BadPlace as error:
            raise Refused(409, str(error)) from None
        return Response(_detail(user, project))


def _place(user: User, key: str | None) -> Project | None:
    """The new parent project, which takes a manager of it, or an administrator for the top."""
    if key is None:
        if not user.is_superuser:
            raise Refused(403, "Only administrators put projects at the top; name a parent that you manage.")
        return None
    if not visible_projects(user).filter(key=key).exists():
        unknown = FieldProblem("parent", "does not exist, or you may not see it", "unknown")
        raise Refused(400, f"parent {unknown.message}", [unknown])
    return access_project(user, key, role=MANAGER)[0]


def _refuse_bad_place(project: Project | None, parent: Project | None) -> None:
    try:
        check_place(project, parent)
    except BadPlace as error:
        raise Refused(409, str(error), [FieldProblem("parent", str(error), "place")]) from None


def _move(user: User, project: Project, key: str | None) -> None:
    parent = _place(user, key)
    if parent is not None and project.parent_id == parent.pk:
        return
    # Levels above restrict the ones below, so moving something out takes both sides.
    if project.parent_id and not _manages_above(user, project):
        raise Refused(403, "Moving it away takes a manager of the project above it.")
    _refuse_bad_place(project, parent)
    try:
        move_project(actor=user, project=project, parent=parent)
    except (BadPlace, ValidationError) as error:
        raise Refused(409, str(error)) from None


def _share(user: User, project: Project, body: ProjectChange) -> None:
    weight = project.share_weight if body.share_weight is None else body.share_weight
    if weight != project.share_weight and not _manages_above(user, project):
        raise Refused(403, "Its weight against its siblings takes a manager of the project above it.")
    priority = body.priority if "priority" in body.model_fields_set else project.priority
    if priority != project.priority and not user.is_superuser:
        raise Refused(403, "Its priority against other projects is set by administrators.")
    rule = body.inner_rule or project.inner_rule
    set_share(actor=user, project=project, weight=weight, inner_rule=rule, priority=priority)


def _slurm(user: User, project: Project, names: dict[str, str | None]) -> None:
    if not user.is_superuser:
        raise Refused(403, "What a project is in Slurm is set by administrators.")
    slurm_names.set_slurm(actor=user, project=project, names=names)


def _cluster_shares(user: User, project: Project, weights: dict[str, float | None]) -> None:
    if not _manages_above(user, project):
        raise Refused(403, "Its weight against its siblings takes a manager of the project above it.")
    known = set(Cluster.objects.values_list("name", flat=True))
    if unknown := [name for name in weights if name not in known]:
        text = f"unknown cluster; there are {', '.join(sorted(known))}"
        raise Problems([FieldProblem(f"cluster_shares.{unknown[0]}", text, "unknown")])
    set_cluster_shares(actor=user, project=project, weights=weights)
    transaction.on_commit(wake.schedule_round)


def _manages_above(user: User, project: Project) -> bool:
    if project.parent_id is None:
        return user.is_superuser
    return manageable_projects(user).filter(pk=project.parent_id).exists()


def _detail(user: User, key: str) -> dict[str, Any]:
    project, role = access_project(user, key)
    (described,) = describe_projects(user, [(project, role)], timezone.now())
    above = slurm_names.inherited(project)
    return {
        **described,
        "path": [{"key": one.key, "name": one.name, "role": one.role} for one in projects_above(user, project)],
        "inherited_from": inherited_from(user, project),
        "created_at": iso(project.created_at),
        "share_weight": project.share_weight,
        "cluster_shares": weights_of(project.pk),
        "inner_rule": project.inner_rule,
        "priority": project.priority,
        "slurm": {name: project.slurm.get(name) for name in SLURM_NAMES},
        "slurm_above": {name: above.get(name) for name in SLURM_NAMES},
    }
