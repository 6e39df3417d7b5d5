"""Learned co-placement policies, and the rules beside them: who joins whom, who waits, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Curve, Job, Limit, Move, Plan, Reason, Window
from scheduling.domain.wording import span
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy
from scheduling.policies.learned.images import Bounds, Placed, legal_actions, usage_of
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.applications import WORKLOADS, make_workload, one_gpu
from scheduling.simulator.inputs.trace import TraceJob
from tests.builders import make_job, make_nodes, make_snapshot
from tests.scheduling.histories import every, history, seen, trace_job

LEARNED = ("dqn_gpu", "deeprm_max", "deeprm_mean")


@pytest.mark.parametrize("name", LEARNED)
def test_the_series_tells_what_fits_together_where_peaks_do_not(name: str) -> None:
    """Two jobs whose peaks are at different times fit by their series; by their peaks they do not."""
    jobs = [seen(1, [0.9, 0.9, 0.05, 0.05, 0.05]), seen(2, [0.05, 0.05, 0.05, 0.9, 0.9])]
    snapshot = make_snapshot(*jobs, nodes=make_nodes(1))
    runs = {job.id: Placed(usage_of(job.history, load_policy(name).profile)) for job in jobs if job.history}  # type: ignore[attr-defined]
    legal, *_ = legal_actions([], list(runs.values()), every(2), Bounds(1.0, 1.0))
    assert bool(legal[3]) == (name != "deeprm_max")
    assert {move.gpu_ids for move in plan_round(snapshot, load_policy(name)).moves} == {(0,)}


@pytest.mark.parametrize("name", LEARNED)
def test_a_job_that_is_held_back_is_looked_at_again(name: str) -> None:
    running = seen(1, [0.9] * 4, holds=(0,), done_steps=10.0, remaining_steps=30.0)
    waiting = seen(2, [0.9] * 4)
    plan = plan_round(make_snapshot(running, waiting, nodes=make_nodes(1)), load_policy(name))
    assert not plan.moves
    assert plan.reasons[waiting.id].token == "held_back"
    assert plan.next_wake_at is not None
    assert 0 < plan.next_wake_at - make_snapshot().now <= 30.0


def test_a_job_that_is_worth_more_alone_is_left_alone() -> None:
    """Two that fit together and would use much of what the other needs."""
    jobs = [seen(1, [0.45] * 8), seen(2, [0.45] * 8)]
    snapshot = make_snapshot(*jobs, nodes=make_nodes(1))
    policies = [load_policy("dqn_gpu", {"unslowed_worth": worth}) for worth in (0.0, 0.6)]
    assert [len(plan_round(snapshot, policy).moves) for policy in policies] == [2, 1]


@pytest.mark.parametrize("name", LEARNED)
def test_an_empty_gpu_is_not_kept_empty(name: str) -> None:
    jobs = [make_job(number=n, gpus=1, gpu_milli=500) for n in (1, 2, 3)]
    plan = plan_round(make_snapshot(*jobs, nodes=make_nodes(1, 1)), load_policy(name))
    assert {gpu for move in plan.moves for gpu in move.gpu_ids} == {0, 1}


def stream(patience_s: float) -> list[float]:
    """When each of 60 small jobs ends of which one comes every 10 s, and one that needs the whole GPU, the second."""
    small = [trace_job(number, history([0.1] * 10), 10.0 * number) for number in range(3, 63)]
    large = replace(trace_job(2, history([0.99] * 10, [0.95] * 10)), arrival_s=20.0)
    first = trace_job(1, history([0.1] * 10))
    policy = load_policy("dqn_gpu", {"patience_s": patience_s, "unslowed_worth": 0.0})
    outcome = Engine([first, large, *small], replace(one_gpu(), launch_s=0.0), policy).run()
    assert outcome.usage.out_of_memory == 0
    return [run.finished_at or 0.0 for run in outcome.runs]


def test_who_has_waited_for_long_is_passed_over_no_more() -> None:
    """While small jobs keep coming the GPU is never empty; then it is kept for who needs all of it."""
    assert stream(14_400.0)[1] > 600.0
    assert 320.0 < stream(200.0)[1] < 500.0


def started(*jobs: Job, nodes: Any) -> set[str]:
    plan = plan_round(make_snapshot(*jobs, nodes=nodes), load_policy("dqn_gpu", {"patience_s": 5_000.0}))
    return {move.job_id for move in plan.moves}


def test_a_gpu_is_kept_only_where_who_has_waited_for_long_can_run() -> None:
    """It asks for more memory, or more processors, than any node has: nobody waits for it."""
    small = seen(2, [0.1] * 4)
    node = replace(make_nodes(1)[0], gpu_memory_mib=10_000, cpu_milli=8_000)
    asks: list[dict[str, Any]] = [{"gpu_memory_mib": 20_000}, {"cpu_milli": 16_000}]
    for asked in asks:
        never = seen(1, [0.1] * 4, submitted_at=-10_000.0, **asked)
        assert started(never, small, nodes=(node,)) == {small.id}


def test_the_gpu_is_kept_that_who_has_waited_for_long_fits() -> None:
    """The other, which is empty, is too small for it."""
    small, large = (replace(node, gpu_memory_mib=mib) for node, mib in zip(make_nodes(1, 1), (1_000, 40_000)))  # noqa: B905
    runs = seen(1, [0.5] * 40, holds=large.gpu_ids, done_steps=10.0, remaining_steps=390.0)
    waits = seen(2, [0.9] * 4, submitted_at=-10_000.0, gpu_memory_mib=20_000)
    new = seen(3, [0.1] * 4)
    plan = plan_round(
        make_snapshot(runs, waits, new, nodes=(small, large)), load_policy("dqn_gpu", {"patience_s": 5_000.0})
    )
    assert [(move.job_id, move.gpu_ids) for move in plan.moves] == [(new.id, small.gpu_ids)]


def test_a_job_that_has_priority_hides_no_job_that_has_waited_for_long() -> None:
    runs = seen(1, [0.5] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    waits, first = seen(2, [0.9] * 4, submitted_at=-10_000.0), seen(3, [0.9] * 4, priority=5)
    new = seen(4, [0.1] * 4)
    assert started(runs, first, new, nodes=make_nodes(1)) == {new.id}
    assert started(runs, waits, first, new, nodes=make_nodes(1)) == set()


def said(*jobs: Job, nodes: Any = None, **parameters: Any) -> dict[str, Reason]:
    """Why those that wait do."""
    plan = plan_round(make_snapshot(*jobs, nodes=nodes or make_nodes(1)), load_policy("dqn_gpu", parameters))
    starting = {move.job_id for move in plan.moves}
    return {job.id: plan.reasons[job.id] for job in jobs if not job.gpu_ids and job.id not in starting}


def test_a_job_that_waits_is_told_what_there_would_not_be_enough_of_and_when() -> None:
    """In 300 s the one that runs takes 90 % of the memory for good."""
    runs = seen(1, [0.1] * 100, [0.2] * 40 + [0.9] * 60, holds=(0,), done_steps=100.0, remaining_steps=900.0)
    waits = seen(2, [0.1] * 100, [0.3] * 100)
    reason = said(runs, waits, stretch=1.0)[waits.id]
    assert reason.token == "held_back"
    assert "there would be too little GPU memory in 5 min beside #1 on titan_xp-0." in reason.text
    assert reason.detail == {"node": "titan_xp-0", "short_of": "gpu_memory"}  # nothing of others but numbers
    busy = seen(1, [0.9] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    assert "there would be too little GPU time now beside #1" in said(busy, seen(2, [0.9] * 4))[waits.id].text


def test_a_job_that_waits_is_told_where_it_would_fit_but_is_left_alone() -> None:
    jobs = [seen(1, [0.45] * 8), seen(2, [0.45] * 8)]
    [(key, reason)] = said(*jobs, unslowed_worth=0.6).items()
    [other] = [job for job in jobs if job.id != key]
    assert f"It would fit beside #{other.number} on titan_xp-0" in reason.text
    assert reason.detail == {"node": "titan_xp-0"}


def test_a_job_that_is_behind_those_that_are_looked_at_is_told_so() -> None:
    runs = seen(1, [0.99] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    waiting = [seen(number, [0.5] * 4) for number in range(2, 28)]
    reasons = said(runs, *waiting)
    behind = [job.number for job in waiting if "It is behind the first 24" in reasons[job.id].text]
    assert behind == [26, 27]


def test_a_job_that_waits_for_a_kept_gpu_is_told_for_whom_and_its_owner_until_when() -> None:
    runs = seen(1, [0.5] * 40, holds=(0,), done_steps=40.0, remaining_steps=360.0)
    waits, new = seen(2, [0.9] * 4, submitted_at=-10_000.0), seen(3, [0.1] * 4)
    reasons = said(runs, waits, new, patience_s=5_000.0)
    now = make_snapshot().now
    assert f"It has waited for {span(now + 10_000.0)} and has reserved 1 GPU of titan_xp-0" in reasons[waits.id].text
    assert "to be empty in about 6 min." in reasons[waits.id].text
    assert (reasons[waits.id].token, reasons[new.id].token) == ("kept_for", "kept_from")
    assert "reserved for #2" in reasons[new.id].text
    assert reasons[new.id].detail == {"node": "titan_xp-0", "by": waits.id}


def whole(number: int, gpus: int, **changes: Any) -> Job:
    return make_job(number=number, gpus=gpus, min_gpus=gpus, max_gpus=gpus, **changes)


def test_gpus_are_kept_for_a_gang_that_has_waited_for_long() -> None:
    """Those of the node that is empty soonest; parts that are new go to the other."""
    first = seen(1, [0.1] * 20, holds=(0,), done_steps=0.0, remaining_steps=200.0)
    other = seen(2, [0.1] * 40, holds=(2,), done_steps=0.0, remaining_steps=400.0)
    gang, parts = whole(3, 2, submitted_at=-10_000.0), [seen(number, [0.1] * 4) for number in (4, 5, 6)]
    nodes = make_nodes(2, 2)
    plan = plan_round(
        make_snapshot(first, other, gang, *parts, nodes=nodes), load_policy("dqn_gpu", {"patience_s": 5_000.0})
    )
    assert {gpu for move in plan.moves for gpu in move.gpu_ids} <= {2, 3}
    assert {move.job_id for move in plan.moves} == {job.id for job in parts}
    assert "and has reserved 2 GPUs of titan_xp-0, to be empty in about 3 min." in plan.reasons[gang.id].text
    single = make_snapshot(first, other, gang, whole(7, 1), nodes=nodes)  # by itself it would go to the first node
    [move] = plan_round(single, load_policy("dqn_gpu", {"patience_s": 5_000.0})).moves
    assert move.gpu_ids == (3,)


def test_a_gpu_whose_jobs_take_turns_is_empty_later() -> None:
    """Two of three fifths for ten minutes each take a fifth longer together."""
    runs = [seen(n, [0.6] * 60, holds=(0,), done_steps=1.0, remaining_steps=599.0) for n in (1, 2)]
    gang = whole(3, 1, submitted_at=-10_000.0)
    reason = said(*runs, gang, patience_s=5_000.0)[gang.id]
    assert "to be empty in about 12 min." in reason.text


def test_what_is_kept_for_a_gang_is_given_to_no_whole_gpu_either() -> None:
    runs = seen(1, [0.1] * 20, holds=(0,), done_steps=0.0, remaining_steps=200.0)
    gang, single = whole(2, 2, submitted_at=-10_000.0), whole(3, 1)
    assert [move.job_id for move in moves_of(runs, gang, single, patience_s=1e6)] == [single.id]
    assert not moves_of(runs, gang, single, patience_s=5_000.0)
    assert said(runs, gang, single, nodes=make_nodes(2), patience_s=5_000.0)[single.id].detail["by"] == gang.id
    assert [move.job_id for move in moves_of(gang, single, patience_s=5_000.0)] == [gang.id]


def moves_of(*jobs: Job, **parameters: Any) -> Sequence[Move]:
    return plan_round(make_snapshot(*jobs, nodes=make_nodes(2)), load_policy("dqn_gpu", parameters)).moves


def test_nothing_is_kept_for_a_gang_that_no_node_is_large_enough_for() -> None:
    gang, part = whole(1, 3, submitted_at=-10_000.0), seen(2, [0.1] * 4)
    assert [move.job_id for move in moves_of(gang, part, patience_s=5_000.0)] == [part.id]


def test_a_stream_of_parts_keeps_no_whole_gpu_from_starting_forever() -> None:
    small = [trace_job(number, history([0.1] * 10), 10.0 * number) for number in range(3, 63)]
    alone = replace(trace_job(2, history([0.1] * 10), 20.0), gpu_milli=1_000, history=None)
    first = trace_job(1, history([0.1] * 10))

    def ends_at(patience_s: float) -> float:
        policy = load_policy("dqn_gpu", {"patience_s": patience_s, "unslowed_worth": 0.0})
        outcome = Engine([first, alone, *small], replace(one_gpu(), launch_s=0.0), policy).run()
        return outcome.runs[1].finished_at or 0.0

    assert ends_at(14_400.0) > 600.0
    assert 300.0 < ends_at(200.0) < 500.0


def overdue(number: int, **changes: Any) -> Job:
    return seen(number, [0.9] * 4, submitted_at=-10_000.0, **changes)


def planned(*jobs: Job, nodes: Any, **changes: Any) -> Plan:
    snapshot = replace(make_snapshot(*jobs, nodes=nodes), **changes)
    return plan_round(snapshot, load_policy("dqn_gpu", {"patience_s": 5_000.0}))


def test_who_has_waited_for_long_comes_before_a_whole_gpu_of_higher_priority() -> None:
    waits, first = overdue(1), whole(2, 1, priority=5)
    plan = planned(waits, first, nodes=make_nodes(1))
    assert [move.job_id for move in plan.moves] == [waits.id]
    runs = seen(3, [0.5] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    assert not planned(runs, waits, first, nodes=make_nodes(1)).moves


def test_what_is_kept_for_whole_gpus_asks_for_no_rounds() -> None:
    """Only an end changes it; of parts the company may change."""
    runs = whole(1, 1, holds=(0,), done_steps=0.0, remaining_steps=1e6)
    gang, other = whole(2, 1, submitted_at=-10_000.0), whole(3, 1)
    plan = planned(runs, gang, other, nodes=make_nodes(1))
    assert [plan.reasons[job.id].token for job in (gang, other)] == ["kept_for", "resources"]
    assert plan.next_wake_at is None
    busy = seen(4, [0.5] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    assert planned(busy, overdue(5), nodes=make_nodes(1)).next_wake_at is not None


def test_gpus_are_kept_where_processors_will_be_free_soonest() -> None:
    """The first node has an idle GPU, and no processors for long."""
    nodes = [replace(node, cpu_milli=8_000) for node in make_nodes(2, 1)]
    long = whole(1, 1, holds=(0,), cpu_milli=8_000, done_steps=0.0, remaining_steps=1e6)
    short = seen(2, [0.9] * 10, holds=(2,), done_steps=0.0, remaining_steps=100.0)
    waits, new = overdue(3, cpu_milli=4_000), seen(4, [0.1] * 4)
    plan = planned(long, short, waits, new, nodes=nodes)
    assert [(move.job_id, move.gpu_ids) for move in plan.moves] == [(new.id, (1,))]
    assert plan.reasons[waits.id].detail == {"node": nodes[1].name}


def test_who_asks_for_no_processors_is_not_kept_from_the_rest_of_a_node() -> None:
    node = replace(make_nodes(4)[0], cpu_milli=8_000)
    runs = whole(1, 1, holds=(0,), cpu_milli=4_000, done_steps=0.0, remaining_steps=500.0)
    waits, plain, asks = overdue(2, cpu_milli=8_000), seen(3, [0.1] * 4), seen(4, [0.1] * 4, cpu_milli=1_000)
    plan = planned(runs, waits, plain, asks, nodes=(node,))
    assert {move.job_id for move in plan.moves} == {plain.id}
    assert plan.reasons[asks.id].detail == {"node": node.name, "by": waits.id}


def test_gangs_end_at_the_speed_of_their_gang() -> None:
    """Four GPUs are done in 250 s with what one would take 1,000 s for; the other node is free in 400 s."""
    curve = Curve((1.0, 2.0, 3.0, 4.0))
    gang = make_job(number=1, holds=(0, 1, 2, 3), curve=curve, done_steps=0.0, remaining_steps=1_000.0)
    other = whole(2, 4, holds=(4, 5, 6, 7), curve=Curve((1.0,)), done_steps=0.0, remaining_steps=400.0)
    nodes = make_nodes(4, 4)
    plan = planned(gang, other, whole(3, 4, submitted_at=-10_000.0), nodes=nodes)
    assert plan.reasons["job-000003"].detail == {"node": nodes[0].name}


def test_time_on_gpus_is_no_waiting() -> None:
    runs = seen(1, [0.5] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    new = seen(3, [0.1] * 4)
    assert not planned(runs, overdue(2), new, nodes=make_nodes(1)).moves
    assert [m.job_id for m in planned(runs, overdue(2, ran_s=8_000.0), new, nodes=make_nodes(1)).moves] == [new.id]


def test_nothing_is_kept_where_a_window_will_bar_a_job_that_waits() -> None:
    """The first node is free sooner, but a window begins before the job would be done there."""
    runs = [
        seen(n, [0.5] * 40, holds=(n - 1,), done_steps=0.0, remaining_steps=left)
        for n, left in ((1, 400.0), (2, 450.0))
    ]
    nodes, now = make_nodes(1, 1), make_snapshot().now
    waits = whole(3, 1, submitted_at=-10_000.0, curve=Curve((1.0,)), remaining_steps=1_000.0)
    window = Window("w", frozenset({nodes[0].name}), now + 1_200.0, now + 9_000.0)
    assert planned(*runs, waits, nodes=nodes).reasons[waits.id].detail == {"node": nodes[0].name}
    assert planned(*runs, waits, nodes=nodes, windows=(window,)).reasons[waits.id].detail == {"node": nodes[1].name}


def test_no_gpus_idle_for_a_gang_beside_a_job_that_runs_for_an_unknown_time() -> None:
    endless = whole(1, 1, holds=(0,), done_steps=0.0, remaining_steps=0.0)
    gang, new = whole(2, 2, submitted_at=-10_000.0), seen(3, [0.1] * 4)
    assert [move.job_id for move in planned(endless, gang, new, nodes=make_nodes(2)).moves] == [new.id]


def test_no_empty_gpu_is_kept_beside_jobs_that_hold_the_processors_for_an_unknown_time() -> None:
    node = replace(make_nodes(2)[0], cpu_milli=10_000)
    endless = whole(1, 1, holds=(0,), cpu_milli=8_000, done_steps=0.0, remaining_steps=0.0)
    waits, new = whole(2, 1, submitted_at=-10_000.0, cpu_milli=8_000), seen(3, [0.1] * 4)
    assert [move.job_id for move in planned(endless, waits, new, nodes=(node,)).moves] == [new.id]


def test_nothing_is_kept_of_what_a_job_that_waits_may_not_have() -> None:
    """GPUs that it failed on, and types that it does not name."""
    runs = [seen(n, [0.5] * 40, holds=(n - 1,), done_steps=0.0, remaining_steps=100.0 * n) for n in (1, 2)]
    nodes = make_nodes(1, 1)
    without = overdue(3, excluded_gpus=frozenset({0}))
    assert planned(*runs, without, nodes=nodes).reasons[without.id].detail == {"node": nodes[1].name}
    other = replace(nodes[0], type="v100")
    named = overdue(4, types=("titan_xp",))
    assert planned(*runs[1:], named, nodes=(other, nodes[1])).reasons[named.id].detail == {"node": nodes[1].name}


def test_empty_gpus_are_looked_at_however_many_are_shared() -> None:
    shared = [seen(n, [0.9] * 40, holds=(n,), done_steps=10.0, remaining_steps=390.0) for n in range(1, 141)]
    waits = seen(200, [0.9] * 4)
    [move] = plan_round(make_snapshot(*shared, waits, nodes=make_nodes(150)), load_policy("dqn_gpu")).moves
    assert move.gpu_ids == (0,) or move.gpu_ids[0] > 140


def test_who_would_fit_somewhere_is_told_of_that_and_not_of_where_it_would_not() -> None:
    full = seen(1, [0.99] * 40, holds=(0,), done_steps=0.0, remaining_steps=400.0)
    beside = seen(2, [0.45] * 40, holds=(1,), done_steps=0.0, remaining_steps=400.0)
    nodes = make_nodes(1, 1)
    for jobs, on in (((full, beside), nodes), ((replace(beside, gpu_ids=(0,)), replace(full, gpu_ids=(1,))), nodes)):
        waits = seen(3, [0.45] * 40)
        reason = said(*jobs, waits, nodes=on, unslowed_worth=0.6)[waits.id]
        assert "It would fit beside #2" in reason.text


def test_a_limit_is_named_before_company() -> None:
    """Whoever starts in this round reaches it."""
    jobs = [seen(1, [0.45] * 8, limits=("l",)), seen(2, [0.45] * 8, limits=("l",))]
    limits = {"l": Limit("running_jobs", 1, level="project x")}
    snapshot = replace(make_snapshot(*jobs, nodes=make_nodes(1)), limits=limits)
    plan = plan_round(snapshot, load_policy("dqn_gpu", {"unslowed_worth": 0.6}))
    [move] = plan.moves
    [other] = {job.id for job in jobs} - {move.job_id}
    assert plan.reasons[other].token == "quota_jobs"


@st.composite
def mixes(draw: st.DrawFn) -> list[TraceJob]:
    jobs = []
    for number in range(1, draw(st.integers(2, 10)) + 1):
        samples = draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
        gpu, memory = ([round(sample[n], 2) for sample in samples] for n in (0, 1))
        jobs.append(trace_job(number, history(gpu, memory), float(draw(st.integers(0, 200)))))
    return jobs


def test_memory_suffices_though_some_wait_for_turns_and_others_do_not() -> None:
    """Beside two that take turns and so 1.8 times as long, one that needs no time comes to its peak of memory."""
    phased = trace_job(1, history([0.0] * 22, [0.1] * 19 + [0.75] * 3))
    busy = [trace_job(number, history([0.9] * 11, [0.2] * 11)) for number in (2, 3)]
    wishes = {"oversubscription": 2.0, "unslowed_worth": 0.0, "stretch": 1.0}
    outcome = Engine([phased, *busy], replace(one_gpu(), launch_s=0.0), load_policy("dqn_gpu", wishes)).run()
    assert outcome.usage.out_of_memory == 0


@settings(max_examples=25, deadline=None)
@given(jobs=mixes())
def test_dqn_never_runs_out_of_memory(jobs: list[TraceJob]) -> None:
    outcome = Engine(jobs, one_gpu(), load_policy("dqn_gpu", {"stretch": 10.0, "oversubscription": 2.0})).run()
    assert outcome.usage.out_of_memory == 0
    assert all(run.finished_at is not None for run in outcome.runs)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_dqn_never_runs_out_of_memory_on_the_workloads(workload: str) -> None:
    outcome = Engine(make_workload(workload, 77), one_gpu(), load_policy("dqn_gpu")).run()
    assert outcome.usage.out_of_memory == 0


def test_sjf_gives_whole_gpus_and_the_shortest_first() -> None:
    jobs = [trace_job(1, history([0.1] * 9)), trace_job(2, history([0.1] * 3)), trace_job(3, history([0.1] * 6))]
    outcome = Engine(jobs, replace(one_gpu(), launch_s=0.0), load_policy("sjf_exclusive")).run()
    assert [run.finished_at for run in outcome.runs] == [180.0, 30.0, 90.0]
    assert [run.gpu_seconds for run in outcome.runs] == pytest.approx([90.0, 30.0, 60.0])


def test_sjf_puts_no_job_beside_a_part() -> None:
    there, new = make_job(gpus=1, gpu_milli=100, holds=(0,)), make_job(gpus=1, gpu_milli=100)
    assert not plan_round(make_snapshot(there, new, nodes=make_nodes(1)), load_policy("sjf_exclusive")).moves


def test_tetris_joint_takes_who_fits_best_and_has_least_left() -> None:
    nodes = [replace(node, gpu_memory_mib=10_000) for node in make_nodes(1)]
    long = make_job(number=1, gpus=1, gpu_milli=600, remaining_steps=9e6)
    short = make_job(number=2, gpus=1, gpu_milli=500, remaining_steps=10.0)
    [move] = plan_round(make_snapshot(long, short, nodes=nodes), load_policy("tetris", {"joint": True})).moves
    assert move.job_id == short.id
    small = make_job(number=3, gpus=1, gpu_milli=100, gpu_memory_mib=100)
    hungry = make_job(number=4, gpus=1, gpu_milli=100, gpu_memory_mib=9_950)
    plan = plan_round(make_snapshot(small, hungry, nodes=nodes), load_policy("tetris", {"joint": True}))
    assert [move.job_id for move in plan.moves] == [hungry.id]
