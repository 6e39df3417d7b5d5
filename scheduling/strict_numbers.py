"""Numbers in files and requests: a boolean is none, text is one only as people write it, and a number is no date."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

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
    """Pydantic takes one for seconds since 1970, also in quotes."""
    return isinstance(value, int | float) or (isinstance(value, str) and _is_written(_NUMBER, value))


_CHECKS = {"int": _whole, "float": _number, "decimal": _number, "datetime": _moment, "date": _day}


def _checked(part: Any) -> Any:
    """The schema with a check before each number and date, wherever in it that stands."""
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


#: Where core schemas hold others.
_PARTS = frozenset({"schema", "definitions", "choices", "items_schema", "keys_schema", "values_schema", "fields"})


def _is_checked(part: dict[str, Any]) -> bool:
    return part.get("type") == "function-before" and part["function"].get("function") in _CHECKS.values()


def _labelled(old: Any, new: Any) -> Any:
    return (new, old["type"]) if isinstance(old, dict) and old.get("type") in _CHECKS else new


class StrictNumbers(BaseModel):
    """Refuses what pydantic would take for a number: true, and in quotes 010, 1_000 and digits beyond ASCII. Also a
    number where a date is asked for."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        checked: CoreSchema = _checked(handler(source))
        return checked
