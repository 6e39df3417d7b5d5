"""Uploaded code of a project."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Project
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.shapes.material import Bundle, BundlePage
from portal.core.times import iso
from portal.material import bundles
from portal.material.models import Bundle as BundleRow
from portal.material.selectors import access_bundle, project_for_member, project_for_viewer

MAX_USERS = 20
CONTENT_TYPES = ("application/gzip", "application/x-gzip", "application/x-gtar", "application/octet-stream")


class BundlesView(APIView):
    @operation("list_bundles", BundlePage, access=Access.VIEWER, tag="bundles", path=["project"], query=PageQuery)
    def get(self, request: Request, project: str, query: PageQuery) -> Response:
        """The project's bundles, newest first."""
        owner = project_for_viewer(signed_in(request), project)
        found, links = take_page(request, owner.bundles.select_related("uploaded_by"), query, key="id")
        return Response({**links, "results": _describe(owner, found)})

    @operation(
        "upload_bundle",
        Bundle,
        access=Access.MEMBER,
        tag="bundles",
        path=["project"],
        status=201,
        also={200: Bundle},
        request={"application/gzip": OpenApiTypes.BINARY},
        problems=(403,),
    )
    def post(self, request: Request, project: str, query: Query) -> Response:
        """Upload a .tar.gz of code. 200 and the same bundle if the project has this content already."""
        owner = project_for_member(signed_in(request), project)
        if (request.content_type or "").partition(";")[0].strip().lower() not in CONTENT_TYPES:
            raise Refused(415, f"Send the archive itself, as {CONTENT_TYPES[0]}.")
        # In pieces, and without the framework's own parser, which treats a body of unknown length as empty.
        read = request._request.read
        bundle, created = bundles.store_bundle(actor=signed_in(request), project=owner, read=read)
        return Response(_describe(owner, [bundle])[0], status=201 if created else 200)


class BundleView(APIView):
    @operation("get_bundle", Bundle, access=Access.VIEWER, tag="bundles", path=["project", "sha256"])
    def get(self, request: Request, project: str, sha256: str, query: Query) -> Response:
        """One bundle; 404 if the project does not have it."""
        bundle = access_bundle(signed_in(request), project, sha256)
        return Response(_describe(bundle.project, [bundle])[0])

    @operation(
        "delete_bundle",
        None,
        access=Access.MEMBER,
        tag="bundles",
        status=204,
        path=["project", "sha256"],
        problems=(403, 409),
    )
    def delete(self, request: Request, project: str, sha256: str, query: Query) -> Response:
        """Delete a bundle. 409 while an unfinished job needs it."""
        bundles.delete_bundle(
            actor=signed_in(request), bundle=access_bundle(signed_in(request), project, sha256, write=True)
        )
        return Response(status=204)


def _describe(project: Project, found: list[BundleRow]) -> list[dict[str, Any]]:
    users = bundles.live_users(project, [bundle.sha256 for bundle in found])
    return [
        {
            "sha256": bundle.sha256,
            "bytes": bundle.size_bytes,
            "unpacked_bytes": bundle.unpacked_bytes,
            "files": bundle.files,
            "uploaded_by": str(bundle.uploaded_by) if bundle.uploaded_by else None,
            "created_at": iso(bundle.created_at),
            "last_used_at": iso(bundle.last_used_at),
            "used_by": users.get(bundle.sha256, [])[:MAX_USERS],
        }
        for bundle in found
    ]
