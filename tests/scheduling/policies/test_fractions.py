"""The grouped programs against the same problems written out job by job, and against recorded optima."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scheduling.cases.case_file import read_case, snapshot_of
from scheduling.domain import Curve, Entity, Job, Snapshot
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.time_shares.programs.groups import Fractions, build
from scheduling.policies.time_shares.programs.ungrouping.ungroup import achieved
from scheduling.policies.time_shares.programs.ungrouping.ungroup_singles import split_by_demand
from tests.builders import make_job, make_nodes, make_snapshot

CASES = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data" / "policy_cases"
KINDS = {"one": {"a": 1.0, "b": 3.0, "c": 4.0}, "two": {"a": 2.0, "b": 2.5, "c": 7.0}, "lame": {"b": 0.5}}
slowly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(draw: st.DrawFn, pairs: bool = False) -> Snapshot:
    """Few kinds of jobs and many of each, with needs of their own: what grouping must not blur."""
    nodes = [
        node
        for kind, first in (("a", 0), ("b", 50), ("c", 90))
        for node in make_nodes(draw(st.integers(1, 6)), type=kind, first_id=first)
    ]
    curves = {name: {kind: Curve((v,)) for kind, v in speeds.items()} for name, speeds in KINDS.items()}
    jobs = []
    for number in range(1, 1 + draw(st.integers(1, 7))):
        name = draw(st.sampled_from(sorted(KINDS)))
        jobs.append(
            make_job(
                number=number,
                curves=curves[name],
                workload=name,
                submitted_at=1000.0 - draw(st.integers(0, 500)),
                remaining_steps=float(draw(st.integers(1, 2000))),
                weight=float(draw(st.integers(1, 3))),
                project=draw(st.sampled_from(["x", "y"])),
            )
        )
    known = {}
    if pairs:
        for one, other in (("one", "one"), ("one", "two"), ("two", "two"), ("lame", "two")):
            part = draw(st.floats(0.3, 0.9))
            shared = KINDS[one].keys() & KINDS[other].keys()
            known[one, other, 1] = {kind: (part * KINDS[one][kind], part * KINDS[other][kind]) for kind in shared}
    return make_snapshot(*jobs, nodes=nodes, pairs=known, entities={"x": Entity(None, 2.0), "y": Entity(None, 1.0)})


class JobByJob:
    """Every combination of single jobs as a variable of its own."""

    def __init__(self, snapshot: Snapshot, found: Fractions) -> None:
        self.found = found
        self.columns: list[tuple[tuple[int, ...], str, tuple[float, ...]]] = []
        jobs = found.jobs
        for n, job in enumerate(jobs):
            for kind in found.types:
                self.columns.append(((n,), kind, (job.curves[kind].at(1) if kind in job.curves else 0.0,)))
        for n, one in enumerate(jobs):
            for m, other in enumerate(jobs[:n]):
                both = snapshot.pairs.get((one.workload, other.workload, 1))
                turned = snapshot.pairs.get((other.workload, one.workload, 1), {})
                both = both or {kind: (b, a) for kind, (a, b) in turned.items()}
                self.columns += [((n, m), kind, speeds) for kind, speeds in both.items()]
        self.steps = np.zeros((len(jobs), len(self.columns)))
        self.time = np.zeros((len(jobs), len(self.columns)))
        for c, (members, _, speeds) in enumerate(self.columns):
            for member, speed in zip(members, speeds, strict=True):
                self.steps[member, c], self.time[member, c] = speed, 1.0
        self.gpus = np.array([[float(column[1] == kind) for column in self.columns] for kind in found.types])

    def largest(self, per_unit: np.ndarray[Any, Any]) -> float:
        """The largest t with steps/s >= per_unit * t for every job."""
        rows = np.vstack(
            (np.hstack((-self.steps, per_unit[:, None])), np.pad(np.vstack((self.time, self.gpus)), ((0, 0), (0, 1))))
        )
        limits = np.concatenate((np.zeros(len(per_unit)), np.ones(len(per_unit)), self.found.capacity))
        answer = linprog(np.append(np.zeros(len(self.columns)), -1.0), A_ub=rows, b_ub=limits, method="highs")
        assert answer.status == 0
        return float(answer.x[-1])


def solved(name: str, snapshot: Snapshot, **parameters: Any) -> tuple[float, dict[str, float], Fractions]:
    """(objective, steps/s of each job, the problem); the shares are checked to be valid."""
    answer = load_policy(name, parameters).allocate(snapshot)
    found = build(snapshot, variant=parameters.get("variant", "perf"))
    time, gpus = dict.fromkeys((job.id for job in found.jobs), 0.0), dict.fromkeys(found.types, 0.0)
    gang = {job.id: job.min_gpus for job in found.jobs}
    for combination, by_type in (answer.shares or {}).items():
        for kind, share in by_type.items():
            gpus[kind] += share * gang[combination[0]]
            for key in combination:
                time[key] += share
    assert all(value <= 1 + 1e-7 for value in time.values())
    assert all(gpus[kind] <= limit + 1e-7 for kind, limit in zip(found.types, found.capacity, strict=True))
    return answer.figures["objective"], achieved(found, answer.shares or {}), found


@slowly
@given(snapshot=problems(pairs=True), variant=st.sampled_from(["perf", "packed"]))
def test_max_min_fairness_is_what_it_is_job_by_job(snapshot: Snapshot, variant: str) -> None:
    level, speeds, found = solved("max_min_fairness", snapshot, variant=variant)
    weights = np.array([job.weight for job in found.jobs])
    literal = JobByJob(snapshot if variant == "packed" else make_snapshot(), found)
    equal = found.equal_share[found.group_of]
    assert level == pytest.approx(literal.largest(equal * weights), rel=1e-7)
    reached = np.array([speeds[job.id] for job in found.jobs]) / (equal * weights)
    assert reached.min() == pytest.approx(level, rel=1e-6)


@slowly
@given(snapshot=problems(pairs=True), variant=st.sampled_from(["perf", "packed"]))
def test_makespan_is_what_it_is_job_by_job(snapshot: Snapshot, variant: str) -> None:
    makespan_s, speeds, found = solved("min_makespan", snapshot, variant=variant)
    steps = np.array([job.remaining_steps for job in found.jobs])
    literal = JobByJob(snapshot if variant == "packed" else make_snapshot(), found)
    assert makespan_s == pytest.approx(1 / literal.largest(steps), rel=1e-6)
    assert max(job.remaining_steps / speeds[job.id] for job in found.jobs) == pytest.approx(makespan_s, rel=1e-6)


@slowly
@given(
    snapshot=problems(pairs=True),
    digits=st.lists(st.floats(0, 10), min_size=7, max_size=7),
    variant=st.sampled_from(["perf", "packed"]),
    compatible=st.booleans(),
)
def test_jobs_in_their_last_step_beside_long_ones_leave_the_makespan_solvable(
    snapshot: Snapshot, digits: list[float], variant: str, compatible: bool
) -> None:
    left = [replace(job, remaining_steps=10.0**digit) for job, digit in zip(snapshot.jobs, digits, strict=False)]
    snapshot = replace(snapshot, jobs=tuple(left))
    makespan_s, _, found = solved("min_makespan", snapshot, variant=variant, compatible=compatible)
    steps = np.array([job.remaining_steps for job in found.jobs])
    best = JobByJob(snapshot if variant == "packed" else make_snapshot(), found).largest(steps / steps.max())
    least_s = steps.max() / best
    # The reference's search is coarse.
    assert makespan_s >= least_s * (1 - 1e-6) if compatible else makespan_s == pytest.approx(least_s, rel=1e-6)


@slowly
@given(snapshot=problems(pairs=True), variant=st.sampled_from(["perf", "packed"]))
def test_finish_time_fairness_leaves_nothing_to_gain(snapshot: Snapshot, variant: str) -> None:
    rho, speeds, found = solved("finish_time_fairness", snapshot, variant=variant)
    literal = JobByJob(snapshot if variant == "packed" else make_snapshot(), found)
    isolated_s = [job.remaining_steps / v for job, v in zip(found.jobs, _isolated(found), strict=True)]
    reached = [
        (1000.0 - job.submitted_at + job.remaining_steps / speeds[job.id]) / alone
        for job, alone in zip(found.jobs, isolated_s, strict=True)
    ]
    assert max(reached) == pytest.approx(rho, rel=1e-6)
    better = np.array(
        [
            job.remaining_steps / max(1e-9, alone * rho * (1 - 1e-5) - (1000.0 - job.submitted_at))
            for job, alone in zip(found.jobs, isolated_s, strict=True)
        ]
    )
    assert literal.largest(better) < 1


def _isolated(found: Fractions) -> list[float]:
    return list((found.throughput * found.isolated).sum(axis=1)[found.group_of])


@slowly
@given(snapshot=problems(pairs=True), variant=st.sampled_from(["perf", "packed"]))
def test_hierarchical_levels_are_reached_and_the_first_is_the_largest_possible(
    snapshot: Snapshot, variant: str
) -> None:
    _, speeds, found = solved("hierarchical", snapshot, variant=variant)
    literal = JobByJob(snapshot if variant == "packed" else make_snapshot(), found)
    equal, weights = found.equal_share[found.group_of], _first_rates(found.jobs)
    reached = np.array([speeds[job.id] for job in found.jobs]) / equal
    assert (reached / weights).min() == pytest.approx(literal.largest(equal * weights), rel=1e-6)


def _first_rates(jobs: tuple[Job, ...]) -> np.ndarray[Any, Any]:
    """Each job's part of its project's weight (x: 2, y: 1) while all of them still rise."""
    inside = {key: sum(job.weight for job in jobs if job.project == key) for key in ("x", "y")}
    weight = {"x": 2.0, "y": 1.0}
    total = sum(weight[key] for key in weight if inside[key])
    return np.array([weight[job.project] / total * job.weight / inside[job.project] for job in jobs])


def test_water_filling_raises_a_job_that_is_not_at_a_bottleneck() -> None:
    """Two jobs can only use the slow type; the third has the fast one to itself."""
    slow = [make_job(number=n, curves={"a": Curve((1.0,))}) for n in (1, 2)]
    fast = make_job(number=3, curves={"b": Curve((1.0,))})
    snapshot = make_snapshot(*slow, fast, nodes=[*make_nodes(1, type="a"), *make_nodes(1, type="b", first_id=9)])
    _, speeds, _ = solved("max_min_fairness_water_filling", snapshot)
    assert [speeds[job.id] for job in (*slow, fast)] == pytest.approx([0.5, 0.5, 1.0])


def test_a_fifo_project_serves_its_jobs_in_order_and_passes_on_what_it_cannot_use() -> None:
    jobs = [make_job(number=n, project="x" if n < 3 else "y", curves={"a": Curve((1.0,))}) for n in (1, 2, 3)]
    tree = {"org": Entity(), "x": Entity("org", 3.0, "fifo"), "y": Entity("org", 1.0)}
    snapshot = make_snapshot(*jobs, nodes=make_nodes(2, type="a"), entities=tree)
    _, speeds, _ = solved("hierarchical", snapshot)
    assert [speeds[job.id] for job in jobs] == pytest.approx([1.0, 0.5, 0.5])


def test_deadlines_that_cannot_all_be_met_are_named_the_worst_dropped() -> None:
    jobs = [
        make_job(number=n, curves={"a": Curve((1.0,))}, remaining_steps=90.0, deadline=1000.0 + due)
        for n, due in ((1, 100.0), (2, 95.0), (3, 1000.0))
    ]
    answer = load_policy("min_cost_slo").allocate(
        make_snapshot(*jobs, nodes=make_nodes(1, type="a"), prices={"a": 2.0})
    )
    missed = {key for key, reason in answer.reasons.items() if reason.token == "deadline_missed"}
    assert missed == {"job-000002"}
    assert answer.figures["deadlines_missed"] == 1.0
    assert "late" in answer.reasons["job-000002"].text or "not served" in answer.reasons["job-000002"].text


def test_min_cost_buys_the_best_value_and_uses_all_of_it() -> None:
    job = make_job(number=1, curves={"dear": Curve((4.0,)), "cheap": Curve((2.0,))})
    nodes = [*make_nodes(2, type="dear"), *make_nodes(2, type="cheap", first_id=9)]
    answer = load_policy("min_cost").allocate(make_snapshot(job, nodes=nodes, prices={"dear": 3.0, "cheap": 1.0}))
    assert dict((answer.shares or {})[(job.id,)]) == {"cheap": pytest.approx(1.0)}
    assert answer.figures["objective"] == pytest.approx(2.0)


def test_min_mean_jct_runs_short_jobs_first_on_each_worker() -> None:
    jobs = [
        make_job(number=n, curves={"a": Curve((1.0,))}, remaining_steps=s) for n, s in ((1, 50.0), (2, 5.0), (3, 20.0))
    ]
    answer = load_policy("min_mean_jct").allocate(make_snapshot(*jobs, nodes=make_nodes(1, type="a")))
    assert set(answer.shares or {}) == {(jobs[1].id,)}
    assert answer.figures["objective"] == pytest.approx((3 * 5 + 2 * 20 + 50) / 3)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_columns_can_be_split_whenever_every_level_is_covered(data: st.DataObject) -> None:
    """Masses that came from a valid assignment can be split again so that all demands are met."""
    members = data.draw(st.integers(1, 6))
    speeds = np.array(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)), dtype=float)
    parts = np.array([[data.draw(st.integers(0, 5)) for _ in speeds] for _ in range(members)], dtype=float)
    parts /= np.maximum(parts.sum(axis=1, keepdims=True), data.draw(st.integers(1, 8)))
    demand = (parts @ speeds) * np.array([data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in range(members)])
    split = split_by_demand(parts.sum(axis=0), speeds, demand)
    assert (split.sum(axis=1) <= 1 + 1e-9).all()
    assert split.sum(axis=0) == pytest.approx(parts.sum(axis=0), abs=1e-9)  # partners in pairs count on all of it
    assert (split @ speeds >= demand - 1e-9 * np.maximum(demand, 1)).all()


@pytest.mark.skipif(not CASES.is_dir(), reason="the reference cases are not here (EVENKEEL_SHARED)")
@pytest.mark.parametrize("case", ["J32.single", "J32.multi", "J128.single", "J128.multi"])
def test_recorded_optima_are_met_or_passed(case: str) -> None:
    snapshot = snapshot_of(read_case(CASES / f"case.{case}.json"))
    optima = json.loads((CASES / "optima.json").read_text())
    known = next(entry for entry in optima if entry["case"] == f"case.{case}.json")
    for name, key, sign, variant in (
        ("max_min_fairness", "max_min_fairness", 1, "perf"),
        ("max_min_fairness", "max_min_fairness_packed", 1, "packed"),
        ("max_sum_throughput", "max_sum_throughput", 1, "perf"),
        ("min_makespan", "min_makespan_s", -1, "perf"),
        ("finish_time_fairness", "finish_time_fairness_rho", -1, "perf"),
    ):
        objective, _, _ = solved(name, snapshot, variant=variant)
        assert sign * objective >= sign * known[key] - 1e-6 * abs(known[key]), name
    _, speeds, found = solved("hierarchical", snapshot)
    levels = [speeds[j.id] * j.min_gpus / found.equal_share[g] for j, g in zip(found.jobs, found.group_of, strict=True)]
    assert min(levels) >= known["water_filling"]["min"] * (1 - 1e-6)
    assert float(np.median(levels)) >= known["water_filling"]["p50"] * (1 - 1e-6)


def test_jobs_that_hold_gpus_for_good_leave_the_rest_to_the_others() -> None:
    rigid = make_job(number=1, holds=(0, 1), type="a", restartable=False, state=State.RUNNING)
    waiting = make_job(number=2, curves={"a": Curve((1.0,))})
    found = build(make_snapshot(rigid, waiting, nodes=make_nodes(3, type="a")))
    assert found.capacity.tolist() == [1.0]
    assert [job.id for job in found.jobs] == [waiting.id]
    assert found.absent[rigid.id].token == "rigid"
