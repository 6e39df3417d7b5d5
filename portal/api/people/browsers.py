"""Sessions of a user."""

from __future__ import annotations

from allauth.usersessions.models import UserSession
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.sessions import device_of, end_other_sessions, end_session, live_sessions
from portal.api.http.access import Access
from portal.api.http.inputs import Query
from portal.api.http.operations import operation, signed_in
from portal.api.shapes.people import BrowserSessions, Ended
from portal.core.times import iso


class BrowsersView(APIView):
    @operation("list_sessions", BrowserSessions, access=Access.SESSION, tag="session")
    def get(self, request: Request, query: Query) -> Response:
        """My signed-in sessions, the last seen first; at most 50."""
        current = request.session.session_key
        sessions = [
            {
                "id": session.pk,
                "device": device_of(session.user_agent),
                "address": session.ip,
                "created_at": iso(session.created_at),
                "last_seen_at": iso(session.last_seen_at),
                "current": session.session_key == current,
            }
            for session in live_sessions(signed_in(request))
        ]
        return Response({"results": sessions})

    @operation("end_other_sessions", Ended, access=Access.SESSION, tag="session")
    def delete(self, request: Request, query: Query) -> Response:
        """Sign out all other sessions."""
        user = signed_in(request)
        ended = end_other_sessions(user=user, but=request.session.session_key)
        return Response({"ended": ended})


class BrowserView(APIView):
    @operation("end_session", None, access=Access.SESSION, tag="session", status=204, path=["browser"])
    def delete(self, request: Request, browser: int, query: Query) -> Response:
        """Sign out one session."""
        user = signed_in(request)
        end_session(actor=user, session=UserSession.objects.get(pk=browser, user=user))
        return Response(status=204)
