"""What every answer carries."""

from __future__ import annotations

from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

#: The administration's own pages evaluate attributes as scripts (Alpine); only staff reach them.
_ADMINISTRATION = {"script-src": [SELF, UNSAFE_INLINE, UNSAFE_EVAL]}


class ContentPolicy(CSPMiddleware):
    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if request.path.startswith("/admin/"):
            parts.replace = _ADMINISTRATION
        return parts
