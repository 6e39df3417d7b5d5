"""Sign in and out, and the signed-in user."""

from __future__ import annotations

from typing import Annotated, Any

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.models import AnonymousUser
from django.middleware.csrf import get_token
from django.urls import reverse
from pydantic import Field
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from accounts import attempts
from accounts.models import User
from accounts.oidc import PROVIDER
from accounts.origin import address_of
from accounts.selectors import projects_with_roles
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Query, SecretBody
from portal.api.http.operations import CSRF_TOKEN, operation
from portal.api.http.parsing import JsonParser
from portal.api.http.rates import RateThrottle
from portal.api.shapes.people import Session
from portal.core.money import CURRENCY
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.jobs import identity
from portal.jobs.clusters import active_clusters, is_emulated, speedup
from portal.jobs.engine_names import engine_name
from portal.jobs.models import Accelerator, Cluster
from portal.live.streams import stream_of
from portal.readmodels.cluster.isolation import single_trust_mode

MOST_PROJECTS = 200
WRONG = "Email and password do not match an active account."


class Credentials(SecretBody):
    email: Annotated[str, Field(min_length=1, max_length=254), OneLine] = Field(examples=["ana@example.org"])
    password: str = Field(min_length=1, max_length=1_024)


class SignInThrottle(BaseThrottle):
    seconds = 0

    def allow_request(self, request: Request, view: APIView) -> bool:
        if request.method == "POST" and isinstance(request.data, dict):
            self.seconds = attempts.wait_s(address_of(request), str(request.data.get("email")))
        return not self.seconds

    def wait(self) -> float:
        return self.seconds


class SessionView(APIView):
    permission_classes = [AllowAny]
    parser_classes = [JsonParser]
    throttle_classes = [RateThrottle, SignInThrottle]

    @operation("get_session", Session, access=Access.PUBLIC, tag="session", public=True)
    def get(self, request: Request, query: Query) -> Response:
        """The signed-in user and their projects. Also answers without sign-in, and sets the CSRF cookie."""
        get_token(request._request)
        return Response(describe_session(request.user))

    @operation(
        "sign_in",
        Session,
        access=Access.PUBLIC,
        tag="session",
        body=Credentials,
        problems=(401, 403, 429),
        public=True,
        parameters=[CSRF_TOKEN],
    )
    def post(self, request: Request, query: Query, body: Credentials) -> Response:
        """Sign in with a session cookie. Needs the CSRF token, like every change with a cookie."""
        SessionAuthentication().enforce_csrf(request)
        user = authenticate(request._request, username=body.email, password=body.password)
        if not isinstance(user, User):
            raise Refused(401, WRONG)
        login(request._request, user)
        attempts.forget(address_of(request), body.email)
        return Response(describe_session(user))

    @operation(
        "sign_out",
        None,
        access=Access.PUBLIC,
        tag="session",
        status=204,
        problems=(403,),
        public=True,
        parameters=[CSRF_TOKEN],
    )
    def delete(self, request: Request, query: Query) -> Response:
        """Sign out; the session cannot be used again."""
        SessionAuthentication().enforce_csrf(request)
        logout(request._request)
        return Response(status=204)


def _in_session(cluster: Cluster, place: int) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "stream": stream_of(cluster, place),
        "engine": engine_name(cluster),
        "engine_away_since_at": iso(cluster.engine_away_since),
    }


def describe_session(user: User | AnonymousUser) -> dict[str, Any]:
    clusters = list(active_clusters())
    cluster = clusters[0] if clusters else None
    projects = projects_with_roles(user, most=MOST_PROJECTS + 1)
    gpus = Accelerator.objects.filter(node__cluster=cluster, present=True)
    return {
        "user": {"id": user.pk, "email": user.email, "name": str(user), "is_admin": user.is_superuser}
        if isinstance(user, User)
        else None,
        "single_sign_on": {
            "name": settings.EVENKEEL_OIDC_NAME,
            "url": reverse("openid_connect_login", kwargs={"provider_id": PROVIDER}),
        }
        if settings.EVENKEEL_OIDC_ISSUER
        else None,
        "projects": [{"key": p.key, "name": p.name, "role": role} for p, role in projects[:MOST_PROJECTS]],
        "more_projects": len(projects) > MOST_PROJECTS,
        "cluster": {
            "name": cluster.name if cluster else "",
            "nodes": gpus.values("node").distinct().count(),
            "gpus": gpus.count(),
        },
        "clusters": [_in_session(one, place) for place, one in enumerate(clusters)],
        "single_trust_mode": single_trust_mode(cluster),
        "runs_as_person": identity.anywhere(),
        "emulated": is_emulated(cluster.pk if cluster else None),
        "speedup": speedup(cluster.pk if cluster else None),
        "currency": CURRENCY,
        "version": settings.VERSION,
    }
