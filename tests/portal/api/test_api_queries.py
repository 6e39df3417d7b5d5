"""A list costs as many statements for many rows as for one, whichever list of the document it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.api.http.access import Access
from portal.api.schema import document
from tests.portal.things import OPERATIONS, Operation, Things

pytestmark = pytest.mark.django_db
FEW, MANY = 1, 20


def answers_with_rows(operation: Operation) -> bool:
    """A list, or a page of one."""
    media = operation.spec["responses"].get("200", {}).get("content", {}).get("application/json", {})
    schema = media.get("schema", {})
    if reference := schema.get("$ref"):
        schema = document()["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    return operation.method == "get" and (schema.get("type") == "array" or "results" in schema.get("properties", {}))


LISTS = [o for o in OPERATIONS if answers_with_rows(o) and o.access is not Access.RUN]


def test_lists_are_found() -> None:
    assert {"list_jobs", "list_projects", "list_tokens", "list_nodes"} <= {o.spec["operationId"] for o in LISTS}


@pytest.mark.parametrize("operation", LISTS, ids=str)
def test_statements_do_not_grow_with_rows(operation: Operation, things: Things) -> None:
    assert operation.spec["operationId"] in things.growers or operation.spec["operationId"] in FIXED, (
        f"say in tests/portal/things.py how {operation} gets more rows"
    )
    grow: Callable[[int], object] = things.growers.get(operation.spec["operationId"], bool)
    grow(FEW)
    few, first = _ask(things, operation)
    grow(MANY)
    many, second = _ask(things, operation)
    if operation.spec["operationId"] not in FIXED:
        assert len(second) > len(first)
    assert len(many) == len(few), "\n".join(sorted({q["sql"][:200] for q in many} - {q["sql"][:200] for q in few}))


#: Lists of what is in the code, the 50 newest of one person, and sums, which are tested with what they sum.
FIXED = {"list_policies", "list_sessions", "get_usage"}


def _ask(things: Things, operation: Operation) -> tuple[list[dict[str, str]], list[Any]]:
    actor = things.actors["session" if operation.access is Access.SESSION else "admin"]
    things.send(operation, actor)  # what is remembered within a process is asked for once
    with CaptureQueriesContext(connection) as captured:
        response: Any = things.send(operation, actor)
    assert response.status_code == 200, response.content
    body = response.json()
    return captured.captured_queries, body["results"] if isinstance(body, dict) else body
