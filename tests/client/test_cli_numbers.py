"""Numbers of the command line are written in the digits 0 to 9."""

from __future__ import annotations

from typing import Any

import click
import pytest
from evenkeel.cli.numbers import Number, WholeNumber

from tests.client.test_cli_failures import COMMANDS

NUMBERS = [
    (path, parameter)
    for path, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
]


def test_every_number_of_every_command_is_read_alike() -> None:
    assert len(NUMBERS) > 30
    other = [(path, one.name) for path, one in NUMBERS if not isinstance(one.type, WholeNumber | Number)]
    assert other == []


@pytest.mark.parametrize("given", ["٣", "\uff13", "1_000", " 7", "0x10", "1e3", "", "--5", "1" * 31, "5.0", "nan"])
def test_what_is_not_a_whole_number_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a whole number"):
        WholeNumber().convert(given, None, None)


@pytest.mark.parametrize("given", ["٣", "1_0.5", "nan", "inf", "-Infinity", "0x1p3", "1e", ".", "", " 1"])
def test_what_is_not_a_number_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a number"):
        Number().convert(given, None, None)


def test_a_number_that_is_too_large_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is too large"):
        Number().convert("1e400", None, None)


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [(WholeNumber(1), "12", 12), (WholeNumber(), "-3", -3), (WholeNumber(1), 7, 7), (Number(0), "0.5", 0.5),
     (Number(), "1e3", 1000.0), (Number(0), ".5", 0.5), (Number(0), "3", 3.0), (Number(0), 300, 300.0)],
)  # fmt: skip
def test_numbers_are_read(kind: WholeNumber | Number, given: Any, read: float) -> None:
    assert kind.convert(given, None, None) == read


@pytest.mark.parametrize(("kind", "given"), [(WholeNumber(1, 5), "6"), (Number(0, min_open=True), "0")])
def test_bounds_hold(kind: WholeNumber | Number, given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not in the range"):
        kind.convert(given, None, None)
