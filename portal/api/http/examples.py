"""Examples for every request and answer of the OpenAPI document, generated from its schemas.

A field's own `examples` come first, then the usual value for its name, then the minimum of its type. Requests show
required fields and those with their own example; operations may give further examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from portal.api.http.errors import TITLES
from portal.core.problems import FieldProblem

Json = dict[str, Any]
METHODS = ("get", "put", "post", "patch", "delete")
_DEEPEST = 8
_AT = "2026-11-21T14:32:10.123Z"
_FORMATS = {
    "date-time": _AT,
    "date": "2026-11-21",
    "uuid": "0199a6f2-3c41-7b52-9d0e-5a1f6c2b7e90",
    "email": "ana@example.org",
    "uri": "https://evenkeel.example.org/api/v1/jobs?cursor=n12",
    "binary": "...",
}
_NAMES: dict[str, Any] = {
    "key": "vision", "name": "resnet-night", "title": "ResNet-50", "email": "ana@example.org", "number": 12,
    "project": "vision", "type": "titan_xp", "accelerator_type": "titan_xp", "node": "node-a", "index": 0,
    "model_type": "resnet50", "total_steps": 20_000, "step": 1_300, "batch_size": 256,
    "steps_per_s": 8.4, "predicted_steps_per_s": 8.6, "progress": 0.065, "text": "Waiting for a free GPU.",
    "code": "no_room", "description": "What people read about it.", "currency": "USD", "version": "0.1.0",
    "next": "https://evenkeel.example.org/api/v1/jobs?cursor=n12", "previous": None, "count": 2, "gpus": 2, "min": 1,
    "max": 4, "attempt": 1, "epoch": 2, "seq": 17, "bytes": 48_213, "path": "step-1200", "command": None,
    "memory_mib": 12_288, "cpus": 8, "prefix": "4f1c09aa2b",
    "secret": "ek_4f1c09aa2b_(shown in this answer only)", "kind": "submitted",
    "password": "correct horse battery", "detail": "What happened, in a sentence.", "exit_code": None, "signal": None,
    "seconds": 0.2, "slowdown": 1.07, "relative_throughput": 0.93, "action": "project.create", "target": "vision",
    "finished_at": None, "exit": None, "protected_until_at": None, "revoked_at": None, "message": "done",
    "stream": "cluster", "basis": "measured throughput on 2 × titan_xp", "uuid": "GPU-0",
}  # fmt: skip
#: Usual values of names within other objects.
_WITHIN = {
    ("project", "name"): "Vision",
    ("owner", "name"): "Ana",
    ("user", "name"): "Ana",
    ("cluster", "name"): "main",
}
#: Keys of mappings, if the mapping's name tells what they are.
_MAP_KEYS = {"curves": "titan_xp", "curve": "titan_xp", "labels": "stage", "env": "LR", "series": "loss"}
_DETAILS = {
    400: "gpus.max: must not be below min (4)",
    401: "Sign in, or send an API token as `Authorization: Bearer ek_…`.",
    403: "You may read jobs of Vision but not change them.",
    404: "There is nothing here that you may see.",
    409: "#12 has already ended.",
    412: "It was changed after you read it: fetch it again.",
    413: "The body may have 256 KiB at most.",
    415: 'Unsupported media type "text/plain" in request.',
    416: "The file has 3 bytes; the range lies outside of it.",
    429: "Too many requests. Try again in 12 s.",
    503: "The database or Redis does not answer at the moment. Try again shortly.",
}
_WRONG = FieldProblem("gpus.max", "must not be below min (4)", "value_error")


def add_examples(result: Json, generator: Any, request: Any, public: bool) -> Json:
    """A drf-spectacular hook."""
    schemas = result["components"]["schemas"]
    shown = result["components"].setdefault("examples", {})
    for operation in operations(result):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            _add(media, Maker(schemas, request=True))
        for status, answer in operation["responses"].items():
            for kind, media in answer.get("content", {}).items():
                if kind == "application/problem+json":
                    name = f"Problem{status}"
                    shown[name] = {"summary": TITLES[int(status)], "value": problem_example(int(status))}
                    media["examples"] = {name: {"$ref": f"#/components/examples/{name}"}}
                else:
                    _add(media, Maker(schemas, request=False))
    return result


def operations(document: Json) -> Iterator[Json]:
    for methods in document["paths"].values():
        yield from (methods[method] for method in METHODS if method in methods)


def problem_example(status: int) -> Json:
    errors = [{"field": _WRONG.field, "message": _WRONG.message, "code": _WRONG.code}] if status == 400 else []
    detail = _DETAILS.get(status, TITLES[status])
    return {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail, "errors": errors}


def _add(media: Json, maker: Maker) -> None:
    if "examples" not in media and "example" not in media:
        media["examples"] = {"Example": {"value": maker.make(media["schema"])}}


class Maker:
    def __init__(self, schemas: Json, *, request: bool) -> None:
        self._schemas, self._request = schemas, request

    def make(self, schema: Json, name: str = "", depth: int = 0, parent: str = "") -> Any:
        if _nullable(schema) and _NAMES.get(name, "") is None:
            return None
        schema = self._resolved(schema)
        if examples := schema.get("examples"):
            return examples[0]
        for key in ("example", "const"):
            if key in schema:
                return schema[key]
        if "enum" in schema:
            return schema["enum"][0]
        kind = _kind(schema)
        usual = _WITHIN.get((parent, name), _NAMES.get(name))
        if _fits(usual, schema, kind):
            return usual
        if kind == "object":
            return self._object(schema, name, depth)
        if kind == "array":
            several = schema.get("prefixItems") or [schema.get("items", {})] * max(1, schema.get("minItems", 1))
            return [self.make(item, name.removesuffix("s"), depth + 1) for item in several] if depth < _DEEPEST else []
        return _scalar(schema, kind)

    def _resolved(self, schema: Json) -> Json:
        """With references resolved, and of alternatives the first that is not null."""
        while True:
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].rsplit("/", 1)[-1]]
            elif options := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
                if schema.get("examples"):
                    return schema
                schema = next((o for o in options if o.get("type") != "null"), options[0])
            else:
                return schema

    def _object(self, schema: Json, name: str, depth: int) -> Json:
        properties, required = schema.get("properties", {}), set(schema.get("required", []))
        if self._request:
            wanted = [n for n, part in properties.items() if n in required or self._resolved(part).get("examples")]
            wanted = wanted or list(properties)[:1]
        else:
            wanted = [n for n, part in properties.items() if not part.get("deprecated")]
        made = {n: self.make(properties[n], n, depth + 1, name) for n in wanted}
        values = schema.get("additionalProperties")
        if not properties and isinstance(values, dict) and values and name in _MAP_KEYS:
            made[_MAP_KEYS[name]] = self.make(values, "", depth + 1)
        return made


def _nullable(schema: Json) -> bool:
    return "null" in _kinds(schema) or any(option.get("type") == "null" for option in schema.get("anyOf", []))


def _kinds(schema: Json) -> list[str]:
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    return kinds if isinstance(kinds, list) else [kinds]


def _kind(schema: Json) -> str:
    return next((kind for kind in _kinds(schema) if kind != "null"), "null")


_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


def _fits(value: Any, schema: Json, kind: str) -> bool:
    return isinstance(value, _TYPES.get(kind, ())) and "format" not in schema and "pattern" not in schema


def _scalar(schema: Json, kind: str) -> Any:
    if kind == "string":
        text = str(_FORMATS.get(schema.get("format", ""), "text"))
        return text.ljust(schema.get("minLength", 0), "x")
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
        return schema.get("default") or max(1, least)
    return True if kind == "boolean" else None
