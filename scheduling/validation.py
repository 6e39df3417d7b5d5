"""Words what a pydantic model refuses: the place, the value, and what is allowed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from scheduling.errors import InvalidInput

T = TypeVar("T")
_LONGEST = 60
#: From this similarity on (difflib's ratio) a name counts as mistyped: `nmae` means name, but `bogus` does not mean
#: gpus.
_ALIKE = 0.75
#: Pydantic's words and their replacements, applied in order.
_WORDS = {
    "Input should be": "must be",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text in quotes",
    "a valid list": "a list",
    "a valid boolean": "true or false",
}


def validated(kind: type[T], value: Any, source: str, *at: str) -> T:
    """Raises InvalidInput with the source and the first problem; `at` is the place of the value in it."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidInput(f"{source}: {problem(error, kind, *at)}") from None


def problem(error: ValidationError, kind: Any, *at: str) -> str:
    """As `nodes[1].count: -3 must be at least 1`; an unknown key gets a suggestion or the list of keys."""
    first = error.errors()[0]
    where = place((*at, *first["loc"]))
    match first["type"]:
        case "missing":
            what = "it is missing"
        case "extra_forbidden":
            what = f"is no known key; {hint_at(str(first['loc'][-1]), known_keys(kind, first['loc'][:-1]))}"
        case "model_type" | "model_attributes_type" | "dataclass_type":
            what = f"{shown(first['input'])} must be an object"
        case _:
            what = f"{shown(first['input'])} {_in_our_words(first['msg'])}"
    return f"{where}: {what}" if where else what


def place(parts: Sequence[int | str]) -> str:
    """("nodes", 1, "count") as nodes[1].count."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def is_number(value: object) -> TypeGuard[int | float]:
    """A finite number; no boolean, and no integer outside the range of a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def shown(value: object) -> str:
    """The value, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _in_our_words(text: str) -> str:
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


def hint_at(name: str, known: Sequence[str]) -> str:
    """The most similar allowed name, if `name` looks like a typing error; otherwise all allowed names."""
    near = get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known) or 'none'}."


def known_keys(kind: Any, parts: Sequence[int | str]) -> list[str]:
    """The keys of the model at this place of `kind`; none if there are several possible models."""
    models = _models(kind)
    for part in parts:
        fields = models[0].model_fields if len(models) == 1 else {}
        if part in fields:  # and not an index of a list, or a key of a mapping
            models = _models(fields[str(part)].annotation)
    return list(models[0].model_fields) if len(models) == 1 else []


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models(each)]


_WHOLE = re.compile(r"\s*[-+]?(?:0|[1-9][0-9]*)(?:\.0*)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[-+]?(?:(?:0|[1-9][0-9]*)\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*", re.ASCII)
_LONGEST_TEXT = 100


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and not _is_written(_WHOLE, value)):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and not _is_written(_NUMBER, value)):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


def _is_written(pattern: re.Pattern[str], text: str) -> bool:
    return len(text) <= _LONGEST_TEXT and pattern.fullmatch(text) is not None


def _moment(value: Any) -> Any:
    if _is_number(value):
        raise PydanticCustomError("datetime_type", "Input should be a valid datetime")
    return value


def _day(value: Any) -> Any:
    if _is_number(value):
        raise PydanticCustomError("date_type", "Input should be a valid date")
    return value


def _is_number(value: Any) -> bool:
    """Pydantic reads a number, also in quotes, as seconds since 1970."""
    return isinstance(value, int | float) or (isinstance(value, str) and _is_written(_NUMBER, value))


_CHECKS = {"int": _whole, "float": _number, "decimal": _number, "datetime": _moment, "date": _day}


def _checked(part: Any) -> Any:
    """The schema with a check before each number and date, at any depth."""
    if isinstance(part, list | tuple):
        return type(part)(_checked(item) for item in part)
    if not isinstance(part, dict) or _is_checked(part):
        return part
    kind = part.get("type")
    if kind in _CHECKS:
        return core_schema.no_info_before_validator_function(_CHECKS[str(kind)], part)
    found = {key: _inside(key, value) for key, value in part.items()}
    if kind == "union":  # errors name the choice, not the check before it
        found["choices"] = [_labelled(old, new) for old, new in zip(part["choices"], found["choices"], strict=True)]
    return found


def _inside(key: str, value: Any) -> Any:
    if key in ("fields", "computed_fields") and isinstance(value, dict):
        return {name: _checked(field) for name, field in value.items()}
    return _checked(value) if key in _PARTS else value


#: Keys under which core schemas nest other schemas.
_PARTS = frozenset({"schema", "definitions", "choices", "items_schema", "keys_schema", "values_schema", "fields"})


def _is_checked(part: dict[str, Any]) -> bool:
    return part.get("type") == "function-before" and part["function"].get("function") in _CHECKS.values()


def _labelled(old: Any, new: Any) -> Any:
    return (new, old["type"]) if isinstance(old, dict) and old.get("type") in _CHECKS else new


class StrictNumbers(BaseModel):
    """Refuses values that pydantic would coerce to numbers: true, and in quotes 010, 1_000 and digits beyond ASCII.
    Also a number where a date is expected."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        checked: CoreSchema = _checked(handler(source))
        return checked
