"""What-ifs: other GPUs for a job, or one more node; for members, about their own projects."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.selectors import access_project
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, ClusterQuery, Query, Several, Word
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.parsing import JsonParser, YamlParser
from portal.api.http.rates import charge_what_if
from portal.api.jobs.jobs import EXAMPLES
from portal.api.shapes import previews as shapes
from portal.forecasts.what_if import MOST_GPUS, HasEnded, answer_of, what_if_draft, what_if_job, what_if_node
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.schema import JobFile
from portal.jobs.access import access_job

Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]


class OptionsQuery(Query):
    gpus: Annotated[list[Count], Several] = Field(
        [1, 2, 4, 8], min_length=1, max_length=8, description="GPU counts to compare; `1,2,4` or repeated."
    )
    types: Annotated[list[Word], Several] = Field(
        [], max_length=8, description="Accelerator types to compare; by default all of its partition."
    )


class OneMoreNode(Body):
    type: Word = Field(description="Accelerator type of the node.")


class DraftWhatIfView(APIView):
    parser_classes = [JsonParser, YamlParser]

    @operation(
        "what_if_draft",
        shapes.WhatIf,
        access=Access.MEMBER,
        tag="jobs",
        request={"application/json": JobFile, "application/yaml": JobFile},
        query=OptionsQuery,
        problems=(403,),
        examples=EXAMPLES,
    )
    def post(self, request: Request, query: OptionsQuery) -> Response:
        """Duration and cost of a job file on other GPU counts and types. Nothing is submitted.

        Starts and ends take some seconds more: poll `what-ifs/{what_if}`, about twice a second.
        """
        charge_what_if(request)
        found = what_if_draft(signed_in(request), parse_job_file(request.data), query.gpus, query.types)
        return Response(found)


class JobWhatIfView(APIView):
    @operation(
        "what_if_job",
        shapes.WhatIf,
        access=Access.VIEWER,
        scope="jobs:read",
        tag="jobs",
        path=["job"],
        query=OptionsQuery,
        problems=(409,),
    )
    def post(self, request: Request, job: str, query: OptionsQuery) -> Response:
        """Duration and cost of the rest of a job on other GPU counts and types. 409 if it has ended.

        A running job would leave its GPUs and queue for these. Nothing changes; poll `what-ifs/{what_if}` for starts.
        """
        charge_what_if(request)
        user = signed_in(request)
        try:
            return Response(what_if_job(user, access_job(user, job), query.gpus, query.types))
        except HasEnded as error:
            raise Refused(409, str(error)) from None


class NodeWhatIfView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "what_if_node",
        shapes.NodeWhatIf,
        access=Access.VIEWER,
        scope="jobs:read",
        tag="projects",
        path=["project"],
        body=OneMoreNode,
        examples=[OpenApiExample("One more", {"type": "k1"}, request_only=True)],
        query=ClusterQuery,
    )
    def post(self, request: Request, project: str, query: ClusterQuery, body: OneMoreNode) -> Response:
        """The effect of one more node of a type on a project's jobs, and its price. Nothing changes.

        The effect takes some seconds: poll `what-ifs/{what_if}`, about twice a second.
        """
        charge_what_if(request)
        user = signed_in(request)
        return Response(what_if_node(user, named_cluster(query), access_project(user, project)[0], body.type))


class WhatIfView(APIView):
    @operation("get_what_if", shapes.WhatIfAnswer, access=Access.SIGNED_IN, tag="jobs", path=["what_if"])
    def get(self, request: Request, what_if: UUID, query: Query) -> Response:
        """Starts and ends of a what-if of mine, for ten minutes."""
        found = answer_of(signed_in(request), what_if)
        if found is None:
            raise Http404
        return Response(found)
