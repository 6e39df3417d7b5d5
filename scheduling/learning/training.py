"""Training of a placement model: policy gradient with a baseline, on job sets of the synthetic workloads.

For each iteration one job set is played `episodes` times with actions drawn from the policy; theta moves along
sum grad log pi(s_t, a_t) (v_t - b_t), v_t the return from t on and b_t its mean over the episodes at that time. This is
DeepRM's form (Mao et al., HotNets 2016, section 3.3). The thesis prints (q_t - v_t), which has the sign of the return
reversed, takes the arg max in training too, and defines no reward: here actions are drawn in training and the arg max
is used afterwards, and the reward is minus the sum over jobs in the system of 1/T_j per second (mean slowdown), to
which are added, with more weight, the makespan and how many jobs crowd each other, as the profiles alone have them.
What it is worth to leave a job alone is drawn anew for each job set and shown to the network, so that one network
serves every wish. The network's part of an action's score is what comes of it; what it earns at once is known.
Same settings, same seed, same machine: the same model.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from scheduling.errors import InvalidInput
from scheduling.histories import ResourceHistory, history_json
from scheduling.learning.emulator import Decision, Episode, costs, play, returns
from scheduling.learning.images import INPUTS, MOST_WORTH, PRICE, SAVED, Choices, Profile, Sight, Usage, usage_of
from scheduling.learning.network import AT_ONCE, LARGEST_BYTES, SCHEMA, Model, save
from scheduling.simulator.applications import JOBS, WORKLOADS, make_workload

#: Seeds of the job sets: those of training and of choosing the best model; tests and benchmarks use those below.
FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED = 1_000_000, 2_000_000
_CHECK_EVERY = 5
_VALIDATION_SETS = 10
#: Between which the worth of an unslowed job is drawn, and with which a model is judged.
_WORTHS = 0.0, MOST_WORTH
_JUDGED_WITH = 0.1, 0.25, 0.4
JobSet = tuple[ResourceHistory, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """`sets` job sets of `jobs` jobs, in turn of each workload of the thesis; `batch` of them an iteration, each played
    `episodes` times. `slots` of those that wait are looked at, of whom at most so many are placed `together`."""

    policy: str
    profile: Profile
    slots: int = 24
    together: int = 2
    stretch: float = 1.4
    sets: int = 50
    jobs: int = JOBS
    iterations: int = 60
    batch: int = 5
    episodes: int = 10
    hidden: tuple[int, ...] = (64, 32)
    learning_rate: float = 1e-3
    entropy: float = 0.003
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    iteration: int
    of: int
    training: float  # mean objective of the iteration's episodes: less is better
    validation: float | None  # of the arg max on the validation sets, where it was looked at
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
    """Writes the model to `out`. Where `out`'s partial file of the same settings is there, training goes on from it."""
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
            nn.init.zeros_(last)  # it begins with what is earned at once
        self.network = nn.Sequential(*layers)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.done, self.cpu_s = 0, 0.0
        self.best, self.best_at = [p.detach().numpy().copy() for p in self.network.parameters()], (float("inf"), 0)
        self._resume()

    def _usages(self, one: JobSet) -> list[Usage]:
        return [usage_of(history, self.settings.profile) for history in one]

    def steps(self) -> Iterator[Progress]:
        settings = self.settings
        if not self.done:
            begun = time.process_time()
            self._validate()  # what is earned at once is to be beaten
            self.cpu_s += time.process_time() - begun
        while self.done < settings.iterations:
            begun = time.process_time()
            objective = self._iterate()
            self.done += 1
            checked = self.done % _CHECK_EVERY == 0 or self.done == settings.iterations
            found = self._validate() if checked else None
            self.cpu_s += time.process_time() - begun
            if checked:
                self._keep()
            yield Progress(self.done, settings.iterations, objective, found, self.cpu_s)

    def _iterate(self) -> float:
        rng = np.random.default_rng([self.settings.seed, self.done])
        model = self._model([p.detach().numpy() for p in self.network.parameters()], {})

        def draw(seen: Sight) -> int:
            return int(rng.choice(len(seen.actions), p=_softmax(model.scores(seen.inputs))))

        decisions: list[Decision] = []
        advantages, objectives = [], []
        for number in range(self.settings.batch):
            jobs = self.sets[(self.done * self.settings.batch + number) % len(self.sets)]
            jobs = [jobs[n] for n in rng.permutation(len(jobs))]
            worth = float(rng.uniform(*_WORTHS))
            episodes = [self._play(jobs, draw, worth) for _ in range(self.settings.episodes)]
            objectives += [_objective(one, jobs, worth) for one in episodes]
            decided = [one for one in episodes if one.decisions]
            advantages += _advantages(decided, jobs, worth)
            decisions += [decision for one in decided for decision in one.decisions]
        if decisions:
            self._learn(decisions, np.concatenate(advantages))
        return float(np.mean(objectives))

    def _play(self, jobs: Sequence[Usage], choose: Callable[[Sight], int], worth: float) -> Episode:
        choices = Choices(self.settings.slots, self.settings.together)
        return play(jobs, choose, choices, self.settings.stretch, worth)

    def _learn(self, decisions: Sequence[Decision], advantage: np.ndarray) -> None:
        advantage = advantage / (advantage.std() + 1e-8)
        sizes = np.array([len(decision.sight.actions) for decision in decisions])
        inputs = torch.from_numpy(np.concatenate([d.sight.inputs for d in decisions]))
        scores = self.network(inputs)[:, 0] + AT_ONCE * (inputs[:, SAVED] - inputs[:, PRICE])
        row = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        place = torch.from_numpy(np.concatenate([np.arange(size) for size in sizes]))
        table = torch.full((len(sizes), int(sizes.max())), -torch.inf).index_put((row, place), scores)
        logs = torch.log_softmax(table, dim=1)
        chosen = torch.tensor([decision.chosen for decision in decisions])
        taken = logs[torch.arange(len(sizes)), chosen]
        surprise = -(logs.exp() * torch.where(torch.isfinite(logs), logs, torch.zeros(()))).sum(dim=1)
        loss = -(taken * torch.from_numpy(advantage.astype(np.float32))).mean()
        loss = loss - self.settings.entropy * surprise.mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()

    def _validate(self) -> float:
        present = [p.detach().numpy().copy() for p in self.network.parameters()]
        model = self._model(present, {})

        def choose(seen: Sight) -> int:
            return int(np.argmax(model.scores(seen.inputs)))

        objectives = [
            _objective(self._play(jobs, choose, worth), jobs, worth)
            for worth in _JUDGED_WITH
            for jobs in self.validation
        ]
        found = float(np.mean(objectives))
        if found < self.best_at[0]:
            self.best, self.best_at = present, (found, self.done)
        return found

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

    # What is kept in between --------------------------------------------------------------------------

    def _keep(self) -> None:
        """The state so far, in place of the one before; what is drawn at random depends on the iteration only."""
        state = self.optimiser.state_dict()["state"]
        arrays: dict[str, Any] = {f"p{n}": p.detach().numpy() for n, p in enumerate(self.network.parameters())}
        for n, moments in state.items():
            arrays |= {f"m{n}": moments["exp_avg"].numpy(), f"v{n}": moments["exp_avg_sq"].numpy()}
        arrays |= {f"best{n}": array for n, array in enumerate(self.best)}
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
        if self.partial.stat().st_size > 8 * LARGEST_BYTES:
            raise InvalidInput(f"{self.partial}: it is larger than a model in training can be")
        try:
            with np.load(self.partial, allow_pickle=False) as arrays:
                self._restore(arrays)
        except (ValueError, KeyError, EOFError, OSError) as error:
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
        if header["done"]:
            state = self.optimiser.state_dict()
            state["state"] = {
                n: {
                    "step": torch.tensor(float(header["done"])),
                    "exp_avg": torch.from_numpy(arrays[f"m{n}"]),
                    "exp_avg_sq": torch.from_numpy(arrays[f"v{n}"]),
                }
                for n in range(len(parameters))
            }
            self.optimiser.load_state_dict(state)
        self.best = [arrays[f"best{n}"] for n in range(len(parameters))]
        self.best_at = (float(header["best_at"][0]), int(header["best_at"][1]))
        self.done, self.cpu_s = int(header["done"]), float(header["cpu_s"])


def _advantages(episodes: Sequence[Episode], jobs: Sequence[Usage], worth: float) -> list[np.ndarray]:
    """Of each episode by decision: its return less the mean of all episodes' at that time."""
    earned = [returns(one, jobs, worth) for one in episodes]
    moments = [np.array([decision.at_s for decision in one.decisions]) for one in episodes]
    return [
        mine - np.mean([_from(values, times, at_s) for values, times in zip(earned, moments, strict=True)], axis=0)
        for mine, at_s in zip(earned, moments, strict=True)
    ]


def _from(values: np.ndarray, times: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """The return of the first decision at or after each moment, 0 where there is none."""
    return np.asarray(np.append(values, 0.0)[np.searchsorted(times, at_s - 1e-6)])


def _objective(episode: Episode, jobs: Sequence[Usage], worth: float) -> float:
    """Minus the return from the start."""
    return float(costs(episode, jobs, np.zeros(1), worth)[0])


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(float) - scores.max())
    return np.asarray(weights / weights.sum())
