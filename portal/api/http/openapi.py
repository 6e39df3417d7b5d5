"""Generation of the OpenAPI document: pydantic models in validation and serialisation mode."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.plumbing import ResolvedComponent
from pydantic import BaseModel

from portal.api.deprecated import document_members

REFERENCE = "#/components/schemas/{model}"


def _without_titles(schema: Any) -> Any:
    """pydantic repeats each field's name as its title."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _part(key, value) for key, value in schema.items() if key != "title"}


def _part(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):  # here keys are names, and `title` may be one
        return {name: _without_titles(part) for name, part in value.items()}
    return value if key in ("examples", "default", "enum", "const") else _without_titles(value)


def _models_in(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """By name, all that its schema defines."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[Any] = [model]
    while waiting:
        one = waiting.pop()
        if not (isinstance(one, type) and issubclass(one, BaseModel)):
            waiting += get_args(one)
        elif one.__name__ not in found:
            found[one.__name__] = one
            waiting += [field.annotation for field in one.model_fields.values()]
    return found


class ModelSchemas(PydanticExtension):  # type: ignore[no-untyped-call]
    """Requests accept more than answers contain: a number instead of text, missing keys with defaults."""

    target_class = BaseModel  # type: ignore[assignment]
    match_subclasses = True
    priority = 1

    def map_serializer(self, auto_schema: Any, direction: str) -> Any:
        mode = "validation" if direction == "request" else "serialization"
        schema = self.target.model_json_schema(mode=mode, ref_template=REFERENCE)
        kinds = _models_in(self.target)
        for name, part in schema.pop("$defs", {}).items():
            full = document_members(kinds[name], part) if name in kinds else part
            component = ResolvedComponent(name, ResolvedComponent.SCHEMA, _without_titles(full), name)  # type: ignore[no-untyped-call]
            auto_schema.registry.register_on_missing(component)
        return _without_titles(document_members(self.target, schema))


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.tokens.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "ek_<prefix>_<secret>"}
