"""The simulator: production rounds under SimPy's clock. Used by `manage.py simulate` and the policy lab."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.yaml_loader import YamlProblem, load

from scheduling.errors import InvalidParameters
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.base import Policy, parse_parameters
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.output.report import summarise
from scheduling.validation import hint_at

__all__ = ["Options", "Simulation", "parse_policy", "run_policy", "simulate"]


@dataclass(frozen=True, slots=True)
class Simulation:
    result: dict[str, Any]
    outcome: Outcome


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """Parse `name:key=value,key=value` into name and parameters, checked by that policy; raises InvalidParameters."""
    name, _, rest = text.partition(":")
    if name not in POLICIES:
        raise InvalidParameters({"policy": f"{name!r} is none; {hint_at(name, sorted(POLICIES))}"})
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, value = _setting(name, item)
        if key in values:
            raise InvalidParameters({name: f"{key} is given twice"})
        values[key] = value
    _check(name, values, hint=_COMMAS if ":" in rest else "")
    return name, values


_COMMAS = "; parameters are separated by commas, as in name:key=value,key=value"


def _setting(name: str, item: str) -> tuple[str, Any]:
    key, equals, text = item.partition("=")
    if not equals:
        raise InvalidParameters({name: f"{item!r} is not of the form key=value{_COMMAS}"})
    try:
        value = load(text)
    except YamlProblem:
        raise InvalidParameters({name: f"{item!r} has a value that cannot be read{_COMMAS}"}) from None
    if ":" in text and re.fullmatch(r"[-+0-9.:]+", text):
        raise InvalidParameters({name: f"{item!r} is no number{_COMMAS}"})
    return key.strip(), value


def _check(name: str, values: dict[str, Any], hint: str) -> None:
    """Checked first, so that all parameters are valid before anything is simulated."""
    try:
        parse_parameters(policy_class(name).Parameters, values)
    except InvalidParameters as error:
        raise InvalidParameters({name: f"{error}{hint}"}) from None


def simulate(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> dict[str, Any]:
    """One entry of `results`. Same seed, same values, except for `wall_s`."""
    return run_policy(jobs, cluster, name, parameters, options or Options(seed)).result


def run_policy(
    jobs: Sequence[TraceJob], cluster: Cluster, name: str, parameters: Mapping[str, Any] | None, options: Options
) -> Simulation:
    """Simulate one policy on a trace, and collect the data for tables of jobs and plots."""
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
