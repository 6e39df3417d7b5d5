"""Learned co-placement: histories, images, interference, what fits together, training, and files of models."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduling.domain import Curve, Job
from scheduling.errors import InvalidInput, InvalidParameters
from scheduling.histories import RESOURCES, ResourceHistory, history_json, parse_history
from scheduling.interference import Nature, fit, predicted, slowdowns
from scheduling.learning.emulator import SLOWDOWN, Choose, Episode, Rules, cost, play
from scheduling.learning.images import (
    BINS,
    CONSIDERED,
    CROWDS,
    INPUTS,
    PRICE,
    SAVED,
    Choices,
    Placed,
    Profile,
    Sight,
    Usage,
    image,
    legal_actions,
    sight,
    usage_of,
)
from scheduling.learning.network import load, save
from scheduling.policies import load_policy
from scheduling.policies._learned import MODELS
from scheduling.published import published_table
from scheduling.rounds import plan_round
from scheduling.simulator.applications import (
    APPLICATIONS,
    GPU_TYPE,
    MEMORY_MIB,
    WORKLOADS,
    declared_at_peak,
    history_of,
    make_workload,
    one_gpu,
)
from scheduling.simulator.engine import Engine
from scheduling.simulator.outcome import Options
from scheduling.simulator.readers import load_trace
from scheduling.simulator.readers.own import entry_of, write
from scheduling.simulator.trace import TraceJob
from tests.builders import make_job, make_nodes, make_snapshot

LEARNED = ("dqn_gpu", "deeprm_max", "deeprm_mean")


def history(gpu: list[float], memory: list[float] | None = None, interval_s: float = 10.0) -> ResourceHistory:
    memory = memory or [0.1] * len(gpu)
    rest = tuple([0.0] * len(gpu))
    return ResourceHistory(interval_s, tuple(gpu), tuple(memory), rest, rest)


def seen(number: int, gpu: list[float], memory: list[float] | None = None, **changes: Any) -> Job:
    known = history(gpu, memory)
    values: dict[str, Any] = {"curve": Curve((1.0,)), "remaining_steps": known.duration_s, "done_steps": 0.0} | changes
    return make_job(number=number, gpus=1, gpu_milli=100, history=known, **values)


def trace_job(number: int, known: ResourceHistory, arrival_s: float = 0.0) -> TraceJob:
    curves = {GPU_TYPE: Curve((1.0,))}
    return TraceJob(str(number), number, arrival_s, known.duration_s, curves, max_gpus=1, gpu_milli=125, history=known)


# Histories ----------------------------------------------------------------------------------------------


def test_a_history_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    known = history([0.1, 0.9], [0.2, 0.3])
    assert parse_history(history_json(known)) == known
    job = trace_job(1, known)
    write([entry_of(job)], tmp_path / "t.json")
    assert load_trace(tmp_path / "t.json").jobs[0].history == known


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"interval_s": 0}, "history, interval_s: 0 must be a number above 0"),
        ({"gpu": [1.5, 0]}, "history, gpu, 0: 1.5 must be a number from 0 to 1"),
        ({"pcie": [0.0]}, "history, pcie: 1 samples where gpu has 2"),
        ({"pcie": []}, "history, pcie: it must be a list of 1 to"),
        ({"watts": []}, "history: 'watts' is none of"),
    ],
)
def test_a_history_that_is_wrong_is_refused_by_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        parse_history(history_json(history([0.1, 0.9])) | change)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_synthetic_histories_keep_to_what_the_thesis_states(name: str) -> None:
    rng = np.random.default_rng(3)
    runs = [history_of(name, rng) for _ in range(50)]
    gpu, memory = (np.mean([np.mean(getattr(run, what)) for run in runs]) for what in ("gpu", "gpu_memory"))
    if name in WORKLOADS["gpu_heavy"]:
        assert gpu > 0.4
    if name in WORKLOADS["gpu_light"]:
        assert gpu < 0.4
    assert (memory > 0.5) == (name in WORKLOADS["memory_heavy"])
    if name == "lammps":
        assert all(run.gpu_memory[0] * MEMORY_MIB < 500 and max(run.gpu) > 0.9 for run in runs)
        assert all(list(run.gpu_memory) == sorted(run.gpu_memory) for run in runs)
    if name == "qmcpack":
        assert all(run.gpu_memory[len(run.gpu) // 2] > 10 * run.gpu_memory[0] for run in runs)


def test_workloads_are_of_their_applications_and_seeds_differ() -> None:
    for name, members in WORKLOADS.items():
        assert {job.model_type for job in make_workload(name, 5)} <= set(members)
    assert make_workload("random", 1) == make_workload("random", 1) != make_workload("random", 2)


# Interference -------------------------------------------------------------------------------------------


def test_hidden_pairs_are_predicted_better_than_by_the_mean() -> None:
    """A fifth of P100's pairs: 0.05 off on average, where the mean of the others is 0.12 off."""
    kept = published_table().retained("p100", 1)
    hidden = np.random.default_rng(1).random(kept.shape) < 0.2
    there = np.isfinite(kept) & (kept > 0)
    error = np.abs(predicted(*fit(np.where(hidden, np.nan, kept))) - kept)[hidden & there].mean()
    of_mean = np.abs(kept[there & ~hidden].mean() - kept)[hidden & there].mean()
    assert error < 0.06 < 0.1 < of_mean


