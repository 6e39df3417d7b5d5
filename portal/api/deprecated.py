"""Old names of the API go on working: accepted in requests, served in answers, `deprecated` in the OpenAPI document.

What was renamed stands in `portal.core.renamed`. A request that uses an old name is answered with the headers
Deprecation (RFC 9745), Sunset (RFC 8594) and Warning, which names the new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from datetime import UTC, date, datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import http_date
from drf_spectacular.utils import OpenApiResponse
from pydantic import BaseModel

from portal.core.renamed import ADDRESSES, ANSWERS, INPUTS, OPERATIONS, SINCE, UNTIL, complete, names_of

Visit = Callable[[Any], None]
API = "/api/v1/"
#: Sentences about the old names in the request that is read.
_used: ContextVar[list[str]] = ContextVar("deprecated_names")


def _time(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


# Requests --------------------------------------------------------------------------------------------


def input_names(model: type[BaseModel]) -> dict[str, str]:
    """Old -> new, of query parameters or of a body's members."""
    return names_of(model, INPUTS)


def both(old: str, new: str) -> str:
    return f"{old} is the old name of {new}: give {new} alone"


def with_new_names(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """A body's members under their present names. Raises ValueError where one is given under both."""
    members = dict(given)
    for old, new in input_names(model).items():
        if old in members:
            if new in members:
                raise ValueError(both(old, new))
            members[new] = members.pop(old)
            note(old, new)
    return members


def note(old: str, new: str) -> None:
    """The answer will say that the request used an old name."""
    if (sentences := _used.get(None)) is not None:
        sentences.append(f"{old} is deprecated; use {new}")


@contextmanager
def noted() -> Iterator[list[str]]:
    """The sentences that `note` writes inside."""
    token = _used.set([])
    try:
        yield _used.get()
    finally:
        _used.reset(token)


def warn(response: HttpResponseBase, sentence: str) -> None:
    response["Deprecation"], response["Sunset"] = f"@{_time(SINCE)}", http_date(_time(UNTIL))
    said = response.get("Warning")
    response["Warning"] = f'{said}, 299 - "{sentence}"' if said else f'299 - "{sentence}"'


# Answers ---------------------------------------------------------------------------------------------


def visits_of(shapes: Iterable[Any]) -> list[Visit]:
    """What completes an answer of one of these shapes."""
    return [visit for shape in shapes if not isinstance(shape, dict) and (visit := _visit(shape))]


def complete_answer(response: HttpResponseBase, visits: Iterable[Visit], used: Iterable[str]) -> None:
    """Serves the old names beside the new ones, and warns of those that the request used."""
    if (data := getattr(response, "data", None)) is not None:
        for visit in visits:
            visit(data)
    for sentence in used:
        warn(response, sentence)


@cache
def _visit(shape: Any) -> Visit | None:
    """What completes a value of this type; None where nothing in it was renamed."""
    if isinstance(shape, OpenApiResponse):
        return _visit(shape.response)
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        return _visit_model(shape)
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _visit(inner[0])
    if origin in (Union, UnionType):
        return _each([found for option in inner if (found := _visit(option))])
    if origin in (list, dict):
        return _all(_visit(inner[-1]))
    return None


def _each(visits: list[Visit]) -> Visit | None:
    def visit(value: Any) -> None:
        for one in visits:
            one(value)

    return visit if visits else None


def _all(one: Visit | None) -> Visit | None:
    """Of a list's items, or a mapping's values."""
    if one is None:
        return None

    def visit(values: Any) -> None:
        for value in values.values() if isinstance(values, dict) else values or ():
            one(value)

    return visit


def _visit_model(model: type[BaseModel]) -> Visit | None:
    names = tuple(names_of(model, ANSWERS).items())
    kinds: dict[str, Any] = {name: field.annotation for name, field in model.model_fields.items()}
    members = [(name, found) for name, kind in kinds.items() if (found := _visit(kind))]
    if not names and not members:
        return None

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            complete(value, names)
            for name, found in members:
                if (member := value.get(name)) is not None:
                    found(member)

    return visit


# Addresses -------------------------------------------------------------------------------------------


def _pattern(old: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(old)))


_PATTERNS = {old: _pattern(old) for old in ADDRESSES}


def new_address(path: str) -> tuple[str, str] | None:
    """The present address of what an old one leads to, and the old one as the table has it."""
    if path.startswith(API):
        for old, pattern in _PATTERNS.items():
            if found := pattern.fullmatch(path.removeprefix(API)):
                return API + ADDRESSES[old].format(**found.groupdict()), old
    return None


class OldAddresses(MiddlewareMixin):
    """Answers an old address as the new one, and says so."""

    def process_request(self, request: HttpRequest) -> None:
        if (found := new_address(request.path_info)) is not None:
            request.path_info, request.old_address = found  # type: ignore[attr-defined]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if old := getattr(request, "old_address", None):
            warn(response, f"{API}{old} is deprecated; use {API}{ADDRESSES[old]}")
        return response


# The OpenAPI document --------------------------------------------------------------------------------


def document_members(model: type[BaseModel], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a shape or a body with its old names behind the new ones."""
    table = INPUTS if input_names(model) else ANSWERS
    names = {new: old for old, new in names_of(model, table).items()}
    properties: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        properties[name] = part
        if name in names:
            properties[names[name]] = _as_old(part, name)
    return schema | {"properties": properties} if properties else schema


def _as_old(part: dict[str, Any], new: str) -> dict[str, Any]:
    return part | {"deprecated": True, "description": f"The old name of `{new}`."}


def document_addresses(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A drf-spectacular hook: the old addresses, deprecated."""
    old_of = {API + new: API + old for old, new in ADDRESSES.items()}
    paths: dict[str, Any] = {}
    for path, methods in result["paths"].items():
        paths[path] = methods
        if path in old_of:
            paths[old_of[path]] = {name: _at_old_address(method, path) for name, method in methods.items()}
    return result | {"paths": paths}


def _at_old_address(operation: dict[str, Any], new: str) -> dict[str, Any]:
    description = f"{operation['description']}\n\nThe old address of `{new}`."
    name = OPERATIONS[operation["operationId"]]
    return deepcopy(operation) | {"operationId": name, "deprecated": True, "description": description}
