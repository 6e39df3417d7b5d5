"""Environments requested by jobs of a project, with their build logs."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.shapes.material import BuildLog, Environment, EnvironmentPage
from portal.core.times import iso
from portal.execution.material_tasks import discard_paths
from portal.material import environments, files
from portal.material.models import Environment as EnvironmentRow
from portal.material.selectors import access_environment, project_for_viewer

MAX_BYTES = 1 << 20


class BuildLogQuery(Query):
    offset: int = Field(0, ge=0, le=2**62, description="First byte.")
    limit: int = Field(files.BLOCK, ge=1, le=MAX_BYTES, description="Bytes at most.")
    tail: int | None = Field(None, ge=1, le=10_000, description="So many of the last lines.")


class EnvironmentsView(APIView):
    @operation(
        "list_environments", EnvironmentPage, access=Access.VIEWER, tag="environments", path=["project"],
        query=PageQuery,
    )  # fmt: skip
    def get(self, request: Request, project: str, query: PageQuery) -> Response:
        """The project's environments, newest first."""
        rows = project_for_viewer(signed_in(request), project).environments.all()
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(environment) for environment in found]})


class EnvironmentView(APIView):
    @operation("get_environment", Environment, access=Access.VIEWER, tag="environments", path=["project", "digest"])
    def get(self, request: Request, project: str, digest: str, query: Query) -> Response:
        """One environment: building, ready or failed."""
        return Response(_describe(access_environment(signed_in(request), project, digest)))

    @operation(
        "delete_environment", None, access=Access.MEMBER, tag="environments", status=204, path=["project", "digest"],
        problems=(403, 409),
    )  # fmt: skip
    def delete(self, request: Request, project: str, digest: str, query: Query) -> Response:
        """Delete an environment; the next job that asks for it builds it again. 409 while a job needs it."""
        environment = access_environment(signed_in(request), project, digest, write=True)
        for one in environments.on_all_clusters(environment):
            owner = environments.owner_of(one)
            paths = environments.forget(actor=signed_in(request), environment=one)
            discard_paths.delay(one.cluster_id, owner, paths)
        return Response(status=204)


class BuildLogView(APIView):
    @operation(
        "get_environment_log", BuildLog, access=Access.VIEWER, tag="environments", path=["project", "digest"],
        query=BuildLogQuery,
    )  # fmt: skip
    def get(self, request: Request, project: str, digest: str, query: BuildLogQuery) -> Response:
        """A range of the build log. Continue at next_offset until it is complete."""
        environment = access_environment(signed_in(request), project, digest)
        log = files.environment_log(environment)
        ended = environment.state != EnvironmentRow.State.BUILDING
        chunk = (
            log.tail(query.tail, query.limit, growing=not ended)
            if query.tail
            else log.chunk(query.offset, query.limit, growing=not ended)
        )
        return Response(
            {
                "offset": chunk.offset,
                "next_offset": chunk.next_offset,
                "size": chunk.size,
                "text": chunk.text,
                "complete": ended and chunk.next_offset >= chunk.size,
            }
        )


def _describe(environment: EnvironmentRow) -> dict[str, Any]:
    return {
        "digest": environment.digest,
        "state": environment.state,
        "requirements": environment.requirements,
        "base": environment.base,
        "bytes": environment.size_bytes,
        "error": environment.error,
        "created_at": iso(environment.created_at),
        "finished_at": iso(environment.finished_at),
        "last_used_at": iso(environment.last_used_at),
    }
