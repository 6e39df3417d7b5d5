"""A table of cases in one test: all are tried, and those that fail are named."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from django.db import connection, transaction
from django.db.models import Model

FAILED = (Exception, pytest.fail.Exception, pytest.skip.Exception)  # a case that skips would go unnoticed


def in_turn(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """In the place of `pytest.mark.parametrize`, where cases differ by data alone and each is over soon.

    No case sees what another did: the database is rolled back, and patches, `tmp_path`, what was logged and the test's
    world are each one's own. Other fixtures are shared.
    """
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    single = isinstance(names, str) and len(keys) == 1
    cases = [(label, dict(zip(keys, case, strict=True))) for label, case in _labelled(list(values), ids, single)]
    assert cases, "a table without cases tests nothing"

    def fold(test: Callable[..., None]) -> Callable[..., None]:
        def each_in_turn(**fixtures: Any) -> None:
            failures = []
            for number, (label, case) in enumerate(cases):
                try:
                    with _apart(fixtures, number) as own:
                        test(**own, **case)
                except FAILED as error:
                    failures.append(f"case {label}:\n{''.join(traceback.format_exception(error))}")
            if failures:
                pytest.fail("\n".join([f"{len(failures)} of {len(cases)} cases", *failures]), pytrace=False)

        signature = inspect.signature(test)
        assert set(keys) <= set(signature.parameters), f"{test.__name__} takes no {keys}"
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        each_in_turn.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(each_in_turn, name, getattr(test, name))
        each_in_turn.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return each_in_turn

    return fold


def _labelled(
    cases: list[Any], ids: Callable[[Any], object] | Iterable[object] | None, single: bool
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    labels: list[object] = [None] * len(cases) if ids is None or callable(ids) else list(ids)
    for case, label in zip(cases, labels, strict=True):
        if isinstance(case, ParameterSet):
            assert not case.marks, "a marked case needs a test of its own"
            label, values = case.id, tuple(case.values)
        else:
            values = (case,) if single else tuple(case)
        if label is None:
            label = ", ".join(str(ids(value)) if callable(ids) else _short(value) for value in values)
        yield str(label), values


def _short(value: object) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@contextmanager
def _apart(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    own = dict(fixtures)
    with ExitStack() as stack:
        if connection.in_atomic_block:
            stack.enter_context(_rolled_back())
            own |= copy.deepcopy({name: value for name, value in fixtures.items() if _is_of_the_world(value)})
        for name, value in fixtures.items():
            if isinstance(value, pytest.MonkeyPatch):
                own[name] = stack.enter_context(value.context())
            elif isinstance(value, pytest.LogCaptureFixture):
                value.clear()
            elif isinstance(value, pytest.CaptureFixture):
                value.readouterr()
            elif name == "tmp_path" and isinstance(value, Path):
                own[name] = value / str(number)
                own[name].mkdir()
        yield own


@contextmanager
def _rolled_back() -> Iterator[None]:
    with transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)


def _is_of_the_world(value: object) -> bool:
    return isinstance(value, Model) or type(value).__module__ in ("tests.portal.world", "tests.portal.api_calls")
