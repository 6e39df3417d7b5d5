"""Booleans are no numbers, in whatever a person may send."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, get_args

import pytest
from pydantic import AwareDatetime, BaseModel, ValidationError

import portal.api
from portal.api.http.inputs import Body, Query
from portal.core.problems import Problems
from portal.jobfile.fields import Part
from portal.jobfile.parsing import parse_job_file
from scheduling.policies import POLICIES, policy_class

FILE = {"model_type": "digits_mlp", "total_steps": 5}


def models() -> Iterator[type[BaseModel]]:
    for module in pkgutil.walk_packages(portal.api.__path__, "portal.api."):
        importlib.import_module(module.name)
    left: list[type[BaseModel]] = [Part, Body, Query, *(policy_class(name).Parameters for name in POLICIES)]
    while left:
        model = left.pop()
        yield model
        left += model.__subclasses__()


def kinds(annotation: Any) -> set[Any]:
    return {annotation} if not get_args(annotation) else set().union(*map(kinds, get_args(annotation)))


NUMBERS = sorted(
    {
        (model, name)
        for model in models()
        for name, field in model.model_fields.items()
        if kinds(field.annotation) & {int, float, Decimal} and bool not in kinds(field.annotation)
    },
    key=str,
)


def _refused(model: type[BaseModel], name: str, value: Any) -> bool:
    """And by the field itself."""
    try:
        model.model_validate({name: value})
    except ValidationError as error:
        return any(each["loc"] and each["loc"][0] == name for each in error.errors())
    return False


def test_no_number_is_true_or_false() -> None:
    assert len(NUMBERS) > 60
    wrong: tuple[Any, ...] = (True, False, [True], {"titan_xp": [True]}, {"titan_xp": True})
    taken = [(*field, value) for field in NUMBERS for value in wrong if not _refused(*field, value)]
    assert not taken


DATES = sorted(
    {
        (model, name)
        for model in models()
        for name, field in model.model_fields.items()
        if kinds(field.annotation) & {date, datetime, AwareDatetime} and not kinds(field.annotation) & {int, float}
    },
    key=str,
)


def test_no_date_is_a_number() -> None:
    assert len(DATES) > 10
    wrong = (5, 1_764_000_000, 1_764_000_000.5, "5", "1764000000", " 1.5e9 ")
    taken = [(*field, value) for field in DATES for value in wrong if not _refused(*field, value)]
    assert not taken


@pytest.mark.parametrize("value", [True, 2.5, "010", "1_000", "0x10", "1e3", "٣", "9" * 5_000, 10**4_000, [5], "1:30"])
def test_what_is_no_whole_number_is_refused_by_field(value: Any) -> None:
    with pytest.raises(Problems) as caught:
        parse_job_file(FILE | {"total_steps": value})
    assert [problem.field for problem in caught.value.problems] == ["total_steps"]


@pytest.mark.parametrize("value", [5, 5.0, "5", " 5 "])
def test_a_whole_number_may_be_text_or_end_in_nothing(value: Any) -> None:
    assert parse_job_file(FILE | {"total_steps": value}).total_steps == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_cost", True),
        ("max_duration", True),
        ("max_duration", "1:30"),
        ("memory", True),
        ("gpus", True),
        ("gpus", {"min": True}),
        ("gpus", {"share": True}),
        ("throughput", {"titan_xp": [True]}),
        ("array", True),
        ("array", {"indices": "0-3", "max_running": True}),
        ("resume_from", {"job": True}),
        ("dependencies", [{"job": True}]),
        ("retry", {"backoff_s": True}),
        ("deadline", True),
        ("deadline", 5),
        ("deadline", "5"),
    ],
)
def test_booleans_are_refused_at_every_depth(key: str, value: Any) -> None:
    with pytest.raises(Problems) as caught:
        parse_job_file(FILE | {key: value})
    assert all(problem.field.startswith(key) for problem in caught.value.problems)
    assert not any("function" in problem.field for problem in caught.value.problems)