@given(st.lists(st.tuples(st.floats(0.1, 2), st.floats(0.1, 2), st.floats(0, 1)), min_size=1, max_size=6))
def test_nobody_is_faster_beside_others_and_the_gpu_gives_no_more_than_its_time(group: list[Any]) -> None:
    uses = [use for _, _, use in group]
    found = slowdowns([(Nature(s, p), use) for s, p, use in group])
    assert all(factor >= 1.0 for factor in found)
    assert sum(use / factor for use, factor in zip(uses, found, strict=True)) <= max(1.0, *uses) + 1e-9
    if len(group) == 1:
        assert found == [1.0]


def test_jobs_slow_each_other_while_they_share() -> None:
    """The second comes when the first has half of its steps; what both are slowed follows from the model."""
    jobs = [trace_job(1, history([0.5] * 10)), trace_job(2, history([0.5] * 10), 50.0)]
    policy = load_policy("first_fit")
    on = replace(one_gpu(), launch_s=0.0)
    alone = Engine(jobs, on, policy, options=Options(interference=False)).run()
    assert [run.finished_at for run in alone.runs] == [100.0, 150.0]
    both = Engine(jobs, on, policy).run()
    from scheduling.interference import nature_of

    nature = nature_of("", GPU_TYPE)
    factor = 1.0 + nature.sensitivity * nature.pressure * 0.25
    first = 50.0 + 50.0 * factor
    done = (first - 50.0) / factor
    assert both.runs[0].finished_at == pytest.approx(first)
    assert both.runs[1].finished_at == pytest.approx(first + 100.0 - done)
    assert both.usage.gpu_s == pytest.approx(100.0)  # whatever it takes, the work is the same


def test_jobs_without_histories_do_not_slow_each_other() -> None:
    jobs = [replace(trace_job(n, history([0.5] * 10)), history=None) for n in (1, 2)]
    outcome = Engine(jobs, replace(one_gpu(), launch_s=0.0), load_policy("first_fit")).run()
    assert [run.finished_at for run in outcome.runs] == [100.0, 100.0]


def test_whoever_asks_for_more_than_is_left_runs_out_of_memory_and_queues_again() -> None:
    grows = history([0.1] * 10, [0.2] * 5 + [0.8] * 5)
    flat = history([0.1] * 10, [0.3] * 10)
    jobs = [trace_job(1, grows), trace_job(2, flat, 10.0)]
    engine = Engine(
        jobs, replace(one_gpu(), launch_s=0.0), load_policy("first_fit"), options=Options(interference=False)
    )
    outcome = engine.run()
    assert outcome.usage.out_of_memory == 1  # at 50 s
    assert [run.failures > 0 for run in outcome.runs] == [True, False]
    assert outcome.runs[0].finished_at == 180.0  # from its first step again at 80 s
    assert outcome.runs[1].finished_at == 110.0


