"""Co-placement: histories, interference, images, and what fits together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduling.domain.usage_history import RESOURCES, history_json, parse_history
from scheduling.errors import InvalidInput
from scheduling.policies import load_policy
from scheduling.policies.learned.images import (
    BINS,
    CONSIDERED,
    CROWDS,
    PRICE,
    SAVED,
    Bounds,
    Choices,
    Placed,
    Usage,
    image,
    legal_actions,
    sight,
    usage_of,
)
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.applications import (
    APPLICATIONS,
    GPU_TYPE,
    MEMORY_MIB,
    WORKLOADS,
    declared_at_peak,
    history_of,
    make_workload,
    one_gpu,
)
from scheduling.simulator.outcome import Options
from scheduling.simulator.readers import load_trace
from scheduling.simulator.readers.own import entry_of, write
from scheduling.throughput.interference import Nature, fit, predicted, slowdowns
from scheduling.throughput.published import published_table
from tests.scheduling.histories import every, history, trace_job

#: So often the time there is may be asked for.
ONCE, THRICE = Bounds(1.0, 1.0), Bounds(1.0, 3.0)

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
def test_no_job_is_faster_beside_others_and_the_gpu_gives_no_more_than_its_time(group: list[Any]) -> None:
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
    from scheduling.throughput.interference import nature_of

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


def test_a_job_that_asks_for_more_than_is_left_runs_out_of_memory_and_queues_again() -> None:
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


def test_a_job_that_comes_where_no_memory_is_left_runs_out_of_it() -> None:
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


def test_combinations_of_slots_are_actions() -> None:
    singles_and_pairs = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]
    assert Choices(3, 3).members().tolist() == [[0, 0, 0], *singles_and_pairs, [1, 1, 1]]
    assert Choices(3, 2).members().tolist() == [[0, 0, 0], *singles_and_pairs]
    assert len(Choices(24, 2).members()) == 1 + 24 + 24 * 23 // 2


def test_actions_beyond_a_resource_are_masked() -> None:
    """a: a half at first, b: a half at last, c: 0.6 all the time."""
    a, b, c = (usage_of(history(levels), "series") for levels in ([0.5, 0.1], [0.1, 0.5], [0.6, 0.6]))
    legal, *_ = legal_actions([], [Placed(a), Placed(b), Placed(c)], every(3), ONCE)
    assert legal.tolist() == [False, True, True, True, True, False, False, False]
    legal, *_ = legal_actions([Placed(c)], [Placed(a, 10.0), Placed(b)], every(3), ONCE)
    assert legal.tolist() == [True, True, False, False, False, False, False, False]


def test_what_is_more_than_its_device_runs_alone() -> None:
    """By its own history 0.7 of each of two would be too much; nothing holds up a job on an empty device."""
    over = Usage(np.full((4, 2), 1.2), 10.0)
    legal, *_ = legal_actions([], [Placed(over)], every(2), ONCE)
    assert legal.tolist() == [False, True, False, False]


def test_time_may_be_asked_for_more_than_once_and_memory_may_not() -> None:
    half, more = (usage_of(history([0.5], [0.5]), "series"), usage_of(history([0.5], [0.51]), "series"))
    allowed = {
        times: [legal_actions([], [Placed(half)] * 3, every(3), Bounds(1.0, times))[0][n] for n in (3, 7)]
        for times in (1.0, 1.49, 1.5)
    }
    assert allowed == {1.0: [True, False], 1.49: [True, False], 1.5: [True, False]}  # three are too much memory
    light = usage_of(history([0.5], [0.1]), "series")
    for times, three in ((1.0, False), (1.49, False), (1.5, True)):
        assert legal_actions([], [Placed(light)] * 3, every(3), Bounds(1.0, times))[0][7] == three
    assert not legal_actions([Placed(half)], [Placed(more)], every(1), Bounds(1.0, 1.5))[0][1]
    for resource in (2, 3):  # cores go with the device's time, PCIe does not
        levels = np.full((4, 1), 0.1)
        levels[resource] = 0.7
        both = [Placed(Usage(levels, 10.0))] * 2
        assert legal_actions([], both, every(2), Bounds(1.0, 1.5))[0][3] == (resource == 2)


def sighted(placed: list[Placed], slots: list[Placed]) -> np.ndarray:
    """[combination of the slots: saved in run lengths of 100 s, crowded]"""
    seen = sight(placed, slots, 0, every(len(slots)), THRICE, 0.2, 100.0)
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


@pytest.mark.parametrize("samples", [1, 20])
def test_what_is_asked_for_beyond_the_time_there_is_saves_nothing(samples: int) -> None:
    """Three quarters of the time for 100 s: two take 150 s together, three as long as one after the other."""
    one = constant(0.75, 100.0, samples)
    _, two, other, all_three = sighted([Placed(one)], [Placed(one), Placed(one)])[:, 0]
    assert (two, other, all_three) == pytest.approx((0.5, 0.5, 0.75))
    assert sighted([Placed(one, 40.0)], [Placed(one)])[1, 0] == pytest.approx(0.3)  # beside each other for 60 s
    _, *alone = sighted([Placed(one), Placed(one)], [Placed(constant(0.0, 100.0))])[:, 0]
    assert alone == pytest.approx([1.0])  # whoever asks for nothing is late for nobody


@pytest.mark.parametrize("age_s", [60.0, 86_400.0, 10 * 86_400.0])
@pytest.mark.parametrize("samples", [1, 20])
def test_short_jobs_are_crowded_by_a_job_that_runs_for_long(age_s: float, samples: int) -> None:
    running = Placed(constant(0.45, age_s + 7_200.0, samples), age_s)
    assert sighted([running], [Placed(constant(0.45, 60.0, samples))])[1, 1] >= 1.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), running=st.integers(0, 2), together=st.integers(1, 3))
def test_what_is_weighed_is_what_is_best_at_once_and_holding(seed: int, running: int, together: int) -> None:
    rng = np.random.default_rng(seed)
    placed = [Placed(constant(0.05 * rng.random(), 100.0 * rng.random() + 1), 0.5) for _ in range(running)]
    slots = [Placed(constant(0.05 * rng.random(), 100.0 * rng.random() + 1)) for _ in range(12)]
    choices = Choices(12, together)
    found = sight(placed, slots, 0, choices, ONCE, 0.3, 50.0)
    assert found.legal.tolist() == np.flatnonzero(legal_actions(placed, slots, choices, ONCE)[0]).tolist()
    earned = dict(zip(found.actions.tolist(), found.inputs[:, SAVED] - found.inputs[:, PRICE], strict=True))
    assert (0 in earned) == bool(running)
    assert len(earned) == min(len(found.legal), CONSIDERED + bool(running))
    others = set(found.legal.tolist()) - earned.keys() if running else ()
    for action in others:  # what it earns when it is shown alone
        chosen = [slots[n] for n in np.flatnonzero(choices.members()[action])]
        alone = sight(placed, chosen, 0, every(len(chosen)), ONCE, 0.3, 50.0)
        at_once = (alone.inputs[:, SAVED] - alone.inputs[:, PRICE])[-1]
        assert at_once <= sorted(earned.values())[-CONSIDERED] + 1e-9


def test_a_job_that_is_crowded_already_is_not_crowded_anew() -> None:
    both = [Placed(constant(0.4, 1_000.0), 500.0), Placed(constant(0.4, 1_000.0), 400.0)]
    assert sighted(both, [Placed(constant(0.1, 100.0))])[1, 1] == pytest.approx(1.0)


def test_peaks_are_what_an_owner_would_ask_for() -> None:
    job = declared_at_peak(trace_job(1, history([0.2, 0.75], [0.5, 0.25])))
    assert (job.gpu_milli, job.gpu_memory_mib) == (750, MEMORY_MIB // 2)
