"""Files that runs left: listed, downloaded whole or in part, removed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.shapes.material import ArtifactPage
from portal.core.times import iso
from portal.execution.material_tasks import remove_artifacts_now
from portal.jobs.access import access_job
from portal.jobs.models import Job, Run
from portal.material import artifacts
from portal.material.files import BLOCK, PlainFile, artifact_file
from portal.material.models import Artifact as ArtifactRow
from portal.material.models import RunMaterial
from portal.material.selectors import access_artifact
from scheduling.lifecycle import LIVE, State

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
RANGE = OpenApiParameter(
    "Range", str, OpenApiParameter.HEADER, description="One range of bytes: `bytes=0-1023`, `bytes=9-`, `bytes=-100`."
)
_CONTENT = (200, "application/octet-stream")
_PART = (206, "application/octet-stream")


class ArtifactsView(APIView):
    @operation("list_artifacts", ArtifactPage, access=Access.VIEWER, tag="artifacts", path=["job"], query=PageQuery)
    def get(self, request: Request, job: str, query: PageQuery) -> Response:
        """Files that the job's runs left, newest first."""
        row = access_job(signed_in(request), job)
        state = _collecting(row)  # before the list: if it is reported complete, it must be
        rows = ArtifactRow.objects.filter(run__job=row, removed_at=None).select_related("run")
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [_describe(artifact) for artifact in found], **state})


class ArtifactView(APIView):
    @operation(
        "download_artifact",
        OpenApiTypes.BINARY,
        access=Access.VIEWER,
        tag="artifacts",
        path=["job", "artifact"],
        status=_CONTENT,
        also={_PART: OpenApiTypes.BINARY},
        parameters=[RANGE],
        problems=(409, 416),
    )
    def get(self, request: Request, job: str, artifact: int, query: Query) -> HttpResponseBase:
        """The file itself, as an attachment. 409 if it has changed since it was listed."""
        row = access_artifact(signed_in(request), job, artifact)
        file = artifact_file(row)
        if file.size() != row.size_bytes:
            raise Refused(409, "The file is gone, or another one since it was listed.")
        start, end = _wanted(request.headers.get("Range"), row.size_bytes)
        partial = (start, end) != (0, row.size_bytes)
        response = StreamingHttpResponse(
            _blocks(file, start, end), status=206 if partial else 200, content_type="application/octet-stream"
        )
        response["Content-Length"] = str(end - start)
        if partial:
            response["Content-Range"] = f"bytes {start}-{end - 1}/{row.size_bytes}"
        name = row.path.rsplit("/", 1)[-1]
        response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        response["X-Content-Type-Options"] = "nosniff"
        response["Content-Security-Policy"] = "sandbox"
        response["Accept-Ranges"] = "bytes"
        response["ETag"] = f'"{row.sha256}"'
        return response

    @operation(
        "delete_artifact", None, access=Access.MEMBER, tag="artifacts", status=204, path=["job", "artifact"],
        problems=(403, 409),
    )  # fmt: skip
    def delete(self, request: Request, job: str, artifact: int, query: Query) -> Response:
        """Delete the file before its time."""
        row = access_artifact(signed_in(request), job, artifact, write=True)
        artifacts.remove_artifact(actor=signed_in(request), artifact=row)
        remove_artifacts_now.delay()
        return Response(status=204)


async def _blocks(file: PlainFile, start: int, end: int) -> AsyncIterator[bytes]:
    read = sync_to_async(file.read, thread_sensitive=False)
    while start < end and (data := await read(start, min(BLOCK, end - start))):
        yield data
        start += len(data)


def _wanted(header: str | None, size: int) -> tuple[int, int]:
    """First and last byte; anything but a single range of bytes is answered with the whole file."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[1] == match[2] == "":
        return 0, size
    if match[1] == "":
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if start >= end:
        raise Refused(416, f"The file has {size:,} bytes; the range lies outside of it.")
    return start, end


def _collecting(job: Job) -> dict[str, Any]:
    assert job.run is not None
    last = Run.objects.filter(job=job, epoch__gt=0).order_by("-attempt").first()  # a waiting run has left nothing
    material = RunMaterial.objects.filter(run=last).first() if last else None
    done = material is not None and material.collecting in ("done", "failed")
    live = State(job.run.state) in LIVE
    return {
        "collecting": live or (last is not None and not done),
        "left_out": material.left_out if material else 0,
    }


def _describe(artifact: ArtifactRow) -> dict[str, Any]:
    return {
        "id": artifact.pk,
        "path": artifact.path,
        "bytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "attempt": artifact.run.attempt,
        "created_at": iso(artifact.created_at),
        "expires_at": iso(artifact.expires_at),
    }
