"""The specification of a rollout, validated together with its policy."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, model_validator

from accounts.models import User
from portal.cluster.policy import checked_policy
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.fields import OneLine
from portal.lab.models import Simulation, Trial
from portal.lab.selectors import visible_simulations
from portal.rollouts.bounds import Guard
from scheduling.errors import InvalidParameters
from scheduling.policies import POLICIES
from scheduling.simulator.output.report import label


class RolloutWish(Guard):
    mode: Literal["shadow", "live"] = Field("shadow", description="Beside the live policy first, or at once in force.")
    trial: UUID | None = Field(None, description="A finished candidate of a simulation: its policy, and a prediction.")
    policy: Annotated[str, Field(max_length=60), OneLine] | None = Field(None, description="Where there is no trial.")
    parameters: dict[str, Any] = Field({}, max_length=100)

    @model_validator(mode="after")
    def _one(self) -> RolloutWish:
        if (self.trial is None) == (self.policy is None):
            raise ValueError("trial: give either a trial or a policy")
        if self.trial is not None and self.parameters:
            raise ValueError("parameters: are the trial's own")
        return self


class Promotion(Guard):
    """The bounds given for the shadow may be changed until the promotion."""


def access_trial(user: User, key: UUID) -> Trial:
    """A finished trial of a simulation that the user may see. Raises Problems naming `trial`."""
    mine = visible_simulations(user).values("pk")
    found = Trial.objects.filter(pk=key, simulation__in=mine, packed__isnull=False).first()
    if found is None:
        raise Problems([FieldProblem("trial", "is no finished trial of a simulation", "unknown")])
    return found


def policy_of(wish: RolloutWish, trial: Trial | None) -> tuple[str, dict[str, Any], str]:
    """(policy, all its parameters, label). Raises Problems by field."""
    if trial is not None:
        name, given, said = trial.policy, trial.given, trial.label
        parameters = trial.parameters
    else:
        name, parameters = wish.policy or "", wish.parameters
        given, said = parameters, ""
    if name not in POLICIES:
        raise Problems([FieldProblem("policy", f"is no policy; there are {', '.join(POLICIES)}", "unknown")])
    try:
        policy = checked_policy(name, parameters)
    except InvalidParameters as error:
        named = [FieldProblem(f"parameters.{key}", text, "invalid") for key, text in error.problems.items()]
        raise Problems(named) from None
    said = said or label({"policy": name, "given": given})
    return name, policy.parameters.model_dump(mode="json"), said[:300]


def simulation_of(trial: Trial | None) -> Simulation | None:
    return Simulation.objects.defer("inputs").get(pk=trial.simulation_id) if trial else None
