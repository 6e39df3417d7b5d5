"""Every operation of the OpenAPI document tried as everybody: a new one is in here by being in the document.

What to expect follows from what the operation declares (`x-access`, `x-scope`), not from a list of operations.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from portal.api.http.access import Access
from tests.cases import in_turn
from tests.portal.things import OPERATIONS, UNKNOWN, Operation, Things

pytestmark = pytest.mark.django_db
DONE = frozenset({200, 201, 202, 204, 302})
#: What whoever is let in is told where the thing or the example makes no sense: a file that is not there, a project
#: with a running job, a text that is no archive.
LET_IN_BUT = {
    "download_artifact": 409,
    "extend_job": 409,
    "stop_retrying": 409,
    "archive_project": 409,
    "upload_bundle": 400,
    "upload_simulation_trace": 400,
}
#: Their queries name trials, which the generated requests do not.
LET_IN_BUT |= {"get_simulation_gantt": 400, "compare_simulation_trials": 400}
#: One rollout is in the shadow: a second has no room, and it is not under guard.
LET_IN_BUT |= {"start_rollout": 409, "keep_rollout": 409, "roll_back_rollout": 409}
ROLES = {"viewer": 1, "member": 2, "service account": 2, "manager": 3, "bound here": 3}
#: Who has no role in the project, or none that their token reaches.
STRANGERS = ("outsider", "bound elsewhere")
NEEDED = {Access.VIEWER: 1, Access.MEMBER: 2, Access.MANAGER: 3}
#: What a token is refused although its owner and scope would do: it must not outlive its own end.
NOT_BY_TOKEN = {"rotate_token"}
#: What belongs to a person and to no project: a token bound to a project reaches none of it, and lists nothing.
OF_ONES_OWN = {f"{verb}_{kind}" for verb in ("create", "get", "change", "remove") for kind in ("template", "view")}
OF_ONES_OWN |= {f"{verb}_simulation" for verb in ("create", "get", "cancel", "rerun", "delete", "export")}
OF_ONES_OWN |= {f"get_simulation_{part}" for part in ("table", "charts", "fidelity")}
#: Whom a limit binds may not change it, and so does not find it where limits are changed.
OF_THOSE_ABOVE = {f"{verb}_{kind}" for verb in ("get", "change", "remove", "create") for kind in ("limit", "quota")}
OF_THOSE_ABOVE |= {"set_guarantee", "remove_guarantee"}
#: Answers of nobody's own doing, which differ from one request to the next.
PASSING_HEADERS = {"ratelimit", "x-request-id", "date", "set-cookie"}


def allowed(operation: Operation, actor: str) -> frozenset[int]:
    """The statuses that this actor's request may end in."""
    access, done = operation.access, _done(operation)
    if access is Access.RUN:
        return frozenset({401})
    if actor in ("expired", "revoked"):
        return frozenset({401}) | (DONE if access is Access.PUBLIC else frozenset())
    if access is Access.PUBLIC:
        return DONE | {401, 403, 404}  # wrong credentials, CSRF and one-time links are its own business
    if actor == "anonymous":
        return frozenset({401})
    if actor == "session":
        return done
    if access is Access.SESSION or (actor.startswith("scope ") and actor != f"scope {operation.scope}"):
        return frozenset({403})
    if operation.spec["operationId"] in NOT_BY_TOKEN:
        return frozenset({403})
    if access is Access.ADMIN:
        return done if actor in ("admin", "scope admin") else frozenset({403})
    return _in_project(operation, actor)


def _done(operation: Operation) -> frozenset[int]:
    told = LET_IN_BUT.get(operation.spec["operationId"])
    return DONE if told is None else frozenset({told})