def test_whoever_comes_where_no_memory_is_left_runs_out_of_it() -> None:
    jobs = [trace_job(1, history([0.1] * 10, [0.8] * 10)), trace_job(2, history([0.1] * 5, [0.3] * 5), 40.0)]
    engine = Engine(jobs, replace(one_gpu(), launch_s=0.0), load_policy("first_fit"))
    outcome = engine.run()
    assert outcome.usage.out_of_memory == 2  # at 40 s, and at 70 s once more
    assert [run.failures > 0 for run in outcome.runs] == [False, True]
    assert outcome.runs[1].finished_at == 150.0


# Images -------------------------------------------------------------------------------------------------


def test_an_image_has_the_most_of_each_column_rounded_up() -> None:
    usage = usage_of(history([0.101, 0.5, 0.2, 0.3]), "series")
    found = image(Placed(usage), 20.0, 1.0)
    assert found.shape == (len(RESOURCES) + 1, BINS)
    assert found[0, :3].tolist() == [0.5, 0.3, 0.0]
    assert image(Placed(usage, 20.0), 20.0, 1.0)[0, :2].tolist() == [0.3, 0.0]
    assert image(Placed(usage), 10.0, 1.0)[0, 0] == 0.11


def test_a_slow_run_keeps_its_memory_longer() -> None:
    usage = usage_of(history([0.1] * 4, [0.2, 0.2, 0.8, 0.2]), "series")
    found = image(Placed(usage), 10.0, 2.0)
    assert found[1, :5].tolist() == [0.2, 0.2, 0.8, 0.2, 0.0]
    assert found[4, :9].tolist() == [0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.2, 0.2, 0.0]


@example([1e-8], 0.0, 10.0, 1.0)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.floats(0, 1),
    st.floats(5, 60),
    st.floats(1, 3),
)
def test_an_image_covers_every_moment(levels: list[float], part: float, width: float, stretch: float) -> None:
    """At any time the columns are at least what is used; memory also where the run is slower by up to `stretch`."""
    usage = usage_of(history([0.0] * len(levels), levels), "series")
    placed = Placed(usage, usage.duration_s * part)
    found = image(placed, width, stretch)
    for seconds in np.linspace(0.0, BINS * width * 0.999, 40):
        for pace, row in ((1.0, 1), (1.0, 4), (1.0 / stretch, 4)):
            at = placed.done_s + seconds * pace
            sample = int(at / 10.0)
            if at < usage.duration_s - 1e-6:
                used = levels[min(sample, len(levels) - 1)]
                assert found[row, int(seconds / width)] >= used - 2e-8  # rounding up forgives half as much


def every(slots: int) -> Choices:
    """All combinations."""
    return Choices(slots, slots)


def test_combinations_of_slots_are_actions() -> None:
    singles_and_pairs = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]
    assert Choices(3, 3).members().tolist() == [[0, 0, 0], *singles_and_pairs, [1, 1, 1]]
    assert Choices(3, 2).members().tolist() == [[0, 0, 0], *singles_and_pairs]
    assert len(Choices(24, 2).members()) == 1 + 24 + 24 * 23 // 2


def test_actions_beyond_a_resource_are_masked() -> None:
    """a: a half at first, b: a half at last, c: 0.6 all the time."""
    a, b, c = (usage_of(history(levels), "series") for levels in ([0.5, 0.1], [0.1, 0.5], [0.6, 0.6]))
    legal, *_ = legal_actions([], [Placed(a), Placed(b), Placed(c)], every(3), 1.0)
    assert legal.tolist() == [False, True, True, True, True, False, False, False]
    legal, *_ = legal_actions([Placed(c)], [Placed(a, 10.0), Placed(b)], every(3), 1.0)
    assert legal.tolist() == [True, True, False, False, False, False, False, False]


