"""Training of placement models: the emulator, what is learned, and files of models."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.errors import InvalidInput, InvalidParameters
from scheduling.learning.emulator import SLOWDOWN, Choose, Episode, Rules, cost, play
from scheduling.policies import load_policy
from scheduling.policies.learned.base import MODELS
from scheduling.policies.learned.images import CROWDS, INPUTS, PRICE, SAVED, Bounds, Profile, Sight, Usage, usage_of
from scheduling.policies.learned.network import load, save
from scheduling.simulator.inputs.applications import make_workload
from tests.scheduling.histories import every

LEARNED = ("dqn_gpu", "deeprm_max", "deeprm_mean")


def usages(seed: int, jobs: int = 8, profile: Profile = "series") -> list[Usage]:
    return [usage_of(job.history, profile) for job in make_workload("random", seed, jobs) if job.history]


def by_chance(seed: int) -> Choose:
    rng = np.random.default_rng(seed)
    return lambda _, sight: int(rng.integers(len(sight.actions)))


def test_one_at_a_time_in_the_emulator_is_the_sum_of_lengths() -> None:
    jobs = usages(1)
    episode = play(Episode.of(jobs), lambda *_: 0, Rules(every(3), Bounds(2.0, 1.25), 0.2))  # holds wherever it may
    assert episode.makespan_s == pytest.approx(sum(job.duration_s for job in jobs))
    assert max(episode.crowding) == 0.0


def test_who_asks_for_more_time_than_there_is_waits_in_turn() -> None:
    """Two of which each would use 0.75 of the time for 100 s alone, and one that takes 0.1 for 20 s."""
    two, light = (Usage(np.array([[gpu], [0.1], [gpu], [0.0]]), length) for gpu, length in ((0.75, 100.0), (0.1, 20.0)))
    rules = Rules(every(3), Bounds(1.0, 2.0), 0.0)
    episode = Episode.of([two, two, light])
    episode.act(rules, 7)
    assert episode.ends_s == pytest.approx([20 * 1.6 + 80 * 1.5, 20 * 1.6 + 80 * 1.5, 20 * 1.6])
    assert episode.crowding == pytest.approx([(75 * 20 * 0.85 + 75 * 80 * 0.75) / 1e4] * 2 + [0.1 * 1.5])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_job_of_an_episode_runs_to_its_end_in_no_more_than_the_serial_time(seed: int) -> None:
    jobs = usages(seed % 50)
    episode = play(Episode.of(jobs), by_chance(seed), Rules(every(3), Bounds(2.0, 1.25), 0.2))
    assert all(end >= job.duration_s - 1e-6 for end, job in zip(episode.ends_s, jobs, strict=True))
    assert episode.makespan_s <= sum(job.duration_s for job in jobs) + 30.0 * len(jobs)
    slow = float(np.mean([end / job.duration_s for end, job in zip(episode.ends_s, jobs, strict=True)]))
    mean_s = float(np.mean([job.duration_s for job in jobs]))
    assert cost(episode, 0.0) == pytest.approx(episode.makespan_s / mean_s + SLOWDOWN * slow)
    assert cost(episode, 0.5) == pytest.approx(cost(episode, 0.0) + 0.5 * episode.crowded().sum())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_an_episode_goes_on_from_a_copy_and_leaves_what_was_copied(seed: int) -> None:
    jobs, rules, copies = usages(seed % 50), Rules(every(3), Bounds(2.0, 1.25), 0.2), list[tuple[Episode, int]]()

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
    """On job sets that it was neither trained nor chosen on, at 0.2, where most is to be seen ahead."""
    from scheduling.learning.training import job_sets

    policy: Any = load_policy(name)
    rules = Rules(policy.model.choices, policy.bounds, 0.2)
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
