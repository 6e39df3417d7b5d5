"""Previews of jobs before they are submitted."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.parsing import JsonParser, YamlParser
from portal.api.jobs.jobs import EXAMPLES
from portal.api.shapes.previews import Preview, PreviewForecast
from portal.forecasts.previews import forecast_of, preview_job
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.schema import JobFile


class PreviewView(APIView):
    parser_classes = [JsonParser, YamlParser]

    @operation(
        "preview_job",
        Preview,
        access=Access.MEMBER,
        tag="jobs",
        request={"application/json": JobFile, "application/yaml": JobFile},
        problems=(403,),
        examples=EXAMPLES,
    )
    def post(self, request: Request, query: Query) -> Response:
        """Whether a job file would start now, later or never, why, on which GPUs, and its effect on other jobs.

        The verdict is the scheduler's own: its next round, planned with the job on a snapshot some seconds old. Its
        expected start takes a few seconds more: poll `previews/{preview}` with `forecast`, about twice a second.
        Nothing is submitted and nothing changes.
        """
        return Response(preview_job(signed_in(request), parse_job_file(request.data)))


class PreviewForecastView(APIView):
    @operation(
        "get_preview_forecast", PreviewForecast, access=Access.SIGNED_IN, tag="jobs", path=["preview"], problems=(404,)
    )
    def get(self, request: Request, preview: UUID, query: Query) -> Response:
        """When the job of a preview of mine would start and end, and which jobs would start later; for ten minutes."""
        found = forecast_of(signed_in(request), preview)
        if found is None:
            raise Http404
        return Response(found)
