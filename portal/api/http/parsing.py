"""Request bodies: bounded, strict, and never a cause of status 500."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import IO, Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from portal.api.http.errors import Refused
from portal.core.problems import FieldProblem
from portal.jobfile.parsing import MAX_BYTES, load_yaml
from scheduling.input_files import parse_json


class AlwaysJson(BaseContentNegotiation):
    """Answers are JSON whatever the client accepts; a view with another format checks that itself."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        given = (request.content_type or "").partition(";")[0].strip().lower()
        return next((p for p in parsers if given in (p.media_type, *getattr(p, "aliases", ()))), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, str(first.media_type)


def read_text(stream: IO[Any], context: Mapping[str, Any] | None, limit: int) -> str:
    """The body as text; 413 without reading more than the limit."""
    too_large = Refused(413, f"The body may have {limit // 1024} KiB at most.")
    request = (context or {}).get("request")
    length = request.META.get("CONTENT_LENGTH") if request is not None else None
    if length and length.isdecimal() and int(length) > limit:
        raise too_large
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise too_large
    try:
        return str(body.decode())
    except UnicodeDecodeError:
        raise malformed("The body is not UTF-8.") from None


def malformed(detail: str) -> Refused:
    return Refused(400, detail, [FieldProblem("body", detail, "syntax")])


def load_json(text: str) -> Any:
    try:
        document = parse_json(text)
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate cannot be stored
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None
    except UnicodeEncodeError:
        raise malformed("The body has an escape that is half a character.") from None
    except ValueError as error:
        raise malformed(f"The body is not JSON: {error}") from None
    return document


class JsonParser(BaseParser):
    media_type = "application/json"
    limit = MAX_BYTES

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return load_json(read_text(stream, parser_context, self.limit))


class YamlParser(BaseParser):
    media_type = "application/yaml"
    aliases = ("application/x-yaml", "text/yaml", "text/x-yaml")

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return load_yaml(read_text(stream, parser_context, MAX_BYTES))