def test_what_is_more_than_its_device_runs_alone() -> None:
    """By its own history 0.7 of each of two would be too much; nothing holds up a job on an empty device."""
    over = Usage(np.full((4, 2), 1.2), 10.0)
    legal, *_ = legal_actions([], [Placed(over)], every(2), 1.0)
    assert legal.tolist() == [False, True, False, False]


def sighted(placed: list[Placed], slots: list[Placed]) -> np.ndarray:
    """[combination of the slots: saved in run lengths of 100 s, crowded]"""
    seen = sight(placed, slots, 0, every(len(slots)), 1.0, 0.2, 100.0)
    assert seen.inputs[:, PRICE] == pytest.approx(0.2 * seen.inputs[:, CROWDS])
    return np.asarray(seen.inputs[:, [SAVED, CROWDS]])


def constant(gpu: float, duration_s: float, samples: int = 1) -> Usage:
    return Usage(np.array([[gpu] * samples, *[[0.0] * samples] * 3]), duration_s / samples)


@pytest.mark.parametrize("samples", [1, 20])
def test_what_sharing_saves_and_whom_it_crowds(samples: int) -> None:
    long, short = constant(0.5, 400.0, samples), constant(0.5, 100.0, samples)
    alone, together = sighted([Placed(long)], [Placed(short)])
    assert alone == pytest.approx([0.0, 0.0])
    assert together == pytest.approx([1.0, 2.0])  # a quarter of 0.25 is more than CROWDED for the long one, too
    light = constant(0.02, 100.0, samples)
    assert sighted([Placed(long)], [Placed(light)])[1] == pytest.approx([1.0, 0.25 + 0.25 / 4])


@pytest.mark.parametrize("age_s", [60.0, 86_400.0, 10 * 86_400.0])
@pytest.mark.parametrize("samples", [1, 20])
def test_short_jobs_are_crowded_by_whoever_runs_for_long(age_s: float, samples: int) -> None:
    running = Placed(constant(0.45, age_s + 7_200.0, samples), age_s)
    assert sighted([running], [Placed(constant(0.45, 60.0, samples))])[1, 1] >= 1.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), running=st.integers(0, 2), together=st.integers(1, 3))
def test_what_is_weighed_is_what_is_best_at_once_and_holding(seed: int, running: int, together: int) -> None:
    rng = np.random.default_rng(seed)
    placed = [Placed(constant(0.05 * rng.random(), 100.0 * rng.random() + 1), 0.5) for _ in range(running)]
    slots = [Placed(constant(0.05 * rng.random(), 100.0 * rng.random() + 1)) for _ in range(12)]
    choices = Choices(12, together)
    found = sight(placed, slots, 0, choices, 1.0, 0.3, 50.0)
    assert found.legal.tolist() == np.flatnonzero(legal_actions(placed, slots, choices, 1.0)[0]).tolist()
    earned = dict(zip(found.actions.tolist(), found.inputs[:, SAVED] - found.inputs[:, PRICE], strict=True))
    assert (0 in earned) == bool(running)
    assert len(earned) == min(len(found.legal), CONSIDERED + bool(running))
    others = set(found.legal.tolist()) - earned.keys() if running else ()
    for action in others:  # what it earns when it is shown alone
        chosen = [slots[n] for n in np.flatnonzero(choices.members()[action])]
        alone = sight(placed, chosen, 0, every(len(chosen)), 1.0, 0.3, 50.0)
        at_once = (alone.inputs[:, SAVED] - alone.inputs[:, PRICE])[-1]
        assert at_once <= sorted(earned.values())[-CONSIDERED] + 1e-9


def test_who_is_crowded_already_is_not_crowded_anew() -> None:
    both = [Placed(constant(0.4, 1_000.0), 500.0), Placed(constant(0.4, 1_000.0), 400.0)]
    assert sighted(both, [Placed(constant(0.1, 100.0))])[1, 1] == pytest.approx(1.0)


