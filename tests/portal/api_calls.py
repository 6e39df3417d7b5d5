"""A client of the API that holds every answer against the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from django.http import HttpResponseBase
from django.test import Client
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from accounts.models import User
from accounts.tokens import ALL_SCOPES, create_token
from portal.api.schema import document

ROOT = "/api/v1/"
_OLD_NAME = re.compile(r"The old name of `(\w+)`\.")


def _members(validator: Any, properties: dict[str, Any], instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As `properties`, and what has an old name is there under that, too."""
    yield from Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema)
    for old, part in properties.items():
        found = _OLD_NAME.fullmatch(part.get("description", ""))
        if found and isinstance(instance, dict) and instance.get(found[1]) != instance.get(old):
            yield ValidationError(f"{old} is not what {found[1]} is")


AnswerValidator = extend(Draft202012Validator, {"properties": _members})  # type: ignore[no-untyped-call]


@cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    found = []
    # What is named literally goes before what is a parameter there.
    for template in sorted(document()["paths"], key=lambda path: path.count("{")):
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
        found.append((re.compile(pattern + r"\Z"), template))
    return found


@cache
def _validator(template: str, method: str, status: int, content_type: str) -> Any:
    operation = document()["paths"][template][method]
    answers = operation["responses"].get(str(status))
    assert answers, f"{method} {template} does not declare {status}"
    schema = answers["content"][content_type]["schema"]
    return AnswerValidator({**schema, "components": document()["components"]})


def check_documented(method: str, path: str, response: HttpResponseBase) -> None:
    template = next((template for pattern, template in _templates() if pattern.match(path)), None)
    status = response.status_code
    if template is None or method not in document()["paths"][template]:
        assert status in (404, 405), (method, path, status)
        return
    if status == 204:
        assert "204" in document()["paths"][template][method]["responses"]
        return
    content_type = response["Content-Type"].partition(";")[0]
    validator = _validator(template, method, status, content_type)
    if content_type.endswith("json"):
        errors = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(json.loads(response.content))]  # type: ignore[attr-defined]
        assert not errors, errors


class Answer:
    def __init__(self, response: Any) -> None:
        self.response, self.status, self.headers = response, response.status_code, response.headers

    @property
    def json(self) -> Any:
        return json.loads(self.response.content)

    @property
    def text(self) -> str:
        return str(self.response.content.decode())

    @property
    def fields(self) -> list[str]:
        """The fields that a problem names."""
        assert self.headers["Content-Type"] == "application/problem+json"
        return [error["field"] for error in self.json["errors"]]


class Api:
    """Requests under /api/v1/ with the user's token; `user=None` is nobody."""

    def __init__(self, user: User | None = None, *, token: str | None = None) -> None:
        self.client = Client(raise_request_exception=False)
        if user is not None:
            token = create_token(user=user, name="test", scopes=ALL_SCOPES)[1]
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **headers: str
    ) -> Answer:
        data = body if isinstance(body, (str, bytes)) else json.dumps(body) if body is not None else ""
        named = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.client.generic(method, ROOT + path, data, content_type=content_type, headers=named)
        check_documented(method.lower(), ROOT + path.partition("?")[0], response)
        answer = Answer(response)
        if answer.status >= 400:
            assert answer.headers["Content-Type"] == "application/problem+json", answer.text
            assert "Traceback" not in answer.text
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", path, body, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("PUT", path, body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("PATCH", path, body, **options)

    def delete(self, path: str) -> Answer:
        return self.request("DELETE", path)
