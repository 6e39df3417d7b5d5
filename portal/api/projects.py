"""My projects: what they hold and what they spend."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.access import Access
from portal.api.inputs import Query
from portal.api.operations import operation, signed_in
from portal.api.shapes.accounts import Projects
from portal.dashboard.projects import describe_projects


class ProjectsView(APIView):
    @operation("list_projects", Projects, access=Access.SIGNED_IN, tag="projects")
    def get(self, request: Request, query: Query) -> Response:
        """Projects that I may see, with their quota and what they use now."""
        return Response(describe_projects(signed_in(request), timezone.now()))
