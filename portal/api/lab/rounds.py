"""Stored rounds: shown, replayed, exported. For administrators: they contain everybody's jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import At, Body, ClusterPageQuery, ClusterQuery, Query, Word
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import ADMINISTRATORS
from portal.api.shapes import rounds as shapes
from portal.lab.replays import answer_of, ask_replay
from portal.lab.rounds import describe_round, describe_row, export_case, kept_rounds, round_of

ANOTHER = OpenApiExample("Another policy", {"policy": "fifo_gang", "parameters": {}}, request_only=True)


class RoundsQuery(ClusterPageQuery):
    from_at: At | None = Field(None, description="Those from then on.")
    to_at: At | None = Field(None, description="Those before then.")
    moved: bool | None = Field(None, description="Only those that moved something, or nothing.")


class ReplayWish(Body):
    policy: Word | None = Field(None, description="Null: that of the round.")
    parameters: dict[str, Any] | None = Field(
        None, description="Null: those of the round where it is the same policy, else defaults."
    )


class RoundsView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("list_rounds", shapes.KeptRoundPage, access=Access.ADMIN, tag="lab", query=RoundsQuery)
    def get(self, request: Request, query: RoundsQuery) -> Response:
        """Stored rounds, newest first: those that moved something, and others now and then."""
        rows = kept_rounds(named_cluster(query), from_at=query.from_at, to_at=query.to_at, moved=query.moved)
        found, links = take_page(request, rows, query, key="round")
        return Response({**links, "results": [describe_row(row) for row in found]})


class RoundView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("get_round", shapes.RoundDetail, access=Access.ADMIN, tag="lab", path=["round"], query=ClusterQuery)
    def get(self, request: Request, round: int, query: ClusterQuery) -> Response:
        """A round's snapshot, its decision, and why."""
        return Response(describe_round(round_of(named_cluster(query), round)))


class RoundReplayView(APIView):
    permission_classes = ADMINISTRATORS
    parser_classes = [JsonParser]

    @operation(
        "replay_round",
        shapes.ReplayAsked,
        access=Access.ADMIN,
        tag="lab",
        status=202,
        path=["round"],
        body=ReplayWish,
        examples=[ANOTHER],
        query=ClusterQuery,
    )
    def post(self, request: Request, round: int, query: ClusterQuery, body: ReplayWish) -> Response:
        """Replay a round from its snapshot. It changes nothing; poll `replays/{replay}` for the answer."""
        user, decision = signed_in(request), round_of(named_cluster(query), round)
        asked = ask_replay(user=user, decision=decision, policy=body.policy, parameters=body.parameters)
        return Response({"replay": asked}, status=202)


class ReplayView(APIView):
    permission_classes = ADMINISTRATORS

    @operation("get_replay", shapes.ReplayAnswer, access=Access.ADMIN, tag="lab", path=["replay"])
    def get(self, request: Request, replay: UUID, query: Query) -> Response:
        """A replay of mine, for ten minutes: its plan compared with the recorded one."""
        found = answer_of(signed_in(request), replay)
        if found is None:
            raise Http404
        return Response(found)


class RoundCaseView(APIView):
    permission_classes = ADMINISTRATORS

    @operation(
        "export_round_case", shapes.RoundCase, access=Access.ADMIN, tag="lab", path=["round"], query=ClusterQuery
    )
    def get(self, request: Request, round: int, query: ClusterQuery) -> Response:
        """A round's allocation problem as a file for `manage.py solve`."""
        name = f'attachment; filename="round-{round}.json"'
        return Response(export_case(round_of(named_cluster(query), round)), headers={"Content-Disposition": name})
