"""Co-placement on one GPU: the five workloads of the thesis under each policy, and how well interference is predicted.

Parts `coplacement` and `interference` of bench_packing. Job sets are of seeds that training never uses; the histories
are synthetic (scheduling.simulator.inputs.applications), interference is fitted to published pairs
(scheduling.throughput.interference)
and no policy sees it. Policies that know no histories are told each job's peaks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scheduling.policies import load_policy  # noqa: E402
from scheduling.policies.learned.dqn_gpu import DqnGpu  # noqa: E402
from scheduling.policies.learned.images import Placed, Sight, sight, usage_of  # noqa: E402
from scheduling.simulator.engine import Engine  # noqa: E402
from scheduling.simulator.inputs.applications import WORKLOADS, declared_at_peak, make_workload, one_gpu  # noqa: E402
from scheduling.throughput.interference import fit, predicted  # noqa: E402
from scheduling.throughput.published import published_table  # noqa: E402

#: USD/h of an exclusive instance and of a part of a shared one, twice, as the thesis has them.
PRICES = ((0.75, 0.602), (0.526, 0.301))
SLOWED = (0.02, 0.10, 0.20)
_SHOWN = "completion_s", "gpu", "memory"
#: Student's t, 0.975, by degrees of freedom.
_T = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045}


class RandomLegal(DqnGpu):
    """Any legal action, as likely as any other."""

    def __init__(self, seed: int, oversubscription: float) -> None:
        super().__init__(self.Parameters.model_validate({"oversubscription": oversubscription}))
        self.rng = np.random.default_rng(seed)

    def pick(self, seen: Sight) -> int:
        return int(self.rng.choice(seen.legal))


@dataclass(frozen=True)
class Row:
    makespan_s: float
    completion_s: float  # mean over jobs, all submitted at once
    gpu: float
    memory: float
    slowed: tuple[int, ...]  # jobs slowed by less than 2, 10, 20 %, and by 20 % or more, each once
    out_of_memory: int


Make = Callable[[int], Any]


#: (`unslowed_worth`, `oversubscription`) that are shown beside what each policy is delivered with. 0, 1: as DeepRM.
SETTINGS: dict[str, tuple[tuple[float, float], ...]] = {
    "deeprm_mean": ((0.0, 1.0), (0.2, 1.0), (0.4, 1.0), (0.0, 1.25), (0.2, 1.25)),
    "deeprm_max": ((0.0, 1.0), (0.2, 1.0), (0.4, 1.0), (0.0, 1.25), (0.2, 1.25)),
    "dqn_gpu": (
        *((0.0, 1.0), (0.2, 1.0), (0.4, 1.0), (0.0, 1.25), (0.15, 1.25), (0.2, 1.25), (0.35, 1.25)),
        *((0.4, 1.5), (0.56, 2.0)),
    ),
}


def _policy(name: str, **parameters: Any) -> Make:
    return lambda _: load_policy(name, parameters)


def _random(oversubscription: float) -> Make:
    return lambda seed: RandomLegal(seed, oversubscription)


CASES: dict[str, tuple[Make, bool]] = {
    "sjf_exclusive": (_policy("sjf_exclusive"), False),
    "first_fit": (_policy("first_fit"), True),
    "tetris": (_policy("tetris"), True),
    "tetris (joint)": (_policy("tetris", joint=True), True),
    "genetic": (_policy("genetic", generations=5), True),
    **{f"random {times:g}": (_random(times), False) for times in (1.0, 1.25)},
    **{name: (_policy(name), False) for name in SETTINGS},
    **{
        f"{name} {worth:g} {times:g}": (_policy(name, unslowed_worth=worth, oversubscription=times), False)
        for name, settings in SETTINGS.items()
        for worth, times in settings
    },
}


def coplacement(seeds: int, names: Sequence[str] = tuple(CASES), processes: int = 3) -> None:
    print(f"== co-placement: 30 jobs on one GPU, {seeds} job sets each; means, 95 % intervals of the makespan")
    print("   (to dqn: mean of the paired differences, dqn_gpu less the policy, with its interval)")
    every: dict[str, list[Row]] = {name: [] for name in names}
    for workload, found in _played(names, range(seeds), processes):
        _table(workload, found)
        for name in names:
            every[name] += found[name]
    print("-- all workloads together")
    _settings(every)
    _decisions()
    for name in SETTINGS:
        header = load_policy(name).model.header  # type: ignore[attr-defined]
        size = (ROOT / "scheduling" / "policies" / "models" / f"{name}.npz").stat().st_size
        mark = header["training_set_sha256"][:12]
        print(f"   {name}: trained in {header['cpu_s']:.0f} CPU s, {size:,} bytes, set {mark}")


#: What the learner is to beat, and the first of the job sets that no setting was chosen by.
TO_BEAT, NOT_CHOSEN_BY = ("random 1", "deeprm_mean 0 1", "deeprm_max 0 1"), 130


def ahead(sets: int, processes: int = 3) -> None:
    seeds = range(NOT_CHOSEN_BY, NOT_CHOSEN_BY + sets)
    print(f"== co-placement: the learner less what it is to beat, job sets {seeds[0]} to {seeds[-1]} of each workload")
    names = ("dqn_gpu", "dqn_gpu 0.56 2", *TO_BEAT)
    every: dict[str, list[Row]] = {name: [] for name in names}
    for _, found in _played(names, seeds, processes):
        for name in names:
            every[name] += found[name]
    _settings(every)
    memory = sum(row.out_of_memory for name in names[:2] for row in every[name])
    print(f"   {memory} of the learner's jobs ran out of memory in {2 * len(every[names[0]]):,} runs")


def _played(names: Sequence[str], seeds: range, processes: int) -> Iterator[tuple[str, dict[str, list[Row]]]]:
    asked = [(name, workload, seed) for workload in WORKLOADS for name in names for seed in seeds]
    with ProcessPoolExecutor(processes) as pool:
        rows = pool.map(run, *zip(*asked, strict=True))
        for workload in WORKLOADS:
            yield workload, {name: [next(rows) for _ in seeds] for name in names}


def run(name: str, workload: str, seed: int) -> Row:
    make, peaks = CASES[name]
    jobs = make_workload(workload, seed)
    engine = Engine([declared_at_peak(job) for job in jobs] if peaks else jobs, one_gpu(), make(seed))
    outcome = engine.run()
    slow = [(one.finished_at or 0.0) - (one.started_at or 0.0) for one in outcome.runs]
    ratios = np.array([seconds / one.job.total_steps - 1 for seconds, one in zip(slow, outcome.runs, strict=True)])
    counts = np.histogram(ratios, [-1.0, *SLOWED, np.inf])[0]
    end = outcome.end
    usage = outcome.usage
    completion_s = float(np.mean([np.nan if one.finished_at is None else one.finished_at for one in outcome.runs]))
    used = usage.gpu_s / end, usage.memory_s / end
    return Row(end, completion_s, *used, tuple(int(n) for n in counts), usage.out_of_memory)


def _table(workload: str, found: dict[str, list[Row]]) -> None:
    print(f"-- {workload}")
    print(f"{'':20} makespan s          to dqn s          completed  GPU  mem.  slowed <2%  <10  <20  more  "
          "unslowed to dqn  oom  training  cost: price 1, 2; with run time 1, 2")  # fmt: skip
    dqn, sjf = found.get("dqn_gpu"), found.get("sjf_exclusive")
    for name, rows in found.items():
        spans = np.array([row.makespan_s for row in rows])
        counts = np.mean([row.slowed for row in rows], axis=0)
        line = f"{name:20} {_interval(spans):18}"
        more = ""
        if dqn:
            line += f" {_interval(np.array([row.makespan_s for row in dqn]) - spans):18}"
            unslowed = [one.slowed[0] - other.slowed[0] for one, other in zip(dqn, rows, strict=True)]
            more = _interval(np.array(unslowed, dtype=float), 1)
        mean_s, gpu, memory = (float(np.mean([getattr(row, what) for row in rows])) for what in _SHOWN)
        oom = np.mean([row.out_of_memory for row in rows])
        line += f" {mean_s:9,.0f} {gpu:4.0%} {memory:5.0%} {counts[0]:10.1f}"
        line += f" {counts[1]:5.1f} {counts[2]:4.1f} {counts[3]:5.1f}  {more:15}"
        line += f" {oom:5.1f} {_training(name, float(spans.mean())):8.1%}"
        if sjf and name != "sjf_exclusive":
            ratio = float(np.mean(spans / np.array([row.makespan_s for row in sjf])))
            line += "  " + ", ".join(f"{shared / alone - 1:+.1%}" for alone, shared in PRICES)
            line += "; " + ", ".join(f"{ratio * shared / alone - 1:+.1%}" for alone, shared in PRICES)
        print(line, flush=True)
    _settings(found)


def _settings(found: dict[str, list[Row]]) -> None:
    """Beside each that is to be beaten, every setting: makespan, jobs left unslowed; mean paired differences."""
    for name in (one for one in found if one.startswith(("random", "deeprm"))):
        for setting in (one for one in found if one.startswith("dqn_gpu")):
            pairs = list(zip(found[setting], found[name], strict=True))
            spans = np.array([mine.makespan_s - other.makespan_s for mine, other in pairs])
            alone = np.array([mine.slowed[0] - other.slowed[0] for mine, other in pairs], dtype=float)
            print(f"   {setting:16} to {name:20} {_interval(spans):14} s, unslowed {_interval(alone, 1)}", flush=True)


def _training(name: str, makespan_s: float) -> float:
    """Part of the time until all jobs are done, if the training is for them alone."""
    learned = name.split()[0]
    if learned not in SETTINGS:
        return 0.0
    seconds = float(load_policy(learned).model.header["cpu_s"])  # type: ignore[attr-defined]
    return seconds / (seconds + makespan_s)


def _interval(values: np.ndarray, digits: int = 0) -> str:
    half = _T.get(len(values) - 1, 1.96) * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():,.{digits}f} ± {half:,.{digits}f}"


def _decisions() -> None:
    """One look at a device that three jobs share, with full slots."""
    policy = DqnGpu()
    model, wishes = policy.model, (policy.bounds, policy.parameters.unslowed_worth, 100.0)
    rng, seconds = np.random.default_rng(0), []
    for seed in range(100):
        usages = [usage_of(job.history, "series") for job in make_workload("memory_light", seed) if job.history]
        placed = [Placed(usage, usage.duration_s * rng.random()) for usage in usages[:3]]
        begun = time.perf_counter()
        waiting = [Placed(usage) for usage in usages[3 : 3 + model.choices.slots]]
        seen = sight(placed, waiting, 20, model.choices, *wishes)
        model.scores(seen.inputs)
        seconds.append(time.perf_counter() - begun)
    ms = 1e3 * np.array(seconds)
    print(f"   one decision of dqn_gpu: {np.median(ms):.2f} ms, 95th percentile {np.percentile(ms, 95):.2f} ms")


def interference(seeds: int = 10) -> None:
    """A fifth of the measured pairs of each type hidden, `seeds` times."""
    print("== interference: mean absolute error of the share that a program keeps beside another, hidden pairs")
    for kind in published_table().types:
        kept = published_table().retained(kind, 1)
        model, mean = [], []
        for seed in range(seeds):
            hidden = np.random.default_rng(seed).random(kept.shape) < 0.2
            test, known = hidden & np.isfinite(kept) & (kept > 0), ~hidden & np.isfinite(kept) & (kept > 0)
            guess = predicted(*fit(np.where(hidden, np.nan, kept)))
            model.append(float(np.abs(guess - kept)[test].mean()))
            mean.append(float(np.abs(kept[known].mean() - kept)[test].mean()))
        print(f"   {kind}: {np.mean(model):.3f} (of the mean of all: {np.mean(mean):.3f})")
