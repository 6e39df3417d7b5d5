"""Every operation of the OpenAPI document says what it is, how it fails and what it looks like: none is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from portal.api.http.access import Access
from portal.api.http.examples import METHODS
from portal.api.schema import document
from tests.cases import in_turn

SCOPES = (None, "jobs:read", "jobs:write", "admin")
OPERATIONS = [
    pytest.param(path, operations[method], id=f"{method} {path}")
    for path, operations in document()["paths"].items()
    for method in METHODS
    if method in operations
]


def shown(media: dict[str, Any]) -> list[Any]:
    """The values of a body's examples."""
    values = []
    for example in media.get("examples", {}).values():
        if reference := example.get("$ref"):
            example = document()["components"]["examples"][reference.rsplit("/", 1)[-1]]
        values.append(example["value"])
    return values


def bodies(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = [("request " + kind, media) for kind, media in operation.get("requestBody", {}).get("content", {}).items()]
    for status, answer in operation["responses"].items():
        found += [(f"{status} {kind}", media) for kind, media in answer.get("content", {}).items()]
    return found


def _it_is_described(operation: dict[str, Any]) -> None:
    assert 5 < len(operation["summary"]) <= 120
    assert operation["description"].startswith(operation["summary"])
    assert len(operation["tags"]) == 1
    assert operation["operationId"].count("_") >= 1


def _it_says_who_may_call_it(operation: dict[str, Any]) -> None:
    assert operation.get("x-access") in {access.value for access in Access}, "give the operation access=Access.…"
    assert operation.get("x-scope") in SCOPES
    assert "**Access:**" in operation["description"]
    open_to_all = operation["x-access"] in (Access.PUBLIC, Access.RUN)
    assert ("security" in operation) == (not open_to_all)


def _it_says_how_it_fails(path: str, operation: dict[str, Any]) -> None:
    expected = {"400", "429"}
    expected |= set() if operation["x-access"] == Access.PUBLIC else {"401"}
    expected |= {"404"} if "{" in path else set()
    expected |= {"403"} if operation["x-access"] in ("member", "manager", "admin", "session") else set()
    expected |= {"413", "415"} if "requestBody" in operation else set()
    assert expected <= set(operation["responses"])
    for status, answer in operation["responses"].items():
        assert status < "400" or list(answer["content"]) == ["application/problem+json"]


def _its_examples_are_what_its_schemas_allow(operation: dict[str, Any]) -> None:
    for what, media in bodies(operation):
        assert shown(media), f"{what} has no example"
        validator = Draft202012Validator({**media["schema"], "components": document()["components"]})
        for value in shown(media):
            errors = [f"{what}: {error.json_path}: {error.message}" for error in validator.iter_errors(value)]
            assert not errors


@in_turn(("path", "operation"), OPERATIONS)
def test_it_says_what_it_is_who_may_call_it_and_how_it_fails_and_its_examples_hold(
    path: str, operation: dict[str, Any]
) -> None:
    _it_is_described(operation)
    _it_says_who_may_call_it(operation)
    _it_says_how_it_fails(path, operation)
    _its_examples_are_what_its_schemas_allow(operation)


def test_names_of_operations_are_unique() -> None:
    names = [parameter.values[1]["operationId"] for parameter in OPERATIONS]  # type: ignore[index]
    assert len(set(names)) == len(names)