# Policies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNED)
def test_the_series_tells_what_fits_together_where_peaks_do_not(name: str) -> None:
    """Two jobs whose peaks are at different times fit by their series; by their peaks they do not."""
    jobs = [seen(1, [0.9, 0.9, 0.05, 0.05, 0.05]), seen(2, [0.05, 0.05, 0.05, 0.9, 0.9])]
    snapshot = make_snapshot(*jobs, nodes=make_nodes(1))
    runs = {job.id: Placed(usage_of(job.history, load_policy(name).profile)) for job in jobs if job.history}  # type: ignore[attr-defined]
    legal, *_ = legal_actions([], list(runs.values()), every(2), 1.0)
    assert bool(legal[3]) == (name != "deeprm_max")
    assert {move.gpu_ids for move in plan_round(snapshot, load_policy(name)).moves} == {(0,)}


@pytest.mark.parametrize("name", LEARNED)
def test_who_is_held_back_is_looked_at_again(name: str) -> None:
    running = seen(1, [0.9] * 4, holds=(0,), done_steps=10.0, remaining_steps=30.0)
    waiting = seen(2, [0.9] * 4)
    plan = plan_round(make_snapshot(running, waiting, nodes=make_nodes(1)), load_policy(name))
    assert not plan.moves
    assert plan.reasons[waiting.id].token == "held_back"
    assert plan.next_wake_at is not None
    assert 0 < plan.next_wake_at - make_snapshot().now <= 30.0


def test_whoever_is_worth_more_alone_is_left_alone() -> None:
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
    large = replace(trace_job(2, history([0.99] * 10)), arrival_s=20.0)
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


def test_whoever_has_priority_hides_nobody_who_has_waited_for_long() -> None:
    runs = seen(1, [0.5] * 40, holds=(0,), done_steps=10.0, remaining_steps=390.0)
    waits, first = seen(2, [0.9] * 4, submitted_at=-10_000.0), seen(3, [0.9] * 4, priority=5)
    new = seen(4, [0.1] * 4)
    assert started(runs, first, new, nodes=make_nodes(1)) == {new.id}
    assert started(runs, waits, first, new, nodes=make_nodes(1)) == set()


@st.composite
def mixes(draw: st.DrawFn) -> list[TraceJob]:
    jobs = []
    for number in range(1, draw(st.integers(2, 10)) + 1):
        samples = draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
        gpu, memory = ([round(sample[n], 2) for sample in samples] for n in (0, 1))
        jobs.append(trace_job(number, history(gpu, memory), float(draw(st.integers(0, 200)))))
    return jobs


@settings(max_examples=25, deadline=None)
@given(jobs=mixes())
def test_dqn_never_runs_out_of_memory(jobs: list[TraceJob]) -> None:
    outcome = Engine(jobs, one_gpu(), load_policy("dqn_gpu", {"stretch": 10.0})).run()
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


def test_sjf_puts_nobody_beside_a_part() -> None:
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


# Emulator and training ----------------------------------------------------------------------------------


def usages(seed: int, jobs: int = 8, profile: Profile = "series") -> list[Usage]:
    return [usage_of(job.history, profile) for job in make_workload("random", seed, jobs) if job.history]


def by_chance(seed: int) -> Choose:
    rng = np.random.default_rng(seed)
    return lambda _, sight: int(rng.integers(len(sight.actions)))


