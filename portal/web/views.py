"""The page with the front end, and health checks for load balancers and supervisors."""

from collections.abc import Callable
from pathlib import Path

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster
from portal.readmodels.cluster.isolation import single_trust_mode

NOT_BUILT = "The front end is not built yet: run `make frontend`, then start again. The API is at /api/v1/.\n"


@require_safe
@never_cache
@ensure_csrf_cookie
def index(request: HttpRequest) -> HttpResponseBase:
    """Every address that is a page of the single-page application."""
    page = Path(settings.FRONTEND_DIST) / "index.html"
    if not page.is_file():
        return HttpResponse(NOT_BUILT, status=503, content_type="text/plain")
    return HttpResponse(page.read_bytes())


@require_safe
@ensure_csrf_cookie
def api_docs(request: HttpRequest) -> HttpResponse:
    """The API's interactive documentation, served entirely from here."""
    return render(request, "docs/api.html", {"single_trust_mode": single_trust_mode(active_clusters().first())})


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """This process and what it needs answer. An engine that does not answer is named, but does not make the portal
    unready."""
    checks = {"database": _says(_ask_database), "redis": _says(_ask_redis)}
    ready = all(answer == "ok" for answer in checks.values())
    engines = {one.name: _engine(one) for one in active_clusters()} if ready else {}
    status = "ok" if ready else "unavailable"
    return JsonResponse({"status": status, **checks, "engines": engines}, status=200 if ready else 503)


def _engine(cluster: Cluster) -> str:
    since = cluster.engine_away_since
    return f"has not answered since {since:%Y-%m-%dT%H:%M:%SZ}" if since else "ok"


def _says(ask: Callable[[], None]) -> str:
    try:
        ask()
    except (DatabaseError, redis.RedisError):
        return "unavailable"
    return "ok"


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_redis() -> None:
    with redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2) as client:
        client.ping()
