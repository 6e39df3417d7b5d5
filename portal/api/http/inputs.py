"""Query parameters and bodies as pydantic models: one declaration validates and documents."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, TypeVar

from drf_spectacular.utils import OpenApiParameter
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from rest_framework.request import Request

from accounts.mail_address import normalized
from accounts.text import shown
from portal.api import deprecated
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.fields import OneLine
from portal.jobfile.parsing import problems_of
from scheduling.validation import StrictNumbers, hint_at

M = TypeVar("M", bound=BaseModel)
When = TypeVar("When", bound=date)


def known_era(at: When) -> When:
    if not 2000 <= at.year < 2200:
        raise ValueError("must be between 2000 and 2200")
    return at


def _split(value: object) -> object:
    """`a,b` and a repeated parameter are equivalent."""
    return [part for item in value for part in str(item).split(",")] if isinstance(value, list) else value


Word = Annotated[str, Field(max_length=200), OneLine]
Address = Annotated[Word, AfterValidator(lambda text: normalized(text.strip()))]  # a filter, in any spelling
At = Annotated[AwareDatetime, AfterValidator(known_era)]
Several = BeforeValidator(_split)


class Query(StrictNumbers):
    """No parameters; undeclared ones are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ClusterQuery(Query):
    cluster: Word | None = Field(None, description="Name of a cluster; by default the first.")


class PageQuery(Query):
    limit: int = Field(50, ge=1, le=200, description="Rows of a page.")
    cursor: str | None = Field(
        None, pattern=r"^[np][0-9]{1,18}$", description="Where the page begins; taken from `next` and `previous`."
    )


class ClusterPageQuery(ClusterQuery, PageQuery):
    """A page of one cluster's objects."""


class Body(StrictNumbers):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        return deprecated.with_new_names(cls, given) if isinstance(given, dict) else given


class SecretBody(Body):
    """A body with a value that no answer repeats, even in errors."""

    model_config = ConfigDict(hide_input_in_errors=True)


def read_query(request: Request, model: type[M]) -> M:
    """The query parameters; raises Problems for unknown, repeated and invalid ones."""
    values: dict[str, Any] = {}
    problems, old_names = [], deprecated.input_names(model)
    for name, given in request.query_params.lists():
        if (new := old_names.get(name)) is not None:
            if new in request.query_params:
                problems.append(FieldProblem(name, f"is the old name of {new}: give {new} alone", "doubled"))
                continue
            deprecated.note(name, new)
            name = new
        field = model.model_fields.get(name)
        if field is None:
            problems.append(_unknown(name, list(model.model_fields)))
        elif "list[" in str(field.annotation):
            values[name] = given
        elif len(given) > 1:
            problems.append(FieldProblem(name, "is given more than once", "doubled"))
        else:
            values[name] = given[0]
    try:
        query = model.model_validate(values)
    except ValidationError as error:
        problems += problems_of(error, model)
    if problems:
        raise Problems(problems)
    return query


def _unknown(name: str, known: list[str]) -> FieldProblem:
    return FieldProblem(shown(name, 100) or "?", f"unknown parameter; {hint_at(name, known)}", "unknown")


def read_body(document: Any, model: type[M]) -> M:
    if not isinstance(document, dict):
        raise Problems([FieldProblem("body", "must be an object", "type")])
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise Problems(problems_of(error, model)) from None


def query_parameters(model: type[BaseModel]) -> list[OpenApiParameter]:
    schema = deprecated.document_members(model, model.model_json_schema())
    parameters = []
    for name, part in schema.get("properties", {}).items():
        plain = {key: value for key, value in part.items() if key not in ("title", "description", "deprecated")}
        if "anyOf" in plain:  # a parameter that is left out is not null
            plain |= next(option for option in plain.pop("anyOf") if option != {"type": "null"})
            plain.pop("default", None)
        parameters.append(
            OpenApiParameter(
                name,
                plain,
                description=part.get("description", ""),
                required=name in schema.get("required", []),
                deprecated=part.get("deprecated", False),
            )
        )
    return parameters
