"""Parses a job file from YAML or JSON, and words its problems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evenkeel.yaml_loader import YamlProblem, load
from pydantic import BaseModel, ValidationError

from accounts.text import shown
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from scheduling.validation import hint_at, known_keys

MAX_BYTES = 256 * 1024


def load_yaml(text: str) -> Any:
    """The document, or Problems with the line that cannot be read."""
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise Problems([FieldProblem("job file", f"is larger than {MAX_BYTES // 1024} KiB", "too_large")])
    try:
        return load(text)
    except YamlProblem as problem:
        raise Problems([FieldProblem("job file", str(problem), "syntax")]) from None


def parse_job_file(document: Any) -> JobFile:
    """`document` (plain values) as a JobFile; raises Problems naming each field."""
    if not isinstance(document, dict):
        raise Problems([FieldProblem("job file", "must be a mapping of keys to values", "type")])
    try:
        return JobFile.model_validate(document)
    except ValidationError as error:
        raise Problems(problems_of(error, JobFile)) from None
    except (RecursionError, OverflowError):
        raise Problems(
            [FieldProblem("job file", "is nested too deeply or has a number out of range", "range")]
        ) from None


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """Pydantic's errors on values for `model`, in words and by field."""
    return [_problem(e, model) for e in error.errors(include_url=False)[:50]]


#: Keys whose values may contain secrets, at any place: errors are shown without the value.
_SECRETIVE = frozenset({
    "env", "command", "args", "secrets", "requirements", "git", "url", "secret", "token_secret", "password", "token",
    "value",
})  # fmt: skip
#: Text instead of a mapping or a list may be anything, even a whole file.
_NOT_TEXT = frozenset({"dict_type", "list_type", "model_type", "model_attributes_type", "dataclass_type"})


def _place(location: Sequence[str]) -> str:
    """The path of keys, without any that may be a value: as in `env: {"KEY=value": ...}`, or an address."""
    parts = ["(an address)" if "://" in part else part for part in location]
    if "env" in parts[:-1]:
        parts[-1] = parts[-1].partition("=")[0]
    return ".".join(parts)


def _shown_input(location: Sequence[str], value: Any) -> str:
    """A value that a message may show; empty if it is long or may contain a secret."""
    if not isinstance(value, (str, int, float, bool)) or _SECRETIVE & set(location):
        return ""
    if isinstance(value, str) and ("://" in value or "\ufffd" in value):
        return ""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of so many digits"
    repeated = repr(value)
    return repeated if len(repeated) <= 62 else ""


_OFFSET = "must be a date and time with its offset from UTC, such as 2026-12-01T18:00:00+01:00"

#: Message by pydantic's type of error, with what is allowed; all others keep pydantic's words.
_IN_WORDS = {
    "missing": "is required",
    "string_type": "must be text: put it in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number, such as 10"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("timezone_aware", "datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _OFFSET),
}


def _problem(error: Any, model: type[BaseModel]) -> FieldProblem:
    fields, whole = model.model_fields, "job file" if issubclass(model, JobFile) else "body"
    # for a union pydantic names the kind, by our functions where it has some
    location = [str(part) for part in error["loc"] if not str(part).startswith("function-")]
    field = _place(location)
    message = _IN_WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = known_keys(model, location[:-1])
        message = f"unknown key; {hint_at(location[-1], known)}" if known else "unknown key."
    elif error["type"] == "value_error" and (named := re.match(r"^(\w+): (.*)$", message)) and named[1] in fields:
        field, message = named[1], named[2]
    elif error["type"] == "value_error" and message == "give either model_type or command":
        field = "model_type"
    elif model.model_config.get("hide_input_in_errors") or error["type"] in _NOT_TEXT:
        pass
    elif repeated := _shown_input(location, error.get("input")):
        message = f"{message}, not {repeated}"
    return FieldProblem(shown(field, 200) or whole, shown(message, 500), error["type"])