def test_one_at_a_time_in_the_emulator_is_the_sum_of_lengths() -> None:
    jobs = usages(1)
    episode = play(Episode.of(jobs), lambda *_: 0, Rules(every(3), 2.0, 0.2))  # holds wherever it may
    assert episode.makespan_s == pytest.approx(sum(job.duration_s for job in jobs))
    assert max(episode.crowding) == 0.0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_job_of_an_episode_runs_to_its_end_in_no_more_than_the_serial_time(seed: int) -> None:
    jobs = usages(seed % 50)
    episode = play(Episode.of(jobs), by_chance(seed), Rules(every(3), 2.0, 0.2))
    assert all(end >= job.duration_s - 1e-6 for end, job in zip(episode.ends_s, jobs, strict=True))
    assert episode.makespan_s <= sum(job.duration_s for job in jobs) + 30.0 * len(jobs)
    slow = float(np.mean([end / job.duration_s for end, job in zip(episode.ends_s, jobs, strict=True)]))
    mean_s = float(np.mean([job.duration_s for job in jobs]))
    assert cost(episode, 0.0) == pytest.approx(episode.makespan_s / mean_s + SLOWDOWN * slow)
    assert cost(episode, 0.5) == pytest.approx(cost(episode, 0.0) + 0.5 * episode.crowded().sum())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_an_episode_goes_on_from_a_copy_and_leaves_what_was_copied(seed: int) -> None:
    jobs, rules, copies = usages(seed % 50), Rules(every(3), 2.0, 0.2), list[tuple[Episode, int]]()

    def choose(episode: Episode, sight: Sight) -> int:
        copies.append((episode.copy(), place := len(copies) % len(sight.actions)))
        return place

    whole = play(Episode.of(jobs), choose, rules)
    hypothesis.assume(len(copies) > 1)
    again = iter([place for _, place in copies[1:]])
    episode = copies[1][0]
    before = repr(episode.copy())
    replayed = play(episode.copy(), lambda *_: next(again), rules)
    assert replayed.ends_s == whole.ends_s
    assert replayed.crowding == pytest.approx(whole.crowding)
    assert repr(episode) == before


