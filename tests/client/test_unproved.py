"""The command line asks before an account with an unproved address is trusted."""

from __future__ import annotations

import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner
from evenkeel.cli.unproved import confirm_option, confirmed
from evenkeel.client import ApiError, FieldError

MADE = "The account was made by invitation into Acme by mallory@acme.example; the address was never proved."


class Portal:
    def __init__(self, code: str = "unproved") -> None:
        self.code, self.asked = code, list[bool]()

    def add(self, sure: bool) -> str:
        self.asked.append(sure)
        if not sure:
            raise ApiError(409, "Conflict", MADE, [FieldError("confirm_unproved", MADE + "\x1b[2J", self.code)])
        return "added"


def command(portal: Portal) -> click.Command:
    @click.command()
    @confirm_option
    def add(confirm_unproved: bool) -> None:
        click.echo(confirmed(portal.add, at_once=confirm_unproved))

    return add


@pytest.mark.parametrize(
    ("answer", "code", "asked"), [("y\n", 0, [False, True]), ("n\n", 1, [False]), ("", 1, [False])]
)
def test_at_a_terminal_it_asks(answer: str, code: int, asked: list[bool], monkeypatch: Any) -> None:
    portal, runner = Portal(), CliRunner()
    with runner.isolation(input=answer) as (said, _, _):
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        try:
            ended = command(portal).main([], standalone_mode=False) or 0
        except click.Abort:
            ended = 1
        words = said.getvalue().decode()
    assert (ended, portal.asked) == (code, asked)
    assert ("added" in words) is (code == 0)


def test_elsewhere_it_says_how_to_confirm() -> None:
    portal = Portal()
    result = CliRunner().invoke(command(portal), [])
    assert (result.exit_code, portal.asked) == (1, [False])
    assert MADE in result.output
    assert "--confirm-unproved" in result.output
    assert "\x1b" not in result.output


def test_confirmed_before_it_asks_nothing() -> None:
    portal = Portal()
    result = CliRunner().invoke(command(portal), ["--confirm-unproved"])
    assert (result.exit_code, result.output, portal.asked) == (0, "added\n", [True])


def test_other_refusals_are_left_alone() -> None:
    portal = Portal(code="archived")
    result = CliRunner().invoke(command(portal), [])
    assert isinstance(result.exception, ApiError)
