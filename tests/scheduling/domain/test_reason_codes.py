"""The table of reason codes: complete for pending jobs, stable in its strings, and the only place that has them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from types import SimpleNamespace
from typing import Any

import pytest

from portal.jobs.models import HoldKind
from portal.readmodels.jobs.slurm_reasons import slurm_word
from portal.readmodels.jobs.why_waiting import way_out
from scheduling.domain.reason_codes import (
    LEFT_NODE,
    NO_CONTENDER,
    NOT_OF_POOLS,
    PENDING,
    SHORT_OF_GPUS,
    UNSCHEDULABLE,
    ReasonCode,
    find_code,
)
from scheduling.executors.local.facts import REASONS
from scheduling.lifecycle import Event

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "reason_codes.json"
CLUSTER: Any = SimpleNamespace(policy_parameters={})
DETAILS: tuple[Mapping[str, Any], ...] = ({}, {"level": "level high"}, {"level": "each user of level high"})


def test_stored_strings_stay_and_are_unique() -> None:
    tokens = [code.value for code in ReasonCode]
    assert sorted(tokens) == json.loads(GOLDEN.read_text())
    assert len(set(tokens)) == len(tokens) == len(ReasonCode.__members__)


@pytest.mark.parametrize("token", sorted(PENDING))
def test_a_pending_job_has_a_word_of_slurm_and_a_way_out(token: str) -> None:
    code = find_code(token)
    assert code is not None
    assert code.row.slurm
    assert all(slurm_word(token, detail) for detail in DETAILS)
    fields = [name for _, name, _, _ in Formatter().parse(code.row.way_out) if name]
    assert way_out(CLUSTER, token, {"needs": 2} | dict.fromkeys(fields, 2))


@pytest.mark.parametrize("kind", HoldKind.values)
def test_each_kind_of_hold_is_in_the_table(kind: str) -> None:
    assert find_code(f"held_{kind}") is not None


def test_a_run_without_another_reason_has_its_event_or_exit_as_code() -> None:
    tokens = {event.value for event in Event} | {reason.upper() for reason in REASONS}
    assert sorted(token for token in tokens if find_code(token) is None) == []


def test_a_code_is_its_string_in_json_and_in_rows() -> None:
    code = ReasonCode.NO_ROOM
    assert json.dumps({code: code}) == '{"no_room": "no_room"}'
    assert (f"{code}", str(code), hash(code)) == ("no_room", "no_room", hash("no_room"))


@pytest.mark.parametrize("token", ["", "of_an_earlier_release", "NO_ROOM"])
def test_an_unknown_token_is_read_without_an_error(token: str) -> None:
    assert find_code(token) is None
    assert slurm_word(token, {"level": "level high"}) is None
    assert way_out(CLUSTER, token, {}) is None
    assert not any(token in codes for codes in (SHORT_OF_GPUS, UNSCHEDULABLE, NO_CONTENDER, NOT_OF_POOLS, LEFT_NODE))


def test_jobs_that_cannot_start_yet_do_not_compete() -> None:
    """What the lists that the table replaced had."""
    assert {"never", "no_type", "no_profile", "partition_too_small", "slot_too_small"} == UNSCHEDULABLE
    assert {"node_lost", "node_drained", "node_drained_stopped", "assignment_withdrawn"} <= LEFT_NODE
    assert {"dependency", "HELD", "held", "quota", "maintenance", "back_off", "PREPARING"} <= NO_CONTENDER
    assert not NO_CONTENDER & {"NEW", "RETRY", "resources", "priority", "preempted", "may_not_borrow", "too_large"}
    assert not NOT_OF_POOLS & {"resources", "no_host", "too_large", "priority", "behind", "no_type"}
    assert {"no_room", "resources", "waits", "waits_to_share", "partition_full"} <= SHORT_OF_GPUS


def test_no_code_is_written_as_a_string() -> None:
    files = [file for room in ("scheduling", "portal") for file in (ROOT / room).rglob("*.py")]
    assert [place for file in files if "migrations" not in file.parts for place in _literals(file)] == []


def test_a_written_string_is_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        'Reason("a", text)\nplan.Why("b" if x else c, text)\nf(reason_token="d")\nrun.reason_token == "e"\n'
    )
    assert [place.rpartition(":")[2] for place in _literals(file)] == ["1", "2", "3", "4"]


def _literals(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if any(isinstance(one, ast.Constant) and one.value for one in _tokens(node)):
            yield f"{file}:{getattr(node, 'lineno', 0)}"


def _tokens(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions that stand for a token."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = node.args[:1] if name in ("Reason", "Why") else []
        for given in [*first, *(word.value for word in node.keywords if word.arg == "reason_token")]:
            yield from (given.body, given.orelse) if isinstance(given, ast.IfExp) else [given]
    if isinstance(node, ast.Compare) and getattr(node.left, "attr", "") in ("token", "reason_token"):
        for other in node.comparators:
            yield from other.elts if isinstance(other, ast.Tuple | ast.Set) else [other]
