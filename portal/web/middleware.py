"""Middleware: headers of every answer."""

from __future__ import annotations

from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from portal.api.http.rates import Standing

#: The Django admin's pages evaluate attributes as scripts (Alpine); only staff can open them.
_ADMINISTRATION = {"script-src": [SELF, UNSAFE_INLINE, UNSAFE_EVAL]}


class ContentPolicy(CSPMiddleware):
    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if request.resolver_match and request.resolver_match.app_name == "admin":
            parts.replace = _ADMINISTRATION
        return parts


class NoStore(MiddlewareMixin):
    """Answers of the API are never cached by browsers or proxies: errors, exports and downloads included."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path_info.startswith("/api/"):
            response["Cache-Control"] = "no-store"
        return response


class NoNulInPaths(MiddlewareMixin):
    """PostgreSQL stores no text with NUL, so nothing has such a name."""

    def process_request(self, request: HttpRequest) -> None:
        if "\0" in request.path_info:
            raise Http404


class RateLimitHeaders(MiddlewareMixin):
    """If a request was counted, its answer contains the state of that count."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        standing: Standing | None = getattr(request, "rate_standing", None)
        for name, value in standing.headers().items() if standing else ():
            response[name] = value
        return response
