"""Cost estimates of jobs."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.parsing import JsonParser, YamlParser
from portal.api.jobs.jobs import EXAMPLES
from portal.api.shapes.money import Estimate
from portal.forecasts.choose_cluster import choose
from portal.forecasts.estimates import estimate, known_of
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.schema import JobFile


class EstimateView(APIView):
    parser_classes = [JsonParser, YamlParser]

    @operation(
        "estimate_job",
        Estimate,
        access=Access.MEMBER,
        tag="jobs",
        request={"application/json": JobFile, "application/yaml": JobFile},
        problems=(403,),
        examples=EXAMPLES,
    )
    def post(self, request: Request, query: Query) -> Response:
        """What a job file would cost and how long it would take, by accelerator type, with the basis of the estimate.
        Nothing is stored."""
        wish = choose(signed_in(request), parse_job_file(request.data))
        return Response(estimate(wish, known_of(wish, timezone.now())))