def test_training_is_repeatable_goes_on_where_it_was_stopped_and_leaves_no_partial_file(tmp_path: Path) -> None:
    from scheduling.learning.training import Settings, Trainer, set_hash, train

    asked = Settings("dqn_gpu", "series", slots=2, sets=2, jobs=4, iterations=12, batch=2, tried=2, hidden=(4,))
    whole, stopped = (Trainer(asked, tmp_path / f"{name}.partial") for name in ("whole", "part"))
    assert len(list(whole.steps())) == 12
    for progress in stopped.steps():
        if progress.iteration == 11:  # the state of the 10th is kept
            break
    goes_on = Trainer(asked, tmp_path / "part.partial")
    assert [progress.iteration for progress in goes_on.steps()] == [11, 12]
    assert np.abs(whole.model().layers[-1][0]).max() > 0  # it has learned something
    for one, other in zip(whole.model().layers, goes_on.model().layers, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert (whole.best_at, len(whole.tried)) == (goes_on.best_at, len(goes_on.tried))

    train(asked, tmp_path / "m.npz", lambda _: None)
    assert not list(tmp_path.glob("m.npz.partial*"))
    read, best = load(tmp_path / "m.npz"), whole.best_model()
    assert read.header["training_set_sha256"] == whole.hash != set_hash([])
    assert read.header["settings"]["tried"] == 2
    inputs = np.random.default_rng(0).random((3, read.layers[0][0].shape[0]))
    assert np.array_equal(read.scores(inputs), best.scores(inputs))


def test_training_with_other_settings_does_not_go_on_from_a_partial_file(tmp_path: Path) -> None:
    from scheduling.learning.training import Settings, Trainer

    asked = Settings("dqn_gpu", "series", slots=2, sets=2, jobs=4, iterations=10, batch=2, tried=2, hidden=(4,))
    for _ in Trainer(asked, tmp_path / "m.partial").steps():
        pass
    with pytest.raises(InvalidInput, match="other settings: seed"):
        Trainer(replace(asked, seed=1), tmp_path / "m.partial")


def test_scores_are_fitted_to_what_actions_earn_in_the_end(tmp_path: Path) -> None:
    """Here: half of what they save at once, and as much again for whom they crowd."""
    from scheduling.learning.training import Settings, Trainer

    asked = Settings("dqn_gpu", "series", sets=1, jobs=2, hidden=(16,), learning_rate=3e-3)
    trainer = Trainer(asked, tmp_path / "m.partial")
    rng = np.random.default_rng(0)
    moments = []
    for _ in range(200):
        inputs = rng.random((6, INPUTS)).astype(np.float32)
        earned = 0.5 * inputs[:, SAVED] + inputs[:, CROWDS]
        moments.append((inputs, earned - earned.mean()))

    def error() -> float:
        model = trainer.model()
        off = [model.scores(seen) - earned for seen, earned in moments[150:]]
        return float(np.mean([(one - one.mean()) ** 2 for one in off]))

    at_once = error()
    for _ in range(300):
        trainer.fit([moments[n] for n in rng.choice(150, 32)])
    assert error() < 0.3 * at_once


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_shipped_is_better_than_what_is_earned_at_once(name: str) -> None:
    """On job sets that it was neither trained nor chosen on."""
    from scheduling.learning.training import job_sets

    policy: Any = load_policy(name)
    rules = Rules(policy.model.choices, policy.parameters.stretch, policy.parameters.unslowed_worth)
    sets = [[usage_of(one, policy.profile) for one in jobs] for jobs in job_sets(3_000_000, 30, 30)]

    def mean_cost(scores: Callable[[Sight], Any]) -> float:
        played = [play(Episode.of(jobs), lambda _, sight: int(np.argmax(scores(sight))), rules) for jobs in sets]
        return float(np.mean([cost(one, rules.unslowed_worth) for one in played]))

    at_once = mean_cost(lambda sight: sight.inputs[:, SAVED] - sight.inputs[:, PRICE])
    assert mean_cost(lambda sight: policy.model.scores(sight.inputs)) < at_once


# Files of models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNED)
def test_shipped_models_say_what_they_were_trained_on_and_are_small(name: str) -> None:
    from scheduling.learning import training

    path = MODELS / f"{name}.npz"
    header = load(path).header
    asked = header["settings"]
    assert path.stat().st_size < 1_000_000
    assert (header["policy"], header["profile"]) == (name, load_policy(name).profile)  # type: ignore[attr-defined]
    sets = training.job_sets(training.FIRST_TRAINING_SEED, asked["sets"], asked["jobs"])
    assert header["training_set_sha256"] == training.set_hash(sets)


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was executed",))


def test_a_model_file_with_a_pickle_in_it_is_refused_and_not_executed(tmp_path: Path) -> None:
    good = load(MODELS / "dqn_gpu.npz")
    save(good, tmp_path / "m.npz")
    objects = io.BytesIO()
    np.lib.format.write_array_header_2_0(objects, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    with zipfile.ZipFile(tmp_path / "m.npz", "a") as archive:
        archive.writestr("w9.npy", objects.getvalue() + pickle.dumps([Evil()]))
    with pytest.raises(InvalidParameters, match=r"model: .*it is no placement model"):
        load_policy("dqn_gpu", {"model": str(tmp_path / "m.npz")})
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InvalidInput, match="it is no placement model"):
        load(tmp_path / "p.npz")


@pytest.mark.parametrize("what", ["schema", "profile", "slots", "together"])
def test_a_model_file_with_a_wrong_header_is_refused(tmp_path: Path, what: str) -> None:
    good = load(MODELS / "dqn_gpu.npz")
    save(replace(good, header={**good.header, what: "other"}), tmp_path / "m.npz")
    with pytest.raises(InvalidInput, match="it is no placement model"):
        load(tmp_path / "m.npz")


def test_a_model_file_with_other_shapes_is_refused(tmp_path: Path) -> None:
    good = load(MODELS / "dqn_gpu.npz")
    save(replace(good, layers=good.layers[1:]), tmp_path / "m.npz")
    with pytest.raises(InvalidInput, match="layer 0 has shape"):
        load(tmp_path / "m.npz")
    with pytest.raises(InvalidParameters, match="model"):
        load_policy("dqn_gpu", {"model": str(tmp_path / "missing.npz")})


def test_deciding_needs_no_pytorch() -> None:
    import subprocess
    import sys

    code = "import sys; from scheduling.policies import load_policy; load_policy('dqn_gpu')"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_peaks_are_what_an_owner_would_ask_for() -> None:
    job = declared_at_peak(trace_job(1, history([0.2, 0.75], [0.5, 0.25])))
    assert (job.gpu_milli, job.gpu_memory_mib) == (750, MEMORY_MIB // 2)
