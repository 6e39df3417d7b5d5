"""Job templates: a user's own, and those that a project shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.named import named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.jobs.saved_views import Name
from portal.api.shapes.saved import Template, TemplatePage
from portal.core.problems import Problems
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.jobfile.parsing import parse_job_file
from portal.jobs.models import JobTemplate
from portal.submission.saved import (
    MayChange,
    new_template,
    remove_template,
    save_template,
    template_to_change,
    visible_templates,
)

EXAMPLE = OpenApiExample(
    "A nightly training",
    {
        "name": "ResNet, nightly",
        "description": "Four GPUs at most, cheap hours.",
        "file": {"model_type": "resnet50", "total_steps": 20_000, "gpus": {"min": 1, "max": 4}, "nice": 50},
    },
    request_only=True,
)


class TemplateChange(Body):
    name: Name
    description: Annotated[str, Field(max_length=300), OneLine] = ""
    file: dict[str, Any] = Field(description="A job file; it is checked as a submission is.")


class TemplateWish(TemplateChange):
    project: Word | None = Field(None, description="Key of the project to share it with; left out: yours alone.")


class TemplatesQuery(PageQuery):
    project: Word | None = Field(None, description="Only those that this project shares.")


class TemplatesView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "list_templates", TemplatePage, access=Access.SIGNED_IN, tag="jobs", query=TemplatesQuery, problems=(404,)
    )
    def get(self, request: Request, query: TemplatesQuery) -> Response:
        """My templates and those of my projects, oldest first, without their files."""
        user = signed_in(request)
        rows = visible_templates(user).defer("file")
        if query.project is not None:
            rows = rows.filter(project=named_project(user, query.project))
        found, links = take_page(request, rows, query, key="id", newest_first=False)
        may = MayChange.of(user, found)
        return Response({**links, "results": [_summary(row, can_change=may(row)) for row in found]})

    @operation(
        "create_template",
        Template,
        access=Access.SIGNED_IN,
        tag="jobs",
        status=201,
        body=TemplateWish,
        problems=(403, 404, 409),
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: TemplateWish) -> Response:
        """Save a job file as a template, for me or for a project of which I am a member; at most 100 of each."""
        user = signed_in(request)
        project = visible_projects(user).get(key=body.project) if body.project else None
        return Response(_store(user, new_template(user=user, project=project), body), status=201)


class TemplateView(APIView):
    parser_classes = [JsonParser]

    @operation("get_template", Template, access=Access.SIGNED_IN, tag="jobs", path=["template"])
    def get(self, request: Request, template: int, query: Query) -> Response:
        """A template with its job file."""
        user = signed_in(request)
        return Response(_describe(user, visible_templates(user).get(pk=template)))

    @operation(
        "change_template",
        Template,
        access=Access.SIGNED_IN,
        tag="jobs",
        path=["template"],
        body=TemplateChange,
        problems=(403, 409),
        examples=[EXAMPLE],
    )
    def put(self, request: Request, template: int, query: Query, body: TemplateChange) -> Response:
        """Change name, description or job file. A project's: only its author and managers."""
        user = signed_in(request)
        return Response(_store(user, template_to_change(user, template), body))

    @operation(
        "remove_template",
        None,
        access=Access.SIGNED_IN,
        tag="jobs",
        status=204,
        path=["template"],
        problems=(403,),
    )
    def delete(self, request: Request, template: int, query: Query) -> Response:
        """Delete a template; jobs made from it stay. A project's: only its author and managers."""
        user = signed_in(request)
        remove_template(actor=user, template=template_to_change(user, template))
        return Response(status=204)


def _store(user: User, row: JobTemplate, body: TemplateChange) -> dict[str, Any]:
    row.name, row.description, row.file = body.name, body.description, _checked(body.file)
    return _describe(user, save_template(actor=user, template=row))


def _checked(file: dict[str, Any]) -> dict[str, Any]:
    """Only the given keys are kept, so that later defaults apply to the rest. Raises Problems by field."""
    try:
        return parse_job_file(file).model_dump(mode="json", exclude_unset=True)
    except Problems as error:
        named = [replace(p, field="file" if p.field == "job file" else f"file.{p.field}") for p in error.problems]
        raise Problems(named) from None


def _summary(row: JobTemplate, *, can_change: bool) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "project": row.project.key if row.project else None,
        "author": str(row.author) if row.author else None,
        "changed_at": iso(row.changed_at),
        "can_change": can_change,
    }


def _describe(user: User, row: JobTemplate) -> dict[str, Any]:
    return {**_summary(row, can_change=MayChange.of(user, [row])(row)), "file": row.file}
