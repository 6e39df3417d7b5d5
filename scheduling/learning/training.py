"""Trains a placement model by playing actions to the end, on job sets of the synthetic workloads.

The score of an action is its immediate gain, which is known, plus the later gain that the network expects. In each
iteration some job sets are played with actions drawn by their scores. At some decisions the `tried` best actions are
each played to the end of the episode by the present policy (the largest score); v_a is minus the cost of that episode,
b the mean of these. Scores are fitted to v_a - b, which is policy iteration with rollouts (Bertsekas, Tsitsiklis, Wu,
J. Heuristics 1997).

DeepRM (Mao et al., HotNets 2016, section 3.3), which the thesis follows, draws whole episodes and moves along sum grad
log pi(s_t, a_t) (v_t - b_t). There the noise of all other actions of the episode hides an action's advantage; here the
action is the only difference. The thesis prints (q_t - v_t), the return's sign reversed, takes the arg max in training
too, and defines no reward: here the cost is the makespan, the number of jobs that crowd each other and, with a small
weight, the mean slowdown, all by the profiles alone. The worth of leaving a job alone and the allowed oversubscription
of a device's time are drawn for each job set and are inputs of the network, so that one network serves all settings.
Same settings, same seed, same machine: the same model.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from scheduling.domain.usage_history import ResourceHistory, history_json
from scheduling.errors import InvalidInput
from scheduling.learning.emulator import Choose, Episode, Rules, cost, play
from scheduling.policies.learned.images import (
    INPUTS,
    MOST_WORTH,
    PRICE,
    SAVED,
    Bounds,
    Choices,
    Profile,
    Sight,
    Usage,
    usage_of,
)
from scheduling.policies.learned.network import LARGEST_BYTES, SCHEMA, Model, save
from scheduling.simulator.inputs.applications import JOBS, WORKLOADS, make_workload

#: Seeds of the job sets: for training and for choosing the best model; tests and benchmarks use smaller ones.
FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED = 1_000_000, 2_000_000
_CHECK_EVERY = 5
_VALIDATION_SETS = 10
#: Ranges of the worth of an unslowed job and of oversubscription, and the values for validation.
_WORTHS, _OVERSUBSCRIPTIONS = (0.0, MOST_WORTH), (1.0, 1.5)
_JUDGED_WITH = (0.1, 1.0), (0.25, 1.25), (0.4, 1.25), (0.4, 1.5)
#: Scores divided by this are log odds, in training.
_DRAW = 12.0
JobSet = tuple[ResourceHistory, ...]
#: At a decision: [action tried, INPUTS], and for each its gain to the end of the episode minus their mean.
Moment = tuple[np.ndarray, np.ndarray]
#: Decisions that are kept, the newest, and how many of them a step learns from.
_MOST_MOMENTS, _AT_A_TIME = 2_500, 64


@dataclass(frozen=True, slots=True)
class Settings:
    """`sets` job sets of `jobs` jobs, in turn of each workload of the thesis; `batch` are played in an iteration. The
    fraction `looked_at` of the decisions is learned from, with `tried` actions each. A decision considers `slots`
    waiting jobs and places at most `together` of them at once."""

    policy: str
    profile: Profile
    slots: int = 24
    together: int = 2
    stretch: float = 1.75
    sets: int = 50
    jobs: int = JOBS
    iterations: int = 40
    batch: int = 5
    tried: int = 8
    looked_at: float = 0.5
    hidden: tuple[int, ...] = (64, 32)
    learning_rate: float = 1e-3
    steps: int = 30
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    iteration: int
    of: int
    training: float  # mean objective of the iteration's episodes: lower is better
    validation: float | None  # of the best actions on the validation sets, where it was evaluated
    cpu_s: float


def job_sets(first_seed: int, count: int, jobs: int) -> list[JobSet]:
    names = list(WORKLOADS)
    found = []
    for number in range(count):
        made = make_workload(names[number % len(names)], first_seed + number, jobs)
        found.append(tuple(job.history for job in made if job.history is not None))
    return found


def set_hash(sets: Sequence[JobSet]) -> str:
    """SHA-256 of all histories of a training set."""
    text = json.dumps([[history_json(history) for history in one] for one in sets], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def train(settings: Settings, out: Path, tell: Callable[[Progress], None]) -> Model:
    """Write the model to `out`. If a partial file of the same settings exists, training continues from it."""
    trainer = Trainer(settings, out.with_name(out.name + ".partial"))
    for progress in trainer.steps():
        tell(progress)
    model = trainer.best_model()
    save(model, out)
    trainer.partial.unlink(missing_ok=True)
    return model


class Trainer:
    def __init__(self, settings: Settings, partial: Path) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(settings.seed)
        self.settings, self.partial = settings, partial
        sets = job_sets(FIRST_TRAINING_SEED, settings.sets, settings.jobs)
        self.hash = set_hash(sets)
        self.sets = [self._usages(one) for one in sets]
        others = job_sets(FIRST_VALIDATION_SEED, _VALIDATION_SETS, settings.jobs)
        self.validation = [self._usages(one) for one in others]
        wide = (INPUTS, *settings.hidden, 1)
        layers: list[nn.Module] = []
        for n, (into, out) in enumerate(pairwise(wide)):
            layers += [nn.Linear(into, out), *([nn.ReLU()] if n < len(wide) - 2 else [])]
        for last in layers[-1].parameters():
            nn.init.zeros_(last)  # it starts with the immediate gain
        self.network = nn.Sequential(*layers)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.tried: list[Moment] = []
        self.done, self.cpu_s = 0, 0.0
        self.best, self.best_at = self._parameters(), (float("inf"), 0)
        self._resume()

    def _usages(self, one: JobSet) -> list[Usage]:
        return [usage_of(history, self.settings.profile) for history in one]

    def steps(self) -> Iterator[Progress]:
        settings = self.settings
        if not self.done:
            begun = time.process_time()
            self.validate()  # the baseline: the immediate gain alone
            self.cpu_s += time.process_time() - begun
        while self.done < settings.iterations:
            begun = time.process_time()
            objective = self._iterate()
            self.done += 1
            checked = self.done % _CHECK_EVERY == 0 or self.done == settings.iterations
            found = self.validate() if checked else None
            self.cpu_s += time.process_time() - begun
            if checked:
                self._keep()
            yield Progress(self.done, settings.iterations, objective, found, self.cpu_s)

    def _iterate(self) -> float:
        rng = np.random.default_rng([self.settings.seed, self.done])
        model = self.model()
        best = _best_of(model)
        costs = list[float]()
        for number in range(self.settings.batch):
            jobs = self.sets[(self.done * self.settings.batch + number) % len(self.sets)]
            rules = self._rules(float(rng.uniform(*_WORTHS)), float(rng.uniform(*_OVERSUBSCRIPTIONS)))

            def draw(episode: Episode, sight: Sight, rules: Rules = rules) -> int:
                scores = model.scores(sight.inputs)
                if rng.random() < self.settings.looked_at:
                    places = np.argsort(-scores, kind="stable")[: self.settings.tried]
                    earned = np.array([-_played(episode, sight, place, best, rules) for place in places])
                    self.tried.append((sight.inputs[places], earned - earned.mean()))
                return int(rng.choice(len(scores), p=_softmax(_DRAW * scores)))

            played = play(Episode.of([jobs[n] for n in rng.permutation(len(jobs))]), draw, rules)
            costs.append(cost(played, rules.unslowed_worth))
        del self.tried[:-_MOST_MOMENTS]
        for _ in range(self.settings.steps if self.tried else 0):
            some = rng.choice(len(self.tried), min(len(self.tried), _AT_A_TIME), replace=False)
            self.fit([self.tried[n] for n in some])
        return float(np.mean(costs))

    def _rules(self, worth: float, oversubscription: float) -> Rules:
        bounds = Bounds(self.settings.stretch, oversubscription)
        return Rules(Choices(self.settings.slots, self.settings.together), bounds, worth)

    def fit(self, moments: Sequence[Moment]) -> None:
        """One step: fit scores to the gains of the actions."""
        inputs = torch.from_numpy(np.concatenate([seen for seen, _ in moments]))
        wanted = torch.from_numpy(np.concatenate([earned for _, earned in moments]).astype(np.float32))
        of = torch.from_numpy(np.repeat(np.arange(len(moments)), [len(earned) for _, earned in moments]))
        scores = inputs[:, SAVED] - inputs[:, PRICE] + self.network(inputs)[:, 0]
        means = torch.zeros(len(moments)).index_add(0, of, scores) / torch.bincount(of)
        loss = ((scores - means[of] - wanted) ** 2).mean()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()

    def validate(self) -> float:
        """The mean cost on the validation sets; the best parameters so far are kept."""
        best = _best_of(self.model())
        costs = [
            cost(play(Episode.of(jobs), best, self._rules(worth, oversubscription)), worth)
            for worth, oversubscription in _JUDGED_WITH
            for jobs in self.validation
        ]
        found = float(np.mean(costs))
        if found < self.best_at[0]:
            self.best, self.best_at = self._parameters(), (found, self.done)
        return found

    def _parameters(self) -> list[np.ndarray]:
        return [parameter.detach().numpy().copy() for parameter in self.network.parameters()]

    def model(self) -> Model:
        """The present model."""
        return self._model(self._parameters(), {})

    def _model(self, arrays: Sequence[np.ndarray], header: dict[str, Any]) -> Model:
        layers = [(weights.T, biases) for weights, biases in zip(arrays[::2], arrays[1::2], strict=True)]
        return Model(layers, {"slots": self.settings.slots, "together": self.settings.together, **header})

    def best_model(self) -> Model:
        arrays = [np.ascontiguousarray(array) for array in self.best]
        header = {
            "schema": SCHEMA,
            "policy": self.settings.policy,
            "profile": self.settings.profile,
            "settings": {**asdict(self.settings), "hidden": list(self.settings.hidden)},
            "training_set_sha256": self.hash,
            "validation": self.best_at[0],
            "iteration": self.best_at[1],
            "cpu_s": round(self.cpu_s, 1),
        }
        model = self._model(arrays, header)
        return Model([(np.ascontiguousarray(weights), biases) for weights, biases in model.layers], model.header)

    # Partial files ------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Save the state, replacing the previous one; random draws depend on the iteration only."""
        state = self.optimiser.state_dict()["state"]
        arrays: dict[str, Any] = {f"p{n}": p.detach().numpy() for n, p in enumerate(self.network.parameters())}
        for n, moments in state.items():
            arrays |= {f"m{n}": moments["exp_avg"].numpy(), f"v{n}": moments["exp_avg_sq"].numpy()}
            arrays[f"t{n}"] = moments["step"].numpy()
        arrays |= {f"best{n}": array for n, array in enumerate(self.best)}
        arrays["sizes"] = np.array([len(earned) for _, earned in self.tried], dtype=int)
        if self.tried:
            arrays |= dict(zip(("seen", "earned"), map(np.concatenate, zip(*self.tried, strict=True)), strict=True))
        header = {**self._identity(), "done": self.done, "cpu_s": self.cpu_s, "best_at": list(self.best_at)}
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        fresh = self.partial.with_name(self.partial.name + ".new")
        with fresh.open("wb") as file:
            np.savez(file, allow_pickle=False, header=text, **arrays)
        fresh.replace(self.partial)

    def _identity(self) -> dict[str, Any]:
        return {"settings": json.loads(json.dumps(asdict(self.settings))), "training_set_sha256": self.hash}

    def _resume(self) -> None:
        if not self.partial.is_file():
            return
        if self.partial.stat().st_size > 32 * LARGEST_BYTES:
            raise InvalidInput(f"{self.partial}: it is larger than a model in training can be")
        try:
            with np.load(self.partial, allow_pickle=False) as arrays:
                self._restore(arrays)
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise InvalidInput(f"{self.partial}: training cannot go on from it ({error}); remove it") from None

    def _restore(self, arrays: Any) -> None:
        header = json.loads(arrays["header"].tobytes().decode())
        mine = self._identity()
        changed = [
            key
            for key, value in mine["settings"].items()
            if key != "iterations" and header["settings"].get(key) != value
        ]
        if changed or header["training_set_sha256"] != self.hash:
            what = ", ".join(changed) or "another training set"
            raise ValueError(f"it was begun with other settings: {what}")
        parameters = list(self.network.parameters())
        with torch.no_grad():
            for n, parameter in enumerate(parameters):
                parameter.copy_(torch.from_numpy(arrays[f"p{n}"]))
        if "m0" in arrays:
            state = self.optimiser.state_dict()
            state["state"] = {
                n: {
                    "step": torch.from_numpy(arrays[f"t{n}"]),
                    "exp_avg": torch.from_numpy(arrays[f"m{n}"]),
                    "exp_avg_sq": torch.from_numpy(arrays[f"v{n}"]),
                }
                for n in range(len(parameters))
            }
            self.optimiser.load_state_dict(state)
        if len(arrays["sizes"]):
            ends = np.cumsum(arrays["sizes"])[:-1]
            self.tried = list(zip(np.split(arrays["seen"], ends), np.split(arrays["earned"], ends), strict=True))
        self.best = [arrays[f"best{n}"] for n in range(len(parameters))]
        self.best_at = (float(header["best_at"][0]), int(header["best_at"][1]))
        self.done, self.cpu_s = int(header["done"]), float(header["cpu_s"])


def _best_of(model: Model) -> Choose:
    return lambda _, sight: int(np.argmax(model.scores(sight.inputs)))


def _played(episode: Episode, sight: Sight, place: int, choose: Choose, rules: Rules) -> float:
    """The cost of the episode after this action."""
    other = episode.copy()
    other.act(rules, int(sight.actions[place]))
    return cost(play(other, choose, rules), rules.unslowed_worth)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(float) - scores.max())
    return np.asarray(weights / weights.sum())
