"""A priority's way over the next days: age, decay, what is held."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import Entity, Gang, Job, Node, Snapshot
from scheduling.lifecycle import State
from scheduling.priority.course import course
from scheduling.priority.multifactor import Weights
from scheduling.priority.scoring import Formula, score

DAY = 86_400.0
NOW = 1_800_000_000.0
FORMULA = Formula(weights=Weights(age=10_000, fair_share=3_000), half_life_s=7 * DAY)


def waiting(number: int, user: str, age_s: float = 0.0) -> Job:
    return Job(str(number), number, f"p{user}", State.WAITING_FOR_RESOURCE, NOW - age_s, {}, user=user)


def holding(number: int, user: str, gpus: int, for_s: float) -> Job:
    job = Job(str(number), number, f"p{user}", State.RUNNING, NOW - for_s, {}, user=user)
    return replace(job, gang=Gang("k1", gpus), held_since=NOW - for_s)


def snapshot(*jobs: Job, used: dict[str, float] | None = None) -> Snapshot:
    """Everybody in a project of their own; `used`: GPU-seconds as they count now."""
    projects = sorted({job.project for job in jobs} | {f"p{user}" for user in used or {}})
    return Snapshot(
        now=NOW,
        nodes=(Node("a", "k1", tuple(range(8))),),
        jobs=jobs,
        entities={project: Entity() for project in projects},
        members={project: {project[1:]: 1.0} for project in projects},
        usage={f"p{user}": {user: {"k1": gpu_s}} for user, gpu_s in (used or {}).items()},
        usage_at=NOW,
    )


users = st.sampled_from(["1", "2", "3"])
used = st.dictionaries(users, st.just(0.0) | st.floats(1, 1e7), max_size=3)
holders = st.lists(st.tuples(users, st.integers(1, 8), st.floats(0, 30 * DAY)), max_size=4)
times = st.lists(st.floats(0, 30 * DAY), min_size=1, max_size=6).map(sorted)
forms = st.sampled_from(["classic", "fair_tree"])


@given(used, holders, forms, st.floats(0, 10 * DAY))
def test_it_begins_where_the_priority_is(used: dict[str, float], held: list, form: str, age_s: float) -> None:  # type: ignore[type-arg]
    jobs = [waiting(n, user, age_s) for n, user in enumerate("1123")]
    seen = snapshot(*jobs, *(holding(10 + n, *one) for n, one in enumerate(held)), used=used)
    formula = replace(FORMULA, form=form)  # type: ignore[arg-type]
    (now,) = course(seen, jobs, formula, [0.0])
    direct = score(seen, jobs, formula)
    assert list(now.priorities.total) == list(direct.priorities.total)
    assert now.standings == direct.standings


@given(used, times)
def test_where_no_job_holds_anything_only_age_changes(used: dict[str, float], ahead: list[float]) -> None:
    jobs = [waiting(n, str(n)) for n in (1, 2, 3)]
    found = course(snapshot(*jobs, used=used), jobs, FORMULA, ahead)
    factors = [scores.columns.fair_share for scores in found]
    for later in factors:
        np.testing.assert_allclose(later, factors[0], rtol=1e-9)
    ages = np.array([scores.columns.age for scores in found])
    assert (np.diff(ages, axis=0) >= 0).all()
    assert (ages <= 1).all()


@given(used, times, st.integers(1, 8), st.floats(0, 30 * DAY))
def test_who_holds_gpus_falls_and_the_others_rise(
    used: dict[str, float], ahead: list[float], gpus: int, for_s: float
) -> None:
    jobs = [waiting(n, str(n)) for n in (1, 2, 3)]
    seen = snapshot(*jobs, holding(9, "1", gpus, for_s), used=used)
    factors = np.array([scores.columns.fair_share for scores in course(seen, jobs, FORMULA, ahead)])
    assert (np.diff(factors[:, 0]) <= 1e-9).all()
    assert (np.diff(factors[:, 1:], axis=0) >= -1e-9).all()


def test_what_ends_is_forgotten_from_then_on() -> None:
    job, other = waiting(1, "1"), waiting(2, "2")
    seen = snapshot(job, other, holding(9, "1", 4, DAY), used={"2": 1e6})
    ahead = [0.0, 2 * DAY, 20 * DAY]
    kept = course(seen, [job], FORMULA, ahead)
    ended = course(seen, [job], FORMULA, ahead, ends={"9": NOW + DAY})
    assert kept[0].columns.fair_share == ended[0].columns.fair_share
    assert kept[1].columns.fair_share < ended[1].columns.fair_share
    # A day more of use, and from then on both of them forget at one pace.
    assert ended[1].columns.fair_share == pytest.approx(ended[2].columns.fair_share)
    assert ended[1].columns.fair_share < ended[0].columns.fair_share


def test_a_reset_forgets_all_but_what_is_held_after_it() -> None:
    job, other = waiting(1, "1"), waiting(2, "2")
    seen = snapshot(job, other, used={"1": 1e6, "2": 1.0})
    before, after = course(seen, [job, other], FORMULA, [DAY, 3 * DAY], reset_at=NOW + 2 * DAY)
    assert before.columns.fair_share[0] < 0.5
    assert list(after.columns.fair_share) == [1.0, 1.0]
    held = snapshot(job, other, holding(9, "2", 1, DAY), used={"1": 1e6})
    (after,) = course(held, [job, other], FORMULA, [3 * DAY], reset_at=NOW + 2 * DAY)
    assert after.columns.fair_share[0] == 1.0
    assert after.columns.fair_share[1] < 1.0
    assert after.standings["p2"].usage == pytest.approx(DAY, rel=0.06)
