"""The simulator: production rounds under SimPy's clock. Used by `manage.py simulate` and the policy lab."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from scheduling.errors import InvalidParameters
from scheduling.policies import POLICIES, load_policy
from scheduling.policies.base import Policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.report import summarise
from scheduling.simulator.trace import Cluster, TraceJob

__all__ = ["Options", "Simulation", "parse_policy", "run_policy", "simulate"]


@dataclass(frozen=True, slots=True)
class Simulation:
    result: dict[str, Any]
    outcome: Outcome


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """`name:key=value,key=value` as name and parameters; raises InvalidParameters."""
    name, _, rest = text.partition(":")
    if name not in POLICIES:
        raise InvalidParameters({"policy": f"{name!r} is none of {', '.join(sorted(POLICIES))}"})
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidParameters({name: f"{item!r} is not of the form key=value"})
        values[key.strip()] = yaml.safe_load(value)
    return name, values


def simulate(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> dict[str, Any]:
    """One entry of `results`. Same seed, same values, `wall_s` aside."""
    return run_policy(jobs, cluster, name, parameters, options or Options(seed)).result


def run_policy(
    jobs: Sequence[TraceJob], cluster: Cluster, name: str, parameters: Mapping[str, Any] | None, options: Options
) -> Simulation:
    """One policy on a trace, with all that tables of jobs and plots are made from."""
    policy: Policy = load_policy(name, dict(parameters or {}))
    start = time.perf_counter()
    outcome = Engine(jobs, cluster, policy, options=options).run()
    result = {
        "policy": name,
        "parameters": policy.parameters.model_dump(mode="json"),
        "given": dict(parameters or {}),
        **summarise(outcome, cluster),
        "wall_s": time.perf_counter() - start,
    }
    return Simulation(result, outcome)
