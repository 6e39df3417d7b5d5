"""The books of fractions of time beside the same kept job by job, and what rounds find again of jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import copysign

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import in_queue_order, queue_key, view
from scheduling.domain import Job, Snapshot
from scheduling.engine.time_sharing import job_columns
from scheduling.engine.time_sharing.job_columns import JobColumns, columns_of
from scheduling.engine.time_sharing.shares_ledger import TimeShareState, charge_elapsed
from scheduling.lifecycle import State
from scheduling.policies.time_shares.max_min_fairness import steps_per_level
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, optimise
from scheduling.policies.time_shares.programs.deficits import DeficitTable
from scheduling.policies.time_shares.programs.groups import build
from scheduling.policies.time_shares.programs.max_min import MaxMinSearch, highest
from scheduling.policies.time_shares.programs.ungrouping.ungroup import even
from tests.builders import make_job, make_snapshot
from tests.scheduling.strategies import snapshots

NAMES = st.sampled_from(["x", "y", "z", "new"])
KINDS = st.sampled_from(["a", "b", "c"])
SECONDS = st.floats(0.0, 1e5)
SHARES = st.dictionaries(NAMES, st.dictionaries(KINDS, st.floats(0.01, 1.0), min_size=1, max_size=3), max_size=4)
By = dict[str, dict[str, float]]


class Literal:
    """Dictionaries, a job and a type at a time."""

    def __init__(self) -> None:
        self.shares: By = {}
        self.had: By = {}

    def credit(self, job: str, kind: str, seconds: float) -> None:
        mine = self.had.setdefault(job, {})
        mine[kind] = mine.get(kind, 0.0) + seconds

    def settle(self, jobs: list[str], since_s: float, most_s: float) -> None:
        kinds = {kind for by_type in (*self.shares.values(), *self.had.values()) for kind in by_type}
        beyond = {
            job: {k: self.had.get(job, {}).get(k, 0.0) - self.shares.get(job, {}).get(k, 0.0) * since_s for k in kinds}
            for job in jobs
        }
        self.had = {
            job: {kind: left if abs(left) <= most_s else copysign(most_s, left) for kind, left in by_type.items()}
            for job, by_type in beyond.items()
        }
        self.shares = {job: by_type for job, by_type in self.shares.items() if job in jobs}

    def debt(self, job: str, since_s: float) -> float:
        return sum(self.shares.get(job, {}).values()) * since_s - sum(self.had.get(job, {}).values())


@given(st.lists(st.tuples(NAMES, KINDS, SECONDS), max_size=6), SHARES, SECONDS, st.lists(NAMES, unique=True), SECONDS)
def test_books_are_what_they_are_job_by_job(
    held: list[tuple[str, str, float]], shares: By, since_s: float, stay: list[str], most_s: float
) -> None:
    literal, books = Literal(), DeficitTable()
    literal.shares = shares
    books = books.promising({(job,): by_type for job, by_type in shares.items()})
    for job, kind, seconds in held:
        literal.credit(job, kind, seconds)
        books = books.of(list(dict.fromkeys((*books.jobs, job))), [kind])
        row, column = np.array([books.rows[job]]), np.array([books.columns[kind]])
        books = books.credited(row, column, np.array([0.0]), seconds)
    for name in ("x", "new"):
        rows = books.rows_of([name])
        if rows[0] >= 0:
            assert books.debts(rows, since_s)[0] == pytest.approx(literal.debt(name, since_s), abs=1e-6)
    literal.settle(stay, since_s, most_s)
    books = books.of(stay).settled(since_s, most_s)
    assert books.jobs == tuple(stay)
    for job in stay:
        assert books.promised(job) == pytest.approx(sum(literal.shares.get(job, {}).values()))
        for kind in books.types:
            there = literal.had.get(job, {}).get(kind, 0.0)
            assert books.had[books.rows[job], books.columns[kind]] == pytest.approx(there, abs=1e-6)
            assert books.share(job, kind) == literal.shares.get(job, {}).get(kind, 0.0)
    assert books.by_job() == literal.shares


@given(SHARES, st.lists(st.floats(-1e9, 1e9), min_size=12, max_size=12))
def test_what_is_dumped_is_plain_and_read_again_to_the_last_bit(shares: By, figures: list[float]) -> None:
    promised = DeficitTable().promising({(job,): by_type for job, by_type in shares.items()})
    books = replace(promised, had=np.resize(np.array(figures), promised.shares.shape))
    again = DeficitTable.load(json.loads(json.dumps(books.dump())))
    assert (again.jobs, again.types) == (books.jobs, books.types)
    assert np.array_equal(again.shares, books.shares)
    assert np.array_equal(again.had, books.had)
    assert DeficitTable.load(books.dump()) is books


def test_members_of_a_pair_take_turns_in_its_time() -> None:
    shares: Mapping[tuple[str, ...], Mapping[str, float]] = {("x",): {"a": 0.25}, ("x", "y"): {"a": 0.5, "b": 0.25}}
    assert DeficitTable().promising(shares).by_job() == {"x": {"a": 0.5, "b": 0.125}, "y": {"a": 0.25, "b": 0.125}}


def test_no_job_is_promised_what_a_later_answer_does_not_say() -> None:
    books = DeficitTable().promising({("x",): {"a": 1.0}, ("y",): {"b": 1.0}}).promising({("y",): {"a": 0.5}})
    assert books.by_job() == {"y": {"a": 0.5}}


def test_types_of_which_no_job_has_or_is_owed_anything_are_forgotten() -> None:
    books = DeficitTable()
    for n in range(5):  # as windows give pools new names
        books = books.promising({("x",): {f"a of window {n}": 1.0}}).settled(0.0, 100.0)
    assert books.types == ("a of window 4",)


def test_time_counts_from_when_the_gpus_were_given_or_the_last_look() -> None:
    one = make_job(number=1, holds=[0], type="a", submitted_at=100.0)
    other = make_job(number=2, holds=[1], type="a", submitted_at=100.0)
    coming = replace(make_job(number=3, holds=[2], type="a"), state=State.STANDBY)
    snapshot = make_snapshot(one, other, coming, make_job(number=4), now=1000.0)
    ledger = TimeShareState(at=400.0, began={other.id: 700.0})
    charge_elapsed(ledger, columns_of(snapshot, view(snapshot)), snapshot.now)
    assert ledger.books.jobs == tuple(job.id for job in snapshot.jobs)
    assert ledger.books.had.ravel().tolist() == [600.0, 300.0, 0.0, 0.0]


# The roll --------------------------------------------------------------------------------------------


def as_plain(roll: JobColumns) -> tuple[object, ...]:
    kinds = [roll.types[kind] if kind >= 0 else None for kind in roll.kinds.tolist()]
    return roll.ids, kinds, roll.submitted_at.tolist(), roll.restart_cost_s.tolist(), roll.digests.tolist()


def afresh(snapshot: Snapshot) -> JobColumns:
    before = job_columns._latest.value
    job_columns._latest.value = JobColumns((), (), *job_columns._empty(0), True, ())
    try:
        return columns_of(snapshot, view(snapshot))
    finally:
        job_columns._latest.value = before


@given(snapshots(), st.data())
def test_a_roll_after_others_is_what_it_is_afresh(snapshot: Snapshot, data: st.DataObject) -> None:
    coin: st.SearchStrategy[bool] = st.booleans()
    for _ in range(3):
        jobs = list[Job](snapshot.jobs)
        if data.draw(coin) and jobs:
            jobs.remove(data.draw(st.sampled_from(jobs)))
        if data.draw(coin) and jobs:
            at = data.draw(st.integers(0, len(jobs) - 1))
            changes = [{"weight": 2.0}, {"held": True}, {"not_before": 1_005.0}, {"restart_cost_s": 7.0}]
            jobs[at] = replace(jobs[at], **data.draw(st.sampled_from(changes)))  # type: ignore[arg-type]
        if data.draw(coin):
            jobs.append(make_job(type="b"))
        snapshot = replace(snapshot, jobs=tuple(jobs), now=snapshot.now + data.draw(st.sampled_from([0.0, 10.0])))
        assert as_plain(columns_of(snapshot, view(snapshot))) == as_plain(afresh(snapshot))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.integers(0, 9))))
def test_the_queue_is_in_the_order_of_its_key(drawn: list[tuple[int, int, int, int]]) -> None:
    jobs = [
        make_job(id=f"{name}-{place}", number=number, priority=priority, submitted_at=float(at))
        for place, (priority, at, number, name) in enumerate(drawn)
    ]
    assert in_queue_order(jobs) == sorted(jobs, key=queue_key)


# All needs of a group at once ------------------------------------------------------------------------


@given(snapshots())
def test_a_level_that_alike_jobs_reach_is_the_one_by_levels(snapshot: Snapshot) -> None:
    found = build(snapshot)
    if not found.jobs:
        return
    per_level = steps_per_level(found)
    assert even(found, per_level)
    level, values = highest(found, MaxMinSearch(per_level), "highs", 10.0)
    costs = np.zeros(len(found.columns) + 1)
    costs[-1] = 1.0
    tangents = CuttingPlanes(found, found.program(costs, extra=1))
    start = float(np.min(found.fastest[found.group_of] / per_level))
    by_levels, _, _ = optimise(tangents, MaxMinSearch(per_level).needs, start, "highs", 10.0)
    assert level == pytest.approx(by_levels, rel=1e-7, abs=1e-9)
    assert isinstance(values, np.ndarray)
    program = found.program()
    for columns, row, most in zip(program._columns, program._values, program._upper, strict=True):
        assert float(row @ values[columns]) <= most + 1e-7
