"""When a plan is applied, and what happens on lost and drained nodes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from scheduling.domain import Allocation, Job, Move, Node, Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.base import Parameters
from scheduling.policies.capabilities import Answer, Capabilities
from tests.builders import make_curve, make_job, make_nodes, make_snapshot


def plan(*jobs: Job, nodes: Any = 6, changes: dict[str, Any] | None = None, **parameters: Any) -> Plan:
    return plan_round(make_snapshot(*jobs, nodes=nodes, **(changes or {})), load_policy("f_scheduling", parameters))


def moves(given: Plan) -> dict[str, Move]:
    return {move.job_id: move for move in given.moves}


def test_growth_below_min_gain_is_not_applied() -> None:
    job = make_job(holds=[0, 1], curve=make_curve(1, 2, 2.9))
    rejected = plan(job)
    assert rejected.moves == ()
    assert rejected.rejected == (
        "Another plan would add 0.9 steps/s and a change must add at least 1, so nothing was changed."
    )
    assert rejected.reasons[job.id].token == "min_gain"
    assert moves(plan(job, min_gain=0.9 - 1e-9))[job.id].gpu_ids == (0, 1, 2)


def test_min_gain_may_be_relative_and_follows_the_speed_up() -> None:
    job = make_job(holds=[0, 1], curve=make_curve(1, 2, 2.9))
    assert plan(job, min_gain=0.4, min_gain_kind="relative").moves
    assert not plan(job, min_gain=0.5, min_gain_kind="relative").moves
    fast = make_job(holds=[0, 1], curve=make_curve(10, 20, 29))
    assert plan(fast).moves
    assert not plan(fast, changes={"settings": {"speedup": 10.0}}).moves


def test_a_plan_that_starts_a_job_is_applied_whatever_it_costs() -> None:
    holder, new = make_job(holds=range(6)), make_job(gpus=2)
    found = moves(plan(holder, new))
    assert found[new.id].kind == "start"
    assert found[holder.id].kind == "rescale"
    assert set(found[new.id].gpu_ids).isdisjoint(found[holder.id].gpu_ids)
    assert set(found[new.id].gpu_ids) <= set(holder.gpu_ids)  # it stands by until the holder has left


def test_a_preempted_job_counts_as_one_that_holds_nothing() -> None:
    waiting = make_job(gpus=1, state=State.WAITING_FOR_RESOURCE, has_trained=True)
    assert moves(plan(make_job(holds=range(6)), waiting))[waiting.id].kind == "start"


def test_protected_jobs_and_their_gpus_are_left_alone() -> None:
    protected = make_job(holds=range(5), state=State.RUNNING_PROTECTED, protected_until=1042.0)
    new, more = make_job(), make_job()
    found = plan(protected, new, more)
    assert {move.job_id: move.gpu_ids for move in found.moves} == {new.id: (5,)}
    assert found.next_wake_at == 1042.0
    assert "42 s" in found.reasons[protected.id].text


def test_a_rigid_job_is_never_resized() -> None:
    assert plan(make_job(holds=[0], restartable=False)).moves == ()


def test_amortisation_weighs_steps_gained_against_steps_lost() -> None:
    def job(restart_cost_s: float) -> Job:
        return make_job(holds=[0, 1, 2], restart_cost_s=restart_cost_s, remaining_steps=10_000.0)

    soon = {"next_event_s": 100.0}
    assert plan(job(40.0), amortise=True, changes=soon).moves  # gains 300 steps, loses 240
    rejected = plan(job(60.0), amortise=True, changes=soon)  # loses 360
    assert rejected.moves == ()
    assert rejected.reasons[next(iter(rejected.reasons))].token == "not_amortised"


def test_jobs_on_a_lost_node_move_even_while_protected() -> None:
    good, lost = make_nodes(2), Node("gone", "titan_xp", (10, 11), schedulable=False, lost=True)
    job = make_job(holds=[10, 11], state=State.RUNNING_PROTECTED, protected_until=2000.0)
    move = moves(plan(job, nodes=(*good, lost)))[job.id]
    assert (move.kind, move.gpu_ids) == ("rescale", (0, 1))
    assert move.reason.token == "node_lost"


def test_jobs_on_a_lost_node_are_queued_again_without_room() -> None:
    lost = Node("gone", "titan_xp", (10, 11), schedulable=False, lost=True)
    job = make_job(holds=[10, 11], gpus=2)
    found = plan(job, nodes=(*make_nodes(1), lost))
    assert moves(found)[job.id].kind == "preempt"
    assert found.next_wake_at == 1000.0


def test_a_drained_node_is_left_by_checkpoint_when_there_is_room() -> None:
    drained = Node("old", "titan_xp", (10, 11), schedulable=False)
    job = make_job(holds=[10, 11], gpus=2)
    assert moves(plan(job, nodes=(*make_nodes(2), drained)))[job.id].gpu_ids == (0, 1)
    stays = plan(job, nodes=(*make_nodes(1), drained))
    assert stays.moves == ()
    assert stays.reasons[job.id].token == "node_drained_waits"


def test_an_assignment_on_a_node_that_left_is_withdrawn() -> None:
    drained = Node("old", "titan_xp", (10, 11), schedulable=False)
    job = make_job(holds=[10, 11], gpus=2, state=State.STANDBY)
    found = plan(job, nodes=(*make_nodes(2), drained))
    assert (moves(found)[job.id].kind, moves(found)[job.id].gpu_ids) == ("preempt", ())


def test_blocked_gpus_are_nobodys() -> None:
    job = make_job()
    found = plan(job, changes={"blocked_gpu_ids": frozenset({0, 1, 2})})
    assert moves(found)[job.id].gpu_ids == (3, 4, 5)


def test_it_wakes_for_the_earliest_back_off() -> None:
    assert plan(make_job(not_before=1030.0), make_job(not_before=1020.0)).next_wake_at == 1020.0


class Broken:
    name: ClassVar[str] = "broken"
    title: ClassVar[str] = "Broken"
    Parameters: ClassVar[type[Parameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS, elastic=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters = Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        raise SolverError("timeout")


def test_a_failing_solver_never_stops_the_cluster() -> None:
    holder, new = make_job(holds=[0, 1]), make_job(gpus=2)
    found = plan_round(make_snapshot(holder, new), Broken())
    assert moves(found)[new.id].gpu_ids == (2, 3)
    assert found.figures == {"solver_failed": 1.0}
    assert "the solver stopped with timeout" in found.reasons[holder.id].text


class Packing(Broken):
    capabilities = Capabilities(Answer.PLACEMENTS)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        return Allocation(placements={job.id: (index,) for index, job in enumerate(snapshot.jobs)})


class Overlapping(Broken):
    def allocate(self, snapshot: Snapshot) -> Allocation:
        return Allocation(placements={job.id: (0,) for job in snapshot.jobs})


class Shares(Broken):
    def allocate(self, snapshot: Snapshot) -> Allocation:
        return Allocation(shares={(job.id,): {"titan_xp": 1.0} for job in snapshot.jobs})


@pytest.mark.parametrize("policy", [Overlapping(), Shares()])
def test_an_answer_that_cannot_be_carried_out_is_a_failed_solver(policy: Broken) -> None:
    jobs = [make_job(gpus=1), make_job(gpus=1)]
    found = plan_round(make_snapshot(*jobs), policy)
    assert found.figures == {"solver_failed": 1.0}
    assert [moves(found)[job.id].gpu_ids for job in jobs] == [(0,), (1,)]


def test_a_packing_policy_names_accelerators_itself() -> None:
    jobs = [make_job(gpus=1), make_job(gpus=1)]
    found = plan_round(make_snapshot(*jobs), Packing())
    assert [moves(found)[job.id].gpu_ids for job in jobs] == [(0,), (1,)]


# Why nothing can run it ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fifo_gang", "multifactor", "f_scheduling", "static_partition"])
def test_a_job_that_nothing_here_can_run_says_which_it_is(name: str) -> None:
    nodes = [*make_nodes(2, 2), *make_nodes(4, type="v100", first_id=10, schedulable=False)]
    both = {"titan_xp": make_curve(), "v100": make_curve()}
    cases = {
        "never": make_job(gpus=5),
        "no_profile": make_job(gpus=1, type="h100"),
        "node_unavailable": make_job(gpus=4, curves=both, types=("v100",)),
    }
    never = make_job(gpus=1, types=("h100",), type="h100")
    reasons = plan_round(make_snapshot(*cases.values(), never, nodes=nodes), load_policy(name)).reasons
    assert {token: reasons[job.id].token for token, job in cases.items()} == {token: token for token in cases}
    assert "at least 5 × titan_xp or v100 and there are 4 of one type, drained" in reasons[cases["never"].id].text
    assert "only on h100" in reasons[cases["no_profile"].id].text
    assert "0 are in service; out of service: v100-0 (drained)" in reasons[cases["node_unavailable"].id].text
    assert (reasons[never.id].token, reasons[never.id].detail["types"]) == ("never", ["h100"])


def test_a_job_that_loses_gpus_says_who_got_them() -> None:
    first = make_job(min_gpus=1, max_gpus=6, holds=range(6))
    second, third = make_job(gpus=3), make_job(gpus=2)
    plan = plan_round(make_snapshot(first, second, third), load_policy("f_scheduling"))
    (move,) = [move for move in plan.moves if move.job_id == first.id]
    assert move.taken_by == (second.id, third.id)
    assert all(move.taken_by == () for move in plan.moves if move.job_id != first.id)
