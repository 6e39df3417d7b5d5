"""Deliveries to my destinations, tests, and repeated deliveries."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.notices import (
    NoticeDelivery,
    NoticeDeliveryPage,
)
from portal.core.times import iso
from portal.notices import services
from portal.notices.deliveries import message_id
from portal.notices.models import Delivery
from portal.notices.selectors import access_delivery, access_destination

#: Longest duration of a test; a person has one at a time.
_TEST_S = 15


class DestinationTestView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "test_destination",
        NoticeDelivery,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["destination"],
        problems=(409,),
    )
    def post(self, request: Request, destination: int, query: Query) -> Response:
        """Send a test at once, and return the response. It is not retried."""
        user = signed_in(request)
        row = access_destination(user, destination)
        under_way = f"notices:test:{user.pk}"
        if not cache.add(under_way, 1, _TEST_S):
            raise Refused(409, "Another test of yours is under way: wait for its answer.")
        try:
            return Response(_describe_delivery(services.send_test(row, timezone.now())))
        finally:
            cache.delete(under_way)


class DeliveriesView(APIView):
    @operation(
        "list_deliveries",
        NoticeDeliveryPage,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["destination"],
        query=PageQuery,
    )
    def get(self, request: Request, destination: int, query: PageQuery) -> Response:
        """Sent and waiting deliveries of a destination, newest first. Old lines are removed."""
        row = access_destination(signed_in(request), destination)
        found, links = take_page(request, row.deliveries.all(), query, key="id")
        return Response({**links, "results": [_describe_delivery(delivery) for delivery in found]})


class DeliveryAgainView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "send_delivery_again",
        NoticeDelivery,
        access=Access.SIGNED_IN,
        tag="notifications",
        path=["delivery"],
        problems=(409,),
    )
    def post(self, request: Request, delivery: int, query: Query) -> Response:
        """Send a given-up delivery again, with the same `webhook-id`."""
        row = access_delivery(signed_in(request), delivery)
        try:
            return Response(_describe_delivery(services.send_again(delivery=row, now=timezone.now())))
        except services.NotNow as error:
            raise Refused(409, str(error)) from None


def _describe_delivery(row: Delivery) -> dict[str, Any]:
    return {
        "id": row.pk,
        "message": message_id(row),
        "event": row.event,
        "text": row.payload["data"]["text"],
        "status": row.status,
        "attempts": row.attempts,
        "created_at": iso(row.created_at),
        "next_attempt_at": iso(row.next_attempt_at),
        "finished_at": iso(row.finished_at),
        "answer_code": row.answer_code,
        "answer": row.answer,
        "error": row.error,
    }