def _in_project(operation: Operation, actor: str) -> frozenset[int]:
    needed, done = NEEDED.get(operation.access, 0), _done(operation)
    if operation.spec["operationId"] in OF_ONES_OWN and actor in ("bound here", "bound elsewhere"):
        return frozenset({404 if operation.places else 403})
    if operation.spec["operationId"] in OF_THOSE_ABOVE:
        return done if actor in ("admin", "scope admin") else frozenset({400, 403, 404})
    if operation.spec["operationId"] == "change_jobs" and actor in STRANGERS:
        return frozenset({404})  # the example's filter names a project
    if needed == 0 or actor not in (*ROLES, *STRANGERS):
        return done
    if actor in STRANGERS:
        return frozenset({404}) if operation.places else frozenset({400, 403, 404})
    if ROLES[actor] >= needed:
        return done
    return frozenset({403}) if operation.places else frozenset({400, 403})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tag", sorted({o.spec["tags"][0] for o in OPERATIONS}))
def test_everybody_gets_what_the_operation_declares(tag: str, things: Things) -> None:
    wrong = {}
    for operation in (o for o in OPERATIONS if o.spec["tags"] == [tag]):
        for name, actor in things.actors.items():
            cache.clear()  # all come from one address, which some operations count
            response = things.send(operation, actor)
            if response.status_code not in allowed(operation, name):
                wrong[str(operation), name] = (response.status_code, getattr(response, "content", b"")[:300])
    assert not wrong


@in_turn("operation", [o for o in OPERATIONS if o.places and o.access is not Access.RUN], ids=str)
def test_what_is_elsewhere_answers_as_what_is_nowhere(operation: Operation, things: Things) -> None:
    cache.clear()
    outsider = things.actors["outsider"]
    elsewhere = things.known(things.actors["member"], operation.places)
    for place in operation.places:
        assert place in UNKNOWN, f"tests/portal/things.py does not know what an unknown {{{place}}} looks like"
        nowhere = elsewhere | {place: UNKNOWN[place]}
        there = things.send(operation, outsider, places=elsewhere)
        none = things.send(operation, outsider, places=nowhere)
        if (
            operation.access is Access.SIGNED_IN
            and there.status_code < 400
            and place in ("name", "level", "partition", "window")
        ):
            continue  # what everybody signed in may see
        assert _said(there) == _said(none)


@in_turn("operation", [o for o in OPERATIONS if "project" in o.queries], ids=str)
def test_filtering_by_a_project_elsewhere_finds_what_one_that_is_nowhere_does(
    operation: Operation, things: Things
) -> None:
    cache.clear()
    outsider = things.actors["outsider"]
    there = things.send(operation, outsider, query="?project=vision")
    none = things.send(operation, outsider, query="?project=noproj")
    assert _said(there, ("vision", "noproj")) == _said(none)


#: They answer bit by bit, which needs commits: test_isolation_exits.py has them.
STREAMED = ("/jobs/export", "/usage/export")


@in_turn("operation", [o for o in OPERATIONS if o.method == "get" and not o.path.endswith(STREAMED)], ids=str)
def test_what_is_elsewhere_is_in_no_answer(operation: Operation, things: Things) -> None:
    cache.clear()
    response: Any = things.send(operation, things.actors["outsider"])
    content = response.content if hasattr(response, "content") else b"".join(response.streaming_content)
    if response.status_code < 400:
        for secret in ("secret-name", str(things.run.pk), str(things.job.pk)):
            assert secret.encode() not in content


def _has_project(operation: Operation) -> bool:
    body, _ = operation.body()
    return isinstance(body, dict) and "project" in body and operation.access is not Access.RUN


@in_turn("operation", [o for o in OPERATIONS if _has_project(o)], ids=str)
def test_naming_a_project_elsewhere_is_refused_as_one_that_is_nowhere(operation: Operation, things: Things) -> None:
    cache.clear()
    outsider = things.actors["outsider"]
    there = things.send(operation, outsider, change=lambda body: body | {"project": "vision"})
    none = things.send(operation, outsider, change=lambda body: body | {"project": "noproj"})
    assert _said(there, ("vision", "noproj")) == _said(none)
    assert there.status_code >= 400


def _said(response: Any, same: tuple[str, str] = ("", "")) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in response.headers.items() if name.lower() not in PASSING_HEADERS}
    return response.status_code, response.content.replace(*(word.encode() for word in same)), headers
