"""The OpenAPI document itself, and unknown addresses."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from portal.api.http.errors import handler404

FILE = Path(__file__).with_name("openapi.yaml")


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # nosec B506
    return loaded


@extend_schema(exclude=True)
class SchemaView(APIView):
    """OpenAPI 3.1, as JSON or as YAML: whichever is accepted first."""

    authentication_classes = []
    permission_classes = []

    def get(self, request: Request) -> HttpResponseBase:
        if "yaml" in request.headers.get("Accept", ""):
            return HttpResponse(FILE.read_bytes(), content_type="application/yaml")
        return JsonResponse(document())


@csrf_exempt
def unknown(request: HttpRequest) -> HttpResponseBase:
    """Answered here, so that it also works with DEBUG."""
    return handler404(request)
