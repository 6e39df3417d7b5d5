"""Behaviour that stays as it was recorded. What is meant to change is recorded anew, in the commit that changes it."""

from __future__ import annotations

import json

from tests.golden import subjects


def test_every_policy_simulates_as_it_did() -> None:
    recorded = json.loads(subjects.SIMULATIONS.read_text())
    present = subjects.simulations()
    assert sorted(key for key in recorded | dict(present) if recorded.get(key) != present.get(key)) == []


def test_kept_decisions_are_planned_as_they_were() -> None:
    kept = list(subjects.decisions())
    different = [one for one in kept if subjects.replayed(one) != one["plan"]]
    assert [f"round {one['round']} under {one['policy']}" for one in different] == []
    assert len(kept) >= 150


def test_names_that_others_use_are_the_same() -> None:
    assert subjects.names() == json.loads(subjects.NAMES.read_text())
