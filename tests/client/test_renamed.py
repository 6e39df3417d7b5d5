"""Old names of commands and of the SDK: each row of `evenkeel.renamed` goes on working and says the new name."""

from __future__ import annotations

from typing import Any

import click
import pytest
from evenkeel import resources
from evenkeel.cli.main import cli
from evenkeel.client import Client
from evenkeel.renamed import ATTRIBUTES, COMMANDS

from tests.cases import in_turn
from tests.client.cli_portal import make_job
from tests.client.test_cli_explain import EXPLANATION
from tests.client.test_cli_resources import PAGE, Run, Scripted
from tests.client.test_cli_resources import portal as portal
from tests.client.test_cli_resources import run as run

#: For each old command what to call it with.
CALLS = {
    "cost rates": ["cost", "rates", "--cluster", "lab"],
    "cost set-rate": ["cost", "set-rate", "0.6", "--type", "k1"],
    "quota": ["quota", "ls"],
    "why": ["why", "12"],
}


@pytest.fixture(autouse=True)
def _answers(portal: Scripted) -> None:
    price = {"id": 1, "resource": "gpu", "accelerator_type": "k1", "price_per_hour": "0.6", "cluster": "lab"}
    price |= {"currency": "USD", "valid_from_at": "2026-11-01T00:00:00Z", "valid_to_at": None}
    portal["GET prices"] = PAGE | {"results": [price]}
    portal["POST prices"] = price
    portal["GET limits"] = PAGE | {"results": []}
    portal["GET jobs/12"] = make_job(12)
    portal["GET jobs/12/explanation"] = EXPLANATION


@in_turn(("old", "new"), COMMANDS.items())
def test_an_old_command_does_the_same_and_says_the_new_name_in_one_line(old: str, new: str, run: Run) -> None:
    rest = CALLS[old][len(old.split()) :]
    before, now = run(*CALLS[old]), run(*new.split(), *rest)
    assert (before.exit_code, before.stdout) == (now.exit_code, now.stdout) == (0, now.stdout)
    assert before.stderr == f"`evenkeel {old}` is deprecated; use `evenkeel {new}`\n" + now.stderr
    assert "deprecated" not in now.stderr


@in_turn("old", COMMANDS)
def test_help_does_not_list_an_old_command(old: str, run: Run) -> None:
    *groups, name = old.split()
    listed = [line.split()[0] for line in run(*groups, "--help").output.partition("Commands:")[2].splitlines() if line]
    assert listed
    assert name not in listed


@in_turn(("owner", "old", "new"), [(*key, new) for key, new in ATTRIBUTES.items()])
def test_an_old_attribute_is_the_new_one_and_warns(owner: str, old: str, new: str) -> None:
    with Client("http://127.0.0.1:9", "t") as client:
        one: Any = client if owner == "Client" else getattr(resources, owner)(client)
        with pytest.warns(DeprecationWarning, match=f"{owner}.{old} is deprecated; use {owner}.{new}"):
            found = getattr(one, old)
        assert found == getattr(one, new)


def test_an_attribute_that_never_was_is_an_error() -> None:
    with Client("http://127.0.0.1:9", "t") as client, pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = client.nothing  # type: ignore[attr-defined]


def test_every_command_of_the_table_is_there_under_both_names() -> None:
    def find(path: str) -> click.Command:
        found: click.Command = cli
        for name in path.split():
            assert isinstance(found, click.Group)
            found = found.commands[name]
        return found

    for old, new in COMMANDS.items():
        assert (find(old).hidden, find(new).hidden) == (True, False)
