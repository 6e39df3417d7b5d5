"""The OpenAPI document is what the code says, and the code keeps to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from portal.api.schema import FILE
from portal.api.shapes.base import JobState, Role, Source
from portal.jobs.models import MetricPoint
from portal.reporting.run_tokens import run_token
from scheduling.lifecycle import COARSE_STATES
from scheduling.throughput.curves import PRECEDENCE
from tests.cases import in_turn
from tests.portal.things import Things

#: What is streamed asynchronously is served here without an event loop.
pytestmark = pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")
CHECKS = [not_a_server_error, content_type_conformance, status_code_conformance, response_schema_conformance]


def test_the_checked_in_document_is_what_the_code_makes(tmp_path: Path) -> None:
    made = tmp_path / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(made))
    assert made.read_bytes() == FILE.read_bytes(), "run `make openapi`"


def test_the_document_is_served_without_sign_in() -> None:
    assert Client().get("/api/v1/schema").json()["openapi"].startswith("3.1")
    response = Client().get("/api/v1/schema", headers={"Accept": "application/yaml"})
    assert response.content == FILE.read_bytes()


def test_words_of_the_document_are_those_of_the_scheduler() -> None:
    assert get_args(JobState) == COARSE_STATES
    assert set(get_args(Source)) == set(PRECEDENCE)
    assert set(get_args(Role)) == {"viewer", "member", "manager"}


class Asker:
    """An administrator and a member in turn, with what exists in the place of every second made-up reference, so that
    requests get past the door."""

    def __init__(self, things: Things) -> None:
        self.things = things
        MetricPoint.objects.create(run=things.run, epoch=1, step=1, at=timezone.now(), values={"loss": 1.0})
        self.run_token = run_token(things.run.pk, 1)
        self.asked = 0

    def prepare(self, case: Any) -> dict[str, str]:
        self.asked += 1
        actor = self.things.actors["admin" if self.asked % 4 < 2 else "member"]
        if self.asked % 2:
            case.path_parameters.update(self.things.known(actor, case.path_parameters))
        if "/logs" in case.path and isinstance(case.query, dict):
            case.query.pop("follow", None)  # goes on until the job ends
        if "/reports" in case.path:
            if isinstance(case.body, dict):
                case.body["epoch"] = 1
            return {"Authorization": f"Bearer {self.run_token}"}
        return {"Authorization": f"Bearer {actor.token}"}


@pytest.fixture
def asker(things: Things) -> Iterator[Asker]:
    for signal in (request_started, request_finished):  # the test's transaction outlives each request
        signal.disconnect(close_old_connections)
    yield Asker(things)
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


# Exports stream from other threads' connections, which see nothing of the test's transaction.
schema = schemathesis.openapi.from_path(FILE).exclude(path_regex="/export$")
schemathesis.serializer.alias("application/gzip", "application/octet-stream")
schema.app = get_wsgi_application()


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


#: Of each tag of the document; `schema.parametrize` would make a test of each of them.
OPERATIONS = defaultdict[str, list[Any]](list)
FOUND: list[Any] = list(schema.get_all_operations())
for _operation in (found.ok() for found in FOUND):
    OPERATIONS[_operation.tags[0]].append(_operation)
tags = pytest.mark.parametrize("tag", sorted(OPERATIONS))


@tags
def test_no_request_is_too_strange(tag: str, asker: Asker) -> None:
    strange_requests(tag, asker, 6)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@tags
def test_no_request_is_too_strange_in_many(tag: str, asker: Asker) -> None:
    strange_requests(tag, asker, 120)


def strange_requests(tag: str, asker: Asker, examples: int) -> None:
    @in_turn("operation", OPERATIONS[tag], ids=lambda operation: operation.label)
    def each(operation: Any) -> None:
        @bounded(examples)
        @given(case=operation.as_strategy())
        def one(case: Any) -> None:
            check(case, asker)

        asker.asked = 0
        one()

    each()


def check(case: Any, asker: Asker) -> None:
    headers = asker.prepare(case)
    with transaction.atomic():  # what one request ends does not keep the next ones from getting in
        response = case.call(headers=headers)
        transaction.set_rollback(True)
    # schemathesis 4.32 misreads prefixItems; tests.portal.api_calls holds this answer against its schema.
    checks = CHECKS[:-1] if case.path.endswith("/metrics") else CHECKS
    case.validate_response(response, checks=checks)
