"""Who may use an operation at all. Selectors decide about individual objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.request import Request

from accounts.models import ApiToken, Scope
from portal.api.http.access import Access

if TYPE_CHECKING:  # the framework reads its settings, and so this module, while it imports its views
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """A token needs the scope that the operation declares; by default `jobs:read` to read and `admin` for everything
    else. Sessions need none."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not isinstance(request.auth, ApiToken):
            return True
        method = str(request.method)
        operation = getattr(view, method.lower(), None)
        if getattr(operation, "access", None) is Access.SESSION:
            self.message = "A token cannot do this: sign in for it."
            return False
        otherwise = Scope.JOBS_READ if method in SAFE_METHODS else Scope.ADMIN
        needed = getattr(operation, "scope", None) or otherwise
        self.message = f"This token lacks the scope {needed}."
        if needed == Scope.ADMIN:
            self.message += " An administrator makes one with `evenkeel login --admin`."
        return needed in request.auth.scopes


class IsAdministrator(BasePermission):
    message = "Only administrators of the cluster may do this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(request.user.is_authenticated and request.user.is_superuser)


SIGNED_IN: list[type[BasePermission]] = [IsAuthenticated, HasScope]
ADMINISTRATORS: list[type[BasePermission]] = [*SIGNED_IN, IsAdministrator]


def readers_and_administrators(view: APIView) -> list[BasePermission]:
    """`get_permissions` of resources that everybody reads and administrators change."""
    return [permission() for permission in (SIGNED_IN if view.request.method in SAFE_METHODS else ADMINISTRATORS)]
